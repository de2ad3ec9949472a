"""Mirror descent over the factors of a low-rank plan.

The factors (Q, R, w) of P = Q diag(1 / w) Rᵀ minimise ⟨C, P⟩ + ε (Σ Q ln Q + Σ R ln R + Σ w ln w) with Q 1 = a, R 1 = b,
Qᵀ 1 = Rᵀ 1 = w and w >= least (Scetbon, Cuturi & Peyré, "Low-rank Sinkhorn factorization", ICML 2021, eq. 6, whose g is w here).
A step multiplies the factors by exp(−γ gradient), and projects them onto the constraints in the KL divergence. γ is the step
divided by the largest gradient (Scetbon & Cuturi, "Low-rank optimal transport: approximation, statistics and debiasing", NeurIPS
2022, section 3).

The projection is the paper's LR-Dykstra (algorithm 2) as an ascent in two blocks of dual variables. With Q = u₁ K₁ v₁, R = u₂ K₂ v₂:

    u₁ = a / (K₁ v₁),   u₂ = b / (K₂ v₂),   p = K₁ᵀ u₁,   s = K₂ᵀ u₂,
    w = max(least, (K₃ p s)^(1/3)),   v₁ = w / p,   v₂ = w / s

It starts from the variables of the step before, as γ and the gradients hardly change between steps: a few iterations a step suffice.
Factors are kept as logits, whose rows are known up to a constant that u takes up. So points without weight need no special case.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from warpalign._core.replay import Replayed, can_capture

STEPS_BETWEEN_TESTS = 10
_LEAST_LOGIT = -30.0
"""Of an entry beside the largest one of its row. What is smaller could not come back, and would need a v beyond the range of float32."""
_LARGEST_RATIO = 2.0
"""Of two steps' sizes, by which the dual variables of the first become a guess of the second's."""


class Factors(NamedTuple):
    """A cost C = A Bᵀ, by A (B, N, K) and B (B, M, K)."""

    left: Tensor
    right: Tensor


class Side(NamedTuple):
    """One factor of the plan, and what belongs to it."""

    logits: Tensor
    """(B, N, r): ln Q up to a constant of each row."""
    factor: Tensor
    """Q (B, N, r), whose row sums are the weights."""
    log_v: Tensor
    """(B, r): ln v of the last projection, for a step of size `gamma`."""


class State(NamedTuple):
    """The factors of a plan between two steps."""

    x: Side
    y: Side
    weights: Tensor
    """w (B, r)"""
    gamma: Tensor
    """(B,): the size of the last step."""


class Course(NamedTuple):
    """How the descent proceeds."""

    step: float
    """The largest exponent of a step."""
    epsilon: float
    max_iter: int
    tolerance: float
    projection_iters: int
    polish_iters: int
    least: float
    """What no component's share of the mass falls below."""

    @property
    def goal(self) -> float:
        """The share of the mass that a step moves at most where the plan stands. Below 1 a step's movement is in proportion to its size."""
        return self.tolerance * min(1.0, self.step)


class Descended(NamedTuple):
    """The end of a descent."""

    state: State
    moved: Tensor
    """(B,): the share of the mass that the last step moved."""
    error: Tensor
    """(B,): by how much the plan's marginals miss the weights, in sum."""
    iterations: Tensor
    """(B,) int32"""
    history: Tensor
    """(tests, B): the share of the mass that moved, at each test."""
    rose: Tensor | None = None
    """(B,) bool: whether the objective is above that of the first plan. None: not looked at."""


CostOf = Callable[[State], Factors]


def start_of(x: Tensor, y: Tensor, weights: Tensor, a: Tensor, b: Tensor) -> State:
    """The state of logits (B, N, r), (B, M, r) and weights (B, r)."""
    zeros = torch.zeros_like(weights)
    first, second = (Side(one, _normalized(one.softmax(-1), of), zeros) for one, of in ((x, a), (y, b)))
    return State(first, second, weights, zeros[:, 0])


