"""The site in Chromium: narrow screens, the dark scheme, search, copied code, and what axe-core says of accessibility.

Needs PyPI's playwright with a chromium on the PATH or its own (`playwright install chromium`), and axe-playwright-python for axe-core.
"""

from __future__ import annotations

import functools
import http.server
import shutil
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.python.core.test_site import site  # noqa: F401  (a fixture)

playwright = pytest.importorskip("playwright.sync_api", reason="a browser needs playwright")

PAGES = [
    "index.html",
    "installation.html",
    "benchmarks.html",
    "howto/ctc.html",
    "reference/transport.html",
    "cli.html",
]
FIRST = {
    "ctc": "ctc.html",
    "install": "installation.html",
    "rnnt": "reference/transducer.html",
    "autocast": "getting-started.html#autocast",
}


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves the site without a line per request."""

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:  # noqa: F811
    """Where the site is served: the search does not run from files."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as running:
        try:
            found = running.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        except playwright.Error as error:
            pytest.skip(f"no Chromium: {str(error).splitlines()[0]}")
        yield found
        found.close()


@pytest.fixture
def narrow(browser: Any) -> Iterator[Any]:
    """A page of a phone's width; it fails where the site asks for a file that is not there."""
    page = browser.new_page(viewport={"width": 390, "height": 844})
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))

    def note(answer: Any) -> None:
        if answer.status >= 400:
            faults.append(f"{answer.status} {answer.url}")

    page.on("response", note)
    yield page
    page.close()
    assert not faults


@pytest.mark.parametrize("path", PAGES)
def test_a_narrow_page_does_not_scroll_sideways(address: str, narrow: Any, path: str) -> None:
    narrow.goto(address + path)
    assert narrow.evaluate("document.scrollingElement.scrollWidth") <= 390


def test_the_dark_scheme_stays(address: str, narrow: Any) -> None:
    narrow.goto(address + "index.html")
    assert narrow.evaluate("document.body.dataset.mdColorScheme") == "default"
    narrow.locator("label[title='Dark']").click()
    for path in ("index.html", "getting-started.html"):
        narrow.goto(address + path)
        assert narrow.evaluate("document.body.dataset.mdColorScheme") == "slate"


@pytest.mark.parametrize(("query", "expected"), FIRST.items())
def test_search_shows_the_right_page_first(address: str, browser: Any, query: str, expected: str) -> None:
    page = browser.new_page()
    page.goto(address + "index.html")
    page.locator("input.md-search__input").fill(query)
    first = page.locator(".md-search-result__link").first
    first.wait_for(timeout=90_000)  # the worker indexes the site first
    found = first.get_attribute("href").partition("?")[0].removeprefix(address)
    page.close()
    assert found.endswith(expected.partition("#")[0])


def test_the_button_copies_the_code(address: str, browser: Any) -> None:
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    page = context.new_page()
    page.goto(address + "index.html")
    code = page.locator("pre code").first
    page.locator("[data-clipboard-target], .md-code__button[title='Copy to clipboard']").first.click()
    copied = page.evaluate("navigator.clipboard.readText()")
    shown = code.inner_text()
    context.close()
    assert copied.strip() == shown.strip() and "import warpalign" in copied


@pytest.mark.skipif(find_spec("axe_playwright_python") is None, reason="axe-core needs axe-playwright-python")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", PAGES)
def test_axe_finds_nothing_serious(address: str, browser: Any, path: str, scheme: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    context = browser.new_context(color_scheme=scheme)
    page = context.new_page()
    page.goto(address + path)
    page.wait_for_timeout(300)  # tables are wrapped after the page has loaded
    found = Axe().run(page).response["violations"]
    context.close()
    serious = [
        (one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in ("serious", "critical")
    ]
    assert not serious
