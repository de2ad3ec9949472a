"""Gromov-Wasserstein transport of low rank, as ot.gromov has it; handed on by gromov.py."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from warpalign.compat.pot._common import Kind, check_equal_sums, kind_of, weights_of
from warpalign.compat.pot.lowrank import answer, check_gamma, check_rank, size_of_factors
from warpalign.transport import gromov_wasserstein_low_rank

_NOT_CONVERGED = (
    "Low Rank GW did not converge. You might want to increase the number of iterations `numItermax` "
)


def lowrank_gromov_wasserstein_samples(
    X_s: Any,
    X_t: Any,
    a: Any = None,
    b: Any = None,
    reg: float = 0,
    rank: int | None = None,
    alpha: float = 1e-10,
    gamma_init: str = "rescale",
    rescale_cost: bool = True,
    cost_factorized_Xs: Any = None,
    cost_factorized_Xt: Any = None,
    stopThr: float = 1e-4,
    numItermax: int = 1000,
    stopThr_dykstra: float = 1e-3,
    numItermax_dykstra: int = 10000,
    seed_init: int | None = 49,
    warn: bool = True,
    warn_dykstra: bool = False,
    log: bool = False,
) -> Any:
    """Factors Q (n, r), R (m, r) and g (r,) of a plan between squared distances within each set.

    The descent starts from clusters in the place of POT's random factors, and ends when a step moves at most 1e-4 of the mass.

    Args:
        X_s: (n, d) points.
        X_t: (m, e) points.
        a: (n,) weights; None or empty: uniform.
        b: (m,) weights; None or empty: uniform.
        reg: the strength of the factors' entropies, >= 0.
        rank: the number of columns, at most the smaller number of points; None: that.
        alpha: the lower bound of g, > 0 and at most 1 / rank.
        gamma_init: "rescale"; "theory" raises NotImplementedError.
        rescale_cost: whether distances that are not given are divided as POT divides them.
        cost_factorized_Xs: factors (A1, A2) of symmetric distances A1 A2ᵀ within X_s, in place of squared distances.
        cost_factorized_Xt: factors (B1, B2) of the distances within X_t.
        stopThr: has no effect.
        numItermax: the maximum number of steps.
        stopThr_dykstra: has no effect: marginals are exact.
        numItermax_dykstra: has no effect.
        seed_init: the seed of the clusters; None: torch's default generator.
        warn: whether a solve that has not converged warns, which waits for a GPU.
        warn_dykstra: has no effect.
        log: whether a dict follows, with "value", "value_quad" and "lazy_plan", a :class:`warpalign.transport.LowRankPlan`.
    """
    kind = kind_of(X_s, X_t)
    sets = [_scaled(kind.tensor(one), rescale_cost) for one in (X_s, X_t)]
    row, column = weights_of(a, len(sets[0]), kind), weights_of(b, len(sets[1]), kind)
    check_equal_sums(row, column, "divide by them")
    count = check_rank(rank, alpha, len(sets[0]), len(sets[1]))
    check_gamma(gamma_init)
    given = (cost_factorized_Xs, cost_factorized_Xt)
    spaces: dict[str, Any] = {"x": sets[0], "y": sets[1]}
    if given != (None, None):
        factors = (_factors(z, pair, kind) for z, pair in zip(sets, given, strict=True))
        spaces = {"distance_factors": tuple(factors)}
    found = gromov_wasserstein_low_rank(
        **spaces,
        rank=count,
        a=row,
        b=column,
        epsilon=float(reg),
        generator=seed_init,
        min_weight=alpha,
        max_iter=max(int(numItermax), 1),
    )
    if warn and not bool(found.converged):
        warnings.warn(_NOT_CONVERGED, stacklevel=2)
    values = {"value": found.value, "value_quad": found.distortion}
    return answer(kind, found.plan, values, log)  # type: ignore[arg-type]


def _scaled(points: Tensor, rescale_cost: bool) -> Tensor:
    return points * size_of_factors(points, points).rsqrt() if rescale_cost else points


def _factors(points: Tensor, given: Any, kind: Kind) -> tuple[Tensor, Tensor]:
    """Those that are given, or those of squared distances."""
    if given is not None:
        left, right = given
        return kind.tensor(left), kind.tensor(right)
    squares, ones = points.square().sum(1, keepdim=True), points.new_ones(len(points), 1)
    return torch.cat([squares, ones, -2 * points], 1), torch.cat([ones, squares, points], 1)
