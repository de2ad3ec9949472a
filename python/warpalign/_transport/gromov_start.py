"""Where Gromov-Wasserstein transport starts: the objective has many local minima."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from warpalign._transport.gromov_solver import Objective, transported
from warpalign._transport.settings import Inputs, Settings

_ITERATIONS = 100
Initial = Literal["eccentricity", "product", "multiscale"]
INITIALS: tuple[str, ...] = get_args(Initial)


def product_plan(weights: Inputs, mass: float) -> Tensor:
    """(B, N, M): the weights' product, of the mass that is asked for (0: that of the weights)."""
    a, b = weights.a, weights.b
    assert a is not None and b is not None
    sums = a.sum(1) * b.sum(1)
    factor = mass / sums if mass > 0 else sums.rsqrt()
    return a[:, :, None] * b[:, None, :] * factor[:, None, None]


def eccentricities(matrix: Tensor, weights: Tensor) -> Tensor:
    """(B, N): the root of the mean squared distance from each point to all."""
    mean = (matrix.square() @ weights[..., None])[..., 0] / weights.sum(1, keepdim=True)
    return mean.sqrt()


def eccentricity_cost(of: Objective, weights: Inputs) -> Tensor:
    """(B, N, M): the objective's cost, with points compared by their eccentricities alone.

    Source: Mémoli, "Gromov-Wasserstein distances and the metric approach to object matching", Found. Comput. Math. 2011,
    section 6 (the first lower bound).
    """
    assert weights.a is not None and weights.b is not None
    x, y = eccentricities(of.cx, weights.a), eccentricities(of.cy, weights.b)
    cost = (x[:, :, None] - y[:, None, :]).square_().mul_(2 * (1 - of.weight))
    return cost if of.features is None or of.weight == 0 else cost.add_(of.features, alpha=of.weight)


def plan_of_cost(cost: Tensor, weights: Inputs, epsilons: Tensor, settings: Settings) -> Tensor:
    return transported(cost, weights, epsilons, settings._replace(max_iterations=_ITERATIONS))[0]


def anchored_cost(of: Objective, weights: Inputs, plan: Tensor, generator: torch.Generator) -> Tensor:
    """(B, N, M): the cost where one pair of points, drawn from a plan, is known to match."""
    cost = eccentricity_cost(of, weights)
    row = _drawn(plan.sum(2), generator)
    of_batch = torch.arange(plan.shape[0], device=plan.device)
    column = _drawn(plan[of_batch, row], generator)
    x, y = of.cx[of_batch, :, row], of.cy[of_batch, :, column]
    return cost.add_((x[:, :, None] - y[:, None, :]).square_().mul_(2 * (1 - of.weight)))


def _drawn(shares: Tensor, generator: torch.Generator) -> Tensor:
    """(B,) int64: a place of each row of shares (B, N), by inversion in float64."""
    sums = torch.nan_to_num(shares.double(), nan=0.0).cumsum(1)
    level = torch.rand(shares.shape[0], 1, generator=generator, dtype=torch.float64).to(shares.device)
    return torch.searchsorted(sums, level * sums[:, -1:], right=True)[:, 0].clamp(max=shares.shape[1] - 1)
