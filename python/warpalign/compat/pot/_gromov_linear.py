"""Gromov-Wasserstein transport without entropy, as ot.gromov has it, where linear problems are simple; handed on by gromov.py.

Conditional gradients with an exact line search: Vayer et al., "Optimal transport for structured data with application on graphs",
ICML 2019; Vincent-Cuaz et al., "Semi-relaxed Gromov-Wasserstein divergence", ICLR 2022.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from warpalign._core import optional
from warpalign.compat.pot._gromov_problem import Problem, problem
from warpalign.compat.pot._gromov_semirelaxed import record_of, start_of

_TIES = 1e-15
_Oracle = Callable[[Tensor], Tensor]


def gromov_wasserstein(
    C1: Any,
    C2: Any,
    p: Any = None,
    q: Any = None,
    loss_fun: str = "square_loss",
    symmetric: bool | None = None,
    log: bool = False,
    armijo: bool = False,
    G0: Any = None,
    max_iter: float = 1e4,
    tol_rel: float = 1e-9,
    tol_abs: float = 1e-9,
    **kwargs: Any,
) -> Any:
    """The plan (n, n) between as many points of equal weights on both sides, by conditional gradients. It needs SciPy.

    Linear problems are assignments then. Other sizes and weights raise NotImplementedError:
    :func:`warpalign.compat.pot.gromov.entropic_gromov_wasserstein` with ``solver="PPA"`` has no such limit.

    Args:
        armijo: changes nothing: the line search is exact.
        tol_rel, tol_abs: steps end when the loss changes by less.
        log: a dict follows, with "loss" (of every step) and "gw_dist", but not with POT's dual variables.
        all others: as in :func:`warpalign.compat.pot.gromov.entropic_gromov_wasserstein`.
    """
    given = problem(C1, C2, p, q, loss_fun, symmetric)
    return _descend(given, _assignments(given), G0, max_iter, tol_rel, tol_abs, log, ("gw_dist",))


def gromov_wasserstein2(
    C1: Any,
    C2: Any,
    p: Any = None,
    q: Any = None,
    loss_fun: str = "square_loss",
    symmetric: bool | None = None,
    log: bool = False,
    armijo: bool = False,
    G0: Any = None,
    max_iter: float = 1e4,
    tol_rel: float = 1e-9,
    tol_abs: float = 1e-9,
    **kwargs: Any,
) -> Any:
    """The loss of :func:`gromov_wasserstein`; the dict has the plan as "T"."""
    plan, record = gromov_wasserstein(
        C1, C2, p, q, loss_fun, symmetric, True, armijo, G0, max_iter, tol_rel, tol_abs
    )
    record["T"] = plan
    return (record["gw_dist"], record) if log else record["gw_dist"]


def fused_gromov_wasserstein(
    M: Any,
    C1: Any,
    C2: Any,
    p: Any = None,
    q: Any = None,
    loss_fun: str = "square_loss",
    symmetric: bool | None = None,
    alpha: float = 0.5,
    armijo: bool = False,
    G0: Any = None,
    log: bool = False,
    max_iter: float = 1e4,
    tol_rel: float = 1e-9,
    tol_abs: float = 1e-9,
    **kwargs: Any,
) -> Any:
    """:func:`gromov_wasserstein` with 1 − alpha times costs M (n, n); the dict has "loss" and "fgw_dist"."""
    given = problem(C1, C2, p, q, loss_fun, symmetric, M, alpha)
    return _descend(given, _assignments(given), G0, max_iter, tol_rel, tol_abs, log, ("fgw_dist",))


def fused_gromov_wasserstein2(
    M: Any,
    C1: Any,
    C2: Any,
    p: Any = None,
    q: Any = None,
    loss_fun: str = "square_loss",
    symmetric: bool | None = None,
    alpha: float = 0.5,
    armijo: bool = False,
    G0: Any = None,
    log: bool = False,
    max_iter: float = 1e4,
    tol_rel: float = 1e-9,
    tol_abs: float = 1e-9,
    **kwargs: Any,
) -> Any:
    """The losses of :func:`fused_gromov_wasserstein`; the dict has "T", "lin_loss" and "quad_loss"."""
    given = problem(C1, C2, p, q, loss_fun, symmetric, M, alpha)
    names = ("fgw_dist", "lin_loss", "quad_loss")
    plan, record = _descend(given, _assignments(given), G0, max_iter, tol_rel, tol_abs, True, names)
    record["T"] = plan
    return (record["fgw_dist"], record) if log else record["fgw_dist"]


def semirelaxed_gromov_wasserstein(
    C1: Any,
    C2: Any,
    p: Any = None,
    loss_fun: str = "square_loss",
    symmetric: bool | None = None,
    log: bool = False,
    G0: Any = None,
    max_iter: float = 1e4,
    tol_rel: float = 1e-9,
    tol_abs: float = 1e-9,
    random_state: Any = 0,
    **kwargs: Any,
) -> Any:
    """The plan (n, m) with row sums p and free column sums, by conditional gradients; the dict has "loss" and "srgw_dist".

    G0 and random_state are as in :func:`warpalign.compat.pot.gromov.entropic_semirelaxed_gromov_wasserstein`.
    """
    given = problem(C1, C2, p, None, loss_fun, symmetric)
    return _descend(given, _cheapest(given), start_of(G0), max_iter, tol_rel, tol_abs, log, ("srgw_dist",))


def semirelaxed_gromov_wasserstein2(
    C1: Any,
    C2: Any,
    p: Any = None,
    loss_fun: str = "square_loss",
    symmetric: bool | None = None,
    log: bool = False,
    G0: Any = None,
    max_iter: float = 1e4,
    tol_rel: float = 1e-9,
    tol_abs: float = 1e-9,
    random_state: Any = 0,
    **kwargs: Any,
) -> Any:
    """The loss of :func:`semirelaxed_gromov_wasserstein`; the dict has the plan as "T"."""
    plan, record = semirelaxed_gromov_wasserstein(
        C1, C2, p, loss_fun, symmetric, True, G0, max_iter, tol_rel, tol_abs
    )
    record["T"] = plan
    return (record["srgw_dist"], record) if log else record["srgw_dist"]


def semirelaxed_fused_gromov_wasserstein(
    M: Any,
    C1: Any,
    C2: Any,
    p: Any = None,
    loss_fun: str = "square_loss",
    symmetric: bool | None = None,
    alpha: float = 0.5,
    G0: Any = None,
    log: bool = False,
    max_iter: float = 1e4,
    tol_rel: float = 1e-9,
    tol_abs: float = 1e-9,
    random_state: Any = 0,
    **kwargs: Any,
) -> Any:
    """:func:`semirelaxed_gromov_wasserstein` with 1 − alpha times costs M; the dict has "srfgw_dist", "lin_loss", "quad_loss"."""
    given = problem(C1, C2, p, None, loss_fun, symmetric, M, alpha)
    names = ("lin_loss", "quad_loss", "srfgw_dist")
    return _descend(given, _cheapest(given), start_of(G0), max_iter, tol_rel, tol_abs, log, names)


def semirelaxed_fused_gromov_wasserstein2(
    M: Any,
    C1: Any,
    C2: Any,
    p: Any = None,
    loss_fun: str = "square_loss",
    symmetric: bool | None = None,
    alpha: float = 0.5,
    G0: Any = None,
    log: bool = False,
    max_iter: float = 1e4,
    tol_rel: float = 1e-9,
    tol_abs: float = 1e-9,
    random_state: Any = 0,
    **kwargs: Any,
) -> Any:
    """The losses of :func:`semirelaxed_fused_gromov_wasserstein`; the dict has the plan as "T"."""
    plan, record = semirelaxed_fused_gromov_wasserstein(
        M, C1, C2, p, loss_fun, symmetric, alpha, G0, True, max_iter, tol_rel, tol_abs
    )
    record["T"] = plan
    return (record["srfgw_dist"], record) if log else record["srfgw_dist"]


def _assignments(given: Problem) -> _Oracle:
    """The cheapest plan (1, n, n) of costs: a permutation, by Crouse's form of the Hungarian algorithm."""
    p, q = given.p.detach(), given.q.detach()
    if p.shape != q.shape or not all(bool(torch.isclose(w, p[0, 0], rtol=1e-6).all()) for w in (p, q)):
        raise NotImplementedError(
            "p, q: expected as many points with equal weights on both sides, because warpalign has no network simplex, "
            f"got {p.shape[1]} and {q.shape[1]} points: entropic_gromov_wasserstein with solver='PPA' takes them"
        )
    optional.load("scipy", "ot.gromov without entropy", "cluster")
    from scipy.optimize import linear_sum_assignment

    def cheapest(cost: Tensor) -> Tensor:
        rows, columns = (torch.from_numpy(part) for part in linear_sum_assignment(cost[0].cpu().numpy()))
        plan = torch.zeros_like(cost)
        plan[0, rows, columns] = p[0, 0]
        return plan

    return cheapest


