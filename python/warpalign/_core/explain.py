"""The plan of a call by its sizes alone: which way it takes and why, its memory and its launches. Nothing runs."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from warpalign._core import library
from warpalign._core.ways import libraries

SIZES: Mapping[str, tuple[str, ...]] = {
    "soft_dtw": ("pairs", "x steps", "y steps", "features; 0: a cost matrix"),
    "sinkhorn": ("problems", "x points", "y points", "features; 0: a cost matrix"),
    "transducer": ("utterances", "frames", "labels of an utterance", "columns of the logits"),
    "transducer_joint": (
        *("utterances", "frames", "labels of an utterance", "columns of the logits"),
        "hidden numbers",
    ),
    "ctc": ("utterances", "frames", "classes", "labels of an utterance"),
    "lstm": ("steps", "batch", "inputs", "hidden units"),
}
"""What the sizes of each operator are."""

CLASSES = ("7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "12.0")
"""Compute capabilities that plans can be made for without a GPU."""

_DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
_PRECISIONS = ("highest", "high", "medium")
_LONGEST = 1 << 16  # bytes of a description


def explain(
    operator: str,
    sizes: Sequence[int],
    *,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    gradient: bool = True,
    precision: str = "highest",
    batch_invariant: bool = False,
    way: str = "",
    threads: int | None = None,
) -> str:
    """The description of an operator's call, for people.

    Args:
        operator: A key of `SIZES`.
        sizes: What `SIZES` names for the operator, in that order.
        device: "cpu", "cuda" for the first GPU, or one of `CLASSES`, whose typical device is planned for.
        dtype: Of inputs.
        gradient: Whether gradients are computed, too.
        precision: "highest", "high" or "medium".
        batch_invariant: As the operators have it.
        way: The way to take; empty: the plan chooses.
        threads: Of a CPU; None: torch's.

    Raises:
        ValueError: The operator, the number of sizes, the device or the way is unknown, or cannot serve the call.
    """
    if operator not in SIZES:
        raise ValueError(f"operator: expected one of {', '.join(SIZES)}, got {operator!r}")
    if len(sizes) != len(SIZES[operator]):
        raise ValueError(
            f"sizes: expected {len(SIZES[operator])} numbers ({', '.join(SIZES[operator])}), got {len(sizes)}"
        )
    on_cuda = device != "cpu"
    if device not in ("cpu", "cuda", *CLASSES):
        raise ValueError(
            f"device: expected cpu, cuda or a compute capability out of {', '.join(CLASSES)}, got {device!r}"
        )
    if on_cuda and not library.has_cuda:
        raise ValueError(
            f"device: expected cpu, because this installation has no CUDA operators, got {device!r}"
        )
    text = ctypes.create_string_buffer(_LONGEST)
    is_description = _function(on_cuda)(
        operator.encode(),
        (ctypes.c_int64 * len(sizes))(*sizes),
        len(sizes),
        _DTYPES.index(dtype),
        _PRECISIONS.index(precision),
        gradient,
        batch_invariant,
        way.encode(),
        on_cuda,
        device.encode() if device in CLASSES else None,
        torch.get_num_threads() if threads is None else threads,
        text,
        _LONGEST,
    )
    said = text.value.decode()
    if not is_description:
        raise ValueError(said)
    return said


def _function(on_cuda: bool) -> Any:
    function = libraries()[-1 if on_cuda else 0].warpalign_explain
    function.restype = ctypes.c_bool
    function.argtypes = (
        *(ctypes.c_char_p, ctypes.POINTER(ctypes.c_int64), ctypes.c_int, ctypes.c_int, ctypes.c_int),
        *(ctypes.c_bool, ctypes.c_bool, ctypes.c_char_p, ctypes.c_bool, ctypes.c_char_p, ctypes.c_int),
        *(ctypes.c_char_p, ctypes.c_size_t),
    )
    return function
