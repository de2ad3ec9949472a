#!/usr/bin/env python3
"""Few pairs in a Sakoe-Chiba band: ms of values and of a training step in a CUDA graph, by the share of N that is the radius.

    python -m benchmarks.soft_dtw.narrow_bands [--out DIR]

x, y ~ N(0, 1), gamma 1, float32. `cells` is the share of the cells in the band. `one_end_*` is the same call where sweeps
start at the first step alone (the way few_features or panel, forced). Rows without a band, and with a step penalty in its place, are for
comparison. Writes <device>/<date>-<commit>-bands.json.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import torch

import warpalign
from benchmarks.harness.program import write_table
from benchmarks.harness.results import Row, rounded
from benchmarks.harness.timing import graph_ms, median_ms
from benchmarks.soft_dtw.measure import inputs, training_step
from benchmarks.soft_dtw.sizes import Size
from warpalign._core.ways import forced

SIZES = (
    Size(8, 2048, 2048, 3),
    Size(8, 2048, 2048, 1),
    Size(32, 2048, 2048, 1),
    Size(1, 8192, 8192, 1),
    Size(32, 512, 512, 2),
    Size(8, 1024, 1024, 16),
    Size(32, 512, 512, 64),
)
SHARES = (0.25, 0.1, 0.02)
BUDGET_S = 0.05


def cases(size: Size) -> dict[str, dict[str, Any]]:
    bands = {f"band of {100 * share:g} %": {"bandwidth": round(share * size.N)} for share in SHARES}
    return {"none": {}, **bands, "step penalty": {"step_penalty": 0.1}}


def cells_in_band(n: int, radius: int | None) -> float:
    """The share of the cells (i, j) of an n x n table with |i - j| <= radius."""
    outside = 0 if radius is None else (n - radius) * (n - radius - 1)
    return 1 - outside / n**2


def milliseconds(run: Callable[[], Any], device: torch.device) -> float | None:
    time = graph_ms if device.type == "cuda" else median_ms
    return rounded(time(run, device, BUDGET_S))


def measure(size: Size, options: dict[str, Any], device: torch.device) -> Row:
    x, y = inputs(size, device)
    step = lambda: training_step(x, y, gamma=size.gamma, **options)  # noqa: E731
    values = torch.no_grad()(lambda: warpalign.soft_dtw(x, y, gamma=size.gamma, **options))
    row: Row = {"values_ms": milliseconds(values, device), "step_ms": milliseconds(step, device)}
    one_end = "few_features" if size.D <= 4 else "panel"
    with forced("soft_dtw", one_end) if device.type == "cuda" else nullcontext():
        row |= {"one_end_values_ms": milliseconds(values, device)}
        row |= {"one_end_step_ms": milliseconds(step, device)}
    return row


def rows(device: torch.device, quick: bool) -> Iterator[Row]:
    for size in (Size(2, 70, 70, 1),) if quick else SIZES:
        for options, given in cases(size).items():
            row: Row = {"B": size.B, "N": size.N, "M": size.M, "D": size.D, "options": options}
            row["cells"] = rounded(cells_in_band(size.N, given.get("bandwidth")), 3)
            yield row | measure(size, given, device)


def main() -> None:
    write_table(__doc__, "narrow_bands", "-bands", rows)


if __name__ == "__main__":
    main()
