"""Gromov-Wasserstein transport of low rank, in linear memory.

With intra-domain distances Cx = A₁ A₂ᵀ and Cy = B₁ B₂ᵀ the gradient of the distortion at P is, but for constants of rows and columns,

    −4 Cx P Cy = A₁ (−4 A₂ᵀ P B₁) B₂ᵀ,

a cost in factors of as few columns. Source: Scetbon, Peyré & Cuturi, "Linear-time Gromov Wasserstein distances using low rank
couplings and costs", ICML 2022, section 4.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from warpalign._core.checks import check_count
from warpalign._core.randomness import cpu_generator
from warpalign._core.transforms import have_tangents, no_autocast, no_derivative, not_compiled
from warpalign._transport.envelope import once_differentiable, undifferentiable
from warpalign._transport.gromov_result import GromovResult
from warpalign._transport.low_rank.descent import Factors, State
from warpalign._transport.low_rank.functional import (
    entropies,
    has_converged,
    plan_of,
    solved,
    warn_unless_converged,
)
from warpalign._transport.low_rank.inputs import (
    check_course,
    check_rank,
    factors_of,
    sets_of,
    squared_distances,
    weights_of,
)
from warpalign._transport.low_rank.plan import LowRankPlan
from warpalign._transport.low_rank.start import Initial, gromov_start, rows_as_points


class LowRankMeasures(NamedTuple):
    """Of a result whose plan and distances are factors."""

    of_value: Tensor
    of_distortion: Tensor

    def value(self) -> Tensor:
        return self.of_value

    def distortion(self) -> tuple[Tensor, Tensor]:
        return self.of_distortion, torch.zeros_like(self.of_distortion)


class _Spaces(NamedTuple):
    """Both sets' distances, and points that clusters are made of."""

    x: Factors
    y: Factors
    points: tuple[Tensor, Tensor] | None
    unbatched: bool
    names: tuple[str, str]

    def cost(self, state: State) -> Factors:
        """The gradient of the distortion, but for constants of rows and columns."""
        left = self.x.right.mT @ state.x.factor / state.weights[:, None, :]
        middle = left @ (self.y.left.mT @ state.y.factor).mT
        return Factors(self.x.left @ (-4 * middle), self.y.right)

    def detached(self) -> _Spaces:
        x, y = (Factors(*(t.detach() for t in one)) for one in (self.x, self.y))
        points = None if self.points is None else (self.points[0].detach(), self.points[1].detach())
        return self._replace(x=x, y=y, points=points)

    def distortion(self, state: State) -> Tensor:
        """(B,) in float64."""
        (a1, a2), (b1, b2) = (tuple(t.double() for t in one) for one in (self.x, self.y))
        q, r, w = (t.double() for t in (state.x.factor, state.y.factor, state.weights))
        squares = _squares(a1, a2, q.sum(-1)) + _squares(b1, b2, r.sum(-1))

        def through(left: Tensor, right: Tensor) -> Tensor:
            return (left.mT @ q / w[:, None, :]) @ (r.mT @ right)

        value: Tensor = squares - 2 * (through(a2, b1) * through(a1, b2)).sum((1, 2))
        return value


