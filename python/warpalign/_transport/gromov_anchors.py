"""Descent on the Gromov-Wasserstein objective with sampled gradients.

A step draws pairs of points (anchors) from the current plan. The cost's mean over them is |u_i − v_j|² / S, where u_i has the
distances of point i to the S anchors of its set. So every plan is that of a problem between points, and is not stored where it is large.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from warpalign._transport import ops, plan_ops
from warpalign._transport.settings import Inputs, Settings, as_keywords

_MOST_PLANS = 8
_FIRST_ROWS = 500
_FIRST_ITERATIONS = 100
_STORED_ENTRIES = 1 << 22  # a small table of costs is made once a step, not once an iteration


class PointSet(NamedTuple):
    """One set, whose rows of inner distances are made as they are asked for."""

    rows: Callable[[Tensor], Tensor]
    """(S,) places -> (S, N)"""
    size: int
    like: Tensor
    """Of its dtype and device."""

    def some_rows(self, generator: torch.Generator) -> Tensor:
        """(S, N): of at most 500 points, drawn without repetition."""
        places = torch.randperm(self.size, generator=generator)[:_FIRST_ROWS]
        return self.rows(places.to(self.like.device))


class Gibbs(NamedTuple):
    """A plan: its problem with the potentials, and the problem's settings."""

    of: Inputs
    settings: Settings

    def mass(self) -> Tensor:
        ones = self.of.first.new_ones(1, self.of.sizes[1], 1)
        sums: Tensor = plan_ops.product(*self.of, ones, False, **as_keywords(self.settings))
        return sums.sum()

    def pairs(self, count: int, generator: torch.Generator) -> Tensor:
        """(count, 2) int64: independent pairs, drawn by their mass."""
        seed = int(torch.randint(2**62, (), generator=generator))
        drawn: Tensor = plan_ops.sample(*self.of, count, seed, **as_keywords(self.settings))
        # A plan without mass, of NaN for instance, has no pairs: -1. Its anchors are the first points.
        return drawn[0].long().clamp_(min=0)


class Start(NamedTuple):
    """A plan to start from, which is no Gibbs kernel of this descent."""

    drawn: Callable[[int, int], Tensor]
    """(count, seed) -> (count, 2) int64 pairs"""
    total: Callable[[], Tensor]

    def mass(self) -> Tensor:
        return self.total()

    def pairs(self, count: int, generator: torch.Generator) -> Tensor:
        return self.drawn(count, int(torch.randint(2**62, (), generator=generator))).clamp(min=0)


