"""The kernels of graphs on small odd shapes: part of sanitize.py, on a GPU alone. The CPU's results are the reference."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from benchmarks.harness.sanitizer_cases import Case
from warpalign.transport import (
    NeighborGraph,
    connected_components,
    farthest_landmarks,
    knn_graph,
    shortest_paths,
)

# Points, features, neighbours: several tiles and blocks, features in pieces, two passes of neighbours, a long row.
_SHAPES = ((131, 3, 5), (70, 37, 3), (90, 2, 66), (1, 2, 0))


def _points(n: int, dim: int) -> Tensor:
    """In three clusters, on a grid on which squared distances have no error."""
    points = torch.randn(n, dim, generator=torch.Generator().manual_seed(n)).mul(64).round().div(64)
    return points + 20 * (torch.arange(n) % 3)[:, None]


def _star(n: int) -> Tensor:
    """Every point is a neighbour of the first one."""
    return torch.eye(n).mul(8).index_fill(0, torch.tensor([0]), 0.0)


def _differs(found: NeighborGraph, expected: NeighborGraph) -> str | None:
    for name, ours, theirs in zip(NeighborGraph._fields, found, expected, strict=True):
        if not torch.equal(ours.cpu(), theirs):
            return name
    return None


def graph_wrong(x: Tensor, k: int, device: torch.device) -> str | None:
    """What is wrong with a graph of points, or with what is found of it, if anything is."""
    for stitch in (True, False):
        expected = knn_graph(x, max(k, 1), stitch=stitch)
        if wrong := _differs(knn_graph(x.to(device), max(k, 1), stitch=stitch), expected):
            return wrong
        graph = NeighborGraph(*(part.to(device) for part in expected))
        if not torch.equal(shortest_paths(graph).cpu(), shortest_paths(expected)):
            return "paths"
        if not torch.equal(connected_components(graph).cpu(), connected_components(expected)):
            return "components"
        count = min(len(x), 5)
        for ours, theirs in zip(
            farthest_landmarks(graph, count), farthest_landmarks(expected, count), strict=True
        ):
            if not torch.equal(ours.cpu(), theirs):
                return "landmarks"
    return None


def cases(device: torch.device) -> Iterator[Case]:
    """A name, and what says what is wrong. None where there is no GPU."""
    if device.type != "cuda":
        return
    for n, dim, k in _SHAPES:
        for dtype in (torch.float32, torch.float64):
            yield (
                f"graph of {n} points, {dim} features, {dtype}",
                partial(graph_wrong, _points(n, dim).to(dtype), k, device),
            )
    yield "graph of a star", partial(graph_wrong, _star(300), 1, device)
