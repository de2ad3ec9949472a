"""Entropic partial Gromov-Wasserstein transport, as ot.gromov has it; handed on by gromov.py."""

from __future__ import annotations

from typing import Any

from warpalign.compat.pot._gromov_problem import Problem, descend, errors, problem
from warpalign.compat.pot._gromov_semirelaxed import record_of
from warpalign.compat.pot.partial import mass_of


def entropic_partial_gromov_wasserstein(
    C1: Any,
    C2: Any,
    p: Any = None,
    q: Any = None,
    reg: float = 1.0,
    m: float | None = None,
    loss_fun: str = "square_loss",
    G0: Any = None,
    numItermax: int = 1000,
    tol: float = 1e-7,
    symmetric: bool | None = None,
    log: bool = False,
    verbose: bool = False,
) -> Any:
    """The plan (n, m) that moves the mass m.

    Args:
        C1: (n, n) matrix.
        C2: (m, m) matrix.
        p: (n,) weights of the rows; None: uniform.
        q: (m,) weights of the columns; None: uniform.
        reg: the regularisation strength, > 0.
        m: the mass that is moved; None: the smaller sum of weights.
        loss_fun: "square_loss" or "kl_loss".
        G0: (n, m) plan to start from; None: p qᵀ.
        numItermax: the maximum number of steps.
        tol: steps end when less than this share of the mass moves.
        symmetric: whether both matrices are symmetric; None: it is found out.
        log: whether a dict follows, with "partial_gw_dist" and "err".
        verbose: has no effect.
    """
    given = problem(C1, C2, p, q, loss_fun, symmetric)
    return _plan(given, reg, m, G0, numItermax, tol, log, "partial_gw_dist")


def entropic_partial_gromov_wasserstein2(
    C1: Any,
    C2: Any,
    p: Any = None,
    q: Any = None,
    reg: float = 1.0,
    m: float | None = None,
    loss_fun: str = "square_loss",
    G0: Any = None,
    numItermax: int = 1000,
    tol: float = 1e-7,
    symmetric: bool | None = None,
    log: bool = False,
    verbose: bool = False,
) -> Any:
    """The loss over the plan of :func:`entropic_partial_gromov_wasserstein`.

    Args:
        C1: (n, n) matrix.
        C2: (m, m) matrix.
        p: (n,) weights of the rows; None: uniform.
        q: (m,) weights of the columns; None: uniform.
        reg: the regularisation strength, > 0.
        m: the mass that is moved; None: the smaller sum of weights.
        loss_fun: "square_loss" or "kl_loss".
        G0: (n, m) plan to start from; None: p qᵀ.
        numItermax: the maximum number of steps.
        tol: steps end when less than this share of the mass moves.
        symmetric: whether both matrices are symmetric; None: it is found out.
        log: whether a dict follows, with "partial_gw_dist", "err", and the plan as "T".
        verbose: has no effect.
    """
    plan, record = entropic_partial_gromov_wasserstein(
        C1, C2, p, q, reg, m, loss_fun, G0, numItermax, tol, symmetric, log=True
    )
    record["T"] = plan
    return (record["partial_gw_dist"], record) if log else record["partial_gw_dist"]


def entropic_partial_fused_gromov_wasserstein(
    M: Any,
    C1: Any,
    C2: Any,
    p: Any = None,
    q: Any = None,
    reg: float = 1.0,
    m: float | None = None,
    loss_fun: str = "square_loss",
    alpha: float = 0.5,
    G0: Any = None,
    numItermax: int = 1000,
    tol: float = 1e-7,
    symmetric: bool | None = None,
    log: bool = False,
    verbose: bool = False,
) -> Any:
    """:func:`entropic_partial_gromov_wasserstein` with 1 − alpha times costs M.

    POT 0.9.7 adds the sum of M T to every cost in the place of M, so that M does not count. Here it does.

    Args:
        M: (n, m) costs, whose factor is 1 − alpha.
        C1: (n, n) matrix.
        C2: (m, m) matrix.
        p: (n,) weights of the rows; None: uniform.
        q: (m,) weights of the columns; None: uniform.
        reg: the regularisation strength, > 0.
        m: the mass that is moved; None: the smaller sum of weights.
        loss_fun: "square_loss" or "kl_loss".
        alpha: the factor of the loss between matrices, from 0 to 1.
        G0: (n, m) plan to start from; None: p qᵀ.
        numItermax: the maximum number of steps.
        tol: steps end when less than this share of the mass moves.
        symmetric: whether both matrices are symmetric; None: it is found out.
        log: whether a dict follows, with "partial_fgw_dist" and "err".
        verbose: has no effect.
    """
    given = problem(C1, C2, p, q, loss_fun, symmetric, M, alpha)
    return _plan(given, reg, m, G0, numItermax, tol, log, "partial_fgw_dist")


def entropic_partial_fused_gromov_wasserstein2(
    M: Any,
    C1: Any,
    C2: Any,
    p: Any = None,
    q: Any = None,
    reg: float = 1.0,
    m: float | None = None,
    loss_fun: str = "square_loss",
    alpha: float = 0.5,
    G0: Any = None,
    numItermax: int = 1000,
    tol: float = 1e-7,
    symmetric: bool | None = None,
    log: bool = False,
    verbose: bool = False,
) -> Any:
    """The loss over the plan of :func:`entropic_partial_fused_gromov_wasserstein`.

    Args:
        M: (n, m) costs, whose factor is 1 − alpha.
        C1: (n, n) matrix.
        C2: (m, m) matrix.
        p: (n,) weights of the rows; None: uniform.
        q: (m,) weights of the columns; None: uniform.
        reg: the regularisation strength, > 0.
        m: the mass that is moved; None: the smaller sum of weights.
        loss_fun: "square_loss" or "kl_loss".
        alpha: the factor of the loss between matrices, from 0 to 1.
        G0: (n, m) plan to start from; None: p qᵀ.
        numItermax: the maximum number of steps.
        tol: steps end when less than this share of the mass moves.
        symmetric: whether both matrices are symmetric; None: it is found out.
        log: whether a dict follows, with "partial_fgw_dist", its parts "lin_loss" and "quad_loss", "err", and the plan
            as "T".
        verbose: has no effect.
    """
    plan, record = entropic_partial_fused_gromov_wasserstein(
        M, C1, C2, p, q, reg, m, loss_fun, alpha, G0, numItermax, tol, symmetric, log=True
    )
    record["T"] = plan
    record["lin_loss"] = (1 - alpha) * (plan * M).sum()
    record["quad_loss"] = record["partial_fgw_dist"] - record["lin_loss"]
    return (record["partial_fgw_dist"], record) if log else record["partial_fgw_dist"]


def _plan(
    given: Problem, reg: float, m: float | None, G0: Any, max_iter: int, tol: float, log: bool, name: str
) -> Any:
    mass = mass_of(m, given.p, given.q)
    state = descend(given, reg, G0, max_iter, tol, mass=mass, inner_tolerance=0.0)
    plan = given.kind.out(state.plan[0])
    return (plan, {"err": errors(state, given.kind)} | record_of(given, state.plan, (name,))) if log else plan
