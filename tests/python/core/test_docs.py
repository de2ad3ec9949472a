"""What the documentation shows runs: the Python code of every page, the commands of the command line's, the docstrings' examples."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
import shlex
from pathlib import Path

import pytest
import torch

import docs_code
import warpalign
from docs_code import ROOT, RUNS, python_blocks, run_page, run_page_once
from warpalign._soft_dtw import functional
from warpalign.cli import _app

DOCS = ROOT / "docs"
PAGES = sorted(page for page in DOCS.rglob("*.md") if python_blocks(page))
MODULES = [
    name for _, name, _ in pkgutil.walk_packages(warpalign.__path__, "warpalign.") if "__main__" not in name
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_pages_run_and_show_what_they_write(page: Path) -> None:
    if "import jax" in page.read_text():
        pytest.importorskip("jax")
    plots = run_page_once(page)
    written = {path.name for path in plots}
    shown = set(re.findall(r"!\[[^\]]*\]\(([\w-]+\.png)\)", page.read_text()))
    assert written == shown
    if page.parent.name == "howto":
        assert shown, "an example ends in a plot"
    assert all(path.stat().st_size > 5000 for path in plots)


def test_commands_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = DOCS / "cli.md"
    run_page(page, tmp_path)
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"^\$ warpalign (.*)$", page.read_text(), re.MULTILINE)
    for command in commands:
        assert _app.run(shlex.split(command)) == 0, capsys.readouterr().err
    missing = _app.warpalign.commands.keys() - {command.split()[0] for command in commands}
    assert not missing, "every sub-command has an example"


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_docstrings(name: str) -> None:
    if ".jax" in name:
        pytest.importorskip("jax")
    torch.manual_seed(0)
    result = doctest.testmod(importlib.import_module(name), extraglobs={"torch": torch})
    assert result.failed == 0


def test_examples_are_found() -> None:
    counts = [len(t.examples) for t in doctest.DocTestFinder().find(functional)]
    assert sum(counts) > 5


def test_a_fault_of_a_page_is_seen_with_its_line(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n```python\nx = 1\n```\n\ntext\n\n```python\nassert x == 2\n```\n")
    before = Path.cwd()
    with pytest.raises(AssertionError) as caught:
        run_page(page, tmp_path / "out")
    assert caught.traceback[-1].lineno == 9  # counted from 0
    assert Path.cwd() == before


def test_a_warning_about_a_page_is_an_error(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```python\nimport torch, warpalign\n\nx = torch.rand(9, 2)\n"
        "warpalign.sinkhorn(x, x + 1, epsilon=1e-3, max_iter=1)\n```\n"
    )
    with pytest.raises(warpalign.transport.ConvergenceWarning):
        run_page(page, tmp_path / "out")


def test_a_page_runs_again_only_when_something_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    page = RUNS / "page-of-a-test.md"
    page.parent.mkdir(parents=True, exist_ok=True)
    runs = []
    monkeypatch.setattr(docs_code, "run_page", lambda page, folder: runs.append(page))
    try:
        for text in ("# One", "# One", "# Two"):
            page.write_text(text)
            run_page_once(page)
        monkeypatch.setattr(docs_code, "_package_key", lambda: "another package")
        run_page_once(page)
        assert len(runs) == 3

        def fail(*_: object) -> None:
            raise AssertionError

        page.write_text("# Three")
        monkeypatch.setattr(docs_code, "run_page", fail)
        for _ in range(2):  # what failed does not count as run
            with pytest.raises(AssertionError):
                run_page_once(page)
    finally:
        folder = RUNS / page.relative_to(ROOT)
        (folder / "ran").unlink(missing_ok=True)
        folder.rmdir()
        folder.with_name(f"{folder.name}.lock").unlink()
        page.unlink()


PROSE = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")])
WRITTEN_BY_PROGRAMS = re.compile(r"<!-- report: .*?<!-- /report -->", re.DOTALL)
CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PROSE, ids=lambda page: str(page.relative_to(ROOT)))
def test_lines_are_short_enough_to_read(page: Path) -> None:
    """At most 120 columns, but for tables, which cannot be broken, code, and what programs write."""
    text = CODE.sub("", WRITTEN_BY_PROGRAMS.sub("", page.read_text()))
    long = [
        line for line in text.splitlines() if len(line) > 120 and not line.startswith(("|", ":::", "    "))
    ]
    assert not long, "\n".join(long)


def test_the_installation_page_is_that_of_this_package() -> None:
    page, project = ((ROOT / name).read_text() for name in ("docs/installation.md", "pyproject.toml"))
    for name, needed in (("torch", r'"torch>=([\d.]+)"'), ("Python", r'requires-python = ">=([\d.]+)"')):
        version = re.search(needed, project)
        assert version and f"| {name} | {version[1]} or later |" in page
    extras = re.search(r"\[project.optional-dependencies\]\n(.*?)\n\n", project, re.DOTALL)
    assert extras
    for line in extras[1].splitlines():
        name, packages = line.split(" = ")
        row = re.search(rf"^\| `{name}` \| ([^|]*) \|", page, re.MULTILINE)
        assert row, f"no row for the extra {name}"
        wanted = {re.split("[>=]", package)[0] for package in re.findall('"([^"]*)"', packages)}
        assert {package.lower() for package in row[1].split(", ")} == wanted
