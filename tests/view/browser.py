"""Opens pages in headless Chromium: no console error, no request, text shown literally, the pickers work.
Saves screenshots on desktop and phone width, light and dark. Run by hand: needs PyPI's playwright and a Chromium.

usage: browser.py OUTPUT_FOLDER PAGE.html...
"""
import json
import pathlib
import re
import sys

from playwright.sync_api import sync_playwright

SIZES = {"desktop": (1280, 900), "phone": (360, 740)}


def embedded(file):
    text = file.read_text()
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S).group(1))


def check(page, file, problems):
    data = embedded(file)
    shown = page.locator("#strip button").all_text_contents()
    if shown != data["labels"]:
        problems.append(f"labels differ: {shown[:8]} ...")
    if page.locator("script").count() != 2:
        problems.append("the text made an element")
    if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
        problems.append("the page scrolls sideways")
    chosen = page.locator('#strip [aria-checked="true"]')
    before = chosen.get_attribute("data-token")
    chosen.focus()
    page.keyboard.press("ArrowRight")
    if page.locator('#strip [aria-checked="true"]').get_attribute("data-token") == before and len(data["queries"]) > 1:
        problems.append("the right arrow chooses no other token")
    page.keyboard.press("ArrowLeft")
    heading = page.locator("#map-heading").text_content()
    page.locator("#grid").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowUp")
    if len(data["cells"]) > 1 and page.locator("#map-heading").text_content() == heading:
        problems.append("the arrows choose no other head")
    if len(data["layerIds"]) > 1:
        page.locator("#layer").select_option("-1")
        if "mean" not in page.locator("#map-heading").text_content():
            problems.append("no mean over the layers")
    page.locator("#map").focus()
    page.keyboard.press("ArrowRight")
    if "\u2192" not in page.locator("#spoken").text_content():
        problems.append("the map's arrows say nothing")
    page.locator("#follow").check()
    page.locator("#map").scroll_into_view_if_needed()
    box = page.locator("#map").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + box["height"] * 0.6)
    if page.locator("#tip").is_hidden():
        problems.append("no tip on the map")
    page.mouse.move(0, 0)


def visit(browser, file, folder, size, scheme):
    problems = []
    width, height = SIZES[size]
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
    page.on("console", lambda message: problems.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: problems.append(f"error: {error}"))
    address = file.resolve().as_uri()
    page.on("request", lambda request: request.url == address or request.url == "data:,"
            or problems.append(f"request: {request.url}"))
    page.goto(address)
    page.screenshot(path=folder / f"{file.stem}-{size}-{scheme}.png", full_page=True)
    check(page, file, problems)
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
