"""What the Gromov-Wasserstein functions return: a plan, and measures of it that are computed when they are asked for."""

from __future__ import annotations

from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from warpalign._core.transforms import no_autocast
from warpalign._transport import autograd, plan_ops
from warpalign._transport.costs import row_blocks
from warpalign._transport.envelope import once_differentiable
from warpalign._transport.gromov_restarts import objective_value
from warpalign._transport.gromov_solver import Objective
from warpalign._transport.plan import TransportPlan
from warpalign._transport.problem import Problem
from warpalign._transport.settings import as_keywords


class Measures(Protocol):
    """How a result's measures are computed, without the batch axis for unbatched input."""

    def value(self) -> Tensor: ...

    def distortion(self) -> tuple[Tensor, Tensor]:
        """Also the estimate's standard deviation, 0 where it is exact."""


class GromovResult:
    """What :func:`gromov_wasserstein` and :func:`gromov_wasserstein_sampled` return.

    Fields have a batch axis (B,) for a batch, and are 0-d for unbatched input. value and distortion are computed when they are first asked
    for. The sampled solver estimates both from pairs of points, and its fields have no gradient.
    """

    _fields = (
        *("value", "distortion", "distortion_std", "plan"),
        *("converged", "error", "iterations", "history"),
    )

    plan: TransportPlan
    """T, by its potentials and the last linearised cost. The exact solver's is differentiable in features, through that cost alone."""
    converged: Tensor
    """(B,) bool: True if the error is at most 0.1 and, for the exact solver, a step moves less than tol of the mass; for the sampled
    solver, the costs of steps no longer fall. For :func:`gromov_wasserstein_low_rank`, see :class:`LowRankResult`."""
    error: Tensor
    """(B,): the error of the transport problem of the plan, as in :class:`SinkhornResult`: the largest change of a
    potential in another iteration, divided by epsilon. It is about the largest relative error of a marginal. inf or NaN where the plan
    is not finite."""
    iterations: Tensor
    """(B,) int32: steps."""
    history: Tensor
    """(steps, B), or (steps,): what ends the steps once it stands still. Exact: the share of the mass that each step's plan, of the first
    start, has elsewhere than the plan before. Sampled: the linearised cost of each step's plan."""

    def __init__(
        self,
        measures: Measures,
        plan: TransportPlan,
        converged: Tensor,
        error: Tensor,
        iterations: Tensor,
        history: Tensor,
    ) -> None:
        self._measures, self.plan = measures, plan
        self.converged, self.error, self.iterations, self.history = converged, error, iterations, history

    def __repr__(self) -> str:
        return f"GromovResult(shape={tuple(self.plan.shape)}, epsilon={self.plan.epsilon})"

    @cached_property
    @no_autocast()
    def value(self) -> Tensor:
        """(B,): the whole objective at the plan. Of the exact solver once differentiable (envelope theorem)."""
        return self._measures.value()

    @property
    def distortion(self) -> Tensor:
        """(B,): Σ (Cx[i, k] − Cy[j, l])² T[i, j] T[k, l] of the normalised distances, without feature_weight, entropy and gradient."""
        return self._distortion[0]

    @property
    def distortion_std(self) -> Tensor:
        """(B,): the standard deviation of the sampled solver's estimate of the distortion (jackknife); 0 for the exact solver."""
        return self._distortion[1]

    @cached_property
    @no_autocast()
    def _distortion(self) -> tuple[Tensor, Tensor]:
        return self._measures.distortion()


class ExactMeasures:
    """Of a plan whose matrices of distances are stored."""

    def __init__(self, of: Objective, problem: Problem, solution: autograd.Solution) -> None:
        self.of, self._problem, self._solution = of, problem, solution

    def value(self) -> Tensor:
        of, given = self.of, self._problem.of
        value = objective_value(of, self._solution, self._dense)
        inputs = (of.cx, of.cy, of.features, given.a, given.b, given.epsilons)
        return self._problem.squeezed(once_differentiable(value, inputs, "gromov_wasserstein's value"))

    def distortion(self) -> tuple[Tensor, Tensor]:
        found = self._problem.squeezed(self.of.detached().distortion(self._dense))
        return found, torch.zeros_like(found)

    @cached_property
    def _dense(self) -> Tensor:
        of = self._problem.of._replace(f0=self._solution.f, g0=self._solution.g)
        tensors = (None if t is None else t.detach() for t in of)
        plan: Tensor = plan_ops.dense(*tensors, **as_keywords(self._problem.settings._replace(mass=0.0)))
        return plan


class SampledMeasures:
    """Of a plan whose matrices of distances are not stored.

    Args:
        estimate: 0-d, the distortion of the plan divided by its mass, and its standard deviation.
        regularisation: 0-d, the objective's entropy and marginal terms.
        weight: the features' weight, with features (N, F) and (M, F), or their costs (N, M).
        sizes: 0-d each, what the distances of x and y have been divided by.
    """

    def __init__(
        self,
        plan: TransportPlan,
        estimate: tuple[Tensor, Tensor],
        regularisation: Tensor,
        weight: float,
        features: tuple[Tensor, Tensor] | None,
        feature_cost: Tensor | None,
        sizes: tuple[Tensor, Tensor],
    ) -> None:
        self.sizes = sizes
        self._plan, self._estimate, self._regularisation = plan, estimate, regularisation
        self._weight, self._features, self._feature_cost = weight, features, feature_cost

    @torch.no_grad()
    def value(self) -> Tensor:
        distortion, _ = self.distortion()
        value = (1 - self._weight) * distortion + self._regularisation
        return value + self._weight * self._cost_of_features() if self._weight > 0 else value

    @torch.no_grad()
    def distortion(self) -> tuple[Tensor, Tensor]:
        square = self._plan.mass().square()
        estimate, deviation = self._estimate
        return estimate.to(square) * square, deviation.to(square) * square

    def _cost_of_features(self) -> Tensor:
        """0-d: ⟨F, T⟩."""
        plan = self._plan
        if self._feature_cost is not None:
            parts = []
            for rows in row_blocks(1, *plan.shape):
                places = torch.arange(rows.start, rows.stop, device=plan.f.device)
                block = plan.rows(places)
                parts.append(torch.where(block == 0, 0.0, self._feature_cost[rows] * block).sum())
            return torch.stack(parts).sum()
        assert self._features is not None
        mean = self._features[0].mean(0)  # near 0 squares lose fewer digits
        u, v = (f - mean for f in self._features)
        squares = plan.marginal(1) @ u.square().sum(1) + plan.marginal(0) @ v.square().sum(1)
        return squares - 2 * (u * plan.apply(v)).sum()
