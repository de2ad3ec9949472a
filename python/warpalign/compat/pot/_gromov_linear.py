"""Gromov-Wasserstein transport without entropy, as ot.gromov has it, where linear problems are simple; handed on by gromov.py.

Conditional gradients with an exact line search: Vayer et al., "Optimal transport for structured data with application on graphs",
ICML 2019; Vincent-Cuaz et al., "Semi-relaxed Gromov-Wasserstein divergence", ICLR 2022.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from warpalign._core import optional
from warpalign.compat.pot._gromov_problem import Problem, problem
from warpalign.compat.pot._gromov_semirelaxed import record_of, start_of

_TIES = 1e-15


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
        C1: (n, n) matrix. Integers are computed in float64, with a warning: POT rounds the plan to integers.
        C2: (n, n) matrix.
        p: (n,) weights of the rows; None: uniform.
        q: (m,) weights of the columns; None: uniform.
        loss_fun: "square_loss" or "kl_loss".
        symmetric: whether both matrices are symmetric; None: it is found out.
        log: a dict follows, with "loss" (of every step) and "gw_dist", but not with POT's dual variables.
        armijo: changes nothing: the line search is exact.
        G0: the plan to start from; None: p qᵀ.
        max_iter: the maximum number of steps.
        tol_rel: steps end when the loss changes by less than this share of it.
        tol_abs: steps end when the loss changes by less.
        kwargs: changes nothing.

    Integers of C1 are computed in float64, with a warning: POT rounds the plan to integers.
    """
    _warn_of_integers(C1, "C1")
    given = problem(C1, C2, p, q, loss_fun, symmetric)
    return _descend(given, _Assignments(given), G0, max_iter, tol_rel, tol_abs, log, ("gw_dist",))


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
    """The loss of :func:`gromov_wasserstein`; the dict has the plan as "T".

    It is differentiable in C1 and C2 at the plan, and in p and q by the potentials of the linear problem there, less their mean.
    """
    _warn_of_integers(C1, "C1")
    given = problem(C1, C2, p, q, loss_fun, symmetric)
    oracle = _Assignments(given)
    plan, record = _descend(given, oracle, G0, max_iter, tol_rel, tol_abs, True, ("gw_dist",))
    record["T"] = plan
    _differentiate(record, "gw_dist", given, oracle, plan)
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
    _warn_of_integers(M, "M")
    given = problem(C1, C2, p, q, loss_fun, symmetric, M, alpha)
    return _descend(given, _Assignments(given), G0, max_iter, tol_rel, tol_abs, log, ("fgw_dist",))


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
    """The losses of :func:`fused_gromov_wasserstein`; the dict has "T", "lin_loss" and "quad_loss".

    "fgw_dist" is differentiable as :func:`gromov_wasserstein2`, in M, and in alpha, which may be a tensor.
    """
    _warn_of_integers(M, "M")
    given = problem(C1, C2, p, q, loss_fun, symmetric, M, alpha)
    names = ("fgw_dist", "lin_loss", "quad_loss")
    oracle = _Assignments(given)
    plan, record = _descend(given, oracle, G0, max_iter, tol_rel, tol_abs, True, names)
    record["T"] = plan
    _differentiate(record, "fgw_dist", given, oracle, plan)
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
    """The plan (n, m) with row marginals p and free column marginals, by conditional gradients; the dict has "loss" and "srgw_dist".

    G0 and random_state are as in :func:`warpalign.compat.pot.gromov.entropic_semirelaxed_gromov_wasserstein`.
    """
    given = problem(C1, C2, p, None, loss_fun, symmetric)
    return _descend(given, _Cheapest(given), start_of(G0), max_iter, tol_rel, tol_abs, log, ("srgw_dist",))


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
    """The loss of :func:`semirelaxed_gromov_wasserstein`; the dict has the plan as "T".

    It is differentiable in C1 and C2 at the plan, and in p, in which POT's is not, by each row's lowest cost there.
    """
    given = problem(C1, C2, p, None, loss_fun, symmetric)
    oracle = _Cheapest(given)
    plan, record = _descend(given, oracle, start_of(G0), max_iter, tol_rel, tol_abs, True, ("srgw_dist",))
    record["T"] = plan
    _differentiate(record, "srgw_dist", given, oracle, plan)
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
    return _descend(given, _Cheapest(given), start_of(G0), max_iter, tol_rel, tol_abs, log, names)


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
    """The losses of :func:`semirelaxed_fused_gromov_wasserstein`; the dict has the plan as "T".

    "srfgw_dist" is differentiable as :func:`semirelaxed_gromov_wasserstein2`, in M, and in alpha, which may be a tensor.
    """
    given = problem(C1, C2, p, None, loss_fun, symmetric, M, alpha)
    oracle = _Cheapest(given)
    names = ("lin_loss", "quad_loss", "srfgw_dist")
    plan, record = _descend(given, oracle, start_of(G0), max_iter, tol_rel, tol_abs, True, names)
    record["T"] = plan
    _differentiate(record, "srfgw_dist", given, oracle, plan)
    return (record["srfgw_dist"], record) if log else record["srfgw_dist"]


