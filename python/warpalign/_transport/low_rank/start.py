"""Where the descent over the factors of a low-rank plan starts."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from warpalign._core.checks import shape_of
from warpalign._transport.gromov_restarts import best_state
from warpalign._transport.gromov_solver import Objective, Schedule
from warpalign._transport.gromov_start import eccentricity_cost, plan_of_cost
from warpalign._transport.low_rank.clusters import assigned, cluster_centers
from warpalign._transport.low_rank.descent import Factors, State, start_of
from warpalign._transport.low_rank.plan import LowRankPlan
from warpalign._transport.settings import Inputs, Settings

Initial = Literal["kmeans", "random"]
_SPREAD = 0.1
"""The share of a point's mass that starts outside of its cluster."""
_EPSILON = 0.1
"""The regularisation of the start, over the mean cost above the least one of each point."""
_ENTROPIC = Settings(max_iterations=100, tolerance=1e-3)
_STEPS = 100  # of the coarse Gromov-Wasserstein problem
_STARTS = 4


class Clusters(NamedTuple):
    """A set in r clusters."""

    members: Tensor
    """(B, N, r): 1 for the cluster of a point, else 0."""
    masses: Tensor
    """(B, r)"""

    def means(self, values: Tensor, weights: Tensor) -> Tensor:
        """(B, r, K): means of values (B, N, K) by weights (B, N), 0 of empty clusters."""
        sums = self.members.mT @ (values * weights[:, :, None])
        means: Tensor = sums / self.masses.where(self.masses > 0, 1.0)[:, :, None]
        return means


def clusters_of(points: Tensor, weights: Tensor, rank: int, generator: torch.Generator) -> Clusters:
    members = assigned(points, cluster_centers(points, weights, rank, generator))
    ones = torch.nn.functional.one_hot(members, rank).to(points)
    return Clusters(ones, (ones * weights[:, :, None]).sum(1))


def rows_as_points(cost: Factors) -> Tensor:
    """(B, N, K): points with the distances that the rows of C = A Bᵀ have."""
    values, vectors = torch.linalg.eigh(cost.right.mT @ cost.right)
    points: Tensor = cost.left @ vectors * values.clamp(min=0).sqrt()[:, None, :]
    return points


def transport_start(
    cost: Factors, points: Tensor, weights: tuple[Tensor, Tensor], rank: int, generator: torch.Generator
) -> State:
    """Each point of x belongs to its cluster; points of y go where the mean cost of a cluster's points sends them, in an entropic plan.

    Args:
        points: (B, N, K), of which clusters are made.
    """
    a, b = weights
    clusters = clusters_of(points, a, rank, generator)
    masses = _without_empty(clusters.masses, a)
    of_clusters = cost.right @ clusters.means(cost.left, a).mT
    return start_of(_logits(clusters.members, masses), _entropic(of_clusters, b, masses), masses, a, b)


def gromov_start(
    costs: tuple[Factors, Factors],
    points: tuple[Tensor, Tensor],
    weights: tuple[Tensor, Tensor],
    rank: int,
    generator: torch.Generator,
) -> State:
    """Clusters of both sets, matched by a Gromov-Wasserstein plan between the mean distances of clusters.

    Args:
        costs: the intra-domain distances of both sets.
        points: (B, N, K) and (B, M, K'), of which clusters are made.
    """
    clusters = [clusters_of(one, of, rank, generator) for one, of in zip(points, weights, strict=True)]
    distances = [
        one.means(cost.left, of) @ one.means(cost.right, of).mT
        for one, cost, of in zip(clusters, costs, weights, strict=True)
    ]
    masses = [_without_empty(one.masses, of) for one, of in zip(clusters, weights, strict=True)]
    masses[1] = masses[1] * (masses[0].sum(-1) / masses[1].sum(-1))[:, None]
    largest = torch.maximum(*(one.amax((1, 2)) for one in distances))
    scale = largest.where(largest > 0, 1.0)[:, None, None]
    of = Objective(distances[0] / scale, distances[1] / scale, False, None, 0.0)
    coarse = _coarse_plan(of, masses, generator)
    shares = coarse / masses[1][:, None, :]
    y = clusters[1].members @ shares.mT
    return start_of(_logits(clusters[0].members, masses[0]), _logits(y, masses[0]), masses[0], *weights)


