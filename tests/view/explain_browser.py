"""Opens pages of `qkv explain` in headless Chromium: no console error, no request, no sideways scrolling of the page,
formulas that are set and can be read. Saves screenshots on desktop and phone width, light and dark. Run by hand: needs
PyPI's playwright and a Chromium.

usage: explain_browser.py OUTPUT_FOLDER PAGE.html...
"""
import pathlib
import sys

from playwright.sync_api import sync_playwright

SIZES = {"desktop": (1280, 900), "phone": (360, 740)}
LEAST_LETTER = 11  # CSS pixels: an index at two thirds of a letter is still told apart
FORMULAS = """[...document.querySelectorAll('.formulas math')].map((math) => ({
    text: math.textContent, width: math.getBoundingClientRect().width, height: math.getBoundingClientRect().height,
    size: Math.min(...[...math.querySelectorAll('mi')].map((mi) => parseFloat(getComputedStyle(mi).fontSize))),
    hidden: math.parentElement.scrollWidth - math.parentElement.clientWidth}))"""


def check(page, problems):
    if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
        problems.append("the page scrolls sideways")
    formulas = page.evaluate(FORMULAS)
    if len(formulas) < 4:
        problems.append(f"only {len(formulas)} formulas")
    for formula in formulas:
        if formula["height"] < 12 or formula["width"] < 12 or formula["size"] < LEAST_LETTER:
            problems.append(f"too small to read: {formula}")
        if formula["hidden"] > 0:
            problems.append(f"wider than the page: {formula}")
    # Fractions are set as fractions: what is above ends where what is below begins.
    stacked = page.evaluate("""[...document.querySelectorAll('mfrac')].every((f) =>
        f.children[0].getBoundingClientRect().bottom <= f.children[1].getBoundingClientRect().top + 2)""")
    if not stacked:
        problems.append("a fraction is not set as one")


def visit(browser, file, folder, size, scheme):
    problems = []
    width, height = SIZES[size]
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
    page.on("console", lambda message: problems.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: problems.append(f"error: {error}"))
    address = file.resolve().as_uri()
    page.on("request", lambda request: request.url in (address, "data:,") or problems.append(f"request: {request.url}"))
    page.goto(address)
    page.screenshot(path=folder / f"{file.stem}-{size}-{scheme}.png", full_page=True)
    check(page, problems)
    page.close()
    return problems


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    failed = False
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        for file in map(pathlib.Path, sys.argv[2:]):
            for size in SIZES:
                for scheme in ("light", "dark"):
                    problems = visit(browser, file, folder, size, scheme)
                    failed |= bool(problems)
                    print(f"{file.name} {size} {scheme}: {'; '.join(problems) or 'ok'}")
        browser.close()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
