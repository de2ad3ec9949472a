"""Times transport of low rank between point sets beside POT's torch backend, with the objectives and marginals that both reach.

x is N(0, 1) points, y a narrower normal distribution beside it, all weights equal, and costs are squared distances. POT runs as it is by
default, and with fewer iterations of its projection (`numItermax`), where its marginals are less exact. A run of POT that takes longer
than --limit seconds is stopped, and its row has that limit as `least_s`. `seconds` is the least of --runs after a first run of a few
steps; `marginals` is Σ |P 1 − a| + Σ |Pᵀ 1 − b|; `mib` is the peak of the allocator above the points.
Writes benchmarks/results/<device>/<date>-<commit>-transport-low-rank.json.
"""

from __future__ import annotations

import argparse
import signal
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

import torch
from torch import Tensor

from benchmarks.harness.results import (
    Row,
    add_arguments,
    device_name,
    result_path,
    rounded,
    stamp,
    write_rows,
)
from benchmarks.harness.timing import wall_s
from warpalign.transport import gromov_wasserstein_low_rank, sinkhorn_low_rank

SIZES = [(10_000, 32, 50), (100_000, 32, 50)]
CPU_SIZES = [(500, 3, 10), (2000, 32, 20)]
PROJECTIONS = (0, 100, 10)
"""POT's numItermax; 0: its default."""
STEPS = 20
"""Of ours, in a row of its own, which come below the objective at which POT's solver ends."""
Factors = tuple[Tensor, Tensor, Tensor]


class Solver(NamedTuple):
    """A way to solve a problem."""

    impl: str
    setting: str
    solve: Callable[[Tensor, Tensor], Factors]


def points(count: int, features: int, device: torch.device) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(count, features, generator=generator)
    y = 0.7 * torch.randn(count, features, generator=generator) + 0.5
    return x.to(device), y.to(device)


def solvers(kind: str, rank: int, projections: Sequence[int]) -> list[Solver]:
    function: Any = sinkhorn_low_rank if kind == "linear" else gromov_wasserstein_low_rank

    def ours(x: Tensor, y: Tensor, **options: Any) -> Factors:
        plan = function(x, y, rank=rank, generator=0, **options).plan
        return plan.q, plan.r, plan.weights

    found = [Solver("warpalign", "defaults", ours)]
    found += [Solver("warpalign", f"max_iter={STEPS}", partial(ours, max_iter=STEPS))]
    try:
        ot: Any = import_module("ot")
    except ImportError:
        return found

    def pot(iterations: int) -> Callable[[Tensor, Tensor], Factors]:
        if kind == "linear":
            options = {"numItermax": iterations} if iterations else {}
            return lambda x, y: ot.lowrank.lowrank_sinkhorn(x, y, rank=rank, warn=False, **options)
        options = {"numItermax_dykstra": iterations} if iterations else {}
        return lambda x, y: ot.gromov.lowrank_gromov_wasserstein_samples(
            x, y, rank=rank, warn=False, **options
        )

    return found + [
        Solver("POT", f"numItermax={one}" if one else "defaults", pot(one)) for one in projections
    ]


def measures(kind: str, x: Tensor, y: Tensor, factors: Factors) -> Row:
    """Objective and marginals in float64."""
    q, r, w = (t.double() for t in factors)
    x, y = x.double(), y.double()

    def product(one: Tensor, other: Tensor) -> Tensor:
        """oneᵀ P other"""
        return (one.T @ q / w) @ (r.T @ other)

    def columns(z: Tensor) -> tuple[Tensor, Tensor]:
        squares, ones = z.square().sum(1, keepdim=True), z.new_ones(len(z), 1)
        return torch.cat([squares, ones, -2 * z], 1), torch.cat([ones, squares, z], 1)

    rows, sums = q @ (r.sum(0) / w), r @ (q.sum(0) / w)
    marginals = (rows - 1 / len(x)).abs().sum() + (sums - 1 / len(y)).abs().sum()
    if kind == "linear":
        squares = rows @ x.square().sum(1) + sums @ y.square().sum(1)
        value = squares - 2 * product(x, y).trace()
    else:
        (a1, a2), (b1, b2) = columns(x), columns(y)
        value = -2 * (product(a2, b1) * product(a1, b2)).sum()
        for (one, other), weights in (((a1, a2), rows), ((b1, b2), sums)):
            value = (
                value + ((one.T @ (one * weights[:, None])) * (other.T @ (other * weights[:, None]))).sum()
            )
    return {"value": rounded(float(value), 6), "marginals": rounded(float(marginals), 2)}


def measured(kind: str, solver: Solver, x: Tensor, y: Tensor, runs: int, limit: int) -> Row:
    device = x.device
    synchronize: Callable[[], object] = torch.cuda.synchronize if device.type == "cuda" else lambda: None

    def stop(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, stop)
    before = torch.cuda.memory_allocated() if device.type == "cuda" else 0
    times = []
    try:
        for _ in range(runs if solver.impl == "warpalign" else 1):
            if device.type == "cuda":
                torch.cuda.reset_peak_memory_stats()
            signal.alarm(0 if solver.impl == "warpalign" else limit)
            factors, seconds = wall_s(lambda: solver.solve(x, y), synchronize)
            signal.alarm(0)
            times.append(seconds)
    except TimeoutError:
        return {"least_s": limit}
    finally:
        signal.alarm(0)
    row: Row = {"seconds": rounded(min(times))}
    if device.type == "cuda":
        row["mib"] = rounded((torch.cuda.max_memory_allocated() - before) / 2**20)
    return row | measures(kind, x, y, factors)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default: cpu)")
    parser.add_argument(
        "--runs", type=int, default=3, help="of ours, of which the least time counts (default: 3)"
    )
    parser.add_argument(
        "--limit", type=int, default=60, help="seconds that a run of POT may take (default: 60)"
    )
    parser.add_argument("--sizes", type=int, nargs="*", help="numbers of sizes, from 0 (default: all)")
    parser.add_argument(
        "--projections",
        type=int,
        nargs="*",
        default=PROJECTIONS,
        help="POT's numItermax; 0: its default (default: %(default)s)",
    )
    parser.add_argument("--kinds", nargs="*", default=["linear", "gromov"], choices=["linear", "gromov"])
    add_arguments(parser)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    device = torch.device(arguments.device)
    path, commit = result_path(arguments, device_name(device), "-transport-low-rank")
    sizes = CPU_SIZES if device.type == "cpu" else SIZES
    rows: list[Row] = []
    for count, features, rank in sizes if arguments.sizes is None else [sizes[k] for k in arguments.sizes]:
        x, y = points(count, features, device)
        for kind in arguments.kinds:
            size: Row = {"op": "transport-low-rank", "device": device_name(device), "kind": kind}
            size |= {"N": count, "M": count, "D": features, "rank": rank, "threads": torch.get_num_threads()}
            for solver in solvers(kind, rank, arguments.projections):
                solver.solve(x[:200], y[:200])  # loads what the first call loads
                row = size | {"impl": solver.impl, "setting": solver.setting}
                row |= measured(kind, solver, x, y, arguments.runs, arguments.limit)
                print(row, flush=True)
                rows.append(row | stamp(commit))
                write_rows(rows, path)  # a run may be ended
    print(path)


if __name__ == "__main__":
    main()
