"""Pages as the built command writes them, opened in headless Chromium.

Screenshots of each page stay in build/screenshots: desktop and phone width, light and dark.
"""
import pathlib
import subprocess

import pytest
from playwright.sync_api import sync_playwright

ROOT = pathlib.Path(__file__).parents[2]
COMMAND = ROOT / "build" / "qkv"
SCREENSHOTS = ROOT / "build" / "screenshots"
SIZES = {"desktop": (1280, 900), "phone": (360, 740)}


@pytest.fixture(scope="session")
def browser():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def written(tmp_path_factory):
    """written(name, command, arguments): the page that the command writes, once."""
    folder, pages = tmp_path_factory.mktemp("pages"), {}

    def write(name, *arguments):
        if name not in pages:
            assert COMMAND.exists(), f"{COMMAND} is not there: make build"
            pages[name] = folder / f"{name}.html"
            subprocess.run([COMMAND, *arguments, "--output", pages[name]], check=True, capture_output=True)
        return pages[name]

    return write


class Visit:
    """A page in a window: what it logs or asks for beside itself is in `problems`."""

    def __init__(self, browser, file, size, scheme):
        width, height = SIZES[size]
        self.problems = []
        self.page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
        self.page.on("console", lambda message: self.problems.append(f"console: {message.text}"))
        self.page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        address = file.resolve().as_uri()
        self.page.on("request", lambda request: request.url in (address, "data:,")
                     or self.problems.append(f"request: {request.url}"))
        self.page.goto(address)
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{file.stem}-{size}-{scheme}.png", full_page=True)


@pytest.fixture(params=[(size, scheme) for size in SIZES for scheme in ("light", "dark")], ids="-".join)
def visit(browser, request):
    """visit(file): opens it; when the test is over, nothing may have been logged, asked for or wider than the window."""
    visits = []

    def open_page(file):
        visits.append(Visit(browser, file, *request.param))
        return visits[-1].page

    yield open_page
    for one in visits:
        wide = one.page.evaluate("document.documentElement.scrollWidth > innerWidth")
        one.page.close()
        assert one.problems == []
        assert not wide, "the page scrolls sideways"
