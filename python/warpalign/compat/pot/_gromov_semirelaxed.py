"""Entropic semi-relaxed Gromov-Wasserstein transport, as ot.gromov has it; handed on by gromov.py."""

from __future__ import annotations

from typing import Any

import torch

from warpalign.compat.pot._gromov_problem import Problem, descend, errors, problem


def entropic_semirelaxed_gromov_wasserstein(
    C1: Any,
    C2: Any,
    p: Any = None,
    loss_fun: str = "square_loss",
    epsilon: float = 0.1,
    symmetric: bool | None = None,
    G0: Any = None,
    max_iter: float = 1e4,
    tol: float = 1e-9,
    log: bool = False,
    verbose: bool = False,
    random_state: Any = 0,
) -> Any:
    """The plan (n, m) with row marginals p and free column marginals, by proximal steps: KL to the last plan in the place of entropy.

    Args:
        C1: (n, n) matrix.
        C2: (m, m) matrix.
        p: (n,) weights of the rows; None: uniform.
        loss_fun: "square_loss" or "kl_loss".
        epsilon: the strength of KL to the last plan, > 0.
        symmetric: whether both matrices are symmetric; None: it is found out.
        G0: the plan to start from; None or "product": p times uniform weights.
        max_iter: the maximum number of steps.
        tol: steps end when less than this share of the mass moves.
        log: a dict follows, with "srgw_dist" and "err".
        verbose: changes nothing.
        random_state: of the other named starts, which raise NotImplementedError.
    """
    given = problem(C1, C2, p, None, loss_fun, symmetric)
    return _plan(given, epsilon, G0, max_iter, tol, log, ("srgw_dist",))


def entropic_semirelaxed_gromov_wasserstein2(
    C1: Any,
    C2: Any,
    p: Any = None,
    loss_fun: str = "square_loss",
    epsilon: float = 0.1,
    symmetric: bool | None = None,
    G0: Any = None,
    max_iter: float = 1e4,
    tol: float = 1e-9,
    log: bool = False,
    verbose: bool = False,
    random_state: Any = 0,
    **kwargs: Any,
) -> Any:
    """The loss over the plan of :func:`entropic_semirelaxed_gromov_wasserstein`.

    Args:
        C1: (n, n) matrix.
        C2: (m, m) matrix.
        p: (n,) weights of the rows; None: uniform.
        loss_fun: "square_loss" or "kl_loss".
        epsilon: the strength of KL to the last plan, > 0.
        symmetric: whether both matrices are symmetric; None: it is found out.
        G0: (n, m) plan to start from; None or "product": p times uniform weights; other names raise
            NotImplementedError.
        max_iter: the maximum number of steps.
        tol: steps end when less than this share of the mass moves.
        log: whether a dict follows, with "srgw_dist", "err", and the plan as "T".
        verbose: has no effect.
        random_state: of the named starts other than "product", which raise NotImplementedError.
        kwargs: have no effect.
    """
    plan, record = entropic_semirelaxed_gromov_wasserstein(
        C1, C2, p, loss_fun, epsilon, symmetric, G0, max_iter, tol, log=True
    )
    record["T"] = plan
    return (record["srgw_dist"], record) if log else record["srgw_dist"]