def _cheapest(given: Problem) -> _Oracle:
    """All of a row's mass at its lowest costs."""

    def cheapest(cost: Tensor) -> Tensor:
        plan = (cost <= cost.amin(2, keepdim=True) + _TIES).to(cost.dtype)
        return plan * (given.p.detach() / plan.sum(2))[..., None]

    return cheapest


def _descend(
    given: Problem,
    cheapest: _Oracle,
    G0: Any,
    max_iter: float,
    tol_rel: float,
    tol_abs: float,
    log: bool,
    names: tuple[str, ...],
) -> Any:
    of, kind = given.of.detached(), given.kind
    start = given.p[:, :, None] * given.q[:, None, :] if G0 is None else kind.tensor(G0)[None]
    plan = start.detach()
    losses = [float(of.value(plan))]
    for _ in range(max(int(max_iter), 1)):
        gradient = of.cost(plan)
        direction = cheapest(gradient) - plan
        # The loss along the direction is a parabola.
        curvature = float(of.alpha * of.quadratic(direction))
        slope = float((gradient * direction).sum())
        way = _lowest(curvature, slope)
        plan = plan + way * direction
        losses.append(losses[-1] + (curvature * way + slope) * way)
        change = abs(losses[-1] - losses[-2])
        if change < tol_abs or change < tol_rel * abs(losses[-1]):
            break
    if not log:
        return kind.out(plan[0])
    return kind.out(plan[0]), {"loss": losses} | record_of(given, plan, names)


def _lowest(curvature: float, slope: float) -> float:
    """Where curvature t² + slope t is lowest in [0, 1]."""
    if curvature > 0:
        return min(1.0, max(0.0, -slope / (2 * curvature)))
    return 1.0 if curvature + slope < 0 else 0.0
