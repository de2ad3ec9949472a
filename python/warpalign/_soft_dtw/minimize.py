"""Minimisation of many independent functions whose values come from one batched evaluation.

A search is a generator: it yields a position, is sent the loss and the gradient there, and returns a Minimum. Each search
knows nothing of the others, so no function's result depends on its batch mates; `minimize` collects the positions that all
of them wait for and evaluates them together. Vectors are float64 and live on the CPU, where the searches' many decisions
are made; the evaluation may be in another type and elsewhere.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator
from typing import NamedTuple

import torch
from torch import Tensor

Evaluation = tuple[float, Tensor]  # at a position: the loss, and the gradient or what else the search goes by


class Minimum(NamedTuple):
    position: Tensor
    losses: list[float]
    """The least loss so far: at the start, then after each iteration."""
    converged: bool


Search = Generator[Tensor, Evaluation, Minimum]


class Criterion(NamedTuple):
    """When a search ends."""

    max_iter: int
    patience: int
    tol: float  # `patience` iterations that together lower the loss by no more than tol * (its scale) are the last
    unit: float  # the scale of the loss where it is nearly 0
    epsilon: float  # relative rounding error of the evaluated losses

    def scale(self, loss: float) -> float:
        return max(abs(loss), self.unit)

    def is_met(self, losses: list[float]) -> bool:
        before = self.patience + 1
        return len(losses) >= before and losses[-before] - losses[-1] <= self.tolerance(losses[-1])

    def tolerance(self, loss: float) -> float:
        return self.tol * self.scale(loss) if math.isfinite(loss) else -math.inf

    def noise(self, loss: float) -> float:
        return 4 * self.epsilon * self.scale(loss)


def minimize(
    searches: list[Search],
    evaluate: Callable[[list[int], Tensor], tuple[Tensor, Tensor]],
    after_evaluation: Callable[[int], None],
) -> list[Minimum]:
    """Runs all searches to their end.

    Args:
        searches: not yet started.
        evaluate: indices of searches and their positions (k, P) -> losses (k,) and gradients (k, P).
        after_evaluation: called with the number of searches that go on.
    """
    waiting = {index: next(search) for index, search in enumerate(searches)}
    minima: dict[int, Minimum] = {}
    while waiting:
        losses, gradients = evaluate(list(waiting), torch.stack(list(waiting.values())))
        gradients = gradients.to("cpu", torch.float64)
        for index, loss, gradient in zip(list(waiting), losses.tolist(), gradients, strict=True):
            try:
                waiting[index] = searches[index].send((loss, gradient))
            except StopIteration as end:
                del waiting[index]
                minima[index] = end.value
        after_evaluation(len(waiting))
    return [minima[index] for index in range(len(searches))]


def _least(loss: float, before: float) -> float:
    """The lower one; NaN is never lower."""
    return loss if loss < before else before


_BETAS = (0.9, 0.999)  # of Adam's moving averages of the gradient and of its square


def adam(start: Tensor, criterion: Criterion, lr: float) -> Search:
    """Algorithm 1 of Kingma & Ba, "Adam: a method for stochastic optimization", ICLR 2015.

    Written out, because the first optimizer of torch.optim imports torch's compiler, which takes seconds.
    """
    position = start.clone()
    mean, square = torch.zeros_like(start), torch.zeros_like(start)
    losses: list[float] = []
    best = position.clone()
    for iteration in range(criterion.max_iter + 1):
        loss, gradient = yield position
        if not losses or loss < losses[-1]:
            best = position.clone()
        losses.append(_least(loss, losses[-1]) if losses else loss)
        # Steps that are too long lower nothing either: then the loss stays above the least one.
        if criterion.is_met(losses) and loss - losses[-1] <= criterion.tolerance(losses[-1]):
            return Minimum(best, losses, True)
        if iteration < criterion.max_iter:
            mean.lerp_(gradient, 1 - _BETAS[0])
            square.mul_(_BETAS[1]).addcmul_(gradient, gradient, value=1 - _BETAS[1])
            unbiased, scale = (1 - beta ** (iteration + 1) for beta in _BETAS)
            position.addcdiv_(mean, square.sqrt().div_(math.sqrt(scale)).add_(1e-8), value=-lr / unbiased)
    return Minimum(best, losses, False)


def fixed_point(start: Tensor, criterion: Criterion) -> Search:
    """Goes where each evaluation sends it next, which comes in place of a gradient, until that lowers the loss no more."""
    position = start
    loss, following = yield position
    losses = [loss]
    while len(losses) <= criterion.max_iter:
        candidate = following
        loss, following = yield candidate
        if loss < losses[-1]:
            position = candidate
        losses.append(_least(loss, losses[-1]))
        if criterion.is_met(losses):
            return Minimum(position, losses, True)
    return Minimum(position, losses, False)


def lbfgs(start: Tensor, criterion: Criterion, curvature: float, memory: int = 20) -> Search:
    """L-BFGS: algorithm 7.5 of Nocedal & Wright, "Numerical Optimization", 2nd edition, 2006.

    Args:
        curvature: about the second derivative of the function at the start, for the length of the first step.
    """
    position = start
    loss, gradient = yield position
    losses = [loss]
    changes: deque[tuple[Tensor, Tensor]] = deque(maxlen=memory)  # of the position and of the gradient
    while len(losses) <= criterion.max_iter:
        direction = -_times_inverse_hessian(gradient, changes, curvature)
        slope = float(direction @ gradient)
        if not slope < 0:
            return Minimum(position, losses, math.isfinite(loss) and bool(gradient.isfinite().all()))
        point = yield from _line_search(position, direction, _Point(0.0, loss, gradient, slope), criterion)
        if point.step == 0:
            # No lower point: that is so at a minimum, up to rounding, and where the direction misleads.
            least_slope = max(criterion.tol, 100 * criterion.epsilon) * criterion.scale(loss)
            is_flat = math.isfinite(loss) and -slope <= least_slope
            if is_flat or not changes:
                return Minimum(position, losses, is_flat)
            changes.clear()
            continue
        change, gradient_change = point.step * direction, point.gradient - gradient
        if float(change @ gradient_change) > 1e-10 * float(gradient_change @ gradient_change) / curvature:
            changes.append((change, gradient_change))
        position, loss, gradient = position + change, point.loss, point.gradient
        losses.append(_least(loss, losses[-1]))
        if criterion.is_met(losses):
            return Minimum(position, losses, True)
    return Minimum(position, losses, False)


def _times_inverse_hessian(vector: Tensor, changes: deque[tuple[Tensor, Tensor]], curvature: float) -> Tensor:
    """Algorithm 7.4: the two loops."""
    if not changes:
        return vector / curvature
    rhos = [1 / float(s @ y) for s, y in changes]
    alphas = []
    result = vector.clone()
    for (s, y), rho in zip(reversed(changes), reversed(rhos), strict=True):
        alphas.append(rho * float(s @ result))
        result.sub_(y, alpha=alphas[-1])
    s, y = changes[-1]
    result *= float(s @ y) / float(y @ y)
    for (s, y), rho, alpha in zip(changes, rhos, reversed(alphas), strict=True):
        result.add_(s, alpha=alpha - rho * float(y @ result))
    return result


class _Point(NamedTuple):
    """A point on the line of a search."""

    step: float
    loss: float
    gradient: Tensor
    slope: float


_DECREASE, _CURVATURE = 1e-4, 0.9  # c1 and c2 of the strong Wolfe conditions
_EVALUATIONS = 20


def _line_search(
    origin: Tensor, direction: Tensor, start: _Point, criterion: Criterion
) -> Generator[Tensor, Evaluation, _Point]:
    """Algorithms 3.5 and 3.6: a point that meets the strong Wolfe conditions, else the lowest one found, else the start."""

    def is_low(point: _Point) -> bool:
        bound = start.loss + _DECREASE * point.step * start.slope + criterion.noise(start.loss)
        return point.loss <= bound  # False for NaN

    low, high = start, None  # `low` is the lowest point so far; a good step lies between the two
    step = 1.0
    for _ in range(_EVALUATIONS):
        loss, gradient = yield origin + step * direction
        point = _Point(step, loss, gradient, float(direction @ gradient))
        if (
            not is_low(point)
            or point.loss > low.loss + criterion.noise(start.loss)
            or math.isnan(point.slope)
        ):
            high = point
        elif abs(point.slope) <= -_CURVATURE * start.slope:
            return point
        else:
            if high is None:
                high = low if point.slope >= 0 else None
            elif point.slope * (high.step - low.step) >= 0:
                high = low
            low = point
        if high is None:
            step *= 2
            continue
        width = abs(high.step - low.step)
        if width * abs(low.slope) <= criterion.noise(start.loss):
            break  # what is still to be gained is within the rounding error
        step = _between(low, high)
    return low


def _between(low: _Point, high: _Point) -> float:
    """The minimum of the cubic through both points and slopes, kept away from both ends (equation 3.59)."""
    width = high.step - low.step
    step = low.step + width / 2
    if math.isfinite(high.loss) and math.isfinite(high.slope):
        d1 = low.slope + high.slope - 3 * (low.loss - high.loss) / (low.step - high.step)
        square = d1 * d1 - low.slope * high.slope
        if square >= 0:
            d2 = math.copysign(math.sqrt(square), width)
            divisor = high.slope - low.slope + 2 * d2
            if divisor != 0:
                step = high.step - width * (high.slope + d2 - d1) / divisor
    share = (step - low.step) / width
    return low.step + min(max(share, 0.1), 0.9) * width
