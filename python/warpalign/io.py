"""Series in files: .npy, .npz, .csv, and the UCR/UEA archive's .tsv and .ts. Needs NumPy.

What a file holds:

| suffix | as one series (N, D) | as a data set |
| --- | --- | --- |
| .npy | an array (N,) or (N, D) | an array (B, N) or (B, N, D) |
| .npz | its only array; ``FILE.npz:NAME`` picks one of several | its only array as in .npy, else one series each |
| .csv | a row per time step, a column per feature | a row per series of one feature |
| .tsv | ``FILE.tsv:INDEX`` | a row per series: its label, then its values |
| .ts | ``FILE.ts:INDEX`` | a row per series: features, then its label |

``FILE:INDEX`` picks a series of any data set, counted from 0. Missing values (NaN, "?", nothing) at a series' end make
it shorter, as the archive pads; elsewhere they are an error, as is infinity. A .csv may begin with a line of column names (not
all of them numbers, which are taken for values); a first column without a name is an index, as pandas writes it, and passed over.

Every fault of a file raises :class:`InputError`, whose message begins with the file and, where there is one, the line.
"""

from __future__ import annotations

import csv
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, TypeVar

import numpy as np
from numpy.typing import NDArray

Series = NDArray[np.float64]
Contents = TypeVar("Contents")

_MISSING = {"", "?", "nan"}
_SUFFIXES = ".npy, .npz, .csv, .ts or .tsv"


class InputError(ValueError):
    """A file that cannot be read as series; the message is one line that names the file."""


@dataclass(frozen=True)
class Dataset:
    """Series of a file, in its order."""

    series: list[Series]
    """One float64 array (N_i, D) per series: N_i may differ, D does not."""
    labels: list[str] | None
    """Class labels as they are written, where the file has them."""


def read_dataset(path: str | Path) -> Dataset:
    """All series of a file.

    Args:
        path: a .npy, .npz, .csv, .ts or .tsv file; the table above says how it is read.

    Raises:
        InputError: there is no such file, or its contents are not series of numbers with equal numbers of features.
    """
    path = Path(path)
    dataset = _reader(path, _DATASETS)(path)
    if not dataset.series:
        raise InputError(f"{path}: expected at least one series, got none")
    features = dataset.series[0].shape[1]
    for index, series in enumerate(dataset.series):
        if series.shape[1] != features:
            raise InputError(
                f"{path}: expected {features} features in every series, as in the first, "
                f"got {series.shape[1]} in series {index}"
            )
    return dataset


def read_series(source: str | Path) -> Series:
    """One series (N, D), float64.

    Args:
        source: ``FILE``, or ``FILE:KEY`` with the index of a series in a data set or the name of an array in a .npz.

    Raises:
        InputError: as :func:`read_dataset`, or no series has that key.
    """
    path, key = Path(source), None
    if not path.exists() and ":" in str(source):
        name, _, key = str(source).rpartition(":")
        path = Path(name)
    if key is None:
        return _reader(path, _SERIES)(path)
    if path.suffix.lower() == ".npz" and not key.isdecimal():
        arrays = _load_npz(path)
        if key not in arrays:
            raise InputError(f"{path}: expected an array named {', '.join(arrays)}, got {key}")
        return _as_series(arrays[key], f"{path}:{key}")
    dataset = read_dataset(path)
    if not key.isdecimal() or int(key) >= len(dataset.series):
        raise InputError(f"{path}: expected an index from 0 to {len(dataset.series) - 1}, got {key!r}")
    return dataset.series[int(key)]


