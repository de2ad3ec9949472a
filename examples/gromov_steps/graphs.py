"""Graphs: a renumbered, rewired copy is matched with its original, and a graph with two nodes, which are its factions."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from warpalign.transport import NeighborGraph, gromov_wasserstein, shortest_paths

from .data import Network

EPSILON = 1e-4
STEP = 0.5  # whole steps overshoot on these graphs


class Recovered(NamedTuple):
    of: Network
    noise: list[float]
    """Shares of edges that were rewired."""
    kept: list[float]
    """Shares of the copy's edges whose ends are matched with two neighbours."""
    nodes: list[float]
    """Shares of nodes that found their number."""


class Factions(NamedTuple):
    found: Tensor
    """(n,) of 0 and 1"""
    agreement: float


def recover(of: Network, noise: list[float], copies: int, device: torch.device, seed: int) -> Recovered:
    generator = torch.Generator().manual_seed(seed)
    kept, nodes = [], []
    for share in noise:
        results = [_matched(of.adjacency, share, device, generator) for _ in range(copies)]
        kept.append(sum(one[0] for one in results) / copies)
        nodes.append(sum(one[1] for one in results) / copies)
    return Recovered(of, noise, kept, nodes)


def factions(of: Network, device: torch.device) -> Factions:
    """Semi-relaxed transport onto two nodes without an edge between them: their weights are found, too."""
    assert of.faction is not None
    ends = torch.eye(2, device=device)
    result = gromov_wasserstein(
        distances=(of.adjacency.to(device), ends),
        rho_b=0.0, epsilon=0.01, annealing=0.05, cost_normalization=None, step=0.3, restarts=5,
    )  # fmt: skip
    found = result.plan.argmax().cpu()
    same = float((found == of.faction).float().mean())
    return Factions(found if same >= 0.5 else 1 - found, max(same, 1 - same))


def _matched(
    adjacency: Tensor, share: float, device: torch.device, generator: torch.Generator
) -> tuple[float, float]:
    order = torch.randperm(len(adjacency), generator=generator)
    copy = _rewired(adjacency, share, generator)[order][:, order]
    distances = tuple(_path_lengths(table).to(device) for table in (copy, adjacency))
    result = gromov_wasserstein(
        distances=(distances[0], distances[1]), epsilon=EPSILON, step=STEP, restarts=5
    )
    matched = _one_to_one(result.plan.to_dense().cpu())
    edges = copy.nonzero()
    kept = adjacency[matched[edges[:, 0]], matched[edges[:, 1]]].mean()
    return float(kept), float((matched == order).float().mean())


def _one_to_one(plan: Tensor) -> Tensor:
    """(n,) the permutation with the largest mass: nodes with equal neighbours share their rows of the plan."""
    from scipy.optimize import linear_sum_assignment

    return torch.from_numpy(linear_sum_assignment(-plan.numpy())[1])


def _rewired(adjacency: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """Some edges, drawn at random, lead to other nodes."""
    result = adjacency.clone()
    edges = adjacency.triu().nonzero()
    chosen = edges[torch.randperm(len(edges), generator=generator)[: round(share * len(edges))]]
    for first, second in chosen.tolist():
        free = (result[first] == 0).nonzero()[:, 0]
        free = free[free != first]
        other = int(free[int(torch.randint(len(free), (), generator=generator))])
        result[first, second] = result[second, first] = 0
        result[first, other] = result[other, first] = 1
    return result


def _path_lengths(adjacency: Tensor) -> Tensor:
    """(n, n) numbers of edges; nodes without a path are as far as the graph is long."""
    edges = adjacency.nonzero()
    begins = torch.cat([torch.zeros(1, dtype=torch.int64), adjacency.sum(1).long().cumsum(0)])
    graph = NeighborGraph(begins, edges[:, 1].int(), torch.ones(len(edges)))
    lengths = shortest_paths(graph)
    return lengths.where(lengths.isfinite(), lengths[lengths.isfinite()].max() + 1)
