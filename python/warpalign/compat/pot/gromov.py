"""Drop-in for ot.gromov: entropic Gromov-Wasserstein transport between matrices of intra-domain distances.

Steps end when less than the share ``tol`` of the mass moves: at least as far as POT's, which looks at every tenth step. A log's list
"err" has that share of every step. Inner problems start from the potentials of the one before, whatever ``warmstart``
says. Gradients of values with respect to C1, C2, M and a tensor alpha are those at the plan that was found. Without entropy, those by
p and q are the
potentials of the problem that is linear there. ``verbose`` changes nothing.

Not here is what needs a network simplex: ``partial_gromov_wasserstein``, and ``gromov_wasserstein`` of other weights than equal
ones. With ``solver="PPA"`` the entropic functions descend to a local minimum of the problem without entropy, too. Barycenters,
dictionaries, the quantized and the BAPG functions are not here, either.
"""

from __future__ import annotations

from typing import Any

import torch

from warpalign.compat.pot._gromov_linear import (
    fused_gromov_wasserstein,
    fused_gromov_wasserstein2,
    gromov_wasserstein,
    gromov_wasserstein2,
    semirelaxed_fused_gromov_wasserstein,
    semirelaxed_fused_gromov_wasserstein2,
    semirelaxed_gromov_wasserstein,
    semirelaxed_gromov_wasserstein2,
)
from warpalign.compat.pot._gromov_low_rank import lowrank_gromov_wasserstein_samples
from warpalign.compat.pot._gromov_partial import (
    entropic_partial_fused_gromov_wasserstein,
    entropic_partial_fused_gromov_wasserstein2,
    entropic_partial_gromov_wasserstein,
    entropic_partial_gromov_wasserstein2,
)
from warpalign.compat.pot._gromov_problem import Problem, descend, errors, problem
from warpalign.compat.pot._gromov_semirelaxed import (
    entropic_semirelaxed_fused_gromov_wasserstein,
    entropic_semirelaxed_fused_gromov_wasserstein2,
    entropic_semirelaxed_gromov_wasserstein,
    entropic_semirelaxed_gromov_wasserstein2,
)
from warpalign.compat.pot._gromov_unbalanced import (
    fused_unbalanced_gromov_wasserstein,
    fused_unbalanced_gromov_wasserstein2,
)

__all__ = [
    "entropic_fused_gromov_wasserstein",
    "entropic_fused_gromov_wasserstein2",
    "entropic_gromov_wasserstein",
    "entropic_gromov_wasserstein2",
    "entropic_partial_fused_gromov_wasserstein",
    "entropic_partial_fused_gromov_wasserstein2",
    "entropic_partial_gromov_wasserstein",
    "entropic_partial_gromov_wasserstein2",
    "entropic_semirelaxed_fused_gromov_wasserstein",
    "entropic_semirelaxed_fused_gromov_wasserstein2",
    "entropic_semirelaxed_gromov_wasserstein",
    "entropic_semirelaxed_gromov_wasserstein2",
    "fused_gromov_wasserstein",
    "fused_gromov_wasserstein2",
    "fused_unbalanced_gromov_wasserstein",
    "fused_unbalanced_gromov_wasserstein2",
    "gromov_wasserstein",
    "gromov_wasserstein2",
    "lowrank_gromov_wasserstein_samples",
    "semirelaxed_fused_gromov_wasserstein",
    "semirelaxed_fused_gromov_wasserstein2",
    "semirelaxed_gromov_wasserstein",
    "semirelaxed_gromov_wasserstein2",
]


def entropic_gromov_wasserstein(
    C1: Any,
    C2: Any,
    p: Any = None,
    q: Any = None,
    loss_fun: str = "square_loss",
    epsilon: float = 0.1,
    symmetric: bool | None = None,
    G0: Any = None,
    max_iter: int = 1000,
    tol: float = 1e-9,
    solver: str = "PGD",
    warmstart: bool = False,
    verbose: bool = False,
    log: bool = False,
    **kwargs: Any,
) -> Any:
    """The plan (n, m) between matrices C1 (n, n) and C2 (m, m).

    Args:
        C1: (n, n) matrix.
        C2: (m, m) matrix.
        p: (n,) weights of the rows; None: uniform.
        q: (m,) weights of the columns; None: uniform.
        loss_fun: "square_loss" or "kl_loss".
        epsilon: the regularisation strength, > 0.
        symmetric: whether both matrices are; None: it is found out.
        G0: the plan to start from; None: p qᵀ.
        max_iter: the maximum number of steps.
        tol: steps end when less than this share of the mass moves.
        solver: "PGD", or "PPA": KL to the last plan in the place of the entropy.
        warmstart: changes nothing. Each step starts from the potentials of the one before.
        verbose: changes nothing.
        log: a dict follows, with "gw_dist" and "err".
        kwargs: numItermax and stopThr of the inner problems.
    """
    return _plan(
        problem(C1, C2, p, q, loss_fun, symmetric), epsilon, G0, max_iter, tol, solver, log, kwargs, "gw_dist"
    )


