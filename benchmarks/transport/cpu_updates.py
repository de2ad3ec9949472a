"""Times a Sinkhorn divergence with its gradient to a given error on one core of a CPU, by either way to update potentials.

The problems of a divergence: between sets of different distributions, between samples of one distribution, between a set and
itself after a small move, which is what training ends with, and of a set with itself. `ms` is CPU time of this thread, the least of
several runs; `iterations` those at the final epsilon. `value_error` is relative to the value at an error of 1e-9 in float64,
`gradient_error` the largest difference of the gradient by the points from that one's, over its largest entry.
Writes benchmarks/results/<cpu>/<date>-<commit>-transport-updates.json.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor

from benchmarks.harness.results import Row, add_arguments, cpu_name, result_path, rounded, stamp, write_rows
from benchmarks.harness.timing import least_thread_s
from warpalign._transport.settings import Updates
from warpalign.transport import SinkhornResult, sinkhorn

POINTS, DIM, MOST = 400, 3, 20000
EPSILONS = (0.05, 0.5)  # of the mean cost
UPDATES: tuple[Updates, ...] = ("alternating", "symmetric", "mixed")


def problems() -> dict[str, tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    x, y, z = (torch.randn(POINTS, DIM, generator=generator) for _ in range(3))
    return {
        "different": (x, 0.7 * y + 0.5),
        "samples": (x, y),
        "moved": (x, x + 0.05 * z),
        "itself": (x, x),
    }


def solved(
    x: Tensor, y: Tensor, epsilon: float, updates: Updates, tol: float
) -> tuple[SinkhornResult, Tensor]:
    x = x.clone().requires_grad_()
    result = sinkhorn(
        x, y, epsilon=epsilon, cost_normalization="mean", updates=updates, max_iter=MOST, tol=tol
    )
    (gradient,) = torch.autograd.grad(result.value, x)
    return result, gradient


def measured(x: Tensor, y: Tensor, epsilon: float, runs: int) -> list[Row]:
    truth, slope = solved(x.double(), y.double(), epsilon, "alternating", 1e-9)
    rows: list[Row] = []
    for updates in UPDATES:
        for tol in (1e-3, 1e-5):
            result, gradient = solved(x, y, epsilon, updates, tol)
            seconds = least_thread_s(lambda: solved(x, y, epsilon, updates, tol), runs)  # noqa: B023
            rows.append(
                {
                    "epsilon": epsilon,
                    "updates": updates,
                    "tol": tol,
                    "iterations": int(result.iterations),
                    "converged": bool(result.converged),
                    "ms": rounded(1e3 * seconds),
                    "value_error": rounded(abs(float(result.value.detach() / truth.value.detach()) - 1)),
                    "gradient_error": rounded(float((gradient - slope).abs().max() / slope.abs().max())),
                }
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--runs", type=int, default=3, help="of which the least time counts (default: 3)")
    add_arguments(parser)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    path, commit = result_path(arguments, cpu_name(), "-transport-updates")
    rows: list[Row] = []
    for name, (first, second) in problems().items():
        for epsilon in EPSILONS:
            for row in measured(first, second, epsilon, arguments.runs):
                own = {
                    "op": "sinkhorn",
                    "device": cpu_name(),
                    "threads": 1,
                    "problem": name,
                    "N": POINTS,
                    "D": DIM,
                }
                print(name, row, flush=True)
                rows.append(own | row | stamp(commit))
    write_rows(rows, path)
    print(path)


if __name__ == "__main__":
    main()
