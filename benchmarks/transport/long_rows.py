"""Compares the two implementations of iterations on long rows: of more than 512 costs, in float64 of more than 256.

    python -m benchmarks.transport.long_rows

One passes over the costs in each iteration, the other keeps exponentials in shared memory. Each problem is timed in a CUDA graph with
either of them forced: columns `passes_...` are of the way "block_rows" (given costs) or "points", columns `kept_...` of "kept_rows".
Errors are those of `measure.py`. Writes benchmarks/results/<gpu>/<date>-<commit>-transport-long-rows.json.
"""

from __future__ import annotations

import argparse

import torch

from benchmarks.harness.results import (
    Row,
    add_arguments,
    device_name,
    result_path,
    rounded,
    stamp,
    write_rows,
)
from benchmarks.harness.timing import graph_ms
from benchmarks.transport.measure import Problem
from benchmarks.transport.sizes import Size
from warpalign._core.ways import forced

_DENSE = [
    Size(1, 513, 513, iterations=50),
    Size(1, 640, 640, iterations=50),
    Size(1, 1024, 1024, iterations=50),
    Size(1, 1100, 1300),
    Size(1, 1500, 1500),
    Size(1, 2000, 2500),
    Size(1, 2500, 2500),
    Size(1, 10000, 600, iterations=50),
    Size(1, 600, 6000, iterations=50),
    Size(4, 1000, 1000, iterations=50),
    Size(64, 600, 600, iterations=50),
    Size(8, 2000, 3000, iterations=64),
    Size(1, 1000, 1000, iterations=50, kind="unbalanced"),
    Size(1, 1000, 1000, iterations=50, updates="symmetric"),
    Size(1, 1100, 1300, iterations=20, gradient=True),
    Size(1, 1100, 1300, iterations=8),
    Size(1, 1100, 1300, iterations=4),
    *(
        Size(1, n, m, dtype="float64", iterations=50)
        for n, m in ((300, 300), (700, 700), (1000, 1200), (1500, 1500))
    ),
    Size(1, 2000, 2000, half=True),
    Size(1, 2500, 2500, half=True),
]
_POINTS = [
    Size(1, 513, 513, 3, iterations=50),
    Size(1, 1024, 1024, 3, iterations=50),
    *(Size(1, n, n, 3, iterations=50, updates="symmetric", gradient=True) for n in (1024, 2048, 2500)),
    *(Size(1, n, n, 8, iterations=50, updates="symmetric", gradient=True) for n in (1024, 2048)),
    Size(1, 700, 700, 3, "float64", iterations=50, gradient=True),
    Size(1, 1500, 1500, 3, "float64", iterations=50),
    Size(4, 1000, 1000, 3, iterations=50, gradient=True),
    Size(64, 600, 600, 3, iterations=50, gradient=True),
    Size(1, 2048, 2048, 3, iterations=50, updates="symmetric", gradient=True, divergence=True),
    Size(1, 1024, 1024, 3, iterations=8),
    Size(1, 1024, 1024, 3, iterations=4),
]


def measured(size: Size, device: torch.device, budget_s: float) -> Row:
    problem = Problem(size, device)
    row: Row = {"op": "transport_long_rows", "device": device_name(device), "size": size.name}
    for name, way in (("passes", "points" if size.D else "block_rows"), ("kept", "kept_rows")):
        with forced("sinkhorn", way):
            row[f"{name}_ms"] = rounded(graph_ms(problem.run, device, budget_s))
            for what, error in zip(("value", "gradient"), problem.errors(), strict=True):
                if error is not None:
                    row[f"{name}_err_{what}"] = rounded(error, 2)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--budget", type=float, default=0.1, help="seconds of a time (default: 0.1)")
    add_arguments(parser)
    arguments = parser.parse_args()
    device = torch.device("cuda")
    path, commit = result_path(arguments, device_name(device), "-transport-long-rows")
    rows: list[Row] = []
    for size in _DENSE + _POINTS:
        row = measured(size, device, arguments.budget)
        print({key: value for key, value in row.items() if key not in ("op", "device")}, flush=True)
        rows.append(row | stamp(commit))
        write_rows(rows, path)
    print(path)


if __name__ == "__main__":
    main()
