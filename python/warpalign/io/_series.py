"""What files are read into, and the check that every format's values pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Series = NDArray[np.float64]


class InputError(ValueError):
    """A file that cannot be read as series; the message is one line that names the file."""


@dataclass(frozen=True)
class Dataset:
    """Series of a file, in its order."""

    series: list[Series]
    """One float64 array (N_i, D) per series: N_i may differ, D does not."""
    labels: list[str] | None
    """Class labels as they are written, where the file has them."""
    columns: list[str] | None = None
    """Column names of a .csv file, where its first row was taken for them."""
    index: str | None = None
    """Name of the first column of a .csv file, "?" if it has none, where it was passed over as an index."""


class Layout(NamedTuple):
    """What a caller says about a file's table; None: guessed."""

    header: bool | None = None
    transpose: bool = False
    index_column: bool | None = None


def as_series(array: NDArray[Any], where: str, transpose: bool = False) -> Series:
    """An array (N,) or (N, D) as a series, without missing steps at its end; `where` begins the messages."""
    if array.dtype.kind not in "fiub":
        raise InputError(f"{where}: expected real numbers, got dtype {array.dtype}")
    if array.ndim not in (1, 2):
        raise InputError(f"{where}: expected one series of shape (N,) or (N, D), got {array.shape}")
    array = table_of(array, where, transpose)
    if array.ndim == 1:
        array = array[:, None]
    return cut(np.ascontiguousarray(array, dtype=np.float64), where)


def table_of(array: NDArray[Any], where: str, transpose: bool) -> NDArray[Any]:
    """The array, with its last two axes exchanged where that is asked for."""
    if not transpose:
        return array
    if array.ndim not in (2, 3):
        raise InputError(f"{where}: expected two or three axes to transpose, got shape {array.shape}")
    turned: NDArray[Any] = array.swapaxes(-1, -2)
    return turned


def cut(series: Series, where: str) -> Series:
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
