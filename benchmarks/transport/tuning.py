"""How transport's thresholds are measured: the problems of each (benchmarks/harness/tuning.py)."""

from __future__ import annotations

import warnings
from functools import partial

import torch

from benchmarks.harness.tuning import Choice, Crossing, Machine, Probe, Problem, Run
from benchmarks.transport import measure
from benchmarks.transport.graphs import swiss_roll
from benchmarks.transport.sizes import Size
from warpalign.transport import gromov_wasserstein_sampled, knn_graph, shortest_paths, sinkhorn


def _make(size: Size, device: torch.device) -> Run:
    return measure.Problem(size, device).run


def problem(size: Size, quantity: float | None = None) -> Problem:
    """A solve; with gradients where the size asks for them."""
    return Problem(size.name, partial(_make, size), quantity)


def teams_on_idle_multiprocessors(_: Machine) -> list[Problem]:
    """Problems with fewer blocks than there are multiprocessors, and some that have as many with small values alone."""
    sizes = [Size(1, n, n, iterations=50) for n in (640, 1024)]
    sizes += [Size(1, n, n, 3, iterations=50) for n in (640, 1024)]
    sizes += [Size(1, 600, 600, dtype="float64", iterations=50), Size(1, 1024, 1024, 64, iterations=50)]
    return [problem(size) for size in sizes]


def teams_of_given_costs(_: Machine) -> list[Problem]:
    sizes = [Size(1, n, 1000, iterations=50) for n in (1500, 3000, 6000)]
    sizes += [Size(2, 2000, 1000, iterations=50), Size(1, 3000, 500, dtype="float64", iterations=50)]
    sizes += [Size(1, 3000, 1000, iterations=50, half=True)]
    return [problem(size) for size in sizes]


def teams_of_kept_rows(_: Machine) -> list[Problem]:
    sizes = [Size(1, n, n, iterations=50) for n in (128, 256, 512)]
    sizes += [Size(1, 500, 500, 3, iterations=50), Size(1, 10000, 100, iterations=50)]
    sizes += [Size(16, 500, 500, iterations=50), Size(1, 256, 256, dtype="float64", iterations=50)]
    return [problem(size) for size in sizes]


def teams_of_points(_: Machine) -> list[Problem]:
    sizes = [Size(1, n, n, 3, iterations=50) for n in (1024, 2048, 3072, 4096)]
    return [problem(size) for size in [*sizes, Size(1, 2048, 2048, 64, iterations=50)]]


def gradients_of_units(_: Machine) -> list[Problem]:
    return [
        problem(Size(1, 2048, m, 64, iterations=1, gradient=True, precision="medium"), m // 64)
        for m in (256, 512, 1024, 1536, 2048, 4096, 8192)
    ]


def _sampled_steps(points: int, device: torch.device) -> Run:
    x = torch.randn(points, 3, generator=torch.Generator().manual_seed(0)).to(device)
    y = torch.randn(points, 3, generator=torch.Generator().manual_seed(1)).to(device)

    def run() -> object:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # five steps do not converge
            return gromov_wasserstein_sampled(
                x, y, epsilon=1e-2, max_iter=5, min_iter=5, polish_iters=1, generator=0, progress=False
            )

    return run


def sampled_steps(_: Machine) -> list[Problem]:
    return [
        Problem(f"5 sampled steps of {n}^2", partial(_sampled_steps, n), n, has_graph=False)
        for n in (2048, 4096, 6144, 8192, 12288, 16384)
    ]


def shared_solves(_: Machine) -> list[Problem]:
    return [problem(Size(1, n, n, iterations=20), n * n) for n in (64, 128, 192, 256, 384, 512, 1024)]


def _few_iterations(iterations: int, device: torch.device) -> Run:
    cost = torch.rand(400, 400, generator=torch.Generator().manual_seed(0)).to(device)
    return partial(sinkhorn, cost_matrix=cost, epsilon=0.05, max_iter=iterations, tol=0.0)


def few_iterations(_: Machine) -> list[Problem]:
    return [
        Problem(f"400x400, {count} iterations", partial(_few_iterations, count), count)
        for count in (1, 2, 4, 6, 8, 12, 16, 32)
    ]


def few_features(_: Machine) -> list[Problem]:
    """Costs that the second-level cache has no room for: there they pay last."""
    return [problem(Size(1, 1500, 1500, d, iterations=20, gradient=True), d) for d in (2, 4, 8, 16, 32, 64)]


def few_iterations_of_a_batch(_: Machine) -> list[Problem]:
    """Of a large batch of long rows, where kept exponentials pay last: with short rows they do from one iteration on."""
    counts = (1, 2, 4, 6, 8, 12, 16, 32)
    return [problem(Size(64, 500, 500, iterations=count), count) for count in counts]


def _paths(points: int, neighbors: int, sources: int, device: torch.device) -> Run:
    graph = knn_graph(swiss_roll(points, 0).to(device), neighbors)
    return partial(shortest_paths, graph, list(range(0, points, points // sources)))


def paths(points: int, neighbors: int, sources: int) -> Problem:
    """Shortest paths in a graph of nearest neighbours."""
    name = f"paths from {sources} of {points} nodes, {neighbors} neighbours"
    return Problem(name, partial(_paths, points, neighbors, sources), has_graph=False)


PROBES: dict[str, Probe] = {
    "block_elements": Choice(teams_of_given_costs, values=[2048, 4096, 8192, 16384, 32768]),
    "idle_block_elements": Choice(teams_on_idle_multiprocessors, values=[2048, 4096, 8192, 16384]),
    "kept_block_elements": Choice(teams_of_kept_rows, values=[4096, 8192, 16384, 32768]),
    "kept_cost_iterations": Crossing(few_iterations_of_a_batch),
    "point_block_elements": Choice(teams_of_points, values=[8192, 16384, 32768, 65536]),
    "sharing_steps": Crossing(gradients_of_units),
    "warpgroup_points": Crossing(sampled_steps),
    "search_limit_lengths": Choice(
        lambda _: [paths(3000, 5, 428), paths(6000, 15, 428), paths(20000, 5, 132)],
        values=[3, 4, 6, 8, 12, 16, 24],
    ),
    "thread_elements": Crossing(shared_solves, needs_threads=True),
    "kept_iterations": Crossing(few_iterations),
    "stored_features": Crossing(few_features),
    "joint_search_sources": Choice(lambda _: [paths(3000, 5, 428)], values=[2, 3, 4, 5, 6, 8]),
}
