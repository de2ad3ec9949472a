"""Tables as text: .csv with commas, semicolons or tabs, and the UCR archive's .tsv."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from itertools import zip_longest
from typing import NamedTuple

import numpy as np

from warpalign.io._series import Dataset, InputError, Layout, Series, cut

_MISSING = {"", "?", "nan"}
_QUOTED = re.compile('"[^"]*"')


class _Row(NamedTuple):
    """Cells of one line, and what messages call them."""

    where: str  # the file and the line
    first: int  # number of the first cell's column
    cells: list[str]


class _Table(NamedTuple):
    rows: list[_Row]
    columns: list[str] | None  # their names, where the first row holds them
    decimal_comma: bool
    index_name: str | None  # the name of the column that was passed over; None: none was

    def values(self, row: _Row) -> list[float]:
        return [
            number(cell, row.where, column, self.decimal_comma)
            for column, cell in enumerate(row.cells, row.first)
        ]


def csv_series(contents: bytes, name: str, layout: Layout) -> Dataset:
    """A row per time step, a column per feature; transposed: the other way round."""
    table = _csv_table(contents, name, layout)
    steps: list[list[float]] = []
    for row in table.rows:
        steps.append(table.values(row))
        if len(steps[-1]) != len(steps[0]):
            raise InputError(
                f"{row.where}: expected {len(steps[0])} columns, as in the first row, got {len(steps[-1])}"
            )
    values = np.array(steps, dtype=np.float64).reshape(len(steps), -1 if steps else 0)
    return Dataset([cut(values, name)], None, table.columns, table.index_name)


def csv_dataset(contents: bytes, name: str, layout: Layout) -> Dataset:
    """A row per series of one feature; transposed: a column per series."""
    table = _csv_table(contents, name, layout)
    series = [_univariate(table.values(row), row.where) for row in table.rows]
    return Dataset(series, None, table.columns, table.index_name)


def tsv_dataset(contents: bytes, name: str) -> Dataset:
    """A row per series: its label, then its values."""
    labels, series = [], []
    for line, text in lines(contents, name):
        label, *cells = text.split("\t")
        labels.append(label.strip())
        where = f"{name}:{line}"
        series.append(
            _univariate([number(cell, where, column) for column, cell in enumerate(cells, 2)], where)
        )
    return Dataset(series, labels)


def lines(contents: bytes, name: str) -> Iterator[tuple[int, str]]:
    """(line number, text) of every line that is not blank."""
    for count, line in enumerate(io.StringIO(decoded(contents, name), newline=None), start=1):
        if line.strip():
            yield count, line.rstrip("\n")


def decoded(contents: bytes, name: str) -> str:
    try:
        return contents.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{name}: expected text in UTF-8, got byte {error.object[error.start]:#04x}"
        ) from error


def number(cell: str, where: str, column: int, decimal_comma: bool = False) -> float:
    """The value of a cell, NaN where it is missing."""
    text = cell.strip()
    if text.lower() in _MISSING:
        return np.nan
    value = _value(text, decimal_comma)
    if value is None:
        raise InputError(f"{where}: expected a number in column {column}, got {text!r}")
    return value


def _value(text: str, decimal_comma: bool) -> float | None:
    if "_" in text:  # Python alone reads 1_000 as a number
        return None
    if decimal_comma and "." not in text:
        text = text.replace(",", ".", 1)
    try:
        return float(text)
    except ValueError:
        return None


def _univariate(values: list[float], where: str) -> Series:
    return cut(np.array(values, dtype=np.float64).reshape(-1, 1), where)


def _csv_table(contents: bytes, name: str, layout: Layout) -> _Table:
    """Every row but empty lines and the column names, without an index."""
    text = decoded(contents, name)
    separator = _separator(text)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    try:
        found = [(reader.line_num, cells) for cells in reader if any(cell.strip() for cell in cells)]
    except csv.Error as error:
        raise InputError(f"{name}: {' '.join(str(error).split())}") from error
    decimal_comma = separator == ";"
    header, has_index = layout.header, layout.index_column
    if header is None:
        cells_of = [cells for _, cells in found[:2]]
        header = bool(found) and _is_header(
            cells_of[0], cells_of[1] if cells_of[1:] else None, decimal_comma, bool(has_index)
        )
    columns = None
    if header and found:
        columns = [cell.strip() for cell in found[0][1]]
        has_index = not columns[0] if has_index is None else has_index
        found = found[1:]
    first = int(bool(has_index))
    rows = [_Row(f"{name}:{line}", 1 + first, cells[first:]) for line, cells in found]
    if has_index and rows and not rows[0].cells:
        raise InputError(
            f"{rows[0].where}: expected values next to the index column, got one column: leave out --index-column (index_column=True)"
        )
    if layout.index_column is None and not first:
        _check_no_index(rows, decimal_comma)
    index = None if not has_index else (columns or ["?"])[0] or "?"
    columns = None if columns is None else columns[first:]
    if layout.transpose:
        turned = zip_longest(*(row.cells for row in rows), fillvalue="")
        rows = [
            _Row(f"{name}: column {column}", 1, list(cells)) for column, cells in enumerate(turned, 1 + first)
        ]
    return _Table(rows, columns, decimal_comma, index)


def _check_no_index(rows: list[_Row], decimal_comma: bool) -> None:
    """Refuses a table whose first column alone holds no numbers in any row: dates, or names of the series."""

    def is_number(cell: str) -> bool:
        return cell.strip().lower() in _MISSING or _value(cell.strip(), decimal_comma) is not None

    if len(rows) > 1 and all(
        len(row.cells) > 1 and not is_number(row.cells[0]) and all(map(is_number, row.cells[1:]))
        for row in rows
    ):
        raise InputError(
            f"{rows[0].where}: expected a number in column 1, got {rows[0].cells[0].strip()!r}: if the first column is an index, "
            "--index-column (index_column=True) passes over it"
        )


def _separator(text: str) -> str:
    """The first of semicolon, tab and comma in the first row, outside quotes."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    unquoted = _QUOTED.sub("", first)
    return next((separator for separator in ";\t" if separator in unquoted), ",")


def _is_header(
    first: list[str], second: list[str] | None, decimal_comma: bool, has_index: bool = False
) -> bool:
    """Whether a row is column names: words, or pandas' numbers for columns that have none. An index says nothing about it."""
    cells = [cell.strip() for cell in first[has_index:]]
    second = second if second is None else second[has_index:]
    if not cells:
        return False
    if all(_value(cell, decimal_comma) is None for cell in cells):
        return True
    is_nameless = not cells[0]
    named = cells[is_nameless:]
    if named != [str(column) for column in range(len(named))] or second is None:
        return False
    # A series may begin with 0, or 0 and 1: of so few cells the row below tells, by a cell that is no integer.
    return is_nameless or len(named) > 2 or not all(cell.strip().lstrip("+-").isdecimal() for cell in second)
