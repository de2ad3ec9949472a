"""The rendered site: docstrings stand there whole, pages have neighbours, search finds the right page first."""

from __future__ import annotations

import html
import importlib
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import warpalign
from docs_code import ROOT, locked, python_blocks

pytest.importorskip("mkdocs", reason="the site needs Python 3.11")

from docs_hooks import NOTEBOOKS, STAMP, inputs_key  # noqa: E402  (needs mkdocs)

SITE = ROOT / "build" / "site"
REFERENCE = ROOT / "docs" / "reference"


@pytest.fixture(scope="module")
def site() -> Path:
    """The site of these sources: that of `make docs`, or built here."""
    with locked(SITE.with_name("site-of-tests")):
        stamp = SITE / STAMP
        if not stamp.exists() or stamp.read_text() != inputs_key():
            done = subprocess.run(
                [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"],
                cwd=ROOT,
                env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT / "python")},
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr
    return SITE


def text_of(markup: str) -> str:
    """What a reader sees, without spaces."""
    return re.sub(r"[\s*]+", "", html.unescape(re.sub(r"<[^>]+>", "", markup)))


def said(docstring: str) -> list[str]:
    """The lines of a docstring as a reader should see them, without spaces, and without what becomes layout."""
    docstring = re.sub(r":\w+:`~?([^`]+)`", r"\1", docstring)
    lines = []
    for line in docstring.splitlines():
        line = re.sub(
            r"^ *(\**[\w, *]+|\w+Error[\w, ]*): ", "", line
        )  # of an argument or an error: a cell of its own
        line = re.sub(r"^[-* ]+ |[`*]", "", line.strip())
        if line and line[-1:] != ":" and not line.startswith("|"):
            lines.append(re.sub(r"\s+", "", line))
    return lines


def documented() -> list[tuple[str, str]]:
    """(page, object) of every object that the reference shows."""
    found = []
    for page in sorted(REFERENCE.glob("*.md")):
        for name, options in re.findall(r"^::: ([\w.]+)\n(    options:.*)?", page.read_text(), re.MULTILINE):
            members = re.search(r"\bmembers: \[([^\]]*)\]", options)
            found.append((page.stem, name))
            if members:
                found += [(page.stem, f"{name}.{member}") for member in members.group(1).split(", ")]
    return found


def resolved(name: str) -> object:
    module, _, rest = name.partition(".")
    found: object = importlib.import_module(module)
    for part in rest.split("."):
        found = (
            getattr(found, part)
            if hasattr(found, part)
            else importlib.import_module(f"{found.__name__}.{part}")
        )  # type: ignore[attr-defined]
    return found


@pytest.mark.parametrize(("page", "name"), documented())
def test_the_reference_shows_every_line_of_a_docstring(site: Path, page: str, name: str) -> None:
    docstring = inspect.getdoc(resolved(name))
    assert docstring, f"{name} has no docstring"
    shown = text_of((site / "reference" / f"{page}.html").read_text())
    lost = [line for line in said(docstring) if line not in shown]
    assert not lost, "\n".join(lost)


def test_examples_keep_their_prompts_and_returns_are_one_row(site: Path) -> None:
    page = (site / "reference" / "soft_dtw.html").read_text()
    assert page.count("&gt;&gt;&gt;") + page.count('class="gp"') > 5
    assert "1-⟨x,y⟩/(|x||y|)" in text_of(page)
    start = page.index("doc-section-title", page.index('id="warpalign.soft_dtw"'))
    returns = page[page.index("Returns:", start) : page.index("Raises:", start)]
    assert returns.count("<tr") == 2, "a head and one row"


def test_every_page_has_its_neighbours(site: Path) -> None:
    for page in ("getting-started", "howto/clustering", "topics/gamma", "changelog"):
        markup = (site / f"{page}.html").read_text()
        assert "md-footer__link--prev" in markup
        assert "md-footer__link--next" in markup


def test_the_gallery_shows_pictures_that_are_there(site: Path) -> None:
    markup = (site / "index.html").read_text()
    pictures = re.findall(r'<a href="([\w/-]+)\.html"><img[^>]* src="([\w/-]+\.png)"', markup)
    assert len(pictures) > 5
    for page, picture in pictures:
        assert (site / f"{page}.html").exists() and (site / picture).stat().st_size > 5000


