"""The plan of sampled Gromov-Wasserstein transport as a function of distances, points and features.

The solver's plan has no gradient: its steps draw pairs of points. From that plan one more step is made, with pairs that are drawn from it
and then are constants. Its plan is differentiated implicitly, through the transport problem of this linearisation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from warpalign._transport.costs import row_blocks
from warpalign._transport.functional import sinkhorn
from warpalign._transport.graphs import NeighborGraph
from warpalign._transport.gromov_anchors import centred, squares
from warpalign._transport.gromov_landmarks import paths_to_landmarks
from warpalign._transport.gromov_result import GromovResult, SampledMeasures
from warpalign._transport.path_gradients import path_lengths
from warpalign._transport.plan import TransportPlan

Distances = Callable[[Tensor], Tensor]
"""(S,) places -> (N, S): from the points at the places to all points of a set."""
_MOST_ITERATIONS = 10_000


def of_table(table: Tensor) -> Distances:
    """Given distances (N, N), from the points at the places."""
    return lambda places: table[places].T


def of_geodesics(points: Tensor, graph: NeighborGraph, n_landmarks: int | None) -> Distances:
    """Of points (N, D): the shortest paths on their graph, or the largest difference of those to landmarks."""
    if n_landmarks is None:
        return lambda places: path_lengths(points, graph, places).T
    landmarks = paths_to_landmarks(graph, min(n_landmarks, len(points))).indices
    to_landmarks = path_lengths(points, graph, landmarks).T
    return lambda places: _largest_differences(to_landmarks, to_landmarks[places])


def _largest_differences(x: Tensor, y: Tensor) -> Tensor:
    """(N, S): max_l |x_l − y_l| of points (N, L) and (S, L), with the derivative of one l where several are largest.

    Torch's derivative of a distance in the maximum norm is the sum of theirs. On a curve all landmarks beyond two points are largest.
    """
    with torch.no_grad():
        blocks = (
            (x[rows, None] - y).abs_().argmax(2) for rows in row_blocks(x.shape[1], x.shape[0], y.shape[0])
        )
        largest = torch.cat(list(blocks))
    return (x.gather(1, largest) - y.T.gather(0, largest)).abs()


def points_of_pairs(
    found: GromovResult,
    distances: tuple[Distances, Distances],
    count: int,
    generator: torch.Generator | int | None,
) -> tuple[Tensor, Tensor]:
    """(N, count) and (M, count): points whose squared distances are the linearised costs of so many pairs drawn from the plan."""
    measures = found._measures
    assert isinstance(measures, SampledMeasures)
    with torch.no_grad():
        pairs = found.plan.sample(count, generator=generator).clamp(min=0)
        unit = (2 * found.plan.mass() / count).sqrt()
    u, v = (
        of(places) * (unit / size)
        for of, places, size in zip(distances, pairs.unbind(1), measures.sizes, strict=True)
    )
    return centred(u, v)


def differentiable_plan(
    found: GromovResult,
    distances: tuple[Distances, Distances],
    count: int,
    generator: torch.Generator | int | None,
    *,
    feature_cost: Tensor | None = None,
    feature_weight: float = 0.0,
    **options: Any,
) -> TransportPlan:
    """The plan of one more step from the result of gromov_wasserstein_sampled().

    Args:
        distances: of both sets, as the solver had them.
        count: the number of pairs of points that are drawn.
        feature_cost: (N, M)
        options: of :func:`warpalign.transport.sinkhorn`: epsilon, weights, penalties and mass, as the solver had them.
    """
    u, v = points_of_pairs(found, distances, count, generator)
    cost = (1 - feature_weight) * squares(u, v)
    if feature_cost is not None and feature_weight > 0:
        cost = cost + feature_weight * feature_cost
    tolerance = 1e-7 if cost.dtype == torch.float64 else 1e-5
    start = found.plan.f.to(cost), found.plan.g.to(cost)
    return sinkhorn(cost_matrix=cost, init=start, tol=tolerance, max_iter=_MOST_ITERATIONS, **options).plan
