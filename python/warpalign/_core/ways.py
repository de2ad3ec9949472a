"""The ways in which operators can run a call, and a way that is forced by name, for tests and measurements."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from warpalign._core import library


@cache
def libraries() -> tuple[ctypes.CDLL, ...]:
    names = ["cpu", "cuda"] if library.has_cuda else ["cpu"]
    loaded = tuple(ctypes.CDLL(str(library.LIBRARIES / f"libwarpalign_torch_{name}.so")) for name in names)
    for one in loaded:
        one.warpalign_way.restype = ctypes.c_char_p
        one.warpalign_way.argtypes = (ctypes.c_char_p, ctypes.c_bool, ctypes.c_int)
        one.warpalign_force_way.restype = ctypes.c_bool
        one.warpalign_force_way.argtypes = (ctypes.c_char_p, ctypes.c_char_p)
    return loaded


def ways(operator: str, device: str) -> tuple[str, ...]:
    """The names of an operator's ways on "cpu" or "cuda"; empty where it has one way alone, or there is no such operator."""
    library_of_device = libraries()[-1 if device == "cuda" else 0]
    found: list[str] = []
    while (
        name := library_of_device.warpalign_way(operator.encode(), device == "cuda", len(found))
    ) is not None:
        found.append(name.decode())
    return tuple(found)


_forced_ways: dict[str, str] = {}
"""The ways that are forced now, by operator."""


@contextmanager
def forced(operator: str, way: str) -> Iterator[None]:
    """Makes every call of an operator, in all threads of this process, take the way of this name.

    A call that the way cannot serve raises a RuntimeError, which gives the reason and the ways that can. Contexts
    nest: the end of an inner one restores the way of the outer one.

    Args:
        operator: The name of an operator that has ways, such as "soft_dtw".
        way: One of `ways()`; empty: the plan chooses, also within another context.

    Raises:
        ValueError: There is no such operator.
    """
    outer = _forced_ways.get(operator, "")
    _force(operator, way)
    try:
        yield
    finally:
        _force(operator, outer)


def _force(operator: str, way: str) -> None:
    for one in libraries():
        if not one.warpalign_force_way(operator.encode(), way.encode()):
            raise ValueError(f"operator: expected one that has ways, such as 'soft_dtw', got {operator!r}")
    _forced_ways[operator] = way