def entropic_gromov_wasserstein2(
    C1: Any,
    C2: Any,
    p: Any = None,
    q: Any = None,
    loss_fun: str = "square_loss",
    epsilon: float = 0.1,
    symmetric: bool | None = None,
    G0: Any = None,
    max_iter: int = 1000,
    tol: float = 1e-9,
    solver: str = "PGD",
    warmstart: bool = False,
    verbose: bool = False,
    log: bool = False,
    **kwargs: Any,
) -> Any:
    """The loss over the plan of :func:`entropic_gromov_wasserstein`, without entropy.

    Args:
        C1: (n, n) matrix.
        C2: (m, m) matrix.
        p: (n,) weights of the rows; None: uniform.
        q: (m,) weights of the columns; None: uniform.
        loss_fun: "square_loss" or "kl_loss".
        epsilon: the regularisation strength, > 0.
        symmetric: whether both matrices are symmetric; None: it is found out.
        G0: (n, m) plan to start from; None: p qᵀ.
        max_iter: the maximum number of steps.
        tol: steps end when less than this share of the mass moves.
        solver: "PGD", or "PPA": KL to the last plan in the place of the entropy.
        warmstart: has no effect: each step starts from the potentials of the one before.
        verbose: has no effect.
        log: whether a dict follows, with "gw_dist", "err" and "T", the plan.
        kwargs: numItermax and stopThr of the inner problems.
    """
    plan, record = entropic_gromov_wasserstein(
        C1, C2, p, q, loss_fun, epsilon, symmetric, G0, max_iter, tol, solver, log=True, **kwargs
    )
    record["T"] = plan
    return (record["gw_dist"], record) if log else record["gw_dist"]


def entropic_fused_gromov_wasserstein(
    M: Any,
    C1: Any,
    C2: Any,
    p: Any = None,
    q: Any = None,
    loss_fun: str = "square_loss",
    epsilon: float = 0.1,
    symmetric: bool | None = None,
    alpha: float = 0.5,
    G0: Any = None,
    max_iter: int = 1000,
    tol: float = 1e-9,
    solver: str = "PGD",
    warmstart: bool = False,
    verbose: bool = False,
    log: bool = False,
    **kwargs: Any,
) -> Any:
    """The plan (n, m) of alpha times the loss between matrices, and 1 − alpha times costs M.

    Args:
        M: (n, m) costs, whose factor is 1 − alpha.
        C1: (n, n) matrix.
        C2: (m, m) matrix.
        p: (n,) weights of the rows; None: uniform.
        q: (m,) weights of the columns; None: uniform.
        loss_fun: "square_loss" or "kl_loss".
        epsilon: the regularisation strength, > 0.
        symmetric: whether both matrices are symmetric; None: it is found out.
        alpha: the factor of the loss between matrices, from 0 to 1.
        G0: (n, m) plan to start from; None: p qᵀ.
        max_iter: the maximum number of steps.
        tol: steps end when less than this share of the mass moves.
        solver: "PGD", or "PPA": KL to the last plan in the place of the entropy.
        warmstart: has no effect: each step starts from the potentials of the one before.
        verbose: has no effect.
        log: whether a dict follows, with "fgw_dist" and "err".
        kwargs: numItermax and stopThr of the inner problems.
    """
    given = problem(C1, C2, p, q, loss_fun, symmetric, M, alpha)
    return _plan(given, epsilon, G0, max_iter, tol, solver, log, kwargs, "fgw_dist")


def entropic_fused_gromov_wasserstein2(
    M: Any,
    C1: Any,
    C2: Any,
    p: Any = None,
    q: Any = None,
    loss_fun: str = "square_loss",
    epsilon: float = 0.1,
    symmetric: bool | None = None,
    alpha: float = 0.5,
    G0: Any = None,
    max_iter: int = 1000,
    tol: float = 1e-9,
    solver: str = "PGD",
    warmstart: bool = False,
    verbose: bool = False,
    log: bool = False,
    **kwargs: Any,
) -> Any:
    """The loss over the plan of :func:`entropic_fused_gromov_wasserstein`, without entropy.

    Args:
        M: (n, m) costs, whose factor is 1 − alpha.
        C1: (n, n) matrix.
        C2: (m, m) matrix.
        p: (n,) weights of the rows; None: uniform.
        q: (m,) weights of the columns; None: uniform.
        loss_fun: "square_loss" or "kl_loss".
        epsilon: the regularisation strength, > 0.
        symmetric: whether both matrices are symmetric; None: it is found out.
        alpha: the factor of the loss between matrices, from 0 to 1.
        G0: (n, m) plan to start from; None: p qᵀ.
        max_iter: the maximum number of steps.
        tol: steps end when less than this share of the mass moves.
        solver: "PGD", or "PPA": KL to the last plan in the place of the entropy.
        warmstart: has no effect: each step starts from the potentials of the one before.
        verbose: has no effect.
        log: whether a dict follows, with "fgw_dist", its parts "lin_loss" and "quad_loss", "err", and the plan as "T".
        kwargs: numItermax and stopThr of the inner problems.
    """
    plan, record = entropic_fused_gromov_wasserstein(
        M, C1, C2, p, q, loss_fun, epsilon, symmetric, alpha, G0, max_iter, tol, solver, log=True, **kwargs
    )
    record["T"] = plan
    record["lin_loss"] = (1 - alpha) * (plan * M).sum()
    record["quad_loss"] = record["fgw_dist"] - record["lin_loss"]
    return (record["fgw_dist"], record) if log else record["fgw_dist"]


def _plan(
    given: Problem,
    epsilon: float,
    G0: Any,
    max_iter: int,
    tol: float,
    solver: str,
    log: bool,
    inner: dict[str, Any],
    name: str,
) -> Any:
    if solver not in ("PGD", "PPA"):
        raise ValueError(f"Unknown solver '{solver}'. Pick one in ['PGD', 'PPA'].")
    state = descend(
        given,
        epsilon,
        G0,
        max_iter,
        tol,
        proximal=solver == "PPA",
        inner_iterations=inner.get("numItermax", 1000),
        inner_tolerance=inner.get("stopThr", 1e-9),
    )
    plan = given.kind.out(state.plan[0])
    if not log:
        return plan
    value: torch.Tensor = given.of.value(state.plan)[0]
    return plan, {"err": errors(state, given.kind), name: given.kind.out(value)}