def test_the_changelog_is_the_repositorys(site: Path) -> None:
    lines = re.findall(r"^## .*", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    shown = (site / "changelog.html").read_text()
    assert all(re.sub(r"[^\w.]", "", line) in re.sub(r"[^\w.]", "", text_of(shown)) for line in lines)


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / NOTEBOOKS).glob("*.md")), ids=lambda page: page.stem)
def test_a_notebook_holds_the_code_that_the_page_runs(site: Path, page: Path) -> None:
    contents = json.loads((site / NOTEBOOKS / f"{page.stem}.ipynb").read_text())
    assert (contents["nbformat"], contents["nbformat_minor"]) == (4, 5)
    cells = contents["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert code == [block.strip("\n") for _, block in python_blocks(page)]
    assert all(
        set(cell) == {"cell_type", "id", "metadata", "source"}
        for cell in cells
        if cell["cell_type"] == "markdown"
    )
    assert len({cell["id"] for cell in cells}) == len(cells)
    words = "".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    assert next(
        line for line in page.read_text().splitlines() if line.startswith("# ")
    ) in words and "](" not in re.sub(r"\]\(https?:", "", words)
    assert f"{page.stem}.ipynb" in (site / NOTEBOOKS / f"{page.stem}.html").read_text()


# The site's own search, out of the browser: the worker's messages are {type, data}, 0 sets it up, 2 asks, 3 answers.
SEARCH = """
const fs = require("fs"), [worker, index, ...queries] = process.argv.slice(2);
global.self = global;
global.importScripts = () => {};
global.addEventListener = (_, listener) => { global.deliver = listener; };
global.postMessage = message => { global.answers(message); };
(0, eval)(fs.readFileSync(worker, "utf8"));
const ask = data => new Promise(resolve => { global.answers = resolve; global.deliver({data}); });
(async () => {
  const {config, docs} = JSON.parse(fs.readFileSync(index, "utf8"));
  await ask({type: 0, data: {config, docs, options: {suggest: false}}});
  const found = {};
  for (const query of queries) {
    const answer = await ask({type: 2, data: query});
    found[query] = answer.data.items.map(item => item[0].location);
  }
  console.log(JSON.stringify(found));
})();
"""
FIRST = {
    "install": "installation.html",
    "autocast": "getting-started.html#autocast",
    "soft_dtw": "reference/soft_dtw.html",
    "SoftDTW": "reference/soft_dtw.html",
    "cdist": "reference/pairwise.html",
    "cite": "citing.html",
    "rnnt": "reference/transducer.html",
    "ctc": "reference/ctc.html",
    "forced alignment": "howto/forced-alignment.html",
    "decode": "howto/decoding.html",
}


@pytest.mark.skipif(shutil.which("node") is None, reason="the search runs in node")
def test_search_finds_the_right_page_first(site: Path, tmp_path: Path) -> None:
    program = tmp_path / "search.js"
    program.write_text(SEARCH)
    worker = next((site / "assets" / "javascripts" / "workers").glob("search.*.min.js"))
    done = subprocess.run(
        ["node", str(program), str(worker), str(site / "search" / "search_index.json"), *FIRST],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for query, page in FIRST.items():
        assert found[query] and found[query][0].startswith(page), (query, found[query][:4])


def test_the_search_leaves_the_developer_guide_out(site: Path) -> None:
    assert (site / "developer" / "kernels" / "soft_dtw.html").exists()
    entries = json.loads((site / "search" / "search_index.json").read_text())["docs"]
    assert not [entry["location"] for entry in entries if entry["location"].startswith("developer/")]


def test_the_citation_is_of_this_version() -> None:
    citation, page = (ROOT / "CITATION.cff").read_text(), (ROOT / "docs" / "citing.md").read_text()
    assert re.search(r"^version: (.*)$", citation, re.MULTILINE).group(1) == warpalign.__version__  # type: ignore[union-attr]
    assert f"version = {{{warpalign.__version__}}}" in page
    title = re.search(r'^title: "(.*)"$', citation, re.MULTILINE).group(1)  # type: ignore[union-attr]
    assert f"title   = {{{title}}}" in page
