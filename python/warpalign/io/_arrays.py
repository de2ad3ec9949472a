"""NumPy's own files."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpalign.io._series import Dataset, InputError, as_series, table_of


def load_npy(contents: bytes, name: str) -> NDArray[Any]:
    """The array of a .npy file."""
    with _decodable(name):
        array = np.load(io.BytesIO(contents), allow_pickle=False)
    if not isinstance(array, np.ndarray):
        raise InputError(f"{name}: expected a .npy file, got a .npz archive")
    return array


def load_npz(contents: bytes, name: str) -> dict[str, NDArray[Any]]:
    """The arrays of a .npz file by name, at least one."""
    with _decodable(name):
        archive = np.load(io.BytesIO(contents), allow_pickle=False)
        if isinstance(archive, np.ndarray):
            raise InputError(f"{name}: expected a .npz archive, got a .npy file")
        with archive:
            arrays = {key: archive[key] for key in archive.files}
    if not arrays:
        raise InputError(f"{name}: expected at least one array, got none")
    return arrays


def as_dataset(array: NDArray[Any], where: str, transpose: bool) -> Dataset:
    """An array (B, N) or (B, N, D) as B series."""
    if array.ndim not in (2, 3):
        raise InputError(f"{where}: expected series of shape (B, N) or (B, N, D), got {array.shape}")
    series = table_of(array, where, transpose)
    return Dataset([as_series(one, f"{where}: series {index}") for index, one in enumerate(series)], None)


@contextmanager
def _decodable(name: str) -> Iterator[None]:
    """Faults of decoding in one line. NumPy raises whatever it meets: TokenError, zlib.error, KeyError, ..."""
    try:
        yield
    except InputError:
        raise
    except (ValueError, EOFError) as error:
        raise InputError(f"{name}: {' '.join(str(error).split())}") from error
    except Exception as error:
        raise InputError(
            f"{name}: cannot be read ({type(error).__name__}: {' '.join(str(error).split())})"
        ) from error
