"""Quality of sampled Gromov-Wasserstein matchings: a spiral onto a Swiss roll, by the exact objective of the final plan.

Usage: python -m benchmarks.transport.gromov_quality [--points 400 500] [--seeds 12] [--geometry geodesic landmark] [--device D]

A row is the median over seeds of: the exact distortion of the plan with all shortest paths, the signed correlation of
places along both curves, steps, how far sums are from their weights, and seconds. Seconds are CPU time of all threads on
a CPU, which other programs do not change, and wall time on a GPU. A mirrored matching has a correlation of about −1 and
four times the distortion. --with-multiscale adds rows that start from coarse problems, one start and three. --with-exact
adds the exact gradient's row, and that with a coarse start.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
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
from benchmarks.transport.graphs import spiral
from warpalign._transport.gromov_solver import Objective
from warpalign.transport import (
    Geodesic,
    TransportPlan,
    gromov_wasserstein,
    gromov_wasserstein_sampled,
    knn_graph,
    shortest_paths,
)

NEIGHBORS = 5
EPSILON = 1e-3
RIGHT = 0.99
"""A matching with a signed correlation above this is the right one."""


def roll(m: int) -> Tensor:
    """(m, 3) float32: the spiral of seed 1 with a height."""
    rng = np.random.default_rng(1)
    rng.normal(size=(2, m))  # spiral()'s draws come first
    height = torch.from_numpy(rng.uniform(size=(m, 1)).astype(np.float32))
    flat = spiral(m, 1)
    return torch.cat([flat[:, :1], height, flat[:, 1:]], 1)


class Truth:
    """All shortest paths of both sets, in float64, and what they say of plans."""

    def __init__(self, x: Tensor, y: Tensor, device: torch.device) -> None:
        tables = []
        for points in (x, y):
            lengths = shortest_paths(knn_graph(points, NEIGHBORS)).double()
            tables.append((lengths / lengths.max())[None].to(device))
        self.of = Objective(tables[0], tables[1], True, None, 0.0)

    def distortion(self, plan: TransportPlan) -> float:
        table = plan.to_dense().double()
        # The objective's factor 1 is that of plans whose mass is 1.
        return float(self.of.distortion((table / table.sum())[None]))


def correlation(plan: TransportPlan) -> float:
    """The correlation between the ranks of barycentric places and the rows' order."""
    n, m = plan.shape
    places = plan.barycentric_map(torch.arange(float(m), device=plan.f.device)[:, None])[:, 0]
    ranks = places.argsort().argsort().double()
    return float(torch.corrcoef(torch.stack([ranks, torch.arange(n, device=ranks.device).double()]))[0, 1])


def off_sums(plan: TransportPlan) -> float:
    """The largest relative distance of a row's or column's sum from its weight."""
    n, m = plan.shape
    return max(float((plan.marginal(1) * n - 1).abs().max()), float((plan.marginal(0) * m - 1).abs().max()))


def measured(
    solve: Callable[[int], tuple[TransportPlan, int]], truth: Truth, seeds: int, device: torch.device
) -> Row:
    """Medians over seeds."""
    found: list[tuple[float, float, int, float, float]] = []
    clock = time.perf_counter if device.type == "cuda" else time.process_time
    for seed in range(seeds):
        start = clock()
        plan, steps = solve(seed)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds = clock() - start
        found.append((truth.distortion(plan), correlation(plan), steps, off_sums(plan), seconds))
    medians = [statistics.median(column) for column in zip(*found, strict=True)]
    return {
        "seeds": seeds,
        "right": sum(one[1] >= RIGHT for one in found),
        "distortion": rounded(medians[0]),
        "distortion_worst": rounded(max(one[0] for one in found)),
        "correlation": rounded(medians[1], 5),
        "correlation_worst": rounded(min(one[1] for one in found), 5),
        "steps": medians[2],
        "steps_most": max(one[2] for one in found),
        "off_sums": rounded(medians[3], 2),
        "seconds": rounded(medians[4], 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, nargs=2, default=[400, 500])
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--geometry", nargs="+", default=["geodesic", "landmark"])
    parser.add_argument("--with-multiscale", action="store_true")
    parser.add_argument("--with-exact", action="store_true")
    parser.add_argument("--device", type=torch.device, default=torch.device("cpu"))
    add_arguments(parser)
    arguments = parser.parse_args()
    device: torch.device = arguments.device
    n, m = arguments.points
    x, y = spiral(n, 0), roll(m)
    truth = Truth(x, y, device)
    placed = (x.to(device), y.to(device))

    def sampled(name: str, **options: Any) -> Callable[[int], tuple[TransportPlan, int]]:
        geometry = Geodesic(k=NEIGHBORS, n_landmarks=50 if name == "landmark" else None)

        def solve(seed: int) -> tuple[TransportPlan, int]:
            result = gromov_wasserstein_sampled(
                *placed, epsilon=EPSILON, geometry=geometry, generator=seed, **options
            )
            return result.plan, int(result.iterations)

        return solve

    def exact(init: Literal["eccentricity", "multiscale"]) -> Callable[[int], tuple[TransportPlan, int]]:
        def solve(seed: int) -> tuple[TransportPlan, int]:
            result = gromov_wasserstein(
                *placed, epsilon=EPSILON, geometry=Geodesic(k=NEIGHBORS), generator=seed, init=init
            )
            return result.plan, int(result.iterations)

        return solve

    cases = [(f"sampled, {name}", sampled(name), arguments.seeds) for name in arguments.geometry]
    if arguments.with_multiscale:
        for count in (1, 3):
            coarse = sampled("geodesic", init="multiscale", restarts=count)
            cases.append((f"sampled, geodesic, multiscale, {count} starts", coarse, arguments.seeds))
    if arguments.with_exact:
        cases.append(("exact", exact("eccentricity"), 1))
        cases.append(("exact, multiscale", exact("multiscale"), 3))
    path, commit = result_path(arguments, device_name(device), f"-gromov-quality-{n}x{m}")
    rows: list[Row] = []
    for name, solve, seeds in cases:
        with torch.no_grad():
            row = measured(solve, truth, seeds, device)
        of_case: Row = {
            "op": "gromov_wasserstein",
            "case": name,
            "device": device_name(device),
            "N": n,
            "M": m,
        }
        rows.append(of_case | row | stamp(commit))
        print(", ".join(f"{key} {value}" for key, value in (of_case | row).items()))
        write_rows(rows, path)


if __name__ == "__main__":
    main()
