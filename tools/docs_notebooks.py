"""A documentation page as a Jupyter notebook, in the format of https://nbformat.readthedocs.io/en/latest/format_description.html

The code cells are the page's Python blocks, which the tests run; the text between them becomes Markdown cells.
"""

from __future__ import annotations

import json
import re

_BLOCK = re.compile(r"^```python\n(.*?)^```\n?", re.MULTILINE | re.DOTALL)
_FRONT = re.compile(r"\A---\n.*?^---\n", re.MULTILINE | re.DOTALL)  # what the site alone reads
_IMAGE = re.compile(r"^!\[[^\]]*\]\([^)]*\)(\{[^}]*\})?\n?", re.MULTILINE)  # the notebook's own code draws it
_REFERENCE = re.compile(r"\[([^\]]+)\]\[[^\]]*\]")  # of the site's own kind
_LINK = re.compile(r"\[([^\]]+)\]\((?!\w+://)[^)]*\)")  # to another page


def notebook(page: str) -> str:
    """The JSON text of a notebook without outputs.

    Args:
        page: the page's Markdown.
    """
    page = _FRONT.sub("", page)
    cells: list[dict[str, object]] = []
    position = 0
    for match in _BLOCK.finditer(page):
        _add_text(cells, page[position : match.start()])
        _add(cells, "code", match.group(1), execution_count=None, outputs=[])
        position = match.end()
    _add_text(cells, page[position:])
    contents = {
        "cells": cells,
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(contents, indent=1, ensure_ascii=False) + "\n"


def _add_text(cells: list[dict[str, object]], text: str) -> None:
    for pattern, by in ((_IMAGE, ""), (_REFERENCE, r"\1"), (_LINK, r"\1")):
        text = pattern.sub(by, text)
    if text.strip():
        _add(cells, "markdown", text)


def _add(cells: list[dict[str, object]], kind: str, text: str, **more: object) -> None:
    source = text.strip("\n").splitlines(keepends=True)
    cells.append({"cell_type": kind, "id": f"cell-{len(cells)}", "metadata": {}, "source": source, **more})
