#!/usr/bin/env python3
"""Hessian-vector products of soft-DTW on one CPU core, next to the first-order step: ns per cell of the N x M tables.

    python -m benchmarks.soft_dtw.second_order [--out DIR]

The step is the operator's value and both gradients, the product its directional derivative (which computes in float64
whatever the dtype), forward mode that of the value alone; gamma = 1, x, y and tangents ~ N(0, 1). Times are CPU
times of the thread and the least of the runs, because other programs may run beside them. Writes
<cpu>/<date>-<commit>-second-order.json.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch

from benchmarks.harness.results import (
    Row,
    add_arguments,
    cpu_name,
    result_path,
    rounded,
    stamp,
    write_rows,
)
from benchmarks.harness.timing import least_thread_s
from warpalign._soft_dtw import ops

SIZES = ((64, 128, 1), (4, 512, 1), (1, 1024, 1), (4, 512, 8), (2, 512, 64))  # pairs, N = M, D
RUNS = 25


def least_ns(run: Callable[[], object], cells: int) -> float:
    return 1e9 * least_thread_s(run, RUNS) / cells


def measured(batch: int, n: int, d: int, dtype: torch.dtype) -> Row:
    x, y, v, w = (torch.randn(batch, n, d, dtype=dtype) for _ in range(4))
    runs: dict[str, Callable[[], object]] = {
        "step_ns": lambda: ops.series(x, y, None, None, 1.0, True, True),
        "product_ns": lambda: ops.series_jvp(x, y, v, w, None, None, 1.0, True, True),
        "forward_mode_ns": lambda: ops.series_jvp(x, y, v, w, None, None, 1.0, False, False),
    }
    return {name: rounded(least_ns(run, batch * n * n), 3) for name, run in runs.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    add_arguments(parser)
    path, commit = result_path(parser.parse_args(), cpu_name(), "-second-order")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows: list[Row] = []
    for batch, n, d in SIZES:
        for dtype in (torch.float32, torch.float64):
            row: Row = {"op": "soft_dtw_second_order", "device": cpu_name(), "threads": 1}
            row |= {"B": batch, "N": n, "D": d, "dtype": str(dtype).removeprefix("torch.")}
            row |= measured(batch, n, d, dtype)
            print({key: value for key, value in row.items() if key not in ("op", "device")}, flush=True)
            rows.append(row | stamp(commit))
    write_rows(rows, path)
    print(path)


if __name__ == "__main__":
    main()
