#!/usr/bin/env python3
"""Times over every length N = M = 1 ... 600: forward and training step of 32 pairs inside a CUDA graph.

Shows whether time grows smoothly or jumps at the edges of tiles. Writes <gpu>/<date>-<commit>-sweep.json into the results
folder; benchmarks/report.py draws it. Few repeats each, so that all of it takes less than a minute. On a CPU, which has
no graphs, times are those of single runs.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

import warpalign
from benchmarks.harness.results import (
    Row,
    add_arguments,
    device_name,
    result_path,
    rounded,
    stamp,
    write_rows,
)
from benchmarks.harness.timing import graph_ms, median_ms
from benchmarks.soft_dtw.measure import inputs, training_step
from benchmarks.soft_dtw.sizes import Size

LONGEST = 600
QUICK_LENGTHS = (1, 2, 31, 32, 33)
FEATURES = (1, 64)
PAIRS = 32
BUDGET_S = 0.002  # of replays, per time: capturing a graph takes longer


def lengths(longest: int) -> list[int]:
    """Multiples of 8 first, then what lies beside them: a sweep that is cut short still spans all lengths."""
    return sorted(range(1, longest + 1), key=lambda n: n % 8)


def measure(size: Size, device: torch.device) -> Row:
    x, y = inputs(size, device)

    @torch.no_grad()
    def forward() -> torch.Tensor:
        return warpalign.soft_dtw(x, y, gamma=size.gamma)

    def step() -> tuple[torch.Tensor, torch.Tensor]:
        return training_step(x, y, gamma=size.gamma)

    def timed(run: Callable[[], Any]) -> float | None:
        return rounded((graph_ms if device.type == "cuda" else median_ms)(run, device, BUDGET_S))

    prefix = "graph_" if device.type == "cuda" else ""
    return {f"{prefix}forward_ms": timed(forward), f"{prefix}step_ms": timed(step)}


def sweep(sizes: list[Size], device: torch.device, name: str, limit_s: float) -> tuple[list[Row], int]:
    """A row per size, and the number of sizes that the time did not suffice for."""
    start = time.perf_counter()
    rows: list[Row] = []
    for size in sizes:
        if time.perf_counter() - start > limit_s:
            break
        row: Row = {"op": "soft_dtw_sweep", **size._asdict(), "dtype": "float32", "device": name}
        try:
            row |= measure(size, device)
        except RuntimeError as error:
            row["error"] = str(error).splitlines()[0][:200]
        rows.append(row)
    order = {size: place for place, size in enumerate(sorted(sizes, key=lambda size: (size.D, size.N)))}
    rows.sort(key=lambda row: order[Size(row["B"], row["N"], row["M"], row["D"], row["gamma"])])
    return rows, len(sizes) - len(rows)


def print_table(rows: list[Row]) -> None:
    """A few of the lengths."""
    print(f"{'N':>5} {'D':>3} {'forward, ms':>12} {'step, ms':>12}")
    for row in rows:
        if row["N"] in (1, 32, 33) or row["N"] % 100 == 0:
            forward, step = (row.get(f"graph_{key}", row.get(key)) for key in ("forward_ms", "step_ms"))
            print(
                f"{row['N']:>5} {row['D']:>3} {forward or '-':>12} {step or '-':>12}  {row.get('error', '')}"
            )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--device", default="cuda", help="cuda (default), cuda:N or cpu")
    parser.add_argument("--quick", action="store_true", help="a few short lengths")
    parser.add_argument("--limit", type=float, default=60, metavar="S", help="seconds at most (default: 60)")
    add_arguments(parser)
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    name = device_name(device)
    target, commit = result_path(arguments, name, "-sweep")
    wanted = QUICK_LENGTHS if arguments.quick else lengths(LONGEST)
    sizes = [Size(PAIRS, n, n, dim) for n in wanted for dim in FEATURES]
    rows, missing = sweep(sizes, device, name, arguments.limit)
    write_rows([{**row, **stamp(commit)} for row in rows], target)
    print_table(rows)
    failed = sum("error" in row for row in rows)
    print(f"{len(rows)} sizes, {failed} with a failure, {missing} not measured for want of time, in {target}")
    return 1 if failed or missing else 0


if __name__ == "__main__":
    sys.exit(main())
