"""Writing: a file is there whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """A path to write to beside `path`, which it becomes at the end of the block, and only if that succeeds.

    Readers of `path` see the old file or the whole new one.

    Raises:
        OSError: the file cannot be written. The error names `path`.
    """
    path = Path(path)
    beside = path.with_name(f".{path.stem}.{secrets.token_hex(6)}{path.suffix}")
    try:
        yield beside
        with beside.open("rb") as written:
            os.fsync(written.fileno())
        beside.replace(path)
    except BaseException as error:
        beside.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (None, beside, str(beside)) and error.errno:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def write_array(path: str | Path, array: NDArray[Any]) -> None:
    """Writes an array atomically: .npy, or .csv for at most two axes (floats with all their digits).

    Args:
        path: the file; its name ends in .npy or .csv.
        array: any shape for .npy, at most two axes for .csv.

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

    Args:
        path: the file; its name ends in .npz.
        arrays: by their names in the file.

    Raises:
        ValueError: another suffix.
        OSError: the file cannot be written; then it is as it was.
    """
    path = Path(path)
    if path.suffix != ".npz":
        raise ValueError(f"{path}: expected a name that ends in .npz")
    with atomic_path(path) as beside:
        np.savez(beside, **arrays)  # type: ignore[arg-type]  # a name may not be "file"
