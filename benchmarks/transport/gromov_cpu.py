"""Sampled Gromov-Wasserstein on one core of a CPU beside POT's entropic solver: a spiral onto a Swiss roll, from points to plan.

    python -m benchmarks.transport.gromov_cpu [--largest 1200]

Every solve has a process of its own with one thread. `seconds` is the process's CPU time, graphs and shortest paths included;
`mib` is by how much its peak memory grows, after a small solve has loaded all code. `distortion` is the exact objective of the
final plan in float64, with all shortest paths, and `correlation` that of the places along both curves. Both solve the same
problem at the same epsilon; POT makes 20 outer steps. Writes
benchmarks/results/<cpu>/<date>-<commit>-gromov-cpu.json.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from collections.abc import Callable
from importlib.util import find_spec
from itertools import product
from multiprocessing import get_context
from multiprocessing.connection import Connection

import torch
from torch import Tensor

from benchmarks.harness.results import (
    Row,
    add_arguments,
    cpu_name,
    result_path,
    rounded,
    stamp,
    write_rows,
)
from benchmarks.transport.graphs import spiral
from benchmarks.transport.gromov_quality import NEIGHBORS, Truth, roll
from warpalign.transport import Geodesic, TransportPlan, gromov_wasserstein_sampled, knn_graph, shortest_paths

OURS = "warpalign"
SIZES = [(400, 500), (1000, 1200), (2000, 2500)]
MOST_OF_POT = 1200
STEPS_OF_POT = 20
EPSILONS = (1e-3, 5e-3)  # the first is the default


def sampled(x: Tensor, y: Tensor, epsilon: float) -> TransportPlan:
    return gromov_wasserstein_sampled(x, y, geometry=Geodesic(k=NEIGHBORS), epsilon=epsilon, generator=0).plan


def of_pot(x: Tensor, y: Tensor, epsilon: float) -> Tensor:
    import ot

    tables = [shortest_paths(knn_graph(points, NEIGHBORS)).double() for points in (x, y)]
    first, second = ((table / table.max()).numpy() for table in tables)
    plan = ot.gromov.entropic_gromov_wasserstein(first, second, epsilon=epsilon, max_iter=STEPS_OF_POT)
    return torch.from_numpy(plan)


SOLVERS: dict[str, Callable[[Tensor, Tensor, float], Tensor | TransportPlan]] = {OURS: sampled, "POT": of_pot}


def measured(impl: str, n: int, m: int, epsilon: float, answer: Connection) -> None:
    """Sends the measured columns of one solve in this process."""
    torch.set_num_threads(1)
    solve = SOLVERS[impl]
    solve(spiral(60, 0), roll(70), epsilon)
    x, y = spiral(n, 0), roll(m)
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    found = solve(x, y, epsilon)
    seconds = time.process_time() - start
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    # The dense table of a sampled plan is made after the measurement.
    plan = (found if isinstance(found, Tensor) else found.to_dense()).double()
    plan /= plan.sum()
    places = plan @ torch.arange(float(m), dtype=torch.float64) / plan.sum(1)
    ranks = torch.stack([places.argsort().argsort().double(), torch.arange(n).double()])
    answer.send(
        {
            "seconds": rounded(seconds, 3),
            "mib": rounded(grown, 3),
            "distortion": rounded(float(Truth(x, y, torch.device("cpu")).of.distortion(plan[None]))),
            "correlation": rounded(float(torch.corrcoef(ranks)[0, 1]), 5),
        }
    )


def alone(impl: str, n: int, m: int, epsilon: float) -> Row:
    """measured() in a process of its own."""
    context = get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=measured, args=(impl, n, m, epsilon, there))
    process.start()
    there.close()
    try:
        row: Row = here.recv()
    finally:
        process.join()
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--largest", type=int, default=max(m for _, m in SIZES), help="points of a set")
    add_arguments(parser)
    arguments = parser.parse_args()
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    path, commit = result_path(arguments, cpu_name(), "-gromov-cpu")
    rows: list[Row] = []
    for n, m in (size for size in SIZES if size[1] <= arguments.largest):
        impls = [OURS, "POT"] if find_spec("ot") is not None and m <= MOST_OF_POT else [OURS]
        for epsilon, impl in product(EPSILONS, impls):
            row: Row = {"op": "gromov_cpu", "impl": impl, "device": cpu_name(), "threads": 1}
            row |= {"N": n, "M": m, "epsilon": epsilon, **alone(impl, n, m, epsilon)}
            print({key: value for key, value in row.items() if key not in ("op", "device")}, flush=True)
            rows.append(row | stamp(commit))
            write_rows(rows, path)
    print(path)


if __name__ == "__main__":
    main()