# Writing.


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """A path to write to beside `path`, which it becomes at the end of the block, and only if that succeeds.

    Readers of `path` see the old file or the whole new one.
    """
    path = Path(path)
    beside = path.with_name(f".{path.stem}.{secrets.token_hex(6)}{path.suffix}")
    try:
        yield beside
        with beside.open("rb") as written:
            os.fsync(written.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def write_array(path: str | Path, array: NDArray[Any]) -> None:
    """Writes an array atomically: .npy, or .csv for at most two axes (floats with all their digits).

    Raises:
        ValueError: another suffix, or too many axes.
        OSError: the file cannot be written; then it is as it was.
    """
    path = Path(path)
    if path.suffix not in (".npy", ".csv"):
        raise ValueError(f"{path}: expected a name that ends in .npy or .csv")
    if path.suffix == ".csv" and array.ndim > 2:
        raise ValueError(f"{path}: expected at most 2 axes for .csv, got shape {array.shape}")
    with atomic_path(path) as beside:
        if path.suffix == ".npy":
            np.save(beside, array, allow_pickle=False)
        else:
            with beside.open("w", encoding="utf-8") as file:
                print_table(file, array)


def print_table(file: TextIO, array: NDArray[Any]) -> None:
    """An array of at most two axes as comma-separated text; a float has all the digits that its type holds."""
    form = {"i": "%d", "u": "%d"}.get(array.dtype.kind, "%.9g" if array.dtype == np.float32 else "%.17g")
    np.savetxt(file, array, delimiter=",", fmt=form)


def write_arrays(path: str | Path, arrays: dict[str, NDArray[Any]]) -> None:
    """Writes named arrays as a .npz file, atomically.

    Raises:
        ValueError: another suffix.
        OSError: the file cannot be written; then it is as it was.
    """
    path = Path(path)
    if path.suffix != ".npz":
        raise ValueError(f"{path}: expected a name that ends in .npz")
    with atomic_path(path) as beside:
        np.savez(beside, **arrays)  # type: ignore[arg-type]  # a name may not be "file"


# NumPy's own files.


def _load_npy(path: Path) -> NDArray[Any]:
    with _decodable(path):
        array = np.load(path, allow_pickle=False)
    if not isinstance(array, np.ndarray):
        raise InputError(f"{path}: expected a .npy file, got a .npz archive")
    return array


def _load_npz(path: Path) -> dict[str, NDArray[Any]]:
    with _decodable(path):
        archive = np.load(path, allow_pickle=False)
        if isinstance(archive, np.ndarray):
            raise InputError(f"{path}: expected a .npz archive, got a .npy file")
        with archive:
            arrays = {name: archive[name] for name in archive.files}
    if not arrays:
        raise InputError(f"{path}: expected at least one array, got none")
    return arrays


@contextmanager
def _decodable(path: Path) -> Iterator[None]:
    """As _readable; of a damaged file NumPy raises whatever it meets: TokenError, zlib.error, KeyError, ..."""
    try:
        with _readable(path):
            yield
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"{path}: cannot be read ({type(error).__name__}: {' '.join(str(error).split())})"
        ) from error


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Faults of opening and decoding, in one line."""
    try:
        yield
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}: expected text in UTF-8, got byte {error.object[error.start]:#04x}"
        ) from error
    except (ValueError, EOFError, csv.Error) as error:
        raise InputError(f"{path}: {' '.join(str(error).split())}") from error


def _npy_series(path: Path) -> Series:
    return _as_series(_load_npy(path), str(path))


def _npz_series(path: Path) -> Series:
    arrays = _load_npz(path)
    if len(arrays) > 1:
        raise InputError(f"{path}: expected one array, or {path}:NAME with one of {', '.join(arrays)}")
    return _as_series(next(iter(arrays.values())), str(path))


def _npy_dataset(path: Path) -> Dataset:
    return _as_dataset(_load_npy(path), path)


def _npz_dataset(path: Path) -> Dataset:
    arrays = _load_npz(path)
    if len(arrays) == 1:
        return _as_dataset(next(iter(arrays.values())), path)
    return Dataset([_as_series(array, f"{path}:{name}") for name, array in arrays.items()], None)


def _as_dataset(array: NDArray[Any], path: Path) -> Dataset:
    if array.ndim not in (2, 3):
        raise InputError(f"{path}: expected series of shape (B, N) or (B, N, D), got {array.shape}")
    return Dataset([_as_series(one, f"{path}: series {index}") for index, one in enumerate(array)], None)


def _as_series(array: NDArray[Any], where: str) -> Series:
    if array.dtype.kind not in "fiub":
        raise InputError(f"{where}: expected real numbers, got dtype {array.dtype}")
    if array.ndim not in (1, 2):
        raise InputError(f"{where}: expected one series of shape (N,) or (N, D), got {array.shape}")
    if array.ndim == 1:
        array = array[:, None]
    return _cut(np.ascontiguousarray(array, dtype=np.float64), where)


def _cut(series: Series, where: str) -> Series:
    """The series (N, D) without missing time steps at its end; nothing else may be missing."""
    present = ~np.isnan(series).all(axis=1)
    length = int(present.nonzero()[0][-1]) + 1 if present.any() else 0
    if length == 0 or series.shape[1] == 0:
        raise InputError(f"{where}: expected a series with at least one value, got none")
    series = series[:length]
    if not np.isfinite(series).all():
        step, feature = np.argwhere(~np.isfinite(series))[0]
        raise InputError(
            f"{where}: expected finite values, got {series[step, feature]:g} at time step {step}, feature {feature}"
        )
    return series


# Text.


def _csv_series(path: Path) -> Series:
    rows: list[list[float]] = []
    for line, first, cells in _csv_rows(path):
        row = [_number(cell, f"{path}:{line}", column) for column, cell in enumerate(cells, first)]
        if rows and len(row) != len(rows[0]):
            raise InputError(
                f"{path}:{line}: expected {len(rows[0])} columns, as in the first row, got {len(row)}"
            )
        rows.append(row)
    return _cut(np.array(rows, dtype=np.float64).reshape(len(rows), -1 if rows else 0), str(path))


def _csv_dataset(path: Path) -> Dataset:
    series = [_row(cells, f"{path}:{line}", first) for line, first, cells in _csv_rows(path)]
    return Dataset(series, None)


def _csv_rows(path: Path) -> Iterator[tuple[int, int, list[str]]]:
    """(line number, first column's number, cells) of every row but empty lines and the column names, without an index."""
    with _readable(path), path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, strict=True)
        is_first, skipped = True, 0
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            if is_first:
                is_first = False
                # pandas numbers columns that have no names.
                are_numbered = ["", *map(str, range(len(cells) - 1))] == [cell.strip() for cell in cells]
                if are_numbered or not any(_is_number(cell) for cell in cells):
                    skipped = int(not cells[0].strip())
                    continue
            yield reader.line_num, 1 + skipped, cells[skipped:]