def entropic_semirelaxed_fused_gromov_wasserstein(
    M: Any,
    C1: Any,
    C2: Any,
    p: Any = None,
    loss_fun: str = "square_loss",
    symmetric: bool | None = None,
    epsilon: float = 0.1,
    alpha: float = 0.5,
    G0: Any = None,
    max_iter: float = 1e4,
    tol: float = 1e-9,
    log: bool = False,
    verbose: bool = False,
    random_state: Any = 0,
) -> Any:
    """:func:`entropic_semirelaxed_gromov_wasserstein` with 1 − alpha times costs M.

    Args:
        M: (n, m) costs, whose factor is 1 − alpha.
        C1: (n, n) matrix.
        C2: (m, m) matrix.
        p: (n,) weights of the rows; None: uniform.
        loss_fun: "square_loss" or "kl_loss".
        symmetric: whether both matrices are symmetric; None: it is found out.
        epsilon: the strength of KL to the last plan, > 0.
        alpha: the factor of the loss between matrices, from 0 to 1.
        G0: (n, m) plan to start from; None or "product": p times uniform weights; other names raise
            NotImplementedError.
        max_iter: the maximum number of steps.
        tol: steps end when less than this share of the mass moves.
        log: whether a dict follows, with "srfgw_dist", its parts "lin_loss" and "quad_loss", and "err".
        verbose: has no effect.
        random_state: of the named starts other than "product", which raise NotImplementedError.
    """
    given = problem(C1, C2, p, None, loss_fun, symmetric, M, alpha)
    return _plan(given, epsilon, G0, max_iter, tol, log, ("lin_loss", "quad_loss", "srfgw_dist"))


def entropic_semirelaxed_fused_gromov_wasserstein2(
    M: Any,
    C1: Any,
    C2: Any,
    p: Any = None,
    loss_fun: str = "square_loss",
    symmetric: bool | None = None,
    epsilon: float = 0.1,
    alpha: float = 0.5,
    G0: Any = None,
    max_iter: float = 1e4,
    tol: float = 1e-9,
    log: bool = False,
    verbose: bool = False,
    random_state: Any = 0,
) -> Any:
    """The loss over the plan of :func:`entropic_semirelaxed_fused_gromov_wasserstein`.

    Args:
        M: (n, m) costs, whose factor is 1 − alpha.
        C1: (n, n) matrix.
        C2: (m, m) matrix.
        p: (n,) weights of the rows; None: uniform.
        loss_fun: "square_loss" or "kl_loss".
        symmetric: whether both matrices are symmetric; None: it is found out.
        epsilon: the strength of KL to the last plan, > 0.
        alpha: the factor of the loss between matrices, from 0 to 1.
        G0: (n, m) plan to start from; None or "product": p times uniform weights; other names raise
            NotImplementedError.
        max_iter: the maximum number of steps.
        tol: steps end when less than this share of the mass moves.
        log: whether a dict follows, with "srfgw_dist", its parts "lin_loss" and "quad_loss", "err", and the plan as
            "T".
        verbose: has no effect.
        random_state: of the named starts other than "product", which raise NotImplementedError.
    """
    plan, record = entropic_semirelaxed_fused_gromov_wasserstein(
        M, C1, C2, p, loss_fun, symmetric, epsilon, alpha, G0, max_iter, tol, log=True
    )
    record["T"] = plan
    return (record["srfgw_dist"], record) if log else record["srfgw_dist"]


def start_of(G0: Any) -> Any:
    if isinstance(G0, str) and G0 != "product":
        raise NotImplementedError(f'G0: expected a plan (n, m), "product" or None, got {G0!r}')
    return None if isinstance(G0, str) else G0


def record_of(given: Problem, plan: torch.Tensor, names: tuple[str, ...]) -> dict[str, Any]:
    """The losses of a plan (1, n, m) under POT's names."""
    of, out = given.of, given.kind.out
    parts = {
        "lin_loss": (1 - of.alpha) * of.linear(plan)[0],
        "quad_loss": of.alpha * of.quadratic(plan)[0],
    }
    return {name: out(parts.get(name, of.value(plan)[0])) for name in names}


def _plan(
    given: Problem, epsilon: float, G0: Any, max_iter: float, tol: float, log: bool, names: tuple[str, ...]
) -> Any:
    state = descend(given, epsilon, start_of(G0), max_iter, tol, proximal=True, rho_b=0.0)
    plan = given.kind.out(state.plan[0])
    return (plan, {"err": errors(state, given.kind)} | record_of(given, state.plan, names)) if log else plan
