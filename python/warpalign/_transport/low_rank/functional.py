"""Optimal transport of low rank between point sets, in linear memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from warpalign._core.checks import check_count
from warpalign._core.convergence import warn_of_convergence
from warpalign._core.randomness import cpu_generator
from warpalign._core.torch_internals import matmul_precision_of
from warpalign._core.transforms import have_tangents, no_autocast, no_derivative, not_compiled
from warpalign._transport.convergence import is_known, of_problems
from warpalign._transport.envelope import once_differentiable, undifferentiable
from warpalign._transport.low_rank.descent import (
    CostOf,
    Course,
    Descended,
    Factors,
    Side,
    State,
    descend,
    rounded,
    where,
)
from warpalign._transport.low_rank.inputs import (
    EQUAL_SUMS,
    check_course,
    check_rank,
    factors_of,
    points_of,
    squared_distances,
    weights_of,
)
from warpalign._transport.low_rank.plan import LowRankPlan
from warpalign._transport.low_rank.start import (
    Initial,
    given_start,
    random_start,
    rows_as_points,
    transport_start,
)

MARGINALS = 1e-5
"""Plans whose marginals miss the weights by more than this share of the mass have not converged."""
LARGEST_SAFE_STEP = 10.0
"""The default. Larger steps can throw a plan far off, where it stands; so their end is compared with their start."""
_RISE = 1e-3


Start = Callable[[tuple[Tensor, Tensor]], State]
"""Makes a start for weights that sum to 1."""


class LowRankResult(NamedTuple):
    """What :func:`sinkhorn_low_rank` returns; without the batch axis for unbatched input."""

    value: Tensor
    """(B,): the whole objective, in units of the cost."""
    linear: Tensor
    """(B,): the transport cost ⟨C, P⟩."""
    plan: LowRankPlan
    """P (B, N, M), by its factors."""
    converged: Tensor
    """(B,) bool: True if the last step moved at most tol · min(1, step) of the mass, the error is at most 1e-5, and the value is finite.
    With step > 10, the objective must also not exceed that of the first plan."""
    error: Tensor
    """(B,): by how much the plan's marginals miss the weights, in sum and over the mass."""
    iterations: Tensor
    """(B,) int32: steps."""


