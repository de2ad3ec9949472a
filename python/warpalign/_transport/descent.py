"""Symmetric updates along a list of epsilons, one per epsilon: what geomloss and flash-sinkhorn do, converged or not.

Source: Feydy, "Geometric data analysis, beyond convolutions", thesis, 2020, algorithm 3.5.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from warpalign._core.costs import Cost, CostFunction
from warpalign._core.scalars import check_number
from warpalign._transport.checks import check_settings
from warpalign._transport.plan import TransportPlan
from warpalign._transport.problem import Problem, problem
from warpalign._transport.softmin import updated

_LEAST_DIAMETER = 1e-6  # as a share of blur


class Potentials(NamedTuple):
    """The potentials of rows and columns, (B, N) and (B, M)."""

    f: Tensor
    g: Tensor


def schedule(diameter: float, blur: float, scaling: float, p: int) -> list[float]:
    """diameter^p, then from it in steps of scaling^p down to blur^p, which comes last.

    Args:
        diameter: 0, of points that are all the same, and infinity and NaN count as blur, where the list ends.
        blur: above 0.
        scaling: between 0 and 1.

    Raises:
        TypeError, ValueError: blur or scaling is no such number.
    """
    blur, scaling = check_number(blur, "blur", None), check_number(scaling, "scaling", None)
    if scaling >= 1:
        raise ValueError(
            f"scaling: expected a number between 0 and 1, got {scaling:g}: write 0.5, or 0.9 for more epsilons"
        )
    # Costs of such a diameter are nothing beside blur^p, but a list that begins at epsilon = 0 divides by it.
    if not _LEAST_DIAMETER * blur < diameter < math.inf:
        diameter = blur
    first, last, step = (p * math.log(number) for number in (diameter, blur, scaling))
    count = max(math.ceil((last - first) / step), 0)
    return [diameter**p, *(math.exp(first + k * step) for k in range(count)), blur**p]


def of_points(
    x: Tensor,
    y: Tensor,
    a: Tensor,
    b: Tensor,
    *,
    cost: Cost | CostFunction,
    cost_scale: float,
    rho_a: float | None,
    rho_b: float | None,
) -> Problem:
    """A problem (B, N, D) and (B, M, D), whose gradients go to x alone."""
    settings = check_settings(
        cost_scale=cost_scale, rho_a=rho_a, rho_b=rho_b, updates="symmetric", max_iter=1, tol=0.0
    )
    return problem(
        x,
        y.detach(),
        None,
        cost=cost,
        a=a.detach(),
        b=b.detach(),
        x_lengths=None,
        y_lengths=None,
        epsilon=1.0,
        init=None,
        settings=settings,
    )


def descend(of: Problem, epsilons: Sequence[float], *, translate: bool = False) -> Potentials:
    """Potentials after an update at the first epsilon and an averaged one at each, without a gradient.

    Args:
        translate: after each update, f + c and g − c with the best c where exactly one side is relaxed (Séjourné, Vialard &
            Peyré, "Faster unbalanced optimal transport", AISTATS 2022).
    """
    (batch, n), m = of.of.first.shape[:2], of.of.sizes[1]
    zeros = of.of.first.new_zeros
    at = _at(of, epsilons[0])
    now = _translated(of, Potentials(*updated(at, zeros(batch, n), zeros(batch, m))), translate)
    for epsilon in epsilons:
        new = updated(_at(of, epsilon), *now)
        mean = Potentials(*((one + other) / 2 for one, other in zip(now, new, strict=True)))
        now = _translated(of, mean, translate)
    return now


def extrapolated(of: Problem, now: Potentials, epsilon: float) -> Tensor:
    """(B, N): the row potential that follows from the column's, differentiable in the points of the rows.

    It is the logarithm of the sums of a plan whose rows have the update itself as potential: its sums are 1, whatever `now` is.
    """
    at = _at(of, epsilon)
    damping = 1.0 if math.isinf(of.settings.rho_a) else of.settings.rho_a / (of.settings.rho_a + epsilon)
    hard = at._replace(settings=at.settings._replace(rho_a=math.inf))
    f, _ = updated(hard, *now)
    ones = torch.ones_like(f)
    rows = hard._replace(of=hard.of._replace(a=ones), unbatched=False)
    sums = TransportPlan(rows, f, now.g).marginal(1)
    return damping * (f - epsilon * sums.log())


def _at(of: Problem, epsilon: float) -> Problem:
    return of._replace(settings=of.settings._replace(epsilon=epsilon))


def _translated(of: Problem, now: Potentials, translate: bool) -> Potentials:
    f, g = now
    rho_a, rho_b = of.settings.rho_a, of.settings.rho_b
    if not translate or math.isinf(rho_a) == math.isinf(rho_b):
        return now
    assert of.of.a is not None and of.of.b is not None
    log_a, log_b = of.of.a.log(), of.of.b.log()
    if math.isinf(rho_a):
        c = rho_b * (log_a.logsumexp(1) - (log_b - g / rho_b).logsumexp(1))[:, None]
    else:
        c = -rho_a * (log_b.logsumexp(1) - (log_a - f / rho_a).logsumexp(1))[:, None]
    return Potentials(f + c, g - c)
