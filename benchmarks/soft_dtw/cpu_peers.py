#!/usr/bin/env python3
"""Soft-DTW on the CPU, side by side in one run: warpalign, and the Numba paths of tslearn and pysdtw.

Every implementation gets the same float32 series, is warmed up, and is timed on one thread and on all:
forward alone, and a training step (forward, sum, backward to both series). Errors are relative L2 errors
against float64. Writes benchmarks/results/<cpu>/<date>-<commit>-peers.json and prints a table with the ratio
to the best peer.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from tqdm import tqdm

from benchmarks.harness.results import Row, add_arguments, cpu_name, result_path, rounded, stamp, write_rows
from benchmarks.harness.timing import median_ms
from benchmarks.soft_dtw.measure import relative_error
from benchmarks.soft_dtw.sizes import Size
from tests.python.soft_dtw.reference import soft_dtw_float64

Loss = Callable[[Tensor, Tensor], Tensor]

SIZES = [
    Size(batch, length, length, dim) for dim in (1, 8) for batch, length in ((64, 128), (16, 512), (4, 1024))
]
OURS = "warpalign"


def implementations(gamma: float) -> dict[str, tuple[Loss, bool]]:
    """Name -> (losses of a batch (B,), whether it has a gradient)."""
    import pysdtw
    import tslearn.metrics

    import warpalign

    tslearn_loss = tslearn.metrics.SoftDTWLossPyTorch(gamma=gamma)
    pysdtw_loss = pysdtw.SoftDTW(gamma=gamma, use_cuda=False)

    def tslearn_function(x: Tensor, y: Tensor) -> Tensor:
        pairs = zip(x.double().numpy(), y.double().numpy(), strict=True)
        return torch.tensor([tslearn.metrics.soft_dtw(a, b, gamma=gamma) for a, b in pairs])

    return {
        OURS: (lambda x, y: warpalign.soft_dtw(x, y, gamma=gamma), True),
        "tslearn soft_dtw": (tslearn_function, False),
        "tslearn SoftDTWLossPyTorch": (tslearn_loss, True),
        "pysdtw": (pysdtw_loss, True),
    }


@contextmanager
def thread_count(count: int) -> Iterator[None]:
    """Limits torch's and Numba's threads."""
    import numba

    before = torch.get_num_threads(), numba.get_num_threads()
    torch.set_num_threads(count)
    numba.set_num_threads(min(count, before[1]))
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        numba.set_num_threads(before[1])


CPU = torch.device("cpu")


def measure(size: Size, loss: Loss, has_gradient: bool, budget_s: float) -> Row:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(size.B, size.N, size.D, generator=generator)
    y = torch.randn(size.B, size.M, size.D, generator=generator)
    leaves = x.clone().requires_grad_(), y.clone().requires_grad_()

    def step() -> tuple[Tensor, ...]:
        return torch.autograd.grad(loss(*leaves).sum(), leaves)

    with torch.no_grad():
        forward_ms = median_ms(lambda: loss(x, y), CPU, budget_s)
        value = loss(x[:2], y[:2])
    reference = soft_dtw_float64(x[:2], y[:2], size.gamma)
    row: Row = {
        "forward_ms": rounded(forward_ms),
        "step_ms": None,
        "mib": None,
        "cells_per_s": rounded(1e3 * size.cells / forward_ms),
        "err_loss": rounded(relative_error(value, reference.value), 3),
        "err_gx": None,
        "err_gy": None,
    }
    if has_gradient:
        row["step_ms"] = rounded(median_ms(step, CPU, budget_s))
        grad_x, grad_y = step()
        row["err_gx"] = rounded(relative_error(grad_x[:2], reference.grad_x), 3)
        row["err_gy"] = rounded(relative_error(grad_y[:2], reference.grad_y), 3)
    return row


def best_peer(rows: list[Row], row: Row, column: str) -> float | None:
    """Least time of another implementation at the size and the number of threads of `row`."""
    keys = ("B", "N", "M", "D", "gamma", "threads")
    times = [
        other[column]
        for other in rows
        if other["impl"] != OURS and other[column] and all(other[k] == row[k] for k in keys)
    ]
    return min(times, default=None)


def print_table(rows: list[Row]) -> None:
    header = f"{'BxNxMxD':15}{'threads':>8}  {'implementation':28}"
    header += f"{'forward ms':>12}{'ns/cell':>9}{'step ms':>10}{'ns/cell':>9}{'grad error':>12}"
    print(f"{header}{'ratio':>15}")
    for row in rows:
        size = Size(row["B"], row["N"], row["M"], row["D"])
        line = f"{size.name.split('@')[0]:15}{row['threads']:>8}  {row['impl']:28}"
        for column, width in (("forward_ms", 12), ("step_ms", 10)):
            if row[column] is None:
                line += f"{'-':>{width}}{'-':>9}"
            else:
                line += f"{row[column]:>{width}.2f}{1e6 * row[column] / size.cells:>9.2f}"
        line += f"{'-':>12}" if row["err_gx"] is None else f"{row['err_gx']:>12.1e}"
        if row["impl"] == OURS:
            ratios = [(best_peer(rows, row, c) or 0.0) / row[c] for c in ("forward_ms", "step_ms")]
            line += "  " + " / ".join(f"{ratio:.1f}x" for ratio in ratios).rjust(13)
        print(line)
    print("ratio: time of the best peer over warpalign's, forward / training step")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="the smallest sizes only")
    add_arguments(parser)
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", category=DeprecationWarning)

    sizes = [size for size in SIZES if size.N <= 128] if arguments.quick else SIZES
    all_threads = torch.get_num_threads()
    target, commit = result_path(arguments, cpu_name(), "-peers")
    rows: list[Row] = []
    runs = [
        (size, threads, name, *implementation)
        for size in sizes
        for threads in sorted({1, all_threads})
        for name, implementation in implementations(size.gamma).items()
    ]
    for size, threads, name, loss, has_gradient in tqdm(runs, unit="run", leave=False, disable=None):
        row: Row = {"op": "soft_dtw", "impl": name, "threads": threads, **size._asdict(), "dtype": "float32"}
        row |= {"precision": torch.get_float32_matmul_precision(), "device": cpu_name()}
        with thread_count(threads):
            row |= measure(size, loss, has_gradient, 0.1 if arguments.quick else 0.5)
        rows.append({**row, **stamp(commit)})
    print_table(rows)
    write_rows(rows, target)
    print(f"written: {target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