def random_start(weights: tuple[Tensor, Tensor], rank: int, generator: torch.Generator) -> State:
    a, b = weights
    x, y = (
        torch.randn(*one.shape, rank, generator=generator, dtype=torch.float32).to(one) for one in weights
    )
    masses = (a.sum(-1, keepdim=True) / rank).expand(-1, rank)
    return start_of(x, y, masses, a, b)


def given_start(init: object, weights: tuple[Tensor, Tensor], rank: int) -> State | None:
    """The state of a LowRankPlan or of factors (q, r, weights); None for a name.

    Raises:
        TypeError, ValueError: it is neither, or shapes or dtypes do not fit.
    """
    if isinstance(init, str):
        if init not in get_args(Initial):
            raise ValueError(
                f'init: expected "kmeans", "random", a LowRankPlan or its factors (q, r, weights), got {init!r}'
            )
        return None
    factors = (init.q, init.r, init.weights) if isinstance(init, LowRankPlan) else init
    if not isinstance(factors, tuple) or len(factors) != 3 or not all(isinstance(t, Tensor) for t in factors):
        raise TypeError(
            f'init: expected "kmeans", "random", a LowRankPlan or its factors (q, r, weights), got {type(init).__name__}'
        )
    a, b = weights
    batch, n, m = a.shape[0], a.shape[1], b.shape[1]
    found = []
    for name, factor, shape in zip(
        ("q", "r", "weights"), factors, ((n, rank), (m, rank), (rank,)), strict=True
    ):
        if factor.dtype != a.dtype or factor.device != a.device:
            raise TypeError(
                f"init: {name}: expected {a.dtype} on {a.device}, got {factor.dtype} on {factor.device}"
            )
        if factor.shape not in (shape, (1, *shape), (batch, *shape)):
            raise ValueError(
                f"init: {name}: expected shape {(batch, *shape)} or {shape}, got {shape_of(factor)}"
            )
        found.append(factor.detach().expand(batch, *shape))
    tiny = torch.finfo(a.dtype).tiny
    x, y, masses = (one.clamp(min=tiny) for one in found)
    return start_of(x.log(), y.log(), masses, a, b)


def _logits(shares: Tensor, masses: Tensor) -> Tensor:
    """Of rows (B, N, r) that sum to 1, of which a part is spread over all components by their masses."""
    spread = masses / masses.sum(-1, keepdim=True)
    return ((1 - _SPREAD) * shares + _SPREAD * spread[:, None, :]).log()


def _without_empty(masses: Tensor, weights: Tensor) -> Tensor:
    """Masses (B, r) with the sum of the weights, none of them 0."""
    total = weights.sum(-1, keepdim=True)
    some = masses + 1e-3 * total / masses.shape[-1]
    return some * (total / some.sum(-1, keepdim=True))


def _entropic(cost: Tensor, b: Tensor, masses: Tensor) -> Tensor:
    """Logits (B, M, r) of the entropic plan between the points of y and components."""
    least = cost.amin(-1, keepdim=True)
    mean = ((cost - least).mean(-1) * b).sum(-1) / b.sum(-1)
    epsilons = _EPSILON * mean.where(mean > 0, 1.0)
    inputs = Inputs(None, None, None, b.contiguous(), masses.contiguous(), None, None, None, None, None)
    plan = plan_of_cost(cost - least, inputs, epsilons, _ENTROPIC)
    return plan.clamp(min=torch.finfo(plan.dtype).tiny).log()


def _coarse_plan(of: Objective, masses: list[Tensor], generator: torch.Generator) -> Tensor:
    """(B, r, r): the Gromov-Wasserstein plan of clusters, by annealed entropic steps from the eccentricities."""
    a, b = (one.contiguous() for one in masses)
    inputs = Inputs(None, None, None, a, b, None, None, None, None, None)
    epsilons = torch.full_like(a[:, 0], 1e-3)
    schedule = Schedule(epsilons, 1e-1, 0.9, 1.0, False, _STEPS, 1e-3)
    inner = _ENTROPIC._replace(max_iterations=20, tolerance=1e-6)
    first = plan_of_cost(eccentricity_cost(of, inputs), inputs, epsilons.clamp(min=1e-1), _ENTROPIC)
    return best_state(of, inputs, first, schedule, inner, _ENTROPIC, _STARTS, generator).plan
