"""Starts of Gromov-Wasserstein transport from a coarse problem: few points, each of which stands for a cell around it.

Source: Chowdhury, Miller & Needham, "Quantized Gromov-Wasserstein", ECML PKDD 2021: points with the mass of their cells, and
a plan of cells spread over their points.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from warpalign._transport.gromov_anchors import Descent
from warpalign._transport.gromov_plans import PointSet, Start, pairs_of_table
from warpalign._transport.gromov_restarts import best_state
from warpalign._transport.gromov_solver import Objective, Schedule
from warpalign._transport.gromov_start import eccentricity_cost, plan_of_cost
from warpalign._transport.settings import Inputs, Settings

_POINTS = 200
_ROWS_AT_ONCE = 80


class Cells(NamedTuple):
    """Points drawn from a set of each problem, and which of them is the nearest to each point."""

    places: Tensor
    """(B, S) int64"""
    owners: Tensor
    """(B, N) int64: places in `places`."""
    masses: Tensor
    """(B, S): sums of the points' weights."""


class Course(NamedTuple):
    """How a coarse problem is solved."""

    schedule: Schedule
    inner: Settings
    last: Settings
    starts: int
    generator: torch.Generator


def coarse_start(of: Objective, weights: Inputs, course: Course) -> Tensor:
    """(B, N, M): the plan of the coarse problem, spread over all points."""
    assert weights.a is not None and weights.b is not None
    draws = course.generator
    rows, columns = _cells(of.cx, weights.a, draws), _cells(of.cy, weights.b, draws)
    features = None if of.features is None else _entries(of.features, rows.places, columns.places)
    coarse = Objective(
        _entries(of.cx, rows.places, rows.places),
        _entries(of.cy, columns.places, columns.places),
        of.symmetric,
        features,
        of.weight,
    )
    density = _density(_coarse_plan(coarse, rows, columns, course), rows, columns)
    return _entries(density, rows.owners, columns.owners) * weights.a[:, :, None] * weights.b[:, None, :]


def coarse_anchors(of: Descent, course: Course) -> Start:
    """A start whose anchors are pairs of the coarse problem's points."""
    sides = [
        _cells_of_set(side, given, size, of.generator)
        for side, given, size in zip(of.sides, of.weights, of.sizes, strict=True)
    ]
    (rows, cx), (columns, cy) = sides
    x, y = rows.places[0], columns.places[0]
    features = None
    if of.feature_cost is not None:
        features = of.feature_cost[x][:, y][None]
    elif of.features is not None:
        features = torch.cdist(of.features[0][x], of.features[1][y]).square()[None]
    coarse = Objective(cx, cy, False, features, of.feature_weight)
    plan = _coarse_plan(coarse, rows, columns, course)[0]

    def drawn(count: int, generator: torch.Generator) -> Tensor:
        pairs = pairs_of_table(plan, count, generator)
        return torch.stack([x[pairs[:, 0]], y[pairs[:, 1]]], 1)

    return Start(drawn, plan.sum)


def _coarse_plan(of: Objective, rows: Cells, columns: Cells, course: Course) -> Tensor:
    """(B, S, S')"""
    weights = Inputs(None, None, None, rows.masses, columns.masses, None, None, None, None, None)
    early = course.schedule.epsilon.clamp(min=course.schedule.epsilon_start)
    first = plan_of_cost(eccentricity_cost(of, weights), weights, early, course.inner)
    return best_state(
        of, weights, first, course.schedule, course.inner, course.last, course.starts, course.generator
    ).plan


def _places(weights: Tensor, generator: torch.Generator) -> Tensor:
    """(B, S) int64: points drawn without repetition, the same ones in all problems but where weights are 0."""
    keys = torch.rand(weights.shape[1], generator=generator).to(weights.device)
    order = torch.argsort(keys + (weights == 0), dim=1, stable=True)
    return order[:, :_POINTS].contiguous()


def _cells(matrix: Tensor, weights: Tensor, generator: torch.Generator) -> Cells:
    """Of distances (B, N, N)."""
    places = _places(weights, generator)
    owners = matrix.gather(1, places[:, :, None].expand(-1, -1, matrix.shape[2])).argmin(1)
    return Cells(places, owners, _masses(owners, weights, places.shape[1]))


def _cells_of_set(
    side: PointSet, given: Tensor | None, size: Tensor, generator: torch.Generator
) -> tuple[Cells, Tensor]:
    """Cells of one set, and the distances (1, S, S) between its places in the unit `size`."""
    weights = side.like.new_full((1, side.size), 1 / side.size) if given is None else given
    places = _places(weights, generator)[0]
    least = side.like.new_full((side.size,), torch.inf)
    owners = torch.zeros(side.size, dtype=torch.int64, device=places.device)
    between: list[Tensor] = []
    for first in range(0, len(places), _ROWS_AT_ONCE):
        part = side.distances(places[first : first + _ROWS_AT_ONCE])
        between.append(part[places].T / size)
        nearest, at = part.min(1)
        owners = owners.where(nearest >= least, at + first)
        least = torch.minimum(least, nearest)
    cells = Cells(places[None], owners[None], _masses(owners[None], weights, len(places)))
    return cells, torch.cat(between)[None]


def _masses(owners: Tensor, weights: Tensor, count: int) -> Tensor:
    """(B, count), summed on the CPU, where the order of sums is always the same."""
    sums = torch.zeros(weights.shape[0], count, dtype=torch.float64)
    sums.scatter_add_(1, owners.cpu(), weights.detach().cpu().double())
    return sums.to(weights)


def _density(plan: Tensor, rows: Cells, columns: Cells) -> Tensor:
    """(B, S, S'): the plan in units of the masses' product, 0 where cells are empty."""
    product = rows.masses[:, :, None] * columns.masses[:, None, :]
    return torch.where(product > 0, plan / product, 0.0)


def _entries(table: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """(B, R, C): table[b, rows[b, i], columns[b, j]]."""
    some = table.gather(1, rows[:, :, None].expand(-1, -1, table.shape[2]))
    return some.gather(2, columns[:, None, :].expand(-1, rows.shape[1], -1))
