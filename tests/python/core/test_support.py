"""docs/support.md: every cell that claims something names a test that is there."""

from __future__ import annotations

import ast
import re

import pytest

from docs_code import ROOT
from tests.python.core.support import COLUMNS, EVIDENCE

PAGE = (ROOT / "docs" / "support.md").read_text()
NOTHING = "–"


def tables() -> dict[tuple[str, str], str]:
    """(operator, column) and the words of each cell of the tables whose rows are operators."""
    cells: dict[tuple[str, str], str] = {}
    for table in re.findall(r"^\| operator \|.*\n(?:\|.*\n)+", PAGE, re.MULTILINE):
        header, _, *rows = (
            [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()
        )
        for row in rows:
            cells |= {(row[0], column): words for column, words in zip(header[1:], row[1:], strict=True)}
    return cells


def names_of(file: str) -> set[str]:
    """The functions and variables that a file of tests defines."""
    names = set()
    for node in ast.parse((ROOT / "tests" / "python" / file).read_text()).body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def test_the_page_and_the_evidence_have_the_same_cells() -> None:
    cells = tables()
    assert {column for _, column in cells} == set(COLUMNS)
    claimed = {cell for cell, words in cells.items() if words != NOTHING}
    assert claimed == EVIDENCE.keys()


@pytest.mark.parametrize("test", sorted({test for tests in EVIDENCE.values() for test in tests}))
def test_the_evidence_exists(test: str) -> None:
    file, name = test.split("::")
    assert name in names_of(file), f"tests/python/core/support.py names {test}, which is not there"
