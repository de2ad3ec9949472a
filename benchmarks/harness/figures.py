"""Finds the measured figures in the sentences of a page, and looks up values in result files to compare them with.

A figure is a number with a unit of time, memory or ratio: "0.46 s", "133 MiB", "15 %", "3.2 times", "5.6 ×". Each number of
"1.5 to 1.8 %" is one. Tables between the comments <!-- report: NAME --> come from result files already; code is skipped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from benchmarks.harness.results import RESULTS, ROOT, Row, read_rows

SECONDS = {"ns": 1e-9, "µs": 1e-6, "us": 1e-6, "ms": 1e-3, "s": 1.0, "second": 1.0, "minute": 60.0}
BYTES = {"KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9}
RATIOS = {"%": 0.01, "×": 1.0, "times": 1.0}
UNITS = SECONDS | BYTES | RATIOS | {"seconds": 1.0, "minutes": 60.0}

_NUMBER = r"(?<![\w.^/-])\d+(?:\.\d+)?"
# "×" between numbers or letters is the sign of a shape: N × M.
_UNIT = rf"(?:{'|'.join(sorted(UNITS, key=len, reverse=True))})(?!\w|(?<=×)\s*[\w*(])"
_FIGURES = re.compile(rf"({_NUMBER}(?:(?:,| to| and| or|–)\s*{_NUMBER})*)\s*({_UNIT})")
_SKIPPED = re.compile(
    r"<!-- report: .*?<!-- /report -->|<!--.*?-->|^ *```.*?^ *```|`[^`\n]*`|\]\([^)]*\)",
    re.DOTALL | re.MULTILINE,
)
_HEADER = re.compile(r"^(\|.*\|)\n\|[ :|-]+\|$", re.MULTILINE)
_MEASURED = re.compile(rf"faster|, ({'|'.join(UNITS)})\b|^({'|'.join(UNITS)}|error|accuracy)$|ns/")


class Given(NamedTuple):
    """A number that is no measurement: a limit that a source file sets, or a value that the page itself recommends."""

    file: str
    """Relative to the repository."""
    text: str
    """The words of the file that set the number."""


class Figure(NamedTuple):
    text: str
    line: int

    def agrees(self, value: float) -> bool:
        """Whether the value, in seconds, bytes or as a ratio, rounds to what is written."""
        number, unit = self.text.split(" ")
        half = 0.5 * 10.0 ** -len(number.partition(".")[2])
        return abs(float(number) - value / UNITS[unit]) <= half * (1 + 1e-9)


def figures_of(text: str) -> Iterator[Figure]:
    """The figures of a page, in its order."""
    prose = _SKIPPED.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text).replace("**", "  ")
    for match in _FIGURES.finditer(prose):
        for number in re.findall(r"\d+(?:\.\d+)?", match[1]):
            yield Figure(f"{number} {match[2]}", prose.count("\n", 0, match.start()) + 1)


def measured_columns(text: str) -> list[str]:
    """The headers of columns with measurements in tables that nobody generates."""
    prose = _SKIPPED.sub("", text)
    cells = [cell.strip() for header in _HEADER.findall(prose) for cell in header.strip("|").split("|")]
    return [cell for cell in cells if _MEASURED.search(cell)]


@cache
def _rows(path: Path) -> list[Row]:
    return read_rows(path)


def rows_of(file: str, op: str, **keys: object) -> list[Row]:
    """The rows of a result file that have these values. A newer file beside it that has such rows is an error."""
    path = RESULTS / file

    def found(other: Path) -> list[Row]:
        return [row for row in _rows(other) if {"op": op, **keys}.items() <= row.items()]

    rows = found(path)
    if not rows:
        raise ValueError(f"{file}: expected a row with {json.dumps({'op': op, **keys})}, got none")
    newest = max((row["date"], row.get("time", "")) for row in rows)
    for other in path.parent.glob("*.json"):
        if any((row["date"], row.get("time", "")) > newest for row in found(other)):
            raise ValueError(f"{file}: {other.name} has newer rows with {json.dumps({'op': op, **keys})}")
    return rows


def in_base_units(column: str, value: float) -> float:
    """Seconds or bytes, by the column's name; ratios stay as they are."""
    unit = column.rpartition("_")[2]
    return value * ({"seconds": 1.0, "mib": BYTES["MiB"]} | SECONDS).get(unit, 1.0)


def at(file: str, op: str, column: str, **keys: object) -> float:
    """One number of a result file, in seconds, bytes or as a ratio."""
    rows = [row for row in rows_of(file, op, **keys) if row.get(column) is not None]
    if len(rows) != 1:
        raise ValueError(f"{file}: expected one row with {column} and {json.dumps(keys)}, got {len(rows)}")
    return in_base_units(column, float(rows[0][column]))


def faults(page: str, text: str, named: Sequence[tuple[str, float | Given]]) -> list[str]:
    """What is wrong with the figures of a page, whose sources are named in its order."""
    told = [f"{page}: the column {header!r} of a table is not generated" for header in measured_columns(text)]
    for figure, entry in zip_longest(figures_of(text), named):
        if figure is None or entry is None or figure.text != entry[0]:
            there = f"{page}:{figure.line} has {figure.text!r}" if figure else f"{page} has nothing more"
            return [
                *told,
                f"{there}, benchmarks/figures.py names {entry[0]!r}" if entry else f"{there}, unnamed",
            ]
        if isinstance(source := entry[1], Given):
            if source.text not in (ROOT / source.file).read_text():
                told.append(f"{page}:{figure.line}: {source.file} does not say {source.text!r}")
        elif not figure.agrees(source):
            shown = source / UNITS[figure.text.split(" ")[1]]
            told.append(f"{page}:{figure.line} has {figure.text!r}, its result file {shown:.4g}")
    return told