def _tsv_dataset(path: Path) -> Dataset:
    labels, series = [], []
    for line, text in _lines(path):
        label, *cells = text.split("\t")
        labels.append(label.strip())
        series.append(_row(cells, f"{path}:{line}", first=2))
    return Dataset(series, labels)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """(line number, text) of every line that is not blank."""
    with _readable(path), path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                yield number, line.rstrip("\r\n")


def _row(cells: list[str], where: str, first: int) -> Series:
    """A series of one feature (N, 1); `first` is the first cell's column, for messages."""
    values = [_number(cell, where, column) for column, cell in enumerate(cells, start=first)]
    return _cut(np.array(values, dtype=np.float64).reshape(-1, 1), where)


def _number(cell: str, where: str, column: int) -> float:
    text = cell.strip()
    if text.lower() in _MISSING:
        return np.nan
    if not _is_number(text):
        raise InputError(f"{where}: expected a number in column {column}, got {text!r}")
    return float(text)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell  # Python alone reads 1_000 as a number


# The archive's .ts files: https://www.aeon-toolkit.org/en/stable/examples/datasets/data_loading.html


@dataclass
class _TsHeader:
    labelled: bool = False
    labels: frozenset[str] = frozenset()
    dimensions: int | None = None


def _ts_dataset(path: Path) -> Dataset:
    header, in_data = _TsHeader(), False
    labels, series = [], []
    for line, raw in _lines(path):
        text, where = raw.strip(), f"{path}:{line}"
        if text.startswith("#"):
            continue
        if in_data:
            one, label = _ts_case(text, header, where)
            series.append(one)
            labels.append(label)
        elif not text.startswith("@"):
            raise InputError(f"{where}: expected a line that begins with @ or #, as @data has not come yet")
        elif text.lower() == "@data":
            in_data = True
        else:
            _ts_tag(text[1:].split(), header, where)
    if not in_data:
        raise InputError(f"{path}: expected a line @data, got none")
    return Dataset(series, labels if header.labelled else None)


