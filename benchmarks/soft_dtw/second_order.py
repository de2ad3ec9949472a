#!/usr/bin/env python3
"""Hessian-vector products of soft-DTW on one CPU core, next to the first-order step: ns per cell of the N x M tables.

    python -m benchmarks.soft_dtw.second_order

The step is the operator's value and both gradients, the product its directional derivative (which computes in float64
whatever the dtype), forward mode that of the value alone; gamma = 1, x, y and tangents ~ N(0, 1). Times are CPU
times of the thread and the least of the runs, because other programs may run beside them.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from benchmarks.harness.timing import least_thread_s
from warpalign._soft_dtw import ops

SIZES = ((64, 128, 1), (4, 512, 1), (1, 1024, 1), (4, 512, 8), (2, 512, 64))  # pairs, N = M, D
RUNS = 25


def least_ns(run: Callable[[], object], cells: int) -> float:
    return 1e9 * least_thread_s(run, RUNS) / cells


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print("| pairs | N x M | D | dtype | step | product | ratio | forward mode |")
    print("| ---: | ---: | ---: | --- | ---: | ---: | ---: | ---: |")
    for batch, n, d in SIZES:
        for dtype in (torch.float32, torch.float64):
            x, y, v, w = (torch.randn(batch, n, d, dtype=dtype) for _ in range(4))
            cells = batch * n * n
            step = least_ns(lambda: ops.series(x, y, None, None, 1.0, True, True), cells)  # noqa: B023
            product = least_ns(lambda: ops.series_jvp(x, y, v, w, None, None, 1.0, True, True), cells)  # noqa: B023
            value = least_ns(lambda: ops.series_jvp(x, y, v, w, None, None, 1.0, False, False), cells)  # noqa: B023
            name = str(dtype).removeprefix("torch.")
            print(
                f"| {batch} | {n} x {n} | {d} | {name} | {step:.2f} | {product:.2f} | {product / step:.1f} | {value:.2f} |"
            )


if __name__ == "__main__":
    main()