@torch.no_grad()
def descend(cost_of: CostOf, state: State, weights: tuple[Tensor, Tensor], course: Course) -> Descended:
    """Steps until one moves at most the tolerance of the mass, tested every ten steps, and a last projection.

    Only the tests wait for the device. With tolerance 0 there are none. On a GPU the first ten steps run one kernel after the
    other, and the others as one CUDA graph each: a step is about 240 short kernels, which take less time than their launches.

    Args:
        cost_of: the cost at a state.
        weights: (B, N) and (B, M), whose sums are 1.
    """

    def step(state: State, done: Tensor) -> State:
        """A step of the problems that are not done."""
        return _unless(done, state, _stepped(cost_of(state), state, weights, course))

    def run(place: tuple[State, Tensor]) -> tuple[tuple[State, Tensor], Tensor]:
        """The same, and the share of the mass (B,) that it moved."""
        before, done = place
        after = step(before, done)
        return (after, done), _moved(before, after)

    iterations = torch.zeros(len(state.gamma), dtype=torch.int32, device=state.gamma.device)
    done = torch.zeros_like(iterations, dtype=torch.bool)
    moved, history = torch.full_like(state.gamma, math.inf), []
    graph: Replayed | None = None
    captures = can_capture(state.gamma.device)
    for first in range(0, course.max_iter, STEPS_BETWEEN_TESTS):
        count = min(STEPS_BETWEEN_TESTS, course.max_iter - first)
        if captures and first > 0:
            graph = graph or Replayed(run, (state, done), state.gamma.device)
            graph.state[1].copy_(done)
        if graph:
            for _ in range(count):
                now = graph()
        else:
            for _ in range(count - 1):
                state = step(state, done)
            (state, _), now = run((state, done))
        iterations += count * ~done
        moved = moved.where(done, now)
        history.append(moved)
        if course.tolerance > 0:
            done = done | (moved <= course.goal) | moved.isnan()
            if bool(done.all()):
                break
    state, error = _polished(graph.state[0] if graph else state, weights, course)
    return Descended(state, moved, error, iterations, torch.stack(history))


def _stepped(cost: Factors, state: State, weights: tuple[Tensor, Tensor], course: Course) -> State:
    # By the columns' own sums, which the weights are once projected: so a slope is a mean of costs, and as bounded as they are.
    tiny = torch.finfo(state.weights.dtype).tiny
    sums_x, sums_y = (side.factor.sum(1, keepdim=True).clamp(min=tiny) for side in (state.x, state.y))
    slope_x = cost.left @ (cost.right.mT @ state.y.factor / sums_y)
    slope_y = cost.right @ (cost.left.mT @ state.x.factor / sums_x)
    slope_w = (state.x.factor / sums_x * slope_x).sum(1)
    # A constant of a row, or of all components, changes nothing; the least one keeps exponents small.
    slope_x, slope_y = (slope - slope.amin(-1, keepdim=True) for slope in (slope_x, slope_y))
    slope_w = slope_w - slope_w.amax(-1, keepdim=True)
    spread = torch.stack([_largest(slope_x, weights[0]), _largest(slope_y, weights[1]), -slope_w.amin(-1)])
    largest = spread.amax(0)
    gamma = torch.where(largest > 0, course.step / largest, 0.0)
    kept = 1.0 - torch.zeros_like(gamma)
    if course.epsilon > 0:
        gamma = gamma.clamp(max=0.5 / course.epsilon)
        kept = 1.0 - gamma * course.epsilon
    ratio = torch.where(state.gamma > 0, gamma / state.gamma.where(state.gamma > 0, 1.0), 1.0)
    ratio = ratio.clamp(max=_LARGEST_RATIO)

    def moved(side: Side, slope: Tensor) -> Side:
        logits = kept[:, None, None] * side.logits - gamma[:, None, None] * slope
        return Side(logits, side.factor, side.log_v * ratio[:, None])

    sides = moved(state.x, slope_x), moved(state.y, slope_y)
    log_w = kept[:, None] * state.weights.log() + gamma[:, None] * slope_w
    return _projected(sides, log_w, weights, course.projection_iters, course.least)._replace(gamma=gamma)


def _projected(
    sides: tuple[Side, Side], log_w: Tensor, weights: tuple[Tensor, Tensor], count: int, least: float
) -> State:
    """The projection after so many iterations; row sums of the factors are exact."""
    logits = [(side.logits - side.logits.amax(-1, keepdim=True)).clamp(min=_LEAST_LOGIT) for side in sides]
    kernels = [one.exp() for one in logits]
    log_v = [side.log_v for side in sides]
    new = log_w
    for _ in range(count):
        sums = []
        for kernel, potential, of in zip(kernels, log_v, weights, strict=True):
            rows = (kernel @ potential.exp()[:, :, None])[:, :, 0]
            sums.append((kernel.mT @ (of / rows)[:, :, None])[:, :, 0].log())
        new = ((log_w + sums[0] + sums[1]) / 3).clamp(min=math.log(least))
        log_v = [new - one for one in sums]
    x, y = (
        Side(
            one + potential[:, None, :],
            _normalized(kernel.mul_(potential.exp()[:, None, :]), of),
            potential,
        )
        for one, potential, kernel, of in zip(logits, log_v, kernels, weights, strict=True)
    )
    return State(x, y, new.exp(), log_w.new_zeros(log_w.shape[0]))


