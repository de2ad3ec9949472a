"""Drop-in for ot.lowrank: transport of low rank. :func:`warpalign.transport.sinkhorn_low_rank` computes.

Descents end when a step moves at most 1e-4 of the mass, where POT takes 100 steps, and marginals are exact. ``lowrank_gromov_wasserstein_samples``
is in :mod:`warpalign.compat.pot.gromov`. Low-rank kernels (``kernel_nystroem``, ``sinkhorn_low_rank_kernel``) are not here.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from warpalign.compat.pot._common import Kind, check_equal_sums, kind_of, weights_of
from warpalign.transport import LowRankPlan, sinkhorn_low_rank

__all__ = ["lowrank_sinkhorn"]

_NOT_CONVERGED = "Low rank transport did not converge: its objective still falls."


def lowrank_sinkhorn(
    X_s: Any,
    X_t: Any,
    a: Any = None,
    b: Any = None,
    reg: float = 0,
    rank: int | None = None,
    alpha: float = 1e-10,
    rescale_cost: bool = True,
    init: str = "random",
    reg_init: float = 1e-1,
    seed_init: int | None = 49,
    gamma_init: str = "rescale",
    numItermax: int = 2000,
    stopThr: float = 1e-7,
    warn: bool = True,
    log: bool = False,
) -> Any:
    """Factors Q (n, r), R (m, r) and g (r,) of the plan Q diag(1 / g) Rᵀ between points, for squared distances.

    Args:
        X_s: (n, d) points.
        X_t: (m, d) points.
        a: (n,) weights; None or empty: uniform.
        b: (m,) weights; None or empty: uniform.
        reg: the strength of the factors' entropies, >= 0.
        rank: the number of columns, at most the smaller number of points; None: that.
        alpha: the lower bound of g, > 0 and at most 1 / rank.
        rescale_cost: whether costs are divided as POT divides them, by the root of the largest entries of both of its factors.
        init: "random", "kmeans" or "deterministic". The random numbers are not POT's.
        reg_init: has no effect.
        seed_init: the seed of "random" and "kmeans"; None: torch's default generator.
        gamma_init: "rescale"; "theory" raises NotImplementedError.
        numItermax: the maximum number of iterations of the last projection onto the marginals, which rounding completes.
        stopThr: has no effect.
        warn: whether a solve that has not converged warns, which waits for a GPU.
        log: whether a dict follows, with "value", "value_linear" and "lazy_plan", a :class:`warpalign.transport.LowRankPlan`.
    """
    kind = kind_of(X_s, X_t)
    x, y = kind.tensor(X_s), kind.tensor(X_t)
    row, column = weights_of(a, len(x), kind), weights_of(b, len(y), kind)
    check_equal_sums(row, column, "relax the marginals with ot.unbalanced")
    count = check_rank(rank, alpha, len(x), len(y))
    check_gamma(gamma_init)
    if rescale_cost:
        factor = size_of_factors(x, y).rsqrt()
        x, y = x * factor, y * factor
    found = sinkhorn_low_rank(
        x,
        y,
        rank=count,
        a=row,
        b=column,
        epsilon=float(reg),
        init=_start(init, row, column, count),  # type: ignore[arg-type]
        generator=seed_init,
        min_weight=alpha,
        polish_iters=max(int(numItermax), 1),
    )
    if warn and not bool(found.converged):
        warnings.warn(_NOT_CONVERGED, stacklevel=2)
    return answer(kind, found.plan, {"value": found.value, "value_linear": found.linear}, log)


def answer(kind: Kind, plan: LowRankPlan, values: dict[str, Tensor], log: bool) -> Any:
    """Q, R and g, and the log that is asked for."""
    factors = tuple(kind.out(one) for one in (plan.q, plan.r, plan.weights))
    if not log:
        return factors
    return *factors, {name: kind.out(value) for name, value in values.items()} | {"lazy_plan": plan}


def check_rank(rank: int | None, alpha: float, n: int, m: int) -> int:
    """POT's texts."""
    count = min(n, m) if rank is None else min(n, m, rank)
    if count <= 0:
        raise ValueError("The rank parameter cannot have a negative value")
    if 1 / count < alpha:
        raise ValueError(
            f"alpha ({alpha}) should be smaller than 1/rank ({1 / count}) for the Dykstra algorithm to converge."
        )
    return count


def check_gamma(gamma_init: str) -> None:
    if gamma_init != "rescale":
        raise NotImplementedError(f'Not implemented gamma_init="{gamma_init}"')


def size_of_factors(x: Tensor, y: Tensor) -> Tensor:
    """0-d: the root of the largest entries of POT's factors of squared distances, (|x|², 1, −2 x) and (1, |y|², y)."""
    one = x.new_ones(())
    left = torch.stack([x.square().sum(1).amax(), (-2 * x).amax(), one]).amax()
    right = torch.stack([y.square().sum(1).amax(), y.amax(), one]).amax()
    return (left * right).sqrt().detach()


def _start(init: str, a: Tensor, b: Tensor, rank: int) -> str | tuple[Tensor, Tensor, Tensor]:
    """ "deterministic" is a plan of rank 2, whose factors follow the points' order."""
    if init in ("random", "kmeans"):
        return init
    if init != "deterministic":
        raise ValueError(f'init: expected "random", "kmeans" or "deterministic", got {init!r}')
    g = a.new_full((rank,), 1 / rank)
    share = torch.stack([one.amin() for one in (a.detach(), b.detach(), g)]).amin() / 2

    def line(count: int) -> Tensor:
        places = torch.arange(1, count + 1, dtype=a.dtype, device=a.device)
        return places / places.sum()

    def factor(weights: Tensor) -> Tensor:
        first, second = line(len(weights)), line(rank)
        rest = (weights - share * first) / (1 - share), (g - share * second) / (1 - share)
        return share * first[:, None] * second + (1 - share) * rest[0][:, None] * rest[1]

    return factor(a.detach()), factor(b.detach()), g