def pairs_of_table(table: Tensor, count: int, seed: int) -> Tensor:
    """(count, 2) int64: independent pairs (i, j), drawn with probability table[i, j] / sum, by inversion in float64."""
    levels = torch.rand(2, count, 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    of_row, of_column = levels.to(table.device)
    sums = torch.nan_to_num(table.double().sum(1)).cumsum(0)
    rows = torch.searchsorted(sums, of_row[:, 0] * sums[-1], right=True).clamp(max=table.shape[0] - 1)
    along = torch.nan_to_num(table[rows].double()).cumsum(1)
    columns = torch.searchsorted(along, of_column * along[:, -1:], right=True)[:, 0]
    return torch.stack([rows, columns.clamp(max=table.shape[1] - 1)], 1)


class Descent:
    """The state of a solve. `plans` are the newest ones, which the current plan is a mixture of."""

    def __init__(
        self,
        sides: tuple[PointSet, PointSet],
        weights: tuple[Tensor | None, Tensor | None],
        features: tuple[Tensor, Tensor] | None,
        feature_cost: Tensor | None,
        feature_weight: float,
        settings: Settings,
        step: float,
        generator: torch.Generator,
    ) -> None:
        self.sides, self.weights = sides, weights
        self.features, self.feature_cost, self.feature_weight = features, feature_cost, feature_weight
        self.settings, self.step, self.generator = settings, step, generator
        self.plans: list[Gibbs | Start] = []
        rows = [side.some_rows(generator) for side in sides]
        self.sizes = [_positive(part.amax()) for part in rows]
        self.eccentricities = tuple(
            (part / size).square().mean(0).sqrt()[:, None]
            for part, size in zip(rows, self.sizes, strict=True)
        )

    def begin(self, epsilon: float, start: Start | None = None) -> None:
        """Without a start, the first plan compares points by their eccentricities."""
        if start is not None:
            self._keep(start)
            return
        u, v = self.eccentricities
        self._keep(self._solved((u, v), 2 * (1 - self.feature_weight), epsilon, _FIRST_ITERATIONS)[0])

    def advance(self, count: int, epsilon: float) -> Tensor:
        """A step with so many anchors; the linearised cost of its plan."""
        pairs = self._drawn(count)
        self._points = (self._coordinates(0, pairs[:, 0]), self._coordinates(1, pairs[:, 1]))
        is_relaxed = self.settings.mass > 0 or min(self.settings.rho_a, self.settings.rho_b) < float("inf")
        mass = float(self.plans[0].mass()) if is_relaxed or self.weights[0] is not None else 1.0
        self._factor = 2 * (1 - self.feature_weight) * mass / count
        new, linear = self._solved(self._points, self._factor, epsilon, self.settings.max_iterations)
        self._keep(new)
        return linear

    def finish(self, epsilon: float, iterations: int) -> Gibbs:
        """The plan of the last anchors, with further iterations."""
        return self._solved(self._points, self._factor, epsilon, iterations)[0]

    def estimate(self, plan: Gibbs, count: int) -> tuple[Tensor, Tensor]:
        """The distortion of a plan of mass 1, and the estimate's standard deviation, from pairs of independent pairs."""
        drawn = plan.pairs(count, self.generator)
        cx, cy = (self._coordinates(side, drawn[:, side])[drawn[:, side]] for side in (0, 1))
        squares = (cx - cy).square_().double()
        squares.fill_diagonal_(0)
        of_each = squares.sum(1) / (count - 1)
        # Each term has two pairs: an estimate without one pair loses twice its mean.
        return of_each.mean(), 2 * of_each.std() / count**0.5

    def _coordinates(self, side: int, anchors: Tensor) -> Tensor:
        """(N, S): the distances of all points to the anchors."""
        return (self.sides[side].rows(anchors) / self.sizes[side]).T

    def _drawn(self, count: int) -> Tensor:
        """(count, 2) pairs of the mixture step Σ (1 − step)^h plans[h]."""
        shares = self.step * (1 - self.step) ** torch.arange(len(self.plans), dtype=torch.float64)
        chosen = torch.multinomial(shares, count, replacement=True, generator=self.generator)
        counts = chosen.bincount(minlength=len(self.plans)).tolist()
        parts = zip(self.plans, counts, strict=True)
        return torch.cat([plan.pairs(number, self.generator) for plan, number in parts if number])

    def _keep(self, plan: Gibbs | Start) -> None:
        self.plans = [plan, *self.plans][: _MOST_PLANS if self.step < 1 else 1]

    def _solved(
        self, points: tuple[Tensor, Tensor], factor: float, epsilon: float, iterations: int
    ) -> tuple[Gibbs, Tensor]:
        """The plan of the cost factor |u − v|² and of the features, from the newest potentials; what it costs."""
        if self.features is not None and self.feature_weight > 0:
            share = (self.feature_weight / factor) ** 0.5
            points = tuple(torch.cat([u, share * f], 1) for u, f in zip(points, self.features, strict=True))  # type: ignore[assignment]
        settings = self.settings._replace(cost_scale=factor, epsilon=epsilon, max_iterations=iterations)
        newest = self.plans[0] if self.plans else None
        start = (newest.of.f0, newest.of.g0) if isinstance(newest, Gibbs) else (None, None)
        u, v = (t[None].contiguous() for t in points)
        if self.feature_cost is not None and self.feature_weight > 0:
            cost = _squares(u, v).mul_(factor).add_(self.feature_cost, alpha=self.feature_weight)
            of = Inputs(None, None, cost, *self.weights, None, None, None, *start)
            settings = settings._replace(cost_scale=1.0)
        elif u.shape[1] * v.shape[1] <= _STORED_ENTRIES:
            of = Inputs(None, None, _squares(u, v), *self.weights, None, None, None, *start)
        else:
            of = Inputs(u, v, None, *self.weights, None, None, None, *start)
        result = ops.sinkhorn(*of, False, False, False, **as_keywords(settings))
        f, g = (torch.nan_to_num(t, nan=0.0, posinf=0.0, neginf=0.0) for t in result[2:4])
        return Gibbs(of._replace(f0=f, g0=g), settings._replace(mass=0.0)), result[1][0]


def _squares(u: Tensor, v: Tensor) -> Tensor:
    """(B, N, M): |u_i − v_j|², by a product of points that their common mean is subtracted from."""
    mean = (u.mean(1, keepdim=True) + v.mean(1, keepdim=True)) / 2
    u, v = u - mean, v - mean
    table = torch.matmul(u, v.mT).mul_(-2)
    return table.add_(u.square().sum(2)[:, :, None]).add_(v.square().sum(2)[:, None, :]).clamp_(min=0)


def _positive(size: Tensor) -> Tensor:
    return size.where(size > 0, 1.0)
