"""Descent on the Gromov-Wasserstein objective with sampled gradients.

A step draws pairs of points (anchors) from the current plan. The cost's mean over them is |u_i − v_j|² / S, where u_i has the
distances of point i to the S anchors of its set. So every plan is that of a problem between points, and is not stored where it is large.

On a GPU coordinates are centred and rounded to binary16, and matrix units make the products. A plan belongs to the rounded
coordinates. Nothing in a step waits for the GPU.

On a CPU the coordinates of one pair take longer than its exponential, and a step passes over all pairs several times. So a
step makes the costs once, as a product, in one table that all steps share, up to _SHARED_BYTES. The plan stays one of points.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from warpalign._transport import anchor_ops, ops
from warpalign._transport.costs import DistanceNormalization, sizes_of_sides
from warpalign._transport.gromov_plans import MEDIUM, Gibbs, PointSet, Start, rows_by_sums
from warpalign._transport.mixing import Mixing
from warpalign._transport.settings import Inputs, Settings, as_keywords

_LEAST_SHARE = (
    1e-2  # The oldest plan that is kept stands for those before it where they have no more than this share.
)
_MOST_PLANS = 8  # plans kept for drawing anchors
_FIRST_ITERATIONS = 20  # Sinkhorn iterations of the first plan
# Iterations of a partial plan in one call. Each call finds the mass anew: 8 leave 2e-4 of it elsewhere, 64 1e-7.
_PARTIAL_AT_ONCE = 64
# Iterations of a small problem in one call, as a mixing takes longer than they do, and how many pairs of points are few.
_SMALL_AT_ONCE, _SMALL_PAIRS = 4, {"cpu": 1 << 18, "cuda": 1 << 26}
_STANDS = 2e-4  # the last iterations end when one of them changes no sum of the plan by this share
_PAIRS_AT_ONCE = 250  # The last estimate takes so many pairs of points at a time.
_STORED_ENTRIES = 1 << 22  # a small table of costs is made once a step, not once an iteration
_SHARED_BYTES = 1 << 29  # a larger table of costs is not kept on a CPU while its problem is solved
_ROUNDED_COORDINATES = 128  # of a point on a GPU, at most
_STEPS_AHEAD = 64  # steps whose random numbers are drawn together


class Descent:
    """The state of a solve. `plans` are the newest ones, which the current plan is a mixture of."""

    regularisation: Tensor
    """0-d: the entropy and marginal terms of the plan that finish() returns."""
    error: float
    """How far the last iteration of finish() moved a potential, and rounding may move it, over epsilon."""

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
        normalization: DistanceNormalization | None,
    ) -> None:
        self.sides, self.weights = sides, weights
        self.features, self.feature_cost, self.feature_weight = features, feature_cost, feature_weight
        self.settings, self.step, self.generator = settings, step, generator
        self.plans: list[Gibbs | Start] = []
        self._last: tuple[Inputs, Settings] | None = None
        self._shared: Tensor | None = None
        self._shared_by: Tensor | None = None
        kept = math.ceil(math.log(_LEAST_SHARE) / math.log1p(-step)) if step < 1 else 1
        self._most = min(kept, _MOST_PLANS)
        self._rows_ahead: list[Tensor] = []
        self._counts_ahead: list[list[int]] = []
        self._seeds_ahead: list[int] = []
        extents = [side.extent(generator) for side in sides]
        x, y = extents
        self.sizes = sizes_of_sides(normalization, (x.largest, y.largest), (x.mean, y.mean))
        self.units = [size.reshape(1) for size in self.sizes]
        self.eccentricities = tuple(
            (extent.squares.sqrt() / size)[:, None] for extent, size in zip(extents, self.sizes, strict=True)
        )

    def begin(self, epsilon: float, start: Start | None = None) -> None:
        """Without a start, the first plan compares points by their eccentricities."""
        if start is not None:
            self._keep(start)
            return
        u, v = self.eccentricities
        problem = self._problem((u, v), 2 * (1 - self.feature_weight), epsilon)
        self._keep(self._solve(*problem, _FIRST_ITERATIONS)[0])

    def advance(self, count: int, epsilon: float) -> Tensor:
        """A step with so many anchors; the linearised cost of its plan."""
        mass = self.plans[0].mass()
        if isinstance(mass, float) and self._has_kernels(count):
            new, linear = self._step_of_kernels(count, mass, epsilon)
        else:
            pairs = self._drawn(count)
            # A mass that only the device knows goes into the coordinates.
            root = mass.sqrt() if isinstance(mass, Tensor) else mass**0.5
            points = self._coordinates(0, pairs[:, 0], root), self._coordinates(1, pairs[:, 1], root)
            self._last = self._problem(points, 2 * (1 - self.feature_weight) / count, epsilon)
            new, linear, _ = self._solve(*self._last, self.settings.max_iterations)
        self._keep(new)
        return linear

    def _has_kernels(self, count: int) -> bool:
        """Whether a step is made by a few kernels, with no table, no features and one mass that is known."""
        plain = self.feature_weight == 0 and count <= _ROUNDED_COORDINATES
        known = all(isinstance(plan, Gibbs) and plan.is_rounded for plan in self.plans)
        return plain and known and all(side.points is not None for side in self.sides)

    def _step_of_kernels(self, count: int, mass: float, epsilon: float) -> tuple[Gibbs, Tensor]:
        """The same as _drawn(), _coordinates(), _problem() and _solved(), with coordinates less 1/2, in one call."""
        newest = self.plans[0]
        assert isinstance(newest, Gibbs) and newest.of.f0 is not None and newest.of.g0 is not None
        (x, y), (unit_x, unit_y), (a, b) = self.sides, self.units, self.weights
        assert x.points is not None and y.points is not None
        drawn = self._shares(count)
        plans = [plan.drawn_from() for plan, _ in drawn if isinstance(plan, Gibbs)]
        settings = self.settings._replace(
            cost_scale=2 * mass / count, epsilon=epsilon, precision=MEDIUM, tolerance=0.0
        )
        of_x, of_y, linear, f, g = anchor_ops.step(
            x.points, y.points, unit_x, unit_y, x.kernel, y.kernel, *map(list, zip(*plans, strict=True)),
            [number for _, number in drawn], [self._seed() for _ in drawn], self._spread_rows(newest, count),
            a, b, newest.of.f0, newest.of.g0, settings.cost_scale, epsilon, settings.rho_a, settings.rho_b, settings.mass,
            settings.max_iterations,
        )  # fmt: skip
        of = Inputs(of_x, of_y, None, a, b, None, None, None, newest.of.f0, newest.of.g0)
        self._last = of, settings
        return _gibbs(of, f, g, settings), linear[0]

    def _spread_rows(self, newest: Gibbs, count: int) -> Tensor:
        """(count,) int64: rows of the newest plan in any order, so that older plans get any of them."""
        if self.weights[0] is not None or self.settings.rho_a < math.inf or self.settings.mass > 0:
            rows = rows_by_sums(newest.row_sums(), count, self.generator, True)
            return rows[torch.randperm(count, generator=self.generator).to(rows.device)]
        if not self._rows_ahead:
            n = newest.of.sizes[0]
            levels = torch.rand(_STEPS_AHEAD, count, generator=self.generator, dtype=torch.float64)
            strata = torch.rand(_STEPS_AHEAD, count, generator=self.generator).argsort(1)
            rows = ((strata + levels) * (n / count)).long().clamp_(max=n - 1)
            self._rows_ahead = list(rows.to(self.sides[0].like.device).unbind())
        return self._rows_ahead.pop()

    def finish(self, epsilon: float, iterations: int, after_each: Callable[[], None]) -> Gibbs:
        """The plan of the last anchors, with further iterations, until its sums stand.

        Sums are off by no more than what an iteration changes.
        """
        assert self._last is not None
        of, settings = self._last
        settings = settings._replace(epsilon=epsilon)
        newest = self.plans[0]
        assert isinstance(newest, Gibbs) and newest.of.f0 is not None
        of = of._replace(f0=newest.of.f0)
        is_small = math.prod(of.sizes) < _SMALL_PAIRS[newest.of.f0.device.type]
        is_partial = settings.mass > 0
        at_once = _PARTIAL_AT_ONCE if is_partial else _SMALL_AT_ONCE if is_small else 1
        mixing = Mixing(newest.of.f0, mixes=not is_partial)
        for done in range(0, iterations, at_once):
            count = min(at_once, iterations - done)
            # A GPU makes a few iterations of a small problem in less time than their launches take.
            replays = is_small and not is_partial and count == at_once
            mixing.next(partial(self._map, of, settings, count), replays)
            after_each()
            if not mixing.moved > _STANDS * settings.epsilon:
                break
        rows, (columns, self.regularisation) = mixing.found
        plan = _gibbs(of, rows, columns, settings._replace(max_iterations=count))
        self._shared = self._shared_by = None
        # Where epsilon is small beside the potentials, their rounding alone moves the sums.
        f, g = plan.of.f0, plan.of.g0
        assert f is not None and g is not None
        largest = float(torch.stack([t.abs().amax() for t in (f, g)]).amax())
        self.error = (mixing.moved + torch.finfo(f.dtype).eps * largest) / epsilon
        return plan

    def _map(
        self, of: Inputs, settings: Settings, count: int, point: Tensor
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The potentials after so many iterations, and the problem's value without the linear cost."""
        plan, linear, value = self._solve(of._replace(f0=point), settings, count)
        assert plan.of.f0 is not None and plan.of.g0 is not None
        return plan.of.f0, (plan.of.g0, value - linear)

    def estimate(self, plan: Gibbs, count: int) -> tuple[Tensor, Tensor]:
        """The distortion of a plan of mass 1, and the estimate's standard deviation, from pairs of independent pairs."""
        self.plans.clear()  # their memory is of more use here
        drawn = plan.pairs(count, self.generator)
        of_each = torch.zeros(count, dtype=torch.float64, device=drawn.device)
        for first in range(0, count, _PAIRS_AT_ONCE):
            some = drawn[first : first + _PAIRS_AT_ONCE]
            cx, cy = (
                side.apart(drawn[:, k], some[:, k], unit)
                for k, (side, unit) in enumerate(zip(self.sides, self.units, strict=True))
            )
            squares = cx.sub_(cy).square_()
            squares.diagonal(-first).zero_()
            of_each += squares.sum(1)
        of_each /= count - 1
        # Each term has two pairs: an estimate without one pair loses twice its mean.
        return of_each.mean(), 2 * of_each.std() / count**0.5

    def _coordinates(self, side: int, anchors: Tensor, factor: float | Tensor) -> Tensor:
        """(N, S): the distances of all points to the anchors, times a factor."""
        return self.sides[side].distances(anchors) * (factor / self.sizes[side])

    def _shares(self, count: int) -> list[tuple[Gibbs | Start, int]]:
        """How many of so many pairs come from which plan of the mixture step Σ (1 − step)^h plans[h].

        The oldest plan stands for all before it.
        """
        if not self._counts_ahead:
            shares = self.step * (1 - self.step) ** torch.arange(self._most, dtype=torch.float64)
            chosen = torch.multinomial(shares, _STEPS_AHEAD * count, True, generator=self.generator)
            of_plans = chosen.view(_STEPS_AHEAD, count, 1) == torch.arange(self._most)
            self._counts_ahead = of_plans.sum(1).tolist()
        counts, last = self._counts_ahead.pop(), len(self.plans) - 1
        counts = [*counts[:last], sum(counts[last:])]
        return [(plan, number) for plan, number in zip(self.plans, counts, strict=True) if number]

    def _seed(self) -> int:
        if not self._seeds_ahead:
            self._seeds_ahead = torch.randint(2**62, (_STEPS_AHEAD,), generator=self.generator).tolist()
        return self._seeds_ahead.pop()

    def _drawn(self, count: int) -> Tensor:
        """(count, 2) pairs of the mixture."""
        shares = self._shares(count)
        return torch.cat([plan.pairs(number, self.generator, spread=True) for plan, number in shares])

    def _solve(self, of: Inputs, settings: Settings, iterations: int) -> tuple[Gibbs, Tensor, Tensor]:
        """_solved(), of points on a CPU by the shared table of their costs."""
        table = self._table(of)
        if table is None:
            return _solved(of, settings, iterations)
        plan, linear, value = _solved(of._replace(x=None, y=None, cost=table[None]), settings, iterations)
        return plan._replace(of=of._replace(f0=plan.of.f0, g0=plan.of.g0)), linear, value

    def _table(self, of: Inputs) -> Tensor | None:
        """(N, M): the squared distances of points on a CPU, where they are few enough. The next points overwrite them."""
        n, m = of.sizes
        if of.x is None or of.x.is_cuda or n * m * of.x.element_size() > _SHARED_BYTES:
            return None
        assert of.y is not None
        if self._shared is None:
            self._shared = of.x.new_empty(n, m)
        if self._shared_by is not of.x:
            self._shared_by = of.x
            squares(of.x[0], of.y[0], out=self._shared)
        return self._shared

    def _keep(self, plan: Gibbs | Start) -> None:
        self.plans = [plan, *self.plans][: self._most]

    def _problem(
        self, points: tuple[Tensor, Tensor], factor: float, epsilon: float
    ) -> tuple[Inputs, Settings]:
        """The cost factor |u − v|² and that of the features, and the newest potentials."""
        if self.features is not None and self.feature_weight > 0:
            share = (self.feature_weight / factor) ** 0.5
            points = tuple(torch.cat([u, share * f], 1) for u, f in zip(points, self.features, strict=True))  # type: ignore[assignment]
        settings = self.settings._replace(cost_scale=factor, epsilon=epsilon)
        newest = self.plans[0] if self.plans else None
        start = (newest.of.f0, newest.of.g0) if isinstance(newest, Gibbs) else (None, None)
        u, v = centred(*points)
        rest = (*self.weights, None, None, None, *start)
        if self.feature_cost is not None and self.feature_weight > 0:
            cost = squares(u, v).mul_(factor).add_(self.feature_cost, alpha=self.feature_weight)
            return Inputs(None, None, cost[None], *rest), settings._replace(cost_scale=1.0)
        if u.is_cuda and u.dtype == torch.float32 and u.shape[1] <= _ROUNDED_COORDINATES:
            u, v = _rounded(u, v)
            settings = settings._replace(precision=MEDIUM, tolerance=0.0)
        elif u.shape[0] * v.shape[0] <= _STORED_ENTRIES:
            return Inputs(None, None, squares(u, v)[None], *rest), settings
        return Inputs(u[None].contiguous(), v[None].contiguous(), None, *rest), settings