@not_compiled
@no_autocast()
def gromov_wasserstein_low_rank(
    x: Tensor | None = None,
    y: Tensor | None = None,
    *,
    rank: int,
    distance_factors: tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]] | None = None,
    a: Tensor | None = None,
    b: Tensor | None = None,
    epsilon: float = 0.0,
    init: Initial | LowRankPlan | tuple[Tensor, Tensor, Tensor] = "kmeans",
    restarts: int = 1,
    generator: torch.Generator | int | None = None,
    step: float = 10.0,
    max_iter: int = 1000,
    tol: float = 1e-4,
    projection_iters: int = 10,
    polish_iters: int = 100,
    min_weight: float = 1e-10,
) -> GromovResult:
    """Gromov-Wasserstein transport by a plan of low rank, in memory linear in the number of points.

    The plan P = Q diag(1 / w) Rᵀ minimises Σ (Cx[i, k] − Cy[j, l])² P[i, j] P[k, l] + epsilon (Σ Q ln Q + Σ R ln R + Σ w ln w) over
    nonnegative Q (N, rank), R (M, rank) and w (rank,) with the marginals of :func:`sinkhorn_low_rank`. Cx and Cy are squared Euclidean
    distances of points, or A₁ A₂ᵀ and B₁ B₂ᵀ with given factors. Neither they nor the plan are stored.

    Source: Scetbon, Peyré & Cuturi, "Linear-time Gromov Wasserstein distances using low rank couplings and costs", ICML 2022.

    Args:
        x: (B, N, D) or (N, D) points, float64, float32, float16 or bfloat16. Half types are converted to float32. None with
            distance_factors.
        y: (B, M, E) or (M, E) points of the dtype of x, in a space of their own.
        rank: the number r of components, from 1 to min(N, M).
        distance_factors: a pair ((A1, A2), (B1, B2)) of factors (N, K), (N, K), (M, L) and (M, L), or with a batch axis, in place of x and
            y: Cx = A1 A2ᵀ and Cy = B1 B2ᵀ, which must be symmetric.
        a: (N,) or (B, N) weights >= 0 of the rows, as in :func:`sinkhorn_low_rank`; None: 1 / N each.
        b: (M,) or (B, M) weights >= 0 of the columns; None: 1 / M each.
        epsilon: the strength of the factors' entropies, >= 0, in units of the squared distances' squares.
        init: the start. "kmeans": clusters of both sets, matched by an entropic Gromov-Wasserstein plan between their mean distances.
            "random": random factors. Or a LowRankPlan, or factors (q, r, weights) of (B, N, rank), (B, M, rank) and (B, rank).
        restarts: how many starts are made, at least 1, of which the result with the least value is kept. Those of "kmeans" and "random"
            differ in their random numbers; a given start is made once.
        generator: the random numbers of "kmeans" and "random": a torch.Generator on the CPU, which advances, or an int, the seed of a new
            one. None: torch's default generator.
        step: the largest exponent of a step of mirror descent, > 0. The size of a step is this number divided by the largest gradient.
            With values far above 10, the result can be worse than the first plan. Values below 1 need more steps.
        max_iter: the maximum number of steps, at least 1.
        tol: the solver stops when a step moves at most tol · min(1, step) of the mass, which is tested every ten steps; >= 0. 0: it stops
            at max_iter.
        projection_iters: the iterations of a step's projection onto the marginals, at least 2, which start from those of the step before.
        polish_iters: the maximum number of iterations of the last projection, at least 1. What it leaves is removed by rounding to the marginals,
            which are exact up to floating-point errors in any case.
        min_weight: no component's weight falls below this share of the mass; above 0 and at most 1 / rank.

    Returns:
        A GromovResult with a LowRankPlan, float64 for float64 input, else float32. Its history, of the first start, has an entry per test, every ten steps, and
        its error is by how much the plan's marginals miss the weights, in sum and over the mass. value, and distortion where epsilon is 0,
        are differentiable once with respect to points and factors, at a fixed plan (envelope theorem). Backward from the plan raises.

    Warns:
        ConvergenceWarning: on a CPU, if mass still moves after max_iter steps, the marginals differ from the weights, the plan or its value
            is not finite, or, with step > 10, the objective exceeds that of the first plan. Each calling line warns once. On a GPU,
            inspect ``converged``.

    Raises:
        TypeError: an argument is of the wrong type, dtype or layout.
        ValueError: shapes, devices, values or combinations do not fit. Messages name the argument, what was expected and what came.
        NotImplementedError: weights require a gradient; and for second derivatives, and tangents of forward mode.

    Examples:
        >>> x = torch.randn(400, 3)
        >>> result = gromov_wasserstein_low_rank(x, torch.randn(300, 2), rank=8, generator=0)
        >>> result.plan.shape
        torch.Size([400, 300])
    """
    if have_tangents(x, y, *(distance_factors if isinstance(distance_factors, tuple) else ())):
        raise no_derivative("forward-mode derivatives of gromov_wasserstein_low_rank")
    spaces = _spaces(x, y, distance_factors)
    weights = weights_of(a, b, (spaces.x.left, spaces.y.left), spaces.names[0])
    count = check_rank(rank, (spaces.x.left.shape[1], spaces.y.left.shape[1]))
    course = check_course(
        step=step,
        epsilon=epsilon,
        max_iter=max_iter,
        tol=tol,
        projection_iters=projection_iters,
        polish_iters=polish_iters,
        least=min_weight,
        rank=count,
    )
    draws = cpu_generator(generator)
    fixed = spaces.detached()

    def start(shares: tuple[Tensor, Tensor]) -> State:
        points = fixed.points or (rows_as_points(fixed.x), rows_as_points(fixed.y))
        return gromov_start((fixed.x, fixed.y), points, shares, count, draws)

    starts = check_count(restarts, "restarts")
    end = solved(fixed.cost, start, init, weights, count, starts, draws, course, fixed.distortion)
    inputs = (*spaces.x, *spaces.y) if spaces.points is None else spaces.points
    name = "gromov_wasserstein_low_rank's"
    distortion = spaces.distortion(end.state)
    value = once_differentiable(distortion + course.epsilon * entropies(end.state), inputs, f"{name} value")
    if course.epsilon > 0:
        distortion = undifferentiable(distortion.detach(), inputs, f"{name} distortion with epsilon > 0")
    else:
        distortion = value
    plan = plan_of(end, inputs, f"{name} plan", course, spaces.unbatched)
    value = value.to(weights[0].dtype)
    converged = has_converged(end, course, value)
    warn_unless_converged("gromov_wasserstein_low_rank", converged, end, course, value)
    outputs = (
        value,
        distortion.to(weights[0].dtype),
        converged,
        end.error,
        end.iterations,
    )
    value, distortion, converged, error, steps = (t.squeeze(0) if spaces.unbatched else t for t in outputs)
    history = end.history[:, 0] if spaces.unbatched else end.history
    return GromovResult(LowRankMeasures(value, distortion), plan, converged, error, steps, history)


