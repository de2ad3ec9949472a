"""Projected gradient descent on the Gromov-Wasserstein objective with its exact gradient.

    E(T) = (1 − w) Σ_ijkl (Cx[i, k] − Cy[j, l])² T[i, j] T[k, l] + w Σ_ij F[i, j] T[i, j]

A step replaces T by the entropic transport plan of the cost d E / d T. Source: Peyré, Cuturi and Solomon,
"Gromov-Wasserstein averaging of kernel and distance matrices", ICML 2016, with the factor 2 that their linearisation
leaves out; Vayer et al., "Optimal transport for structured data with application on graphs", ICML 2019 (F). The products
with Cx and Cy are torch's; the plans are those of the operator, on CPUs and on CUDA.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from warpalign._core.replay import Replayed, Run, can_capture
from warpalign._transport import ops
from warpalign._transport.gromov_products import Factors
from warpalign._transport.settings import Inputs, Settings, as_keywords

_STEPS_LAUNCHED = 2  # steps before the first replayed one: libraries set themselves up
_LEAST_REPLAYED = 6  # steps that may be left, as a capture takes the host's time of two
# Entries of plans. Kernels of larger ones take longer than their launches, and the graph's memory stays with the thread.
_MOST_REPLAYED = 1 << 23


class Objective(NamedTuple):
    """E, of a batch."""

    cx: Tensor
    """(B, N, N)"""
    cy: Tensor
    """(B, M, M)"""
    symmetric: bool
    """Whether cx and cy are known to be."""
    features: Tensor | None
    """F (B, N, M)"""
    weight: float
    """w"""
    factors: Factors | None = None
    """Of cx and cy, for the products of `cost`; None: torch's products."""
    squares: tuple[Tensor, Tensor] | None = None
    """Of the entries of cx and cy, for `cost`, or factors.squares(); None: they are made in each call. Factors need them."""

    def distortion(self, plan: Tensor) -> Tensor:
        """(B,): Σ_ijkl (Cx[i, k] − Cy[j, l])² T[i, j] T[k, l]."""
        r, c = plan.sum(2), plan.sum(1)
        squares = _form(self.cx.square(), r) + _form(self.cy.square(), c)
        return squares - 2 * (self.cx @ plan @ self.cy.mT * plan).sum((1, 2))

    def cost(self, plan: Tensor) -> Tensor:
        """(B, N, M): d E / d T."""
        cx, cy, share = self.cx, self.cy, 1 - self.weight
        of_x, of_y = (cx.square(), cy.square()) if self.squares is None else self.squares
        sums = plan.sum(1)
        rows = _mean_product(of_x, plan.sum(2), share, self.symmetric)
        columns = _mean_product(of_y, sums, share, self.symmetric)
        cost = rows + columns.mT
        if self.features is not None and self.weight > 0:
            cost.add_(self.features, alpha=self.weight)
        if share == 0:
            return cost
        if self.factors is not None and self.symmetric:
            return self.factors.add_product(cost, plan, -4 * share, columns=sums)
        if self.factors is not None:
            cost = self.factors.add_product(cost, plan, -2 * share, columns=sums)
            return self.factors.add_product(cost, plan, -2 * share, transposed=True, columns=sums)
        if self.symmetric:
            return cost.baddbmm_(cx @ plan, cy.mT, alpha=-4 * share)
        return cost.baddbmm_(cx @ plan, cy.mT, alpha=-2 * share).baddbmm_(cx.mT @ plan, cy, alpha=-2 * share)

    def detached(self) -> Objective:
        features = None if self.features is None else self.features.detach()
        return self._replace(cx=self.cx.detach(), cy=self.cy.detach(), features=features)


def _form(matrix: Tensor, v: Tensor) -> Tensor:
    """(B,): vᵀ matrix v."""
    return (matrix @ v[..., None] * v[..., None]).sum((1, 2))


def _mean_product(matrix: Tensor, v: Tensor, share: float, symmetric: bool) -> Tensor:
    """(B, N, 1): share (matrix + matrixᵀ) v."""
    v = v[..., None]
    if symmetric:
        return torch.baddbmm(v, matrix, v, beta=0, alpha=2 * share)
    return torch.baddbmm(v, matrix, v, beta=0, alpha=share).baddbmm_(matrix.mT, v, alpha=share)


class Schedule(NamedTuple):
    """The course of a solve."""

    epsilon: Tensor
    """(B,): of the objective."""
    epsilon_start: float
    epsilon_factor: float
    """From one step to the next."""
    step: float
    """How far T moves towards the new plan."""
    proximal: bool
    """KL to the last plan in the place of KL to the weights' product."""
    max_iter: int
    tol: float
    """Steps end when less than this share of the mass would move."""


class State(NamedTuple):
    """Where a solve has come to."""

    plan: Tensor
    """T (B, N, M)"""
    f: Tensor
    g: Tensor
    iterations: Tensor
    """(B,) int32"""
    converged: Tensor
    """(B,) bool"""
    moved: list[Tensor]
    """A tensor (B,) per step: the share of the mass that moved in it."""


def transported(cost: Tensor, weights: Inputs, epsilons: Tensor, settings: Settings) -> tuple[Tensor, ...]:
    """The entropic plan (B, N, M) of a cost, and its potentials; from those of `weights`."""
    of = weights._replace(cost=cost, epsilons=epsilons.contiguous())
    result = ops.sinkhorn(*of, False, False, True, **as_keywords(settings))
    # The value's derivative with respect to the cost is the plan.
    return result[9], result[2], result[3]