def _solved(of: Inputs, settings: Settings, iterations: int) -> tuple[Gibbs, Tensor, Tensor]:
    """The plan after so many iterations from the potentials of `of`, its linear cost, and the problem's value."""
    settings = settings._replace(max_iterations=iterations)
    value, linear, f, g = ops.sinkhorn_potentials(*of, **as_keywords(settings))
    return _gibbs(of, f, g, settings), linear[0], value[0]


def _gibbs(of: Inputs, f: Tensor, g: Tensor, settings: Settings) -> Gibbs:
    if of.a is not None or of.b is not None or of.cost is not None:  # zero weights and forbidden pairs
        f, g = (torch.nan_to_num(t, nan=0.0, posinf=0.0, neginf=0.0) for t in (f, g))
    return Gibbs(of._replace(f0=f, g0=g), settings)


def centred(u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """The same differences of points (N, D) and (M, D), around 0."""
    mean = (u.mean(0) + v.mean(0)) / 2
    return u - mean, v - mean


def _rounded(u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Centred points on the grid of binary16 numbers, after a division by a power of two, contiguous."""
    largest = torch.maximum(u.abs().amax(), v.abs().amax()).clamp(min=torch.finfo(u.dtype).tiny)
    unit = largest.log2().ceil().exp2()
    return (u / unit).half().to(u.dtype) * unit, (v / unit).half().to(v.dtype) * unit


def squares(u: Tensor, v: Tensor, out: Tensor | None = None) -> Tensor:
    """(N, M): |u_i − v_j|² of centred points up to rounding, by one product of points with two more coordinates."""
    one_u, one_v = u.new_ones(u.shape[0], 1), v.new_ones(v.shape[0], 1)
    left = torch.cat([-2 * u, u.square().sum(1, keepdim=True), one_u], 1)
    right = torch.cat([v, one_v, v.square().sum(1, keepdim=True)], 1)
    return torch.mm(left, right.T, out=out)