def _spaces(x: object, y: object, factors: object) -> _Spaces:
    if factors is None:
        for name, given in (("x", x), ("y", y)):
            if given is None:
                raise ValueError(
                    f"{name}: expected points, or distance_factors in the place of x and y, got None"
                )
        found = sets_of(x, y)
        of_x, of_y = squared_distances(found.x, found.x), squared_distances(found.y, found.y)
        return _Spaces(of_x, of_y, (found.x, found.y), found.unbatched, ("x", "y"))
    for name, given in (("x", x), ("y", y)):
        if given is not None:
            raise ValueError(f"{name}: expected None with distance_factors, got {type(given).__name__}")
    if not isinstance(factors, tuple) or len(factors) != 2:
        raise TypeError(
            f"distance_factors: expected a pair ((A1, A2), (B1, B2)), got {type(factors).__name__}"
        )
    (of_x, one), (of_y, other) = (
        factors_of(pair, f"distance_factors: {name}", (axis, axis))
        for pair, name, axis in zip(factors, "xy", "NM", strict=True)
    )
    for left, right, which in ((of_x.left, of_x.right, "x"), (of_y.left, of_y.right, "y")):
        if left.shape[1] != right.shape[1]:
            raise ValueError(
                f"distance_factors: {which}: expected as many rows in both factors, got {left.shape[1]} and {right.shape[1]}"
            )
    if one != other or of_y.left.dtype != of_x.left.dtype or of_y.left.device != of_x.left.device:
        raise ValueError(
            f"distance_factors: y: expected {of_x.left.dtype} on {of_x.left.device} and the axes of x, got {of_y.left.dtype} on "
            f"{of_y.left.device}"
        )
    return _Spaces(of_x, of_y, None, one, ("A1", "B1"))


def _squares(left: Tensor, right: Tensor, weights: Tensor) -> Tensor:
    """(B,): Σ C[i, k]² p[i] p[k] with C = left rightᵀ, without C."""
    one, other = (t.mT @ (t * weights[:, :, None]) for t in (left, right))
    total: Tensor = (one * other).sum((1, 2))
    return total
