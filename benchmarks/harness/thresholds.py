"""The thresholds by which an operator of a built library chooses among its ways, and how to force them."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from warpalign._core.library import LIBRARIES

MEASURED = -(2**31)  # warpalign::kMeasuredThreshold


class _Threshold(ctypes.Structure):
    """`Threshold` of include/warpalign/tuning.h."""

    _fields_ = [("name", ctypes.c_char * 64), ("forced", ctypes.c_int)]  # noqa: RUF012


def _library(library: str) -> ctypes.CDLL:
    return ctypes.CDLL(str(LIBRARIES / f"libwarpalign_torch_{library}.so"))


def forced_values(operator: str, library: str) -> dict[str, int | None]:
    """Every threshold of an operator, and what it is forced to, or None. library: "cuda" or "cpu"."""
    read = _library(library)[f"warpalign_{operator}_threshold"]
    read.argtypes, read.restype = [ctypes.c_int, ctypes.POINTER(_Threshold)], ctypes.c_bool
    found: dict[str, int | None] = {}
    row = _Threshold()
    for index in itertools.count():
        if not read(index, ctypes.byref(row)):
            return found
        found[row.name.decode()] = None if row.forced == MEASURED else row.forced
    raise AssertionError("unreachable")


@contextmanager
def forced(operator: str, values: Mapping[str, int], library: str) -> Iterator[None]:
    """Calls in this block have these values for these thresholds. Raises KeyError for a name that is unknown."""
    force = _library(library)[f"warpalign_force_{operator}_threshold"]
    force.argtypes, force.restype = [ctypes.c_char_p, ctypes.c_int], ctypes.c_bool
    before = forced_values(operator, library)
    if unknown := sorted(set(values) - set(before)):
        raise KeyError(f"{operator} has no threshold {', '.join(unknown)}; it has {', '.join(before)}")
    try:
        for name, value in values.items():
            force(name.encode(), value)
        yield
    finally:
        for name in values:
            value_before = before[name]
            force(name.encode(), MEASURED if value_before is None else value_before)