def _polished(state: State, weights: tuple[Tensor, Tensor], course: Course) -> tuple[State, Tensor]:
    """The factors projected until their column sums agree, and rounded so that they do; and the error (B,) of the marginals.

    Rounding moves no more mass than column sums differ by.
    """
    goal = 64 * torch.finfo(state.weights.dtype).eps
    for _ in range(0, course.polish_iters, STEPS_BETWEEN_TESTS):
        if course.tolerance > 0 and bool((_mismatch(state) <= goal).all()):
            break
        zeros = torch.zeros_like(state.weights)
        sides = state.x._replace(log_v=zeros), state.y._replace(log_v=zeros)
        count = min(STEPS_BETWEEN_TESTS, course.polish_iters)
        polished = _projected(sides, state.weights.log(), weights, count, course.least)
        state = _unless(_mismatch(state) <= goal, state, polished)
    state = rounded(state, weights[1])
    missed = [
        (side.factor.sum(-1) - of).abs().sum(-1) for side, of in zip((state.x, state.y), weights, strict=True)
    ]
    return state, missed[0] + missed[1] + _mismatch(state)


def rounded(state: State, weights: Tensor) -> State:
    """A plan with the row sums of x and the weights (B, M) of y, near a state."""
    sums = state.x.factor.sum(1)
    y = state.y._replace(factor=_rounded(state.y.factor, weights, sums))
    return State(state.x, y, sums.clamp(min=torch.finfo(sums.dtype).tiny), state.gamma)


def _rounded(factor: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """A factor (B, M, r) with these row sums (B, M) and column sums (B, r), near one that has the row sums.

    Source: Altschuler, Weed & Rigollet, "Near-linear time approximation algorithms for optimal transport via Sinkhorn iteration",
    NIPS 2017, algorithm 2.
    """
    sums = factor.sum(1)
    some = factor * torch.where(sums > columns, columns / sums, 1.0)[:, None, :]
    of_rows, of_columns = (rows - some.sum(-1)).clamp(min=0), (columns - some.sum(1)).clamp(min=0)
    total = of_columns.sum(-1)[:, None, None]
    return some + of_rows[:, :, None] * (of_columns[:, None, :] / total.where(total > 0, 1.0))


def _mismatch(state: State) -> Tensor:
    """(B,): Σ |Qᵀ 1 − w| + Σ |Rᵀ 1 − w|"""
    sums: Tensor = sum((side.factor.sum(1) - state.weights).abs().sum(-1) for side in (state.x, state.y))  # type: ignore[assignment]
    return sums


def _normalized(factor: Tensor, weights: Tensor) -> Tensor:
    """Rows scaled so that they sum to the weights."""
    return factor * (weights / factor.sum(-1))[:, :, None]


def _largest(slope: Tensor, weights: Tensor) -> Tensor:
    """(B,): the largest entry (B, N, r) of a point with weight."""
    return slope.amax(-1).where(weights > 0, 0.0).amax(-1)


def _moved(before: State, after: State) -> Tensor:
    """(B,): half of what entries changed, as a mean of both factors."""
    changes = [
        (one.factor - other.factor).abs().sum((1, 2))
        for one, other in ((before.x, after.x), (before.y, after.y))
    ]
    return (changes[0] + changes[1]) / 4


def _unless(done: Tensor, old: State, new: State) -> State:
    """The new state of problems (B,) that are not done: those are left as they are, so that a batch gives what problems give alone."""
    return new if len(done) == 1 else where(done, old, new)


def where(chosen: Tensor, one: State, other: State) -> State:
    """One state for the problems (B,) that are chosen, and the other for all others."""

    def entries(first: Tensor, second: Tensor) -> Tensor:
        return torch.where(chosen.view(-1, *[1] * (first.dim() - 1)), first, second)

    x, y = (Side(*map(entries, first, second)) for first, second in ((one.x, other.x), (one.y, other.y)))
    return State(x, y, entries(one.weights, other.weights), entries(one.gamma, other.gamma))