def _ts_tag(words: list[str], header: _TsHeader, where: str) -> None:
    """Takes up what one line of the header says; tags that only describe the file are passed over."""
    tag, values = (words[0].lower() if words else ""), words[1:]
    if tag in ("classlabel", "targetlabel"):
        if _ts_flag(tag, values, where):  # a file may say true of one tag and false of the other
            header.labelled = True
            header.labels = frozenset(values[1:])
    elif tag == "timestamps":
        if _ts_flag(tag, values, where):
            raise InputError(f"{where}: expected @timeStamps false; time stamps are not supported")
    elif tag in ("dimensions", "dimension"):
        if len(values) != 1 or not values[0].isdecimal() or int(values[0]) < 1:
            raise InputError(f"{where}: expected @{tag} with a number of features, got {' '.join(values)!r}")
        header.dimensions = int(values[0])


def _ts_flag(tag: str, values: list[str], where: str) -> bool:
    if not values or values[0].lower() not in ("true", "false"):
        raise InputError(f"{where}: expected @{tag} true or false, got {' '.join(values)!r}")
    return values[0].lower() == "true"


def _ts_case(text: str, header: _TsHeader, where: str) -> tuple[Series, str]:
    features, label = text.split(":"), ""
    if header.labelled:
        label = features.pop().strip()
        if header.labels and label not in header.labels:
            raise InputError(
                f"{where}: expected a class label of {', '.join(sorted(header.labels))} at the end, got {label!r}"
            )
    if header.dimensions is not None and len(features) != header.dimensions:
        raise InputError(
            f"{where}: expected {header.dimensions} features, as @dimensions says, got {len(features)}"
        )
    columns = [
        [
            _number(cell, f"{where}: feature {feature}", column)
            for column, cell in enumerate(cells.split(","), 1)
        ]
        for feature, cells in enumerate(features)
    ]
    sizes = {len(column) for column in columns}
    if len(sizes) > 1:
        raise InputError(
            f"{where}: expected features of equal length, got {', '.join(str(len(column)) for column in columns)}"
        )
    return _cut(np.array(columns, dtype=np.float64).reshape(len(columns), -1).T, where), label


def _dataset_only(path: Path) -> Series:
    raise InputError(f"{path}: expected one series, got a data set; {path}:INDEX picks one, counted from 0")


_SERIES: dict[str, Callable[[Path], Series]] = {
    ".npy": _npy_series,
    ".npz": _npz_series,
    ".csv": _csv_series,
    ".ts": _dataset_only,
    ".tsv": _dataset_only,
}
_DATASETS: dict[str, Callable[[Path], Dataset]] = {
    ".npy": _npy_dataset,
    ".npz": _npz_dataset,
    ".csv": _csv_dataset,
    ".ts": _ts_dataset,
    ".tsv": _tsv_dataset,
}


def _reader(path: Path, readers: dict[str, Callable[[Path], Contents]]) -> Callable[[Path], Contents]:
    if path.suffix.lower() not in readers:
        raise InputError(f"{path}: expected a name that ends in {_SUFFIXES}")
    if not path.exists():
        raise InputError(f"{path}: no such file")
    return readers[path.suffix.lower()]
