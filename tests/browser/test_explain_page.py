"""The page of `qkv explain`: formulas that are set as formulas and can be read on a phone."""
import pytest

CHICKEN = "The chicken didn't cross the road because it was too tired"
CUT = "The chicken didn\u2019t cross the road because it"
PAGES = {
    "explain-simplified": [CHICKEN, "--token", "it", "--level", "simplified"],
    "explain-head": [CHICKEN, "--token", "it", "--layer", "5", "--head", "11"],
    "explain-multi-head": [CHICKEN, "--token", "it", "--layer", "5", "--level", "multi-head"],
    "explain-causal": ["your journey starts with <b>one</b> step", "--d-in", "6", "--d-out", "4", "--heads", "2",
                       "--dropout", "0.5", "--seed", "1"],
    "explain-decoder": [CUT, "--token", "it", "--model", "smollm2", "--layer", "13", "--head", "8"],
}
LEAST_LETTER = 11  # CSS pixels: an index at two thirds of a letter is still told apart
FORMULAS = """[...document.querySelectorAll('.formulas math')].map((math) => ({
    text: math.textContent, width: math.getBoundingClientRect().width, height: math.getBoundingClientRect().height,
    size: Math.min(...[...math.querySelectorAll('mi')].map((mi) => parseFloat(getComputedStyle(mi).fontSize))),
    hidden: math.parentElement.scrollWidth - math.parentElement.clientWidth}))"""
# What is above ends where what is below begins.
FRACTIONS = """[...document.querySelectorAll('mfrac')].every((f) =>
    f.children[0].getBoundingClientRect().bottom <= f.children[1].getBoundingClientRect().top + 2)"""


@pytest.mark.parametrize("name", PAGES)
def test_explain_page(name, written, visit):
    page = visit(written(name, "explain", *PAGES[name]))
    assert page.locator("script").count() == 0
    assert page.locator("b").count() == 0, "the text made an element"
    formulas = page.evaluate(FORMULAS)
    assert len(formulas) >= 4
    for formula in formulas:
        assert min(formula["height"], formula["width"]) >= 12 and formula["size"] >= LEAST_LETTER, formula
        assert formula["hidden"] <= 0, formula
    assert page.evaluate(FRACTIONS), "a fraction is not set as one"
