"""Sizes of what operators save for the backward pass, from the C++ core's own formulas; sizes may be torch's symbols."""

from __future__ import annotations

import ctypes
from functools import cache
from types import CodeType
from typing import Any

from torch import sym_max, sym_min

from warpalign._core.ways import libraries


def transducer_saved_bytes(packed: bool, **sizes: Any) -> Any:
    """`transducer_most_saved_bytes` of the C++ core: b, t, s, rows, arcs and size, as saved_bytes.h names them."""
    return _evaluated(_transducer(packed), sizes)


def ctc_saved_bytes(**sizes: Any) -> Any:
    """`ctc_most_saved_bytes` of the C++ core: b, t, u, root and wide."""
    return _evaluated(_ctc(), sizes)


@cache
def transducer_arcs(tdt: bool, durations: tuple[int, ...]) -> int:
    """Numbers that a node keeps."""
    numbers = (ctypes.c_int32 * max(len(durations), 1))(*durations)
    return int(libraries()[0].warpalign_transducer_arcs(ctypes.c_bool(tdt), numbers, len(durations)))


def _evaluated(formula: CodeType, sizes: dict[str, Any]) -> Any:
    return eval(formula, {"__builtins__": {}, "least": sym_min, "most": sym_max}, sizes)


@cache
def _transducer(packed: bool) -> CodeType:
    return _compiled(libraries()[0].warpalign_transducer_saved_formula, ctypes.c_bool(packed))


@cache
def _ctc() -> CodeType:
    return _compiled(libraries()[0].warpalign_ctc_saved_formula)


def _compiled(function: Any, *arguments: Any) -> CodeType:
    function.restype = ctypes.c_char_p
    text: str = function(*arguments).decode()
    return compile(text.replace("/", "//"), "saved_bytes.h", "eval")
