"""What the two SamplesLoss classes share: a divergence along a list of epsilons, and its gradients."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from warpalign._core.costs import Cost, CostFunction
from warpalign._transport.convergence import is_known
from warpalign._transport.descent import Potentials, descend, extrapolated, of_points


class Measures(NamedTuple):
    """Two batches of weighted points: a (B, N), x (B, N, D), b (B, M), y (B, M, D)."""

    a: Tensor
    x: Tensor
    b: Tensor
    y: Tensor


class Ground(NamedTuple):
    """The cost of a pair, and how the sides are tied to their weights."""

    cost: Cost | CostFunction
    cost_scale: float
    rho_a: float | None
    rho_b: float | None
    translate: bool = False
    """For sides of which one is relaxed."""


def between(
    of: Measures, ground: Ground, epsilons: Sequence[float], *, extrapolate: bool = True
) -> Potentials:
    """Potentials of the two sets, differentiable in the points where they are extrapolated."""
    sides = {"cost": ground.cost, "cost_scale": ground.cost_scale}
    rows = of_points(of.x, of.y, of.a, of.b, rho_a=ground.rho_a, rho_b=ground.rho_b, **sides)  # type: ignore[arg-type]
    now = descend(rows, epsilons, translate=ground.translate)
    if not extrapolate:
        return now
    columns = of_points(of.y, of.x, of.b, of.a, rho_a=ground.rho_b, rho_b=ground.rho_a, **sides)  # type: ignore[arg-type]
    last = epsilons[-1]
    return Potentials(extrapolated(rows, now, last), extrapolated(columns, Potentials(now.g, now.f), last))


def with_itself(
    weights: Tensor,
    points: Tensor,
    rho: float | None,
    ground: Ground,
    epsilons: Sequence[float],
    *,
    extrapolate: bool = True,
) -> Tensor:
    """(B, N): the potential between a set and itself."""
    of = of_points(
        points, points, weights, weights, cost=ground.cost, cost_scale=ground.cost_scale, rho_a=rho, rho_b=rho
    )
    now = descend(of, epsilons)
    return extrapolated(of, now, epsilons[-1]) if extrapolate else now.f


def side_value(
    weights: Tensor, potential: Tensor, own: Tensor | None, rho: float | None, epsilon: float
) -> Tensor:
    """(B,): a side's part of the value, less that of its potential with itself.

    A hard side: the sum of weights times potentials. Else potentials become −exp(−f / rho), with a factor rho + epsilon / 2 in
    the value and rho + epsilon in its derivatives (Séjourné et al., "Sinkhorn divergences for unbalanced optimal transport",
    arXiv 1910.12958, proposition 12, for weights that sum to 1).
    """
    # A weight of 0 has a potential that may be anything.
    potential = potential.where(weights > 0, 0.0)
    own = None if own is None else own.where(weights > 0, 0.0)
    if rho is None:
        return (weights * (potential if own is None else potential - own)).sum(1)
    before = 1.0 if own is None else (-own / rho).exp()
    bent = before - (-potential / rho).exp()
    total = (weights * bent).sum(1)
    return (rho + epsilon) * total - epsilon / 2 * total.detach()


def diameter_of(x: Tensor, y: Tensor) -> float:
    """The diagonal of the box that holds all finite points of (…, N, D) and (…, M, D). Waits for the device."""
    with torch.no_grad():
        points = torch.cat([x.flatten(0, -2), y.flatten(0, -2)])
        diameter = float((points.amax(0) - points.amin(0)).norm())
        if math.isfinite(diameter):
            return diameter
        finite = points.isfinite()
        most, least = points.where(finite, -math.inf).amax(0), points.where(finite, math.inf).amin(0)
        return float((most - least).norm())


def warn_of_numbers(given: Measures, names: tuple[str, str, str, str], result: Tensor, blur: float) -> None:
    """Says on a CPU why a result of SamplesLoss.forward is not finite, at the line that calls the module."""
    if not is_known(result) or bool(result.isfinite().all()):
        return
    for name, tensor in zip(names, given, strict=True):
        if is_known(tensor) and not bool(tensor.isfinite().all()):
            value = float(tensor.detach()[~tensor.isfinite()][0])
            message = f"{name}: expected finite numbers, got {value:g}: write {name}.nan_to_num(), or leave such points out"
            break
    else:
        message = (
            f"SamplesLoss: expected a finite result, got {float(result.detach()[~result.isfinite()][0]):g}: weights are "
            f"below 0, costs are not finite, or blur = {blur:g} is too small beside them: write a larger blur"
        )
    warnings.warn(message, RuntimeWarning, stacklevel=5)
