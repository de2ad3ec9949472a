"""Times whole solves of transport on a CPU: sampled Gromov-Wasserstein, Sinkhorn, and gradients.

Usage: python -m benchmarks.transport.cpu_solves [--points 400 500] [--seeds 3] [--runs 5] [--threads 1]

Seconds are CPU time of this thread: other programs may run beside it. With more than one thread they are wall time, for
which the machine must be idle, and only Gromov-Wasserstein is timed. Of Gromov-Wasserstein (a spiral onto a Swiss roll,
distances by landmarks, graphs of 5 neighbours, defaults otherwise) a row is one seed's solve, with the estimate of its
distortion, the signed correlation of places along both curves, and how far sums are from their weights. Of the others it
is the least of several runs, beside that of another package where it is installed, with CPU time of its thread, too: POT's kernel form of
Sinkhorn, and geomloss' divergence with its defaults. Writes benchmarks/results/<cpu>/<date>-<commit>-transport-solves.json.
"""

from __future__ import annotations

import argparse
import time
import warnings
from importlib.util import find_spec

import torch

from benchmarks.harness.results import Row, add_arguments, cpu_name, result_path, rounded, stamp, write_rows
from benchmarks.harness.timing import least_thread_s
from benchmarks.transport.graphs import spiral
from benchmarks.transport.gromov_quality import NEIGHBORS, correlation, off_sums, roll
from warpalign.transport import Geodesic, gromov_wasserstein_sampled, sinkhorn, sinkhorn_divergence


def gromov(n: int, m: int, seed: int) -> Row:
    x, y = spiral(n, 0), roll(m)
    now = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    start = now()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = gromov_wasserstein_sampled(
            x, y, epsilon=1e-3, geometry=Geodesic(k=NEIGHBORS, n_landmarks=50), generator=seed
        )
    seconds = now() - start
    return {
        "op": "gromov_wasserstein_sampled",
        "N": n,
        "M": m,
        "seed": seed,
        "seconds": rounded(seconds),
        "steps": int(found.iterations),
        "estimate": rounded(float(found.distortion)),
        "estimate_std": rounded(float(found.distortion_std), 2),
        "correlation": rounded(correlation(found.plan), 5),
        "off_sums": rounded(off_sums(found.plan), 2),
    }


def sinkhorn_row(n: int, m: int, iterations: int, runs: int) -> Row:
    cost = torch.rand(n, m, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    seconds = least_thread_s(
        lambda: sinkhorn(cost_matrix=cost, epsilon=0.05, max_iter=iterations, tol=0.0), runs
    )
    row: Row = {"op": "sinkhorn", "N": n, "M": m, "dtype": "float64", "iterations": iterations}
    row |= {"what": f"Sinkhorn, {n} × {m}, float64, {iterations} iterations", "seconds": rounded(seconds)}
    if find_spec("ot") is None:
        return row
    import ot

    a, b = (torch.full((k,), 1 / k, dtype=torch.float64).numpy() for k in (n, m))
    costs = cost.numpy()

    def of_pot() -> object:
        return ot.sinkhorn(a, b, costs, 0.05, numItermax=iterations, stopThr=0, warn=False)

    return row | {"peer": "POT, kernel form", "peer_seconds": rounded(least_thread_s(of_pot, runs))}


def divergence(n: int, m: int, runs: int) -> Row:
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.rand(count, 3, generator=generator) for count in (n, m))
    x.requires_grad_()

    def step() -> None:
        torch.autograd.grad(sinkhorn_divergence(x, y, epsilon=0.01).sum(), x)

    row: Row = {"op": "sinkhorn_divergence, gradient", "N": n, "M": m, "D": 3}
    row |= {"what": f"divergence with its gradient, {n} × {m}, D 3, defaults"}
    row["seconds"] = rounded(least_thread_s(step, runs))
    if find_spec("geomloss") is None:
        return row
    from geomloss import SamplesLoss

    # Its cost is half the squared distance, and its epsilon blur ** 2.
    loss = SamplesLoss("sinkhorn", p=2, blur=0.005**0.5, backend="tensorized")

    def of_geomloss() -> None:
        torch.autograd.grad(loss(x, y), x)

    return row | {"peer": "geomloss, defaults", "peer_seconds": rounded(least_thread_s(of_geomloss, runs))}


def potentials(count: int, features: int, runs: int) -> Row:
    """The backward pass of the rows' potentials, which solves a linear system."""
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(count, features, generator=generator) for _ in range(2))
    x.requires_grad_()
    f = sinkhorn(x, y, epsilon=0.2 * features).f
    seconds = least_thread_s(
        lambda: torch.autograd.grad(f.square().sum(), x, retain_graph=True), max(runs, 3)
    )
    row: Row = {"op": "sinkhorn, gradient of potentials", "N": count, "M": count, "D": features}
    return row | {
        "what": f"backward pass of potentials, {count} × {count}, D {features}",
        "seconds": rounded(seconds),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--points", type=int, nargs=2, default=[400, 500])
    parser.add_argument("--seeds", type=int, default=3, help="0: the other operators alone")
    parser.add_argument("--runs", type=int, default=5, help="of which the least time counts (default: 5)")
    parser.add_argument("--threads", type=int, default=1, help="more than 1: wall time (default: 1)")
    add_arguments(parser)
    arguments = parser.parse_args()
    if arguments.threads > 1 and arguments.seeds == 0:
        parser.error("--threads is for Gromov-Wasserstein: --seeds must be at least 1")
    torch.set_num_threads(arguments.threads)
    path, commit = result_path(arguments, cpu_name(), "-transport-solves")
    n, m = arguments.points
    rows = [gromov(n, m, seed) for seed in range(arguments.seeds)]
    if not rows:
        rows = [sinkhorn_row(1500, 1200, 100, arguments.runs), divergence(800, 700, arguments.runs)]
        rows += [potentials(1000, features, arguments.runs) for features in (3, 64, 256)]
    about: Row = {"device": cpu_name(), "threads": arguments.threads}
    rows = [about | row | stamp(commit) for row in rows]
    for row in rows:
        print(row, flush=True)
    write_rows(rows, path)
    print(path)


if __name__ == "__main__":
    main()
