"""Lengths of shortest paths as functions of the points that a graph joins.

The length of a path is the sum of its edges' Euclidean lengths. Its derivative is that of the edges of one shortest path, which stays
shortest under small moves of the points wherever it is the only one. Neighbours are constants.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from warpalign._core.transforms import apply
from warpalign._transport.graphs import NeighborGraph, shortest_paths

_ROUNDING = 4  # machine epsilons by which a sum of lengths may differ from a shortest path's length
_MOST_ENTRIES = 1 << 22  # of a (sources, edges) tensor; more sources are computed in parts


def path_lengths(points: Tensor, graph: NeighborGraph, sources: Tensor) -> Tensor:
    """(S, N): the shortest paths from each source to all points (N, D) on their graph, differentiable once in the points.

    On a GPU, sums of the backward pass have no fixed order, except under torch.use_deterministic_algorithms().
    """
    return apply(_PathLengths, points, *graph, sources)  # type: ignore[no-any-return]


class _PathLengths(torch.autograd.Function):
    named = "shortest paths"

    @staticmethod
    def forward(points: Tensor, indptr: Tensor, indices: Tensor, weights: Tensor, sources: Tensor) -> Tensor:
        return shortest_paths(NeighborGraph(indptr, indices, weights), sources)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        points, indptr, indices, weights, sources, lengths = ctx.saved_tensors
        heads = torch.repeat_interleave(indptr.diff())  # the node whose row an edge is in
        tails = indices.long()
        # One more entry takes what nodes without a last edge, sources above all, have.
        of_edges = grad.new_zeros(len(tails) + 1)
        at_once = max(_MOST_ENTRIES // max(len(tails), 1), 1)
        for some, by, of in zip(*(t.split(at_once) for t in (lengths, grad, sources)), strict=True):
            edges = _last_edges(some, heads, tails, weights, of)
            along = _sums_of_subtrees(by, edges, tails)
            of_edges.scatter_add_(0, edges.flatten(), along.flatten())
        of_edges = of_edges[:-1]
        steps = points[heads] - points[tails]
        pull = torch.nn.functional.normalize(steps, dim=1, eps=torch.finfo(steps.dtype).tiny)
        pull = pull * of_edges[:, None].to(pull)
        return torch.zeros_like(points).index_add_(0, heads, pull).index_add_(0, tails, -pull), *[None] * 4


def _last_edges(lengths: Tensor, heads: Tensor, tails: Tensor, weights: Tensor, sources: Tensor) -> Tensor:
    """(S, N) int64: the last edge of a shortest path to each node; the number of edges where there is none.

    Without edges of length 0, tails are nearer than heads, so that the edges are a tree. At equal lengths a head takes a tail that
    has an edge already, which keeps it one.
    """
    none, tolerance = len(tails), _ROUNDING * torch.finfo(lengths.dtype).eps
    from_tails, to_heads = lengths[:, tails], lengths[:, heads]
    is_last = (from_tails + weights <= to_heads * (1 + tolerance)) & to_heads.isfinite()
    numbers = torch.arange(none, device=tails.device).expand_as(is_last)
    rows = heads.expand_as(is_last)

    def first_of(allowed: Tensor) -> Tensor:
        found = numbers.new_full(lengths.shape, none)
        return found.scatter_reduce_(1, rows, numbers.where(allowed, none), "amin")

    edges = first_of(is_last & (from_tails < to_heads))
    has_path = (edges < none).scatter_(1, sources.long()[:, None], True)
    while True:
        joined = first_of(is_last & has_path[:, tails] & ~has_path[:, heads])
        found = joined < none
        if not bool(found.any()):
            return edges.scatter_(1, sources.long()[:, None], none)
        edges, has_path = torch.where(found, joined, edges), has_path | found


def _sums_of_subtrees(grad: Tensor, edges: Tensor, tails: Tensor) -> Tensor:
    """(S, N): for each node the sum of grad (S, N) over all nodes whose shortest path goes through it, itself among them.

    The sum of a path's edges is made of the sums of 1, 2, 4, … edges up from a node; this is the transpose of that, in reverse order.
    """
    nodes = grad.shape[1]
    # A root beyond all nodes is its own parent, and that of nodes without a last edge.
    parents = torch.cat([tails, tails.new_tensor([nodes])])[edges]
    up = torch.nn.functional.pad(parents, (0, 1), value=nodes)
    doublings = []
    while bool((up < nodes).any()):
        doublings.append(up)
        up = up.gather(1, up)
    sums = torch.nn.functional.pad(grad, (0, 1))
    for up in reversed(doublings):
        sums = sums.scatter_add(1, up, sums)
        sums[:, nodes] = 0
    return sums[:, :nodes]
