"""Times neighbourhood graphs and all shortest paths of two spirals on a CPU, next to SciPy.

Usage: python -m benchmarks.transport.graphs [--nodes 5000 6000] [--k 5] [--threads T]. Times are CPU seconds of all threads,
which other programs do not change, and wall time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from importlib import import_module

import numpy as np
import torch

from warpalign.transport import NeighborGraph, knn_graph, shortest_paths


def spiral(n: int, seed: int) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    radius, angle = np.linspace(0.3, 1, n), np.linspace(0, 9, n)
    noise = rng.normal(size=(2, n)) * 0.05
    points = np.stack([(radius + noise[0]) * np.cos(angle), (radius + noise[1]) * np.sin(angle)], 1)
    return torch.from_numpy(points.astype(np.float32))


def swiss_roll(n: int, seed: int) -> torch.Tensor:
    """A spiral as above, with a height."""
    rng = np.random.default_rng(seed)
    radius, angle = np.linspace(0.3, 1, n), np.linspace(0, 9, n)
    noise = rng.normal(size=(2, n)) * 0.05
    height = 0.1 * rng.uniform(size=n) * 10
    across, along = (radius + noise[0]) * np.cos(angle), (radius + noise[1]) * np.sin(angle)
    return torch.from_numpy(np.stack([across, height, along], 1).astype(np.float32))


def seconds(run: Callable[[], object]) -> tuple[float, float]:
    """(CPU, wall)"""
    cpu, wall = time.process_time(), time.perf_counter()
    run()
    return time.process_time() - cpu, time.perf_counter() - wall


def all_pairs_of_scipy(graphs: list[NeighborGraph]) -> Callable[[], object] | None:
    try:
        sparse, csgraph = import_module("scipy.sparse"), import_module("scipy.sparse.csgraph")
    except ImportError:
        return None
    matrices = [
        sparse.csr_matrix((g.weights.double().numpy(), g.indices.numpy(), g.indptr.numpy())) for g in graphs
    ]
    return lambda: [csgraph.dijkstra(matrix) for matrix in matrices]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[5000, 6000])
    parser.add_argument("--k", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    points = [spiral(n, seed) for seed, n in enumerate(arguments.nodes)]
    graphs = [knn_graph(x, arguments.k) for x in points]
    rows: list[tuple[str, Callable[[], object] | None]] = [
        ("knn_graph", lambda: [knn_graph(x, arguments.k) for x in points]),
        ("shortest_paths, all pairs", lambda: [shortest_paths(graph) for graph in graphs]),
        ("SciPy's dijkstra, all pairs", all_pairs_of_scipy(graphs)),
    ]
    print(f"nodes {arguments.nodes}, k {arguments.k}, {arguments.threads} threads")
    for name, run in rows:
        if run is not None:
            cpu, wall = seconds(run)
            print(f"{name:30} {cpu:8.3f} s CPU {wall:8.3f} s wall")


if __name__ == "__main__":
    main()
