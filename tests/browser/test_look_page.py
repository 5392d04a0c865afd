"""The page of `qkv look`: text shown literally, and pickers that work with keys and mouse."""
import json
import re

import pytest

PAGES = {
    "look": ["look", "The chicken didn't cross the road because it was too tired", "--token", "it"],
    "look-signs": ["look", "</script><b>bold</b> & \u9e21\u4e3a\u4ec0\u4e48 \U0001f414", "--layer", "0,5"],
}


def embedded(file):
    text = file.read_text(encoding="utf-8")
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S).group(1))


@pytest.mark.parametrize("name", PAGES)
def test_look_page(name, written, visit):
    file = written(name, *PAGES[name])
    page, data = visit(file), embedded(file)
    assert page.locator("#strip button").all_text_contents() == data["labels"]
    assert page.locator("script").count() == 2, "the text made an element"

    chosen = page.locator('#strip [aria-checked="true"]')
    before = chosen.get_attribute("data-token")
    chosen.focus()
    page.keyboard.press("ArrowRight")
    moved = page.locator('#strip [aria-checked="true"]').get_attribute("data-token") != before
    assert moved or len(data["queries"]) == 1, "the right arrow chooses no other token"
    page.keyboard.press("ArrowLeft")

    heading = page.locator("#map-heading").text_content()
    page.locator("#grid").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowUp")
    assert page.locator("#map-heading").text_content() != heading, "the arrows choose no other head"
    page.locator("#layer").select_option("-1")
    assert "mean" in page.locator("#map-heading").text_content()

    page.locator("#map").focus()
    page.keyboard.press("ArrowRight")
    assert "\u2192" in page.locator("#spoken").text_content(), "the map's arrows say nothing"
    page.locator("#follow").check()
    page.locator("#map").scroll_into_view_if_needed()
    box = page.locator("#map").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + box["height"] * 0.6)
    assert page.locator("#tip").is_visible(), "no tip on the map"