class _Assignments:
    """The cheapest plan (1, n, n) of costs: a permutation, by Crouse's form of the Hungarian algorithm."""

    def __init__(self, given: Problem) -> None:
        p, q = given.p.detach(), given.q.detach()
        if p.shape != q.shape or not all(bool(torch.isclose(w, p[0, 0], rtol=1e-6).all()) for w in (p, q)):
            raise NotImplementedError(
                "p, q: expected as many points with equal weights on both sides, because warpalign has no network simplex, "
                f"got {p.shape[1]} and {q.shape[1]} points: entropic_gromov_wasserstein with solver='PPA' takes them"
            )
        optional.load("scipy", "ot.gromov without entropy", "cluster")
        self._mass = p[0, 0]

    def __call__(self, cost: Tensor) -> Tensor:
        rows, columns = self._assigned(cost)
        plan = torch.zeros_like(cost)
        plan[0, rows, columns] = self._mass
        return plan

    def potentials(self, cost: Tensor) -> tuple[Tensor, Tensor]:
        """Those of the rows and of the columns, with u[i] + v[j] <= cost[i, j], equal where the plan has mass, and means 0.

        u are shortest paths in the graph of the costs of an exchange (Bellman and Ford). A permutation leaves a range of them:
        these are the middle between the largest ones below 0 and the smallest ones above.
        """
        rows, columns = self._assigned(cost)
        chosen = cost[0].cpu()[:, columns]  # the costs of row i in the column of row k; rows are in order
        exchange = chosen - chosen.diagonal()
        below, above = chosen.new_zeros(len(rows)), chosen.new_zeros(len(rows))
        for _ in range(len(rows)):
            lower = (below + exchange).amin(1)
            upper = (above[:, None] - exchange).amax(0)
            if torch.equal(lower, below) and torch.equal(upper, above):
                break
            below, above = lower, upper
        u = (below + above) / 2
        v = torch.empty_like(u)
        v[columns] = chosen.diagonal() - u
        return (u - u.mean()).to(cost.device), (v - v.mean()).to(cost.device)

    def _assigned(self, cost: Tensor) -> tuple[Tensor, Tensor]:
        from scipy.optimize import linear_sum_assignment

        rows, columns = (torch.from_numpy(part) for part in linear_sum_assignment(cost[0].cpu().numpy()))
        return rows, columns


class _Cheapest:
    """All of a row's mass at its lowest costs."""

    def __init__(self, given: Problem) -> None:
        self._p = given.p.detach()

    def __call__(self, cost: Tensor) -> Tensor:
        plan = (cost <= cost.amin(2, keepdim=True) + _TIES).to(cost.dtype)
        return plan * (self._p / plan.sum(2))[..., None]

    def potentials(self, cost: Tensor) -> tuple[Tensor, Tensor]:
        """u + 0 <= cost, equal where the plan has mass. Weights that sum to 1 give u up to a constant: its mean is 0."""
        u = cost[0].amin(1)
        return u - u.mean(), cost.new_zeros(cost.shape[2])


def _differentiate(
    record: dict[str, Any], name: str, given: Problem, oracle: _Assignments | _Cheapest, plan: Any
) -> None:
    """Gives a loss its gradients with respect to the weights: the potentials of the problem that is linear at the plan, as POT's."""
    if not (given.p.requires_grad or given.q.requires_grad):
        return
    cost = given.of.detached().cost(plan.detach()[None])
    for weights, potential in zip((given.p, given.q), oracle.potentials(cost), strict=True):
        if weights.requires_grad:
            record[name] = record[name] + ((weights - weights.detach()) * potential).sum()


def _warn_of_integers(given: Any, name: str) -> None:
    dtype = given.dtype if isinstance(given, Tensor) else torch.as_tensor(np.asarray(given)).dtype
    if not dtype.is_floating_point:
        warnings.warn(
            f"{name}: expected floating-point numbers, got {dtype}: the plan is computed in float64, where POT rounds it to "
            f"integers, which loses it. Write {name}.astype(float) to say that this is meant.",
            stacklevel=3,
        )


def _descend(
    given: Problem,
    cheapest: Callable[[Tensor], Tensor],
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