@not_compiled
@no_autocast()
def sinkhorn_low_rank(
    x: Tensor | None = None,
    y: Tensor | None = None,
    *,
    rank: int,
    cost_factors: tuple[Tensor, Tensor] | None = None,
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
) -> LowRankResult:
    """Optimal transport by a plan of low rank, in memory linear in the number of points.

    The plan P = Q diag(1 / w) Rᵀ minimises ⟨C, P⟩ + epsilon (Σ Q ln Q + Σ R ln R + Σ w ln w) over nonnegative Q (N, rank), R (M, rank)
    and w (rank,), whose marginals are Q 1 = a, R 1 = b and Qᵀ 1 = Rᵀ 1 = w. So P is balanced: its marginals are a and b. The cost is the
    squared Euclidean distance, or A Bᵀ with given factors. Neither it nor the plan is stored: a step takes (N + M) · rank · (D + 2)
    operations. The rank, not epsilon, makes the plan smooth: ``linear`` is an upper bound of the exact transport cost, which falls as the
    rank grows. The objective is not convex, and the result is a local minimum, which depends on the start.

    Sources: Scetbon, Cuturi & Peyré, "Low-rank Sinkhorn factorization", ICML 2021; Scetbon & Cuturi, "Low-rank optimal transport:
    approximation, statistics and debiasing", NeurIPS 2022 (size of a step, k-means).

    Args:
        x: (B, N, D) or (N, D) points, float64, float32, float16 or bfloat16. Half types are converted to float32. None with cost_factors.
        y: (B, M, D) or (M, D) points of the dtype of x.
        rank: the number r of components, from 1 to min(N, M).
        cost_factors: a pair (A, B) of (B, N, K) or (N, K) and (B, M, K) or (M, K): the costs are A Bᵀ, in place of x and y.
        a: (N,) or (B, N) weights >= 0 of the rows; None: 1 / N each. Weights have no gradient here. Their sum must be that of b within
            1e-4 of the larger one; on a GPU the host does not read sums, and a problem with other ones does not converge.
        b: (M,) or (B, M) weights >= 0 of the columns; None: 1 / M each.
        epsilon: the strength of the factors' entropies, >= 0, in units of the cost.
        init: the start. "kmeans": clusters of x, and the entropic plan from y to them; of cost_factors, clusters of the rows of A Bᵀ.
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
        LowRankResult(value, linear, plan, converged, error, iterations); float64 for float64 input, else float32. value and linear are
        differentiable once with respect to points and factors of the cost, at a fixed plan: exactly for ``value`` at a local minimum
        (envelope theorem), and for ``linear`` where epsilon is 0. With another epsilon, backward from ``linear`` raises, and so does
        backward from the plan. A batch gives what its problems give alone.

    Warns:
        ConvergenceWarning: on a CPU, if mass still moves after max_iter steps, the marginals differ from the weights, the plan or its value
            is not finite, or, with step > 10, the objective exceeds that of the first plan. Each calling line warns once. On a GPU,
            inspect ``converged``.

    Raises:
        TypeError: an argument is of the wrong type, dtype or layout.
        ValueError: shapes, devices, values or combinations do not fit. Messages name the argument, what was expected and what came.
        NotImplementedError: weights require a gradient; and for second derivatives, and tangents of forward mode.

    Examples:
        >>> x = torch.randn(400, 2, requires_grad=True)
        >>> y = torch.randn(300, 2)
        >>> result = sinkhorn_low_rank(x, y, rank=8, generator=0)
        >>> result.plan
        LowRankPlan(shape=(400, 300), rank=8)
        >>> result.value.backward()
    """
    if have_tangents(x, y, cost_factors):
        raise no_derivative("forward-mode derivatives of sinkhorn_low_rank")
    points = None
    if cost_factors is None:
        found = points_of(x, y)
        points, unbatched = (found.x, found.y), found.unbatched
        cost = squared_distances(*points)
    else:
        for name, given in (("x", x), ("y", y)):
            if given is not None:
                raise ValueError(f"{name}: expected None with cost_factors, got {type(given).__name__}")
        cost, unbatched = factors_of(cost_factors, "cost_factors", ("N", "M"))
    first = "x" if cost_factors is None else "A"
    weights = weights_of(a, b, (cost.left, cost.right), first)
    count = check_rank(rank, (cost.left.shape[1], cost.right.shape[1]))
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
    fixed = Factors(cost.left.detach(), cost.right.detach())

    def start(shares: tuple[Tensor, Tensor]) -> State:
        clustered = rows_as_points(fixed) if points is None else points[0].detach()
        return transport_start(fixed, clustered, shares, count, draws)

    end = solved(
        lambda _: fixed,
        start,
        init,
        weights,
        count,
        check_count(restarts, "restarts"),
        draws,
        course,
        lambda state: linear_of(fixed, state),
    )
    inputs = tuple(cost) if points is None else points
    linear = linear_of(cost, end.state)
    value = linear + course.epsilon * entropies(end.state)
    plan = plan_of(end, inputs, "sinkhorn_low_rank's plan", course, unbatched)
    value = once_differentiable(value, inputs, "sinkhorn_low_rank's value").to(fixed.left.dtype)
    converged = has_converged(end, course, value)
    warn_unless_converged("sinkhorn_low_rank", converged, end, course, value)
    if course.epsilon > 0:
        linear = undifferentiable(linear.detach(), inputs, "sinkhorn_low_rank's linear with epsilon > 0")
    else:
        linear = value
    outputs = (value, linear.to(value.dtype), converged, end.error, end.iterations)
    value, linear, converged, error, iterations = (t.squeeze(0) if unbatched else t for t in outputs)
    return LowRankResult(value, linear, plan, converged, error, iterations)


def solved(
    cost_of: CostOf,
    start: Start,
    init: object,
    weights: tuple[Tensor, Tensor],
    rank: int,
    restarts: int,
    generator: torch.Generator,
    course: Course,
    distortion_of: Callable[[State], Tensor],
) -> Descended:
    """The end with the least objective of descents from several starts: those of clusters, which start() makes, or random ones.

    Descents are of weights that sum to 1; the factors of the end are scaled by the mass.

    Args:
        distortion_of: the objective (B,) of a state, without entropies.
    """
    with torch.no_grad(), matmul_precision_of("highest"):
        mass, other = (one.sum(-1) for one in weights)
        shares = weights[0] / mass[:, None], weights[1] / other[:, None]
        given = given_start(init, shares, rank)
        best, least = None, mass.double()
        for _ in range(restarts if given is None else 1):
            state = given
            if state is None:
                state = random_start(shares, rank, generator) if init == "random" else start(shares)
            end = descend(cost_of, state, shares, course)
            value = distortion_of(end.state) + course.epsilon * entropies(end.state)
            if course.step > LARGEST_SAFE_STEP:
                end = end._replace(rose=_rose(value, state, shares, course, distortion_of))
            best, least = (
                (end, value)
                if best is None
                else (_better(value < least, end, best), torch.minimum(value, least))
            )
        assert best is not None
        x, y, w = best.state.x, best.state.y, best.state.weights
        x, y = (side._replace(factor=side.factor * mass[:, None, None]) for side in (x, y))
        apart = (mass - other).abs() / mass
        error = best.error + apart.where(apart > EQUAL_SUMS, 0.0)
        return best._replace(state=State(x, y, w * mass[:, None], best.state.gamma), error=error)


