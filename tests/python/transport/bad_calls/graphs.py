"""Graphs of points."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tests.python.bad_calls import BadCall, BadCalls
from warpalign.transport import (
    NeighborGraph,
    connected_components,
    farthest_landmarks,
    knn_graph,
    shortest_paths,
)


def graph_of(indptr: Any = (0, 1, 1), indices: Any = (1,), weights: Any = (1.0,)) -> NeighborGraph:
    return NeighborGraph(
        torch.tensor(indptr), torch.tensor(indices), torch.tensor(weights, dtype=torch.float32)
    )


def knn(message: str, *arguments: Any, error: type[BaseException] = ValueError, **options: Any) -> BadCall:
    return BadCall(lambda given: knn_graph(*(arguments or (torch.zeros(5, 2),)), **options), error, message)


def paths(message: str, graph: object, *arguments: Any, error: type[BaseException] = ValueError) -> BadCall:
    return BadCall(lambda given: shortest_paths(graph, *arguments), error, message)  # type: ignore[arg-type]


class Frame:
    """As a DataFrame of pandas."""

    index, columns = (0, 1), (1, 0)

    def to_numpy(self) -> Any:
        return np.ones((2, 2))

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.ones((2, 2))


CALLS: BadCalls = {
    "knn_graph: points in a list": knn(
        "x: expected a torch.Tensor, got list: write torch.as_tensor(x)",
        [[1.0]],
        error=TypeError,
    ),
    "knn_graph: a batch": knn(
        "x: expected the points of one set (N, D), got shape (1, 5, 2)", torch.zeros(1, 5, 2)
    ),
    "knn_graph: not on the CPU": knn(
        "x: expected a tensor on a CPU or a GPU, got one on meta",
        torch.zeros(5, 2, device="meta"),
    ),
    "knn_graph: a point that is nowhere": knn(
        "x: expected finite numbers, got nan at index 1", torch.tensor([[0.0], [torch.nan]])
    ),
    "knn_graph: a point that is too far": knn(
        "x: expected magnitudes below 2^500, got -4.149515568880993e+180 at index 1",
        torch.tensor([[0.0], [-(2.0**600)]], dtype=torch.float64),
    ),
    "knn_graph: no neighbours": knn("k: expected at least 1, got 0", k=0),
    "knn_graph: half a neighbour": knn("k: expected an int, got float", k=0.5, error=TypeError),
    "knn_graph: stitch a number": knn("stitch: expected a bool, got int", stitch=1, error=TypeError),
    "shortest_paths: of a list": paths(
        "graph: expected a NeighborGraph, a sparse tensor, a SciPy matrix, a NetworkX graph or a square matrix, got list",
        [],
        error=TypeError,
    ),
    "shortest_paths: of a batch": paths(
        "graph: expected a square matrix (N, N), got shape (1, 2, 2)", torch.zeros(1, 2, 2)
    ),
    "shortest_paths: of a table that is not square": paths(
        "graph: expected a square matrix (N, N), got shape (2, 3)", np.zeros((2, 3))
    ),
    "shortest_paths: of names": paths(
        "graph: expected a square matrix of real numbers, got <U1",
        np.array([["a", "b"]] * 2),
        error=TypeError,
    ),
    "shortest_paths: of a frame with other columns": paths(
        "graph: expected a DataFrame whose columns are the nodes of its rows, in their order, got other names: write "
        "graph.to_numpy() if only the order counts",
        Frame(),
    ),
    "shortest_paths: complex weights": paths(
        "graph: expected real weights, got torch.complex64",
        NeighborGraph(torch.tensor([0, 1]), torch.tensor([0]), torch.tensor([1j])),
        error=TypeError,
    ),
    "shortest_paths: indices that are no integers": paths(
        "graph: expected one axis of int64 or int32, got torch.float32 of shape (1,)",
        graph_of(indices=(1.0,)),
        error=TypeError,
    ),
    "shortest_paths: a node that is not there": paths(
        "graph.indices: expected nodes from 0 to N - 1, got 2", graph_of(indices=(2,))
    ),
    "shortest_paths: a length below 0": paths(
        "graph.weights: expected numbers >= 0, got -1", graph_of(weights=(-1.0,))
    ),
    "shortest_paths: rows that end before they begin": paths(
        "graph.indptr: expected numbers that never fall, got 0 at index 2", graph_of(indptr=(0, 1, 0))
    ),
    "shortest_paths: more edges than there are": paths(
        "graph.indptr: expected at most the number of edges, 1, got 3", graph_of(indptr=(0, 1, 3))
    ),
    "shortest_paths: a source that is not there": paths(
        "sources: expected nodes from 0 to N - 1, got 2 at index 1", graph_of(), [0, 2]
    ),
    "shortest_paths: one source": paths(
        "sources: expected a tensor, array or list of ints, got int", graph_of(), 0, error=TypeError
    ),
    "knn_graph: under vmap": BadCall(
        lambda given: torch.func.vmap(lambda x: knn_graph(x, 2).weights)(given.x),
        NotImplementedError,
        "warpalign: knn_graph is not available under torch.func.vmap: call it with a batch, or for each sample",
    ),
    "connected_components: of nothing": BadCall(
        lambda given: connected_components(None),  # type: ignore[arg-type]
        TypeError,
        "graph: expected a NeighborGraph, a sparse tensor, a SciPy matrix, a NetworkX graph or a square matrix, got NoneType",
    ),
    "farthest_landmarks: of nothing": BadCall(
        lambda given: farthest_landmarks(None, 1),  # type: ignore[arg-type]
        TypeError,
        "graph: expected a NeighborGraph, a sparse tensor, a SciPy matrix, a NetworkX graph or a square matrix, got NoneType",
    ),
    "farthest_landmarks: more than nodes": BadCall(
        lambda given: farthest_landmarks(graph_of(), 3),
        ValueError,
        "count: expected at most 2, the number of nodes, got 3",
    ),
    "farthest_landmarks: from a node that is not there": BadCall(
        lambda given: farthest_landmarks(graph_of(), 1, start=2),
        ValueError,
        "start: expected a node from 0 to 1, got 2",
    ),
}