Callback = Callable[[int, Tensor, Tensor], object]


class Linearized(Protocol):
    """An objective by its derivative alone."""

    def cost(self, plan: Tensor) -> Tensor:
        """(B, N, M): d E / d T."""


def solve(
    of: Linearized,
    weights: Inputs,
    plan: Tensor,
    schedule: Schedule,
    settings: Settings,
    callback: Callback | None = None,
) -> State:
    """Descends from a plan. Problems that have converged stay as they are, whatever others of the batch do.

    Args:
        weights: a and b; nothing else is looked at.
        settings: of the inner problems.
        callback: called after each step with its number, from 1 on, its epsilons (B,), and what it adds to `moved`.
    """
    batch, n, m = plan.shape
    done = torch.zeros(batch, dtype=torch.bool, device=plan.device)
    epsilon = schedule.epsilon.clamp(min=schedule.epsilon_start)
    zeros = plan.new_zeros(batch, n), plan.new_zeros(batch, m)
    place = _Place(plan.clone(), *zeros, done.int(), done.clone(), done, epsilon)
    steps = _Steps(partial(_stepped, of, weights, schedule, settings), place)
    moved: list[Tensor] = []
    for step in range(schedule.max_iter):
        epsilon, share = steps.next(schedule.max_iter - step)
        moved.append(share)
        if callback is not None:
            callback(step + 1, epsilon, share)
        # A GPU is asked now and then: what is done does not change any more.
        if (plan.device.type == "cpu" or step % 8 == 7) and bool(steps.place.done.all()):
            break
    at = steps.place
    return State(at.plan, at.f, at.g, at.iterations, at.converged, moved)


class _Place(NamedTuple):
    """What a step begins with, and overwrites with what the next one begins with."""

    plan: Tensor
    f: Tensor
    g: Tensor
    iterations: Tensor
    converged: Tensor
    done: Tensor
    """(B,) bool: converged, or without a finite plan."""
    epsilon: Tensor
    """(B,): of the step."""


class _Steps:
    """Steps one after the other. On a GPU those of small problems are replayed from a CUDA graph after the first ones."""

    def __init__(self, run: Run, place: _Place) -> None:
        self.place = place
        self._run, self._device = run, place.plan.device
        self._graph: Replayed | None = None
        self._launched = 0  # steps whose kernels have been launched one by one
        self._replays = can_capture(self._device) and place.plan.numel() <= _MOST_REPLAYED

    def next(self, left: int) -> tuple[Tensor, Tensor]:
        """A step, of `left` at most: its epsilons (B,), and the share of the mass (B,) that moves in it."""
        if self._graph is not None and self._graph.is_last:
            found: tuple[Tensor, Tensor] = self._graph()
            return found
        if self._replays and self._launched >= _STEPS_LAUNCHED and left >= _LEAST_REPLAYED:
            self._graph = Replayed(self._run, self.place, self._device)
            self.place = self._graph.state
            return self.next(left)
        self._launched += 1
        return self._run(self.place)[1]  # type: ignore[no-any-return]


def _stepped(
    of: Linearized, weights: Inputs, schedule: Schedule, settings: Settings, place: _Place
) -> tuple[_Place, tuple[Tensor, Tensor]]:
    """Takes `place` on. Returns it, and the step's epsilons and the share of the mass that moves in it."""
    plan, epsilon, done = place.plan, place.epsilon, place.done
    cost = of.cost(plan)
    if schedule.proximal:
        # KL(T | last plan) = KL(T | a b^T) − <T, log(last plan / a b^T)>: the last problem's exponent.
        cost = cost - epsilon[:, None, None] * _log_density(plan, weights)
    new, f, g = transported(
        cost, weights._replace(f0=_finite(place.f), g0=_finite(place.g)), epsilon, settings
    )
    share = torch.linalg.vector_norm(new - plan, 1, (1, 2)) / new.sum((1, 2))
    if schedule.step < 1:
        new = torch.lerp(plan, new, schedule.step)
    keep = done[:, None]
    torch.where(keep[..., None], plan, new, out=plan)
    torch.where(keep, place.f, f, out=place.f)
    torch.where(keep, place.g, g, out=place.g)
    place.iterations.add_(~done)
    stands = (epsilon <= schedule.epsilon) & (share <= schedule.tol) & ~done
    place.converged.logical_or_(stands)
    done.logical_or_(stands).logical_or_(share.isnan())
    of_step = epsilon.clone()
    torch.maximum(epsilon * schedule.epsilon_factor, schedule.epsilon, out=epsilon)
    return place, (of_step, share)


def _finite(potential: Tensor) -> Tensor:
    return torch.nan_to_num(potential, nan=0.0, posinf=0.0, neginf=0.0).contiguous()


def _log_density(plan: Tensor, weights: Inputs) -> Tensor:
    """ln(T / a b^T), finite."""
    assert weights.a is not None and weights.b is not None
    density = plan / (weights.a[:, :, None] * weights.b[:, None, :])
    return torch.nan_to_num(density, nan=0.0).clamp_(min=torch.finfo(plan.dtype).tiny).log_()