def _rose(
    value: Tensor,
    start: State,
    weights: tuple[Tensor, Tensor],
    course: Course,
    distortion_of: Callable[[State], Tensor],
) -> Tensor:
    """(B,) bool: whether the objective (B,) is above that of the plan that the start stands for."""
    plan = rounded(start, weights[1])
    first = distortion_of(plan) + course.epsilon * entropies(plan)
    x, y = (Side(one[..., None], one[..., None], one[:, :1]) for one in weights)
    product = distortion_of(State(x, y, torch.ones_like(x.log_v), start.gamma))
    # Rounding, of a plan that is best from the start and costs nothing, is a share of what the product of the weights costs.
    return value > first + _RISE * (first.abs() + product.abs())


def _better(is_better: Tensor, new: Descended, old: Descended) -> Descended:
    """The new end of some problems (B,), and the old one of all others."""
    state = where(is_better, new.state, old.state)
    moved, error, iterations = (
        torch.where(is_better, one, other)
        for one, other in zip(
            (new.moved, new.error, new.iterations), (old.moved, old.error, old.iterations), strict=True
        )
    )
    rose = None if new.rose is None or old.rose is None else torch.where(is_better, new.rose, old.rose)
    return Descended(state, moved, error, iterations, old.history, rose)


def plan_of(
    end: Descended, inputs: tuple[Tensor, ...], what: str, course: Course, unbatched: bool
) -> LowRankPlan:
    """The plan, whose backward to the inputs raises."""
    q, r, weights = (
        undifferentiable(t, inputs, what) for t in (end.state.x.factor, end.state.y.factor, end.state.weights)
    )
    return LowRankPlan(q, r, weights, epsilon=course.epsilon, unbatched=unbatched)


def linear_of(cost: Factors, state: State) -> Tensor:
    """(B,): ⟨A Bᵀ, P⟩ in float64."""
    left = cost.left.double().mT @ state.x.factor.double()
    right = cost.right.double().mT @ state.y.factor.double()
    value: Tensor = (left * right / state.weights.double()[:, None, :]).sum((1, 2))
    return value


def entropies(state: State) -> Tensor:
    """(B,): Σ Q ln Q + Σ R ln R + Σ w ln w in float64."""
    q, r, w = (t.double() for t in (state.x.factor, state.y.factor, state.weights))
    value: Tensor = torch.xlogy(q, q).sum((1, 2)) + torch.xlogy(r, r).sum((1, 2)) + torch.xlogy(w, w).sum(1)
    return value


def has_converged(end: Descended, course: Course, value: Tensor) -> Tensor:
    """(B,) bool, with the value (B,) in the result's dtype."""
    stands = end.moved <= max(course.goal, torch.finfo(end.moved.dtype).eps * min(1.0, course.step))
    converged = stands & (end.error <= MARGINALS) & value.detach().isfinite()
    return converged if end.rose is None else converged & ~end.rose


def warn_unless_converged(
    function: str, converged: Tensor, end: Descended, course: Course, value: Tensor
) -> None:
    """Without a tolerance steps are to end at max_iter: only what is not finite or has risen is told."""
    if not is_known(converged) or bool(converged.all()):
        return
    counts = of_problems(~converged)
    moved, error, values = (t.detach()[~converged] for t in (end.moved, end.error, value))
    if not bool(error.isfinite().all()):
        warn_of_convergence(
            f"{function}: expected a finite plan, got NaN{counts}: the points or the cost contain NaN or infinity"
        )
    elif not bool(values.isfinite().all()):
        came, kind = float(values[~values.isfinite()][0]), str(value.dtype).removeprefix("torch.")
        warn_of_convergence(
            f"{function}: expected a finite value, got {came:g}{counts}: the objective of the points or factors is beyond the range of "
            f"{kind}: write points or factors divided by their largest entry"
        )
    elif end.rose is not None and bool(end.rose.any()):
        warn_of_convergence(
            f"{function}: expected steps to a plan with a smaller objective than the first one's, got a larger one with step = "
            f"{course.step:g}{counts}: write a smaller step, such as {LARGEST_SAFE_STEP:g}"
        )
    elif course.tolerance == 0:
        return
    elif bool((error > MARGINALS).any()):
        warn_of_convergence(
            f"{function}: expected marginals within {MARGINALS:g} of the mass, got {float(error.max()):.3g} after polish_iters = "
            f"{course.polish_iters} iterations{counts}: write a larger polish_iters"
        )
    else:
        share, larger = (f" times step = {course.step:g}", "step, ") if course.step < 1 else ("", "")
        warn_of_convergence(
            f"{function}: expected at most tol = {course.tolerance:g}{share} of the mass to move in a step, got "
            f"{float(moved.max()):.3g} after max_iter = {course.max_iter} steps{counts}: write a larger {larger}max_iter or tol"
        )
