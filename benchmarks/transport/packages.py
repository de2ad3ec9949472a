"""Times the gradient of entropic transport between point sets beside other packages at equal epsilon, objective and accuracy.

Each package solves min ⟨C, P⟩ + epsilon KL(P | a bᵀ) of squared distances and returns the gradient with respect to x. Of each
way that a package has, the cheapest setting whose gradient is within 1 % of the converged one in float64 (relative L2) is timed, and
the fastest way counts: the least of several runs after a warm-up, which compiles. --one-core measures the process's CPU time on one core,
which other programs hardly change; otherwise all cores or a GPU by the clock.
Writes benchmarks/results/<device>/<date>-<commit>-transport-packages.json.
"""

from __future__ import annotations

import argparse
import math
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from benchmarks.harness.results import (
    Row,
    add_arguments,
    device_name,
    read_rows,
    result_path,
    rounded,
    stamp,
    write_rows,
)
from benchmarks.harness.timing import wall_s
from benchmarks.transport.package_solvers import PACKAGES, Family, Problem, families
from warpalign.transport import sinkhorn

ACCURACY = 0.01
SHARES = (0.05, 0.02)
"""Epsilon over the mean cost."""
SIZES = [(500, 3), (2000, 3), (2000, 64), (5000, 3)]
GPU_SIZES = [(2000, 3), (10_000, 3), (20_000, 3), (10_000, 64)]
SLOW_S = 20.0
"""A way that takes longer than this at one setting ends there."""


def problem(count: int, features: int, share: float, device: torch.device) -> Problem:
    """Two normal distributions of different width and place."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(count, features, generator=generator)
    y = 0.7 * torch.randn(count, features, generator=generator) + 0.5
    mean = float(torch.cdist(x[:1000].double(), y[:1000].double()).square().mean())
    return Problem(x.to(device), y.to(device), share * mean, mean)


def exact_gradient(of: Problem) -> Tensor:
    """In float64, converged."""
    x = of.x.double().requires_grad_()
    result = sinkhorn(
        x, of.y.double(), epsilon=of.epsilon, annealing=of.mean_cost, tol=1e-4, max_iter=100_000
    )
    assert bool(result.converged)
    return torch.autograd.grad(result.value, x)[0]


class Clock(NamedTuple):
    """How a run is timed."""

    one_core: bool
    synchronize: Callable[[], object]

    def seconds(self, run: Callable[[], Tensor]) -> tuple[Tensor, float]:
        if not self.one_core:
            return wall_s(run, self.synchronize)
        start = time.process_time()
        result = run()
        return result, time.process_time() - start


def fastest_setting(family: Family, exact: Tensor, runs: int, clock: Clock) -> Row | None:
    """The first setting of a family that is accurate enough, and its time; None if there is none."""
    for way in family.ways:
        try:
            found, first = clock.seconds(way.gradient)
        except (AttributeError, MemoryError, RuntimeError, ValueError) as problem:
            # The package cannot run this way on this machine; its own message says why.
            print(f"{family.package}, {family.name}: {str(problem).splitlines()[0][:100]}", flush=True)
            return None
        error = float((found.double() - exact).norm() / exact.norm())
        print(f"{family.package}, {family.name}, {way.setting}: {first:.3g} s, error {error:.2g}", flush=True)
        if error <= ACCURACY:
            count = runs if first < 5 else 2
            times = [clock.seconds(way.gradient)[1] for _ in range(count)]
            return {
                "impl": family.package,
                "way": family.name,
                "setting": way.setting,
                "ms": rounded(1e3 * min(times)),
                "error": rounded(error, 2),
            }
        if first > SLOW_S or math.isnan(error):
            return None
    return None


def measured(of: Problem, packages: Sequence[str], runs: int, clock: Clock) -> Iterator[list[Row]]:
    """The fastest way of each package so far, after each way."""
    exact = exact_gradient(of)
    best: dict[str, Row] = {}
    for family in families(of, packages):
        row = fastest_setting(family, exact, runs, clock)
        if row and row["ms"] < best.get(row["impl"], {"ms": float("inf")})["ms"]:
            best[row["impl"]] = row
        yield list(best.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--runs", type=int, default=7, help="of which the least time counts (default: 7)")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default: cpu)")
    parser.add_argument("--sizes", type=int, nargs="*", help="numbers of sizes, from 0 (default: all)")
    parser.add_argument("--shares", type=float, nargs="*", default=SHARES, help="of epsilon in the mean cost")
    parser.add_argument("--packages", nargs="*", default=list(PACKAGES), choices=list(PACKAGES))
    parser.add_argument("--one-core", action="store_true", help="CPU time on one core of a CPU")
    add_arguments(parser)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    device = torch.device(arguments.device)
    if arguments.one_core:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # before other packages make their threads
        torch.set_num_threads(1)
    clock = Clock(arguments.one_core, torch.cuda.synchronize if device.type == "cuda" else lambda: None)
    path, commit = result_path(arguments, device_name(device), "-transport-packages")
    rows = read_rows(path) if path.exists() else []  # earlier runs measured other sizes
    sizes = SIZES if device.type == "cpu" else GPU_SIZES
    for count, features in sizes if arguments.sizes is None else [sizes[k] for k in arguments.sizes]:
        for share in arguments.shares:
            size: Row = {"op": "transport-packages", "device": device_name(device), "N": count, "M": count}
            size |= {"D": features, "epsilon_share": share, "threads": torch.get_num_threads()}
            found: list[Row] = []
            of = problem(count, features, share, device)
            for found in measured(of, arguments.packages, arguments.runs, clock):
                write_rows(rows + [size | row | stamp(commit) for row in found], path)  # a run may be ended
            for row in found:
                print(size | row, flush=True)
                rows.append(size | row | stamp(commit))
    print(path)


if __name__ == "__main__":
    main()
