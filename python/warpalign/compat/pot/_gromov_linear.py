"""Gromov-Wasserstein transport without entropy, as ot.gromov has it, where linear problems are simple; handed on by gromov.py."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

from warpalign.compat.pot._gromov_descent import Assignments, Cheapest, descend_exactly, differentiate
from warpalign.compat.pot._gromov_problem import problem
from warpalign.compat.pot._gromov_semirelaxed import start_of


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
    return descend_exactly(given, Assignments(given), G0, max_iter, tol_rel, tol_abs, log, ("gw_dist",))


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

    Args:
        C1: (n, n) matrix. Integers are computed in float64, with a warning: POT rounds the plan to integers.
        C2: (n, n) matrix.
        p: (n,) weights of the rows, equal ones; None: uniform.
        q: (n,) weights of the columns, equal ones; None: uniform.
        loss_fun: "square_loss" or "kl_loss".
        symmetric: whether both matrices are symmetric; None: it is found out.
        log: whether a dict follows, with "loss" of every step, "gw_dist" and the plan as "T".
        armijo: has no effect: the line search is exact.
        G0: (n, n) plan to start from; None: p qᵀ.
        max_iter: the maximum number of steps.
        tol_rel: steps end when the loss changes by less than this share of it.
        tol_abs: steps end when the loss changes by less.
        kwargs: have no effect.
    """
    _warn_of_integers(C1, "C1")
    given = problem(C1, C2, p, q, loss_fun, symmetric)
    oracle = Assignments(given)
    plan, record = descend_exactly(given, oracle, G0, max_iter, tol_rel, tol_abs, True, ("gw_dist",))
    record["T"] = plan
    differentiate(record, "gw_dist", given, oracle, plan)
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
    """:func:`gromov_wasserstein` with 1 − alpha times costs M.

    Args:
        M: (n, n) costs, whose factor is 1 − alpha. Integers are computed in float64, with a warning: POT rounds the
            plan to integers.
        C1: (n, n) matrix.
        C2: (n, n) matrix.
        p: (n,) weights of the rows, equal ones; None: uniform.
        q: (n,) weights of the columns, equal ones; None: uniform.
        loss_fun: "square_loss" or "kl_loss".
        symmetric: whether both matrices are symmetric; None: it is found out.
        alpha: the factor of the loss between matrices, from 0 to 1.
        armijo: has no effect: the line search is exact.
        G0: (n, n) plan to start from; None: p qᵀ.
        log: whether a dict follows, with "loss" of every step and "fgw_dist".
        max_iter: the maximum number of steps.
        tol_rel: steps end when the loss changes by less than this share of it.
        tol_abs: steps end when the loss changes by less.
        kwargs: have no effect.
    """
    _warn_of_integers(M, "M")
    given = problem(C1, C2, p, q, loss_fun, symmetric, M, alpha)
    return descend_exactly(given, Assignments(given), G0, max_iter, tol_rel, tol_abs, log, ("fgw_dist",))


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
    """The loss of :func:`fused_gromov_wasserstein`, differentiable as :func:`gromov_wasserstein2`, in M and in alpha.

    Args:
        M: (n, n) costs, whose factor is 1 − alpha. Integers are computed in float64, with a warning: POT rounds the
            plan to integers.
        C1: (n, n) matrix.
        C2: (n, n) matrix.
        p: (n,) weights of the rows, equal ones; None: uniform.
        q: (n,) weights of the columns, equal ones; None: uniform.
        loss_fun: "square_loss" or "kl_loss".
        symmetric: whether both matrices are symmetric; None: it is found out.
        alpha: the factor of the loss between matrices, from 0 to 1; a tensor gets its gradient.
        armijo: has no effect: the line search is exact.
        G0: (n, n) plan to start from; None: p qᵀ.
        log: whether a dict follows, with "loss" of every step, "fgw_dist", its parts "lin_loss" and "quad_loss", and
            the plan as "T".
        max_iter: the maximum number of steps.
        tol_rel: steps end when the loss changes by less than this share of it.
        tol_abs: steps end when the loss changes by less.
        kwargs: have no effect.
    """
    _warn_of_integers(M, "M")
    given = problem(C1, C2, p, q, loss_fun, symmetric, M, alpha)
    names = ("fgw_dist", "lin_loss", "quad_loss")
    oracle = Assignments(given)
    plan, record = descend_exactly(given, oracle, G0, max_iter, tol_rel, tol_abs, True, names)
    record["T"] = plan
    differentiate(record, "fgw_dist", given, oracle, plan)
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
    """The plan (n, m) with row marginals p and free column marginals, by conditional gradients.

    Args:
        C1: (n, n) matrix.
        C2: (m, m) matrix.
        p: (n,) weights of the rows; None: uniform.
        loss_fun: "square_loss" or "kl_loss".
        symmetric: whether both matrices are symmetric; None: it is found out.
        log: whether a dict follows, with "loss" of every step and "srgw_dist".
        G0: (n, m) plan to start from; None or "product": p times uniform weights; other names raise
            NotImplementedError.
        max_iter: the maximum number of steps.
        tol_rel: steps end when the loss changes by less than this share of it.
        tol_abs: steps end when the loss changes by less.
        random_state: of the named starts other than "product", which raise NotImplementedError.
        kwargs: have no effect.
    """
    given = problem(C1, C2, p, None, loss_fun, symmetric)
    return descend_exactly(
        given, Cheapest(given), start_of(G0), max_iter, tol_rel, tol_abs, log, ("srgw_dist",)
    )


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
    """The loss of :func:`semirelaxed_gromov_wasserstein`.

    It is differentiable in C1 and C2 at the plan, and in p, in which POT's is not, by each row's lowest cost there.

    Args:
        C1: (n, n) matrix.
        C2: (m, m) matrix.
        p: (n,) weights of the rows; None: uniform.
        loss_fun: "square_loss" or "kl_loss".
        symmetric: whether both matrices are symmetric; None: it is found out.
        log: whether a dict follows, with "loss" of every step, "srgw_dist" and the plan as "T".
        G0: (n, m) plan to start from; None or "product": p times uniform weights; other names raise
            NotImplementedError.
        max_iter: the maximum number of steps.
        tol_rel: steps end when the loss changes by less than this share of it.
        tol_abs: steps end when the loss changes by less.
        random_state: of the named starts other than "product", which raise NotImplementedError.
        kwargs: have no effect.
    """
    given = problem(C1, C2, p, None, loss_fun, symmetric)
    oracle = Cheapest(given)
    plan, record = descend_exactly(
        given, oracle, start_of(G0), max_iter, tol_rel, tol_abs, True, ("srgw_dist",)
    )
    record["T"] = plan
    differentiate(record, "srgw_dist", given, oracle, plan)
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
    """:func:`semirelaxed_gromov_wasserstein` with 1 − alpha times costs M.

    Args:
        M: (n, m) costs, whose factor is 1 − alpha.
        C1: (n, n) matrix.
        C2: (m, m) matrix.
        p: (n,) weights of the rows; None: uniform.
        loss_fun: "square_loss" or "kl_loss".
        symmetric: whether both matrices are symmetric; None: it is found out.
        alpha: the factor of the loss between matrices, from 0 to 1.
        G0: (n, m) plan to start from; None or "product": p times uniform weights; other names raise
            NotImplementedError.
        log: whether a dict follows, with "loss" of every step, "srfgw_dist", and its parts "lin_loss" and "quad_loss".
        max_iter: the maximum number of steps.
        tol_rel: steps end when the loss changes by less than this share of it.
        tol_abs: steps end when the loss changes by less.
        random_state: of the named starts other than "product", which raise NotImplementedError.
        kwargs: have no effect.
    """
    given = problem(C1, C2, p, None, loss_fun, symmetric, M, alpha)
    names = ("lin_loss", "quad_loss", "srfgw_dist")
    return descend_exactly(given, Cheapest(given), start_of(G0), max_iter, tol_rel, tol_abs, log, names)


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
    """The loss of :func:`semirelaxed_fused_gromov_wasserstein`, differentiable as :func:`semirelaxed_gromov_wasserstein2`, in M and in alpha.

    Args:
        M: (n, m) costs, whose factor is 1 − alpha.
        C1: (n, n) matrix.
        C2: (m, m) matrix.
        p: (n,) weights of the rows; None: uniform.
        loss_fun: "square_loss" or "kl_loss".
        symmetric: whether both matrices are symmetric; None: it is found out.
        alpha: the factor of the loss between matrices, from 0 to 1; a tensor gets its gradient.
        G0: (n, m) plan to start from; None or "product": p times uniform weights; other names raise
            NotImplementedError.
        log: whether a dict follows, with "loss" of every step, "srfgw_dist", its parts "lin_loss" and "quad_loss", and
            the plan as "T".
        max_iter: the maximum number of steps.
        tol_rel: steps end when the loss changes by less than this share of it.
        tol_abs: steps end when the loss changes by less.
        random_state: of the named starts other than "product", which raise NotImplementedError.
        kwargs: have no effect.
    """
    given = problem(C1, C2, p, None, loss_fun, symmetric, M, alpha)
    oracle = Cheapest(given)
    names = ("lin_loss", "quad_loss", "srfgw_dist")
    plan, record = descend_exactly(given, oracle, start_of(G0), max_iter, tol_rel, tol_abs, True, names)
    record["T"] = plan
    differentiate(record, "srfgw_dist", given, oracle, plan)
    return (record["srfgw_dist"], record) if log else record["srfgw_dist"]


def _warn_of_integers(given: Any, name: str) -> None:
    dtype = given.dtype if isinstance(given, Tensor) else torch.as_tensor(np.asarray(given)).dtype
    if not dtype.is_floating_point:
        warnings.warn(
            f"{name}: expected floating-point numbers, got {dtype}: the plan is computed in float64, where POT rounds it to "
            f"integers, which loses it. Write {name}.astype(float) to say that this is meant.",
            stacklevel=3,
        )
