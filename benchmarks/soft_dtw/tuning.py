"""How soft-DTW's thresholds are measured: the problems of each (benchmarks/harness/tuning.py)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

import warpalign
from benchmarks.harness.tuning import Choice, Crossing, Machine, Probe, Problem, Run
from benchmarks.soft_dtw.measure import inputs, training_step
from benchmarks.soft_dtw.sizes import Size

ALWAYS = 1 << 20  # above every quantity
IN_TILES = {"panel_bytes": 0}  # no pair finds room in a panel


def _make(size: Size, gradient: bool, options: dict[str, Any], device: torch.device) -> Run:
    x, y = inputs(size, device)
    if gradient:
        return partial(training_step, x, y, gamma=size.gamma, **options)
    return torch.no_grad()(partial(warpalign.soft_dtw, x, y, gamma=size.gamma, **options))


def problem(size: Size, gradient: bool, quantity: float | None = None, **options: Any) -> Problem:
    """A training step, or values alone."""
    name = " ".join([size.name, "step" if gradient else "values", *options])
    return Problem(name, partial(_make, size, gradient, options), quantity)


def filled(
    machine: Machine,
    per_multiprocessor: Sequence[float],
    of_pair: int,
    length: int,
    dim: int,
    gradient: bool,
    same_kernel: bool = False,
) -> list[Problem]:
    """Batches of pairs that have `of_pair` strips each, so that a multiprocessor has these numbers of strips.

    same_kernel: whether both ways launch the same kernel, so that it does not show the quantity.
    """
    count = max(machine.multiprocessors, 1)
    batches = sorted({max(1, round(count * strips / of_pair)) for strips in per_multiprocessor})
    return [
        problem(Size(batch, length, length, dim), gradient, batch * of_pair / count if same_kernel else None)
        for batch in batches
    ]


def meeting_strips(machine: Machine) -> list[Problem]:
    return [
        *filled(machine, (4, 8, 12, 16, 20, 26, 31), 32, 1024, 2, True),
        *filled(machine, (8, 12, 16, 20), 32, 1024, 20, True),
    ]


def turn_warps(_: Machine) -> list[Problem]:
    sizes = [
        (32, 2048, 2048, 16),
        (32, 1024, 1024, 16),
        (32, 512, 4096, 16),
        (32, 256, 8192, 16),
        (64, 512, 2048, 32),
    ]
    return [problem(Size(*size), True) for size in sizes]


def turn_warps_of_fast_tiles(_: Machine) -> list[Problem]:
    sizes = [(32, 2048, 2048, 64), (32, 1024, 1024, 64), (64, 512, 2048, 32), (32, 256, 8192, 16)]
    values = [problem(Size(*size), False) for size in sizes]
    return values + [problem(Size(*size), True, step_penalty=0.1) for size in sizes[:2]]


def turn_features(_: Machine) -> list[Problem]:
    return [
        problem(Size(32, 1024, 1024, dim), gradient, dim)
        for dim in (16, 32, 64, 96, 128)
        for gradient in (True, False)
    ]


def few_long_pairs(_: Machine) -> list[Problem]:
    sizes = [(1, 1024, 1024, 1), (1, 4096, 4096, 1), (4, 2048, 2048, 2), (8, 4096, 4096, 4)]
    return [problem(Size(*size), gradient) for size in sizes for gradient in (True, False)]


def long_pairs(_: Machine) -> list[Problem]:
    return [problem(Size(16, 2048, 2048, 64), True), problem(Size(32, 2048, 2048, 128), True)]


def pairs_of_one_thread(_: Machine) -> list[Problem]:
    return [problem(Size(1, n, n, 4), True, n * n) for n in (128, 192, 256, 384, 512, 768, 1024)]


def pairs_per_thread(machine: Machine) -> list[Problem]:
    return [problem(Size(machine.threads * k, 512, 512, 4), True, k) for k in (1, 2, 3, 4, 6, 8, 12, 16)]


TURNS_BY_WARPS = {"panel_bytes": 1 << 26, "turn_features": ALWAYS}
PROBES: dict[str, Probe] = {
    "meeting_strips": Crossing(meeting_strips, at_most=True),
    "meeting_small_crew_strips": Crossing(
        lambda machine: filled(machine, (1, 2, 3, 4, 5, 6, 8), 32, 512, 16, False, same_kernel=True),
        at_most=True,
        also={**IN_TILES, "large_crew_strips": ALWAYS},
    ),
    "meeting_large_crew_strips": Crossing(
        lambda machine: filled(machine, (0.5, 1, 2, 3, 4), 32, 512, 16, True, same_kernel=True),
        at_most=True,
        also={**IN_TILES, "large_crew_strips": ALWAYS},
    ),
    "large_crew_strips": Crossing(
        lambda machine: [
            *filled(machine, (1, 2, 3, 4, 6), 16, 512, 16, True),
            *filled(machine, (1, 2, 3, 4, 6), 16, 512, 16, False),
        ],
        at_most=True,
        also=IN_TILES,
    ),
    "wide_lanes_warps": Crossing(
        lambda machine: [
            *filled(machine, (2, 4, 6, 8, 16, 32), 4, 256, 1, False),
            *filled(machine, (2, 4, 6, 8, 16, 32), 16, 1024, 3, False),
        ]
    ),
    "turn_warps": Crossing(turn_warps, also=TURNS_BY_WARPS),
    "turn_warps_of_fast_tiles": Crossing(turn_warps_of_fast_tiles, also=TURNS_BY_WARPS),
    "turn_features": Crossing(
        turn_features,
        also={"panel_bytes": 1 << 26, "turn_warps": ALWAYS, "turn_warps_of_fast_tiles": ALWAYS},
    ),
    "panel_bytes": Choice(long_pairs, values=[1 << 26, 1 << 27, 1 << 28]),
    "fewest_panel_strips": Choice(few_long_pairs, values=[1, 2, 4, 8]),
    "help_cells": Crossing(pairs_of_one_thread, needs_threads=True),
    "help_pairs": Crossing(pairs_per_thread, needs_threads=True),
}
