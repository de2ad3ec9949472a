"""torchgw's plans of low rank."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

from warpalign._core.checks import check_count
from warpalign._core.randomness import cpu_generator
from warpalign._transport.gromov_gradients import points_of_pairs
from warpalign._transport.low_rank.inputs import check_rank
from warpalign.compat._torchgw_solve import ANNEALING, check_modes, geometry_of, searched, sides_of, start_of
from warpalign.transport import ConvergenceWarning, sinkhorn_low_rank

_NOT_OF_LOW_RANK = {
    "fgw_alpha": 0.0,
    "C_linear": None,
    "s_shared": None,
    "semi_relaxed": False,
    "rho": None,
    "rho_a": 1.0,
    "rho_b": 1.0,
    "differentiable": False,
}
_WITHOUT_EFFECT = ("tol", "n_coarse", "lambda_ema_beta", "grad_mode")
_RANK = 30


def sampled_lowrank_gw(
    X_source: Any = None,
    X_target: Any = None,
    p: Any = None,
    q: Any = None,
    *,
    rank: int | None = None,
    lr_max_iter: int = 1000,
    lr_dykstra_max_iter: int = 10,
    distance_mode: str = "dijkstra",
    dist_source: Any = None,
    dist_target: Any = None,
    n_landmarks: int = 50,
    M: int = 50,
    alpha: float = 0.9,
    max_iter: int = 500,
    epsilon: float = 0.001,
    k: int = 30,
    min_iter_before_converge: int = 50,
    device: Any = None,
    verbose: bool = False,
    verbose_every: int = 20,
    log: bool = False,
    multiscale: bool = False,
    mixed_precision: bool = False,
    T_init: Any = None,
    generator: torch.Generator | int | None = None,
    **others: Any,
) -> Any:
    """Computes a plan of low rank (N, K) between points X_source (N, D) and X_target (K, E).

    The function first runs :func:`warpalign.compat.torchgw.sampled_gw` without its dense result, and samples M pairs of points (anchors)
    from the plan. Then each point is represented by its distances to the anchors, and
    :func:`warpalign.transport.sinkhorn_low_rank` is called on these coordinates. It minimises the cost that is linearised at the
    anchors over plans of the given rank with the marginals p and q, without an entropic term. The minimum may be a local one.

    The memory of the plan is linear in N + K; given distances and T_init are full matrices. torchgw does not document the defaults of
    ``rank``, ``lr_max_iter`` and ``lr_dykstra_max_iter``: those of this function may differ.

    Source: Scetbon, Cuturi & Peyré, "Low-rank Sinkhorn factorization", ICML 2021.

    Args:
        X_source: (N, D) points; None with distance_mode="precomputed".
        X_target: (K, E) points; None with distance_mode="precomputed".
        p: (N,) weights >= 0; None: 1 / N each.
        q: (K,) weights >= 0, of the sum of p; None: 1 / K each.
        rank: the number of components, from 1 to min(N, K); None: 30, or min(N, K) where that is less.
        lr_max_iter: the maximum number of steps of the problem of low rank, at least 1.
        lr_dykstra_max_iter: the iterations of a step's projection onto the marginals, at least 2.
        distance_mode: as in :func:`warpalign.compat.torchgw.sampled_gw`.
        dist_source: (N, N) distances, with distance_mode="precomputed".
        dist_target: (K, K) distances, with distance_mode="precomputed".
        n_landmarks: the number of landmarks, with distance_mode="landmark".
        M: the number of anchors of a step, and of those at which the problem of low rank is linearised.
        alpha: the weight of the newest plan in the mixture of plans from which anchors are sampled.
        max_iter: the maximum number of steps of :func:`warpalign.compat.torchgw.sampled_gw`.
        epsilon: the regularisation strength of :func:`warpalign.compat.torchgw.sampled_gw`.
        k: the neighbours of a point in the graphs.
        min_iter_before_converge: the minimum number of steps of :func:`warpalign.compat.torchgw.sampled_gw`.
        device: where to compute; None: where the tensors are.
        verbose: whether the linearised cost is printed.
        verbose_every: the number of steps between two lines that are printed.
        log: whether to return a dict as well, with the entries of :func:`warpalign.compat.torchgw.sampled_gw`. "gw_cost" belongs to the
            plan from which the anchors are sampled. Two more entries, "lr_converged" and "lr_n_iter", say whether the problem of low
            rank has converged, and after how many steps.
        multiscale: without T_init, start from the plan of 200 points of each set.
        mixed_precision: True: float32 in the place of float64. On a GPU it is float32 in any case.
        T_init: a plan (N, K) to start from, a matrix or a :class:`warpalign.transport.TransportPlan`.
        generator: a torch.Generator on the CPU or a seed; None: torch's default generator.
        **others: the remaining arguments of :func:`warpalign.compat.torchgw.sampled_gw`. ``tol``, ``n_coarse``, ``lambda_ema_beta``
            and ``grad_mode`` have no effect. The others are accepted with their default values alone, because features, relaxed
            marginals and gradients are not supported.

    Returns:
        A LowRankPlan, or, with log, a pair (plan, dict). ``plan.to_dense()`` is the matrix.

    Raises:
        NotImplementedError: fgw_alpha, C_linear, s_shared, semi_relaxed, rho, rho_a, rho_b or differentiable has another value than its
            default.
        TypeError: an argument is of the wrong type, missing or unknown.
        ValueError: shapes or values do not fit. A message of a solver names the solver's argument, such as max_iter.

    Warns:
        ConvergenceWarning: the problem of low rank has not converged, and log is False.
    """
    _check_others(others)
    check_modes(distance_mode, 0.0, None)
    steps = check_count(lr_max_iter, "lr_max_iter")
    projections = check_count(lr_dykstra_max_iter, "lr_dykstra_max_iter", 2)

    def tensor(given: Any) -> Tensor:
        one = torch.as_tensor(given).detach().to(device)
        return one.to(torch.float32 if mixed_precision or one.is_cuda else torch.float64)

    sides = sides_of(distance_mode, (X_source, X_target), (dist_source, dist_target), tensor)
    fewest = min(map(len, sides))
    components = check_rank(min(_RANK, fewest) if rank is None else rank, (fewest, fewest))
    weights = [None if w is None else tensor(w) for w in (p, q)]
    geometry, distances = geometry_of(sides, distance_mode, k, n_landmarks, needs_distances=True)
    draws = cpu_generator(generator)
    found, record = searched(
        geometry,
        {"a": weights[0], "b": weights[1], "epsilon": 2 * epsilon},
        annealing=2 * epsilon * ANNEALING,
        init=start_of(multiscale, T_init, tensor),
        n_anchors=M,
        step=alpha,
        max_iter=max_iter,
        min_iter=min_iter_before_converge,
        generator=draws,
        verbose_every=verbose_every if verbose else None,
    )
    u, v = points_of_pairs(found, distances(), M, draws)
    result = sinkhorn_low_rank(
        u,
        v,
        rank=components,
        a=weights[0],
        b=weights[1],
        max_iter=steps,
        projection_iters=projections,
        generator=draws,
    )
    if log:
        record |= {"lr_converged": bool(result.converged), "lr_n_iter": int(result.iterations)}
        return result.plan, record
    if not bool(result.converged):
        warnings.warn(
            f"sampled_lowrank_gw: expected steps that move less than 1e-4 of the mass, got more in the last of lr_max_iter = {steps}: "
            "write a larger lr_max_iter",
            ConvergenceWarning,
            stacklevel=2,
        )
    return result.plan


def _check_others(given: dict[str, Any]) -> None:
    """Arguments of sampled_gw that plans of low rank do not have."""
    for name, value in given.items():
        if name in _WITHOUT_EFFECT:
            continue
        if name not in _NOT_OF_LOW_RANK:
            raise TypeError(
                f"{name}: expected an argument of sampled_lowrank_gw or sampled_gw, got another name"
            )
        default = _NOT_OF_LOW_RANK[name]
        one = value.item() if isinstance(value, np.generic) else value
        is_number = isinstance(one, (int, float))
        if one is not default and not (is_number and one == default):
            got = repr(one) if is_number else type(one).__name__
            raise NotImplementedError(
                f"{name}: expected {default!r} for a plan of low rank, got {got}: write sampled_gw(..., {name}=...)"
            )
