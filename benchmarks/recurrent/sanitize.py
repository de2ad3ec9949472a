"""Runs every kernel of the LSTM on small odd shapes: meant to be run under compute-sanitizer, and so kept short.

Results are compared with the CPU path in float64.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator
from functools import partial

import torch

from benchmarks.harness.sanitizer_cases import Case, main
from benchmarks.recurrent.measure import WRONG, Problem
from benchmarks.recurrent.sizes import Size

_DTYPES = ("float64", "float32", "float16", "bfloat16")
# Layers whose R one block holds, for each of its kernels.
_BLOCKS = [("float32", 21), ("float32", 52), ("float32", 68), ("float64", 52)]
_BLOCKS += [(dtype, hidden) for dtype in _DTYPES[2:] for hidden in (21, 52, 68, 101)]
CASES = [
    # Sweeps on clusters of few and of many blocks, and of the whole grid, with R in registers alone or in shared memory
    # too; with options and without. Units that no block fills, and several slices of the batch.
    *(
        size._replace(dtype=dtype)
        for dtype in _DTYPES[2:]
        for size in (
            Size(3, 9, 5, 132),
            Size(3, 17, 8, 164, 1, 2),
            Size(3, 9, 5, 132, options="lengths"),
            Size(3, 3, 8, 260),
            Size(3, 3, 8, 260, options="lengths"),
            Size(3, 3, 8, 520),
            Size(3, 3, 8, 520, options="lengths"),
            Size(3, 2, 8, 1032),
            Size(3, 2, 8, 1032, options="lengths"),
            # With layer norm.
            Size(3, 17, 8, 36, 1, 2, options="layer_norm lengths"),
            Size(3, 3, 8, 260, options="layer_norm"),
        )
    ),
    # More steps than the ring of dz has slots.
    Size(36, 3, 8, 520, dtype="float16"),
    # Gates made again, by chunks of steps.
    *(
        Size(70, 3, 5, 20, 2, dtype=dtype, options=options)
        for dtype in _DTYPES
        for options in ("recompute", "recompute lengths")
    ),
    # Layers at once.
    Size(40, 3, 5, 132, 2, dtype="float16"),
    # Launches per step.
    *(
        size._replace(dtype=dtype)
        for dtype in _DTYPES
        for size in (
            Size(3, 4, 5, 21, 2, P=6, options="lengths"),
            Size(3, 4, 5, 21, P=6, options="layer_norm"),
        )
    ),
    *(
        Size(3, 9, 5, hidden, 2, 2, dtype=dtype, activation="hard")
        for dtype, hidden in zip(_DTYPES, (69, 101, 131, 131), strict=True)
    ),
    # Sweeps in single blocks.
    *(
        Size(3, 3, 5, hidden, dirs=2, dtype=dtype, options=options)
        for dtype, hidden in _BLOCKS
        for options in ("", "lengths")
    ),
    # The same on the matrix units.
    *(
        size._replace(dtype=dtype)
        for dtype in _DTYPES[1:]
        for size in (
            Size(3, 4, 5, 132, P=130, options="lengths"),
            Size(3, 4, 5, 132, P=130, options="layer_norm"),
        )
    ),
    Size(3, 4, 5, 20, 1, 2, dtype="float32", options="layer_norm"),
]
# Masks are drawn anew in each call: these have no reference.
RANDOM_CASES = [
    *(Size(3, 4, 5, 21, dtype=dtype, options="weight_dropout") for dtype in _DTYPES),
    *(
        Size(3, 9, 5, hidden, dtype=dtype, options="zoneout")
        for dtype in _DTYPES[2:]
        for hidden in (132, 260)
    ),
    *(Size(3, 9, 5, 21, dtype=dtype, options="zoneout") for dtype in _DTYPES),
]
# One step without gradients, as streams take it.
SINGLE_STEPS = [
    *(Size(1, rows, 16, 24, 2, dtype=dtype) for dtype in _DTYPES for rows in (1, 3, 9, 17, 40)),
    # By one product of TF32.
    *(Size(1, rows, 16, 24, 2, dtype="float32", options="medium") for rows in (3, 9, 17, 40)),
    # Wide blocks (of 132 multiprocessors).
    *(Size(1, 40, 16, 1456, dtype=dtype) for dtype in _DTYPES[1:]),
    Size(1, 40, 16, 1456, dtype="float32", options="medium"),
    *(Size(1, 40, 16, 928, dtype=dtype) for dtype in _DTYPES[2:]),
]
# So many rows (of 132 multiprocessors) that the grid works on pairs of tiles, by blocks alone or by clusters of 2 or of 4 that share units, or that
# a step is products of the front end's and a kernel by words or by elements; on GPUs alone.
LARGE_BATCHES = [
    Size(36, 70, 8, 560, dtype="float16"),
    # Two layers at a time, and the last one alone.
    Size(65, 3, 8, 520, 3, dtype="float16"),
    Size(65, 3, 8, 520, 3, dtype="bfloat16", options="lengths"),
    *(Size(2, 968, 8, 132, dtype="float32", options=options) for options in ("medium", "medium lengths")),
    *(Size(2, 96, 8, 132, dtype="float64", options=options) for options in ("", "lengths")),
    # Forward by tiles of 32 and of 64 rows.
    *(Size(3, 131, 8, hidden, dtype="float32", options="lengths") for hidden in (321, 1100)),
    # Clusters in float32, which serve no calls that are invariant.
    Size(3, 9, 8, 116, 1, 2, dtype="float32"),
    # A launch per step by lanes.
    Size(3, 9, 5, 101, dtype="float32"),
    # Single blocks that have several rows.
    *(
        Size(3, 530, 5, hidden, dtype=dtype, options=options)
        for dtype, hidden in _BLOCKS
        for options in ("", "lengths")
    ),
    Size(3, 9, 5, 128, dtype="float32"),
    *(Size(2, 488, 8, 132, 2, P=7, dtype=dtype) for dtype in _DTYPES[2:]),
    # Launches per step whose blocks have more rows.
    *(
        Size(2, 488, 8, 132, P=130, dtype=dtype, options=options)
        for dtype in _DTYPES[1:]
        for options in ("lengths", "layer_norm")
    ),
    # The same of float32 by one product of TF32, in blocks of both kinds.
    *(
        Size(2, batch, 8, hidden, P=width, dtype="float32", options=f"medium {options}")
        for batch, hidden, width in ((265, 118, 114), (488, 132, 130))
        for options in ("lengths", "layer_norm")
    ),
    # Small tiles of it, and larger ones.
    *(
        Size(3, batch, 8, hidden, dtype="float32", options="medium lengths")
        for batch, hidden in ((40, 132), (131, 321))
    ),
] + [
    size._replace(dtype=dtype, options=options)
    for dtype in _DTYPES[2:]
    for options in ("", "lengths")
    for size in (
        Size(3, 3, 8, 520),  # one tile of rows for each group
        Size(3, 2, 8, 1032),
        Size(3, 40, 8, 520),
        Size(3, 50, 8, 560),
        Size(3, 50, 8, 648),
        Size(3, 20, 8, 1536),
        Size(3, 9, 8, 2048),
        Size(3, 456, 8, 512),
    )
]


def limit(size: Size) -> float:
    """The largest error that is not wrong."""
    return 5e-3 if "medium" in size.options.split() else WRONG[size.dtype]


def wrong(size: Size, device: torch.device, invariant: bool = True) -> str | None:
    """What is wrong with one case's results, if anything is; `invariant`: by the library's own products, not cuBLAS."""
    problem = Problem(size, device, invariant=invariant)
    exact = copy.copy(problem)
    exact.module = copy.deepcopy(problem.module).to("cpu", torch.float64)
    exact.x = problem.x.detach().cpu().double().requires_grad_()
    exact.gradient = problem.gradient.cpu().double()
    exact.given = {name: tensor.cpu() for name, tensor in problem.given.items()}
    names = ["y", "x", *(name for name, _ in problem.module.named_parameters())]
    for name, ours, theirs in zip(names, problem.step(), exact.step(), strict=True):
        error = float((ours.cpu().double() - theirs).norm() / theirs.norm())
        if not error <= limit(size):
            return f"{name}: relative error {error:.2g}"
    return None


def wrong_step(size: Size, device: torch.device) -> str | None:
    """The same of one step without gradients, as a call and as a stream, whose state is updated in place."""
    problem = Problem(size, device)
    exact = copy.deepcopy(problem.module).to("cpu", torch.float64)
    stream = copy.deepcopy(problem.module).eval().stream(problem.x.shape[1])
    with torch.no_grad():
        theirs = exact(problem.x.cpu().double())[0]
        ours = {"y": problem.forward()[0], "y of a stream": stream.step(problem.x.detach())}
    for name, y in ours.items():
        error = float((y.cpu().double() - theirs).norm() / theirs.norm())
        if not error <= limit(size):
            return f"{name}: relative error {error:.2g}"
    return None


def wrong_random(size: Size, device: torch.device) -> str | None:
    """The same of a case without a reference."""
    return None if all(result.isfinite().all() for result in Problem(size, device).step()) else "not finite"


def cases(device: torch.device) -> Iterator[Case]:
    """Training steps, random masks, single steps, and on a GPU large batches."""
    for size in CASES:
        yield size.name, partial(wrong, size, device)
    for size in RANDOM_CASES:
        yield size.name, partial(wrong_random, size, device)
    for size in SINGLE_STEPS:
        yield f"single {size.name}", partial(wrong_step, size, device)
    for size in LARGE_BATCHES if device.type == "cuda" else ():
        yield size.name, partial(wrong, size, device, False)


if __name__ == "__main__":
    sys.exit(main(__doc__, cases))
