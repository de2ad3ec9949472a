"""From a name to series: which file, which part of it, which format."""

from __future__ import annotations

import gzip
import sys
import zlib
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from warpalign.io._arrays import as_dataset, load_npy, load_npz
from warpalign.io._series import Dataset, InputError, Layout, as_series
from warpalign.io._text import csv_dataset, csv_series, tsv_dataset
from warpalign.io._ts import ts_dataset

STDIN = "-"
_FORMATS = (".npy", ".npz", ".csv", ".ts", ".tsv")
_ARRAYS = (".npy", ".npz")
_GZIP_MARK = b"\x1f\x8b"


class _Source(NamedTuple):
    written: str  # as the caller names it, without keys
    name: str  # as messages name it
    format: str
    contents: bytes
    keys: list[str]  # what stands behind colons


def dataset(path: str | Path, layout: Layout) -> Dataset:
    """All series of a file, of an array of an archive, or of the one series that a key picks."""
    return _dataset(_opened(path, layout), layout)


def one(path: str | Path, layout: Layout) -> Dataset:
    """The one series of a file, or the one that a key picks."""
    source = _opened(path, layout)
    if source.format in _ARRAYS:
        arrays, where, keys = _arrays(source)
        if not keys:
            if len(arrays) > 1:
                names = ", ".join(arrays)
                raise InputError(f"{where}: expected one array, or {source.written}:NAME with one of {names}")
            return Dataset([as_series(next(iter(arrays.values())), where, layout.transpose)], None)
    elif not source.keys:
        if source.format == ".csv":
            return csv_series(source.contents, source.name, layout)
        raise InputError(
            f"{source.name}: expected one series, got a data set; {source.written}:INDEX picks one, counted from 0"
        )
    return _dataset(source, layout)


def _dataset(source: _Source, layout: Layout) -> Dataset:
    where, keys = source.name, source.keys
    if source.format in _ARRAYS:
        arrays, where, keys = _arrays(source)
        if len(arrays) == 1:
            found = as_dataset(next(iter(arrays.values())), where, layout.transpose)
        else:
            series = [as_series(array, f"{where}:{name}", layout.transpose) for name, array in arrays.items()]
            found = Dataset(series, None)
    elif source.format == ".csv":
        found = csv_dataset(source.contents, where, layout)
    elif layout.transpose:
        raise InputError(f"{where}: expected a table to transpose, .csv or .npy, got {source.format}")
    else:
        found = (tsv_dataset if source.format == ".tsv" else ts_dataset)(source.contents, where)
    _check_alike(found, where)
    return _picked(found, keys, where)


def _check_alike(found: Dataset, where: str) -> None:
    if not found.series:
        raise InputError(f"{where}: expected at least one series, got none")
    features = found.series[0].shape[1]
    for index, series in enumerate(found.series):
        if series.shape[1] != features:
            raise InputError(
                f"{where}: expected {features} features in every series, as in the first, "
                f"got {series.shape[1]} in series {index}"
            )


def _picked(found: Dataset, keys: list[str], where: str) -> Dataset:
    if not keys:
        return found
    key = ":".join(keys)
    if not key.isdecimal() or int(key) >= len(found.series):
        raise InputError(f"{where}: expected an index from 0 to {len(found.series) - 1}, got {key!r}")
    index = int(key)
    return Dataset([found.series[index]], found.labels and [found.labels[index]], found.columns, found.index)


def _arrays(source: _Source) -> tuple[dict[str, NDArray[Any]], str, list[str]]:
    """A file's arrays, or the one that a key names; what messages call them; the other keys."""
    if source.format == ".npy":
        return {"": load_npy(source.contents, source.name)}, source.name, source.keys
    arrays = load_npz(source.contents, source.name)
    if not source.keys or (source.keys[0].isdecimal() and source.keys[0] not in arrays):
        return arrays, source.name, source.keys
    name, *keys = source.keys
    if name not in arrays:
        raise InputError(f"{source.name}: expected an array named {', '.join(arrays)}, got {name}")
    return {name: arrays[name]}, f"{source.name}:{name}", keys


def _opened(path: str | Path, layout: Layout) -> _Source:
    source = _found(path)
    if layout.index_column and source.format != ".csv":
        raise InputError(
            f"{source.name}: expected a .csv, as other files have no index column, got {source.format}: leave out --index-column "
            "(index_column=True)"
        )
    return source


def _found(path: str | Path) -> _Source:
    written, keys = str(path), list[str]()
    while written != STDIN and _format(written) is None and ":" in written and not Path(written).exists():
        written, _, key = written.rpartition(":")
        keys.insert(0, key)
    if written == STDIN:
        if sys.stdin is None:
            raise InputError("stdin: expected a file or a pipe, got none")
        contents = _uncompressed(sys.stdin.buffer.read(), "stdin", wanted=False)
        return _Source(written, "stdin", _guessed(contents), contents, keys)
    known = _format(written)
    if known is None:
        suffixes = f"{', '.join(_FORMATS[:-1])} or {_FORMATS[-1]}"
        raise InputError(f"{path}: expected a name that ends in {suffixes}, or in one of these and .gz")
    if not Path(written).exists():
        raise InputError(f"{written}: no such file")
    try:
        contents = Path(written).read_bytes()
    except OSError as error:
        raise InputError(f"{written}: {error.strerror or error}") from error
    is_compressed = written.lower().endswith(".gz")
    return _Source(
        written, written, known, _uncompressed(contents, written, True) if is_compressed else contents, keys
    )


def _format(name: str) -> str | None:
    """The suffix that says what a file holds; None where there is no such suffix."""
    path = Path(name.lower().removesuffix(".gz"))
    return path.suffix if path.suffix in _FORMATS else None


def _guessed(contents: bytes) -> str:
    """The format of what comes without a name."""
    if contents.startswith(b"\x93NUMPY"):
        return ".npy"
    if contents.startswith(b"PK"):
        return ".npz"
    return ".ts" if contents.lstrip()[:1] in (b"@", b"#") else ".csv"


def _uncompressed(contents: bytes, name: str, wanted: bool) -> bytes:
    if not wanted and not contents.startswith(_GZIP_MARK):
        return contents
    try:
        return gzip.decompress(contents)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{name}: cannot be decompressed ({' '.join(str(error).split())})") from error
