"""Landmarks of graphs, and the shortest paths to them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from warpalign._core.replay import Replayed, can_capture
from warpalign._transport.graphs import Landmarks, NeighborGraph, shortest_paths

_ROUND = 17  # landmarks that are found at once: three rounds find 50
_REPLAYED = 6  # choices in a CUDA graph: a capture takes the host as long as they do


def paths_to_landmarks(graph: NeighborGraph, count: int) -> Landmarks:
    """From nodes that lie far from each other, the first of which is 0.

    As farthest_landmarks() finds them, but 17 at a time, whose paths are searched by as many threads, or blocks of a GPU.
    Within a round the paths to the landmarks before it give a lower bound of a node's distance to those just chosen. The
    host does not wait for a GPU.
    """
    return paths_of_graphs([graph], [count])[0]


def paths_of_graphs(graphs: Sequence[NeighborGraph], counts: Sequence[int]) -> list[Landmarks]:
    """The same of several graphs with weights of one dtype and device, whose landmarks are chosen together.

    Graphs with fewer nodes are as if they had further ones, to which all distances are 0, and which are never chosen.
    """
    sizes = [graph.indptr.numel() - 1 for graph in graphs]
    most = max(counts)
    weights = graphs[0].weights
    table = weights.new_zeros(len(graphs), most, max(sizes))
    nearest = weights.new_full((len(graphs), max(sizes)), -1)
    places = torch.zeros(len(graphs), 1, dtype=torch.int64, device=table.device)
    found = [places]
    choices = _Choices(table)
    have = 0
    while True:
        for k, (graph, size) in enumerate(zip(graphs, sizes, strict=True)):
            new = shortest_paths(graph, places[k])
            table[k, have : have + len(new), :size] = new
            least = new.amin(0)
            nearest[k, :size] = least if have == 0 else torch.minimum(nearest[k, :size], least)
        nearest.scatter_(1, places, -1)
        have += places.shape[1]
        if have == most:
            break
        places = choices.made(nearest, have, min(_ROUND, most - have))
        found.append(places)
    chosen = torch.cat(found, 1)
    return [
        Landmarks(chosen[k, :count], table[k, :count, :size])
        for k, (count, size) in enumerate(zip(counts, sizes, strict=True))
    ]


_Place = tuple[Tensor, Tensor]
"""(B, N) distances to the nearest landmark, −1 of those chosen, and (B, L, N) the distances to some landmarks."""


class _Choices:
    """Choices of landmarks one after the other, on a GPU replayed from a CUDA graph, as each is six short kernels."""

    def __init__(self, table: Tensor) -> None:
        self._table = table
        self._graph: Replayed | None = None

    def made(self, nearest: Tensor, have: int, count: int) -> Tensor:
        """(B, count) int64: nodes far from the first `have` landmarks and from each other."""
        if not can_capture(nearest.device) or count <= _REPLAYED:
            return _chosen((nearest, self._table[:, :have]), count)[1]
        chosen: list[Tensor] = []
        if self._graph is None:
            place, first = _chosen((nearest, self._table), 1)
            chosen.append(first)
            self._graph = Replayed(lambda place: _chosen(place, _REPLAYED), place, nearest.device)
        else:
            for to, value in zip(self._graph.state, (nearest, self._table), strict=True):
                to.copy_(value)
        while sum(places.shape[1] for places in chosen) < count:
            chosen.append(self._graph())
        return torch.cat(chosen, 1)[:, :count]


def _chosen(place: _Place, count: int) -> tuple[_Place, Tensor]:
    """(B, count) int64 nodes, and what is the nearest then, by lower bounds."""
    near, table = place
    chosen: list[Tensor] = []
    for _ in range(count):
        node = near.argmax(1, keepdim=True)
        chosen.append(node)
        of_node = table.gather(2, node[:, None].expand(-1, table.shape[1], -1))
        bound = torch.linalg.vector_norm(table - of_node, torch.inf, 1)
        near = torch.minimum(near, bound).scatter_(1, node, -1)
    return (near, table), torch.cat(chosen, 1)
