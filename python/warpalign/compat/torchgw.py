"""Drop-in for torchgw: ``sampled_gw``, ``sampled_lowrank_gw``, ``build_knn_graph`` and ``joint_embedding``.

Signatures and keys of the log are the original's; :func:`warpalign.transport.gromov_wasserstein_sampled` computes. What differs:

* ``s_shared`` is partial transport: so many points are matched, and all others are left out.
* ``semi_relaxed`` relaxes the target's sums alone.
* ``alpha=1`` works, and every ``alpha`` draws anchors from the mixture of plans that it means.
* ``gw_cost`` is an unbiased estimate from independent pairs.
* Relaxed sums are those of the KL problem, which become the balanced ones as the strength grows.
* On a GPU sampled steps are computed in float32, whose rounding is far below the noise of the draws. The plan is float64.
* With ``differentiable`` the plan is that of one more step, whose anchors are constants. It has gradients with respect to points,
  distances, costs and weights, through the potentials and the linearised cost of that step; the plan that its anchors are drawn from is
  a constant, too.
* ``generator`` is new: a seed gives the same plan on one device.
* ``sampled_lowrank_gw`` returns the factors of its plan, which is not stored, as a :class:`warpalign.transport.LowRankPlan`.

``epsilon`` is the original's, whose linearised cost leaves out the factor 2 of the derivative. Where distances come from is named by
``distance_mode``; the original's classes of distance providers are not available.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from warpalign._core import optional
from warpalign._transport.gromov_gradients import differentiable_plan
from warpalign._transport.plan import TransportPlan
from warpalign.compat._torchgw_low_rank import sampled_lowrank_gw
from warpalign.compat._torchgw_solve import (
    ANNEALING,
    check_modes,
    geometry_of,
    require_gradients,
    searched,
    sides_of,
    start_of,
)
from warpalign.transport import joint_embedding as embedding
from warpalign.transport import knn_graph, sinkhorn

__all__ = ["build_knn_graph", "joint_embedding", "sampled_gw", "sampled_lowrank_gw"]


def sampled_gw(
    X_source: Any = None,
    X_target: Any = None,
    p: Any = None,
    q: Any = None,
    *,
    distance_mode: str = "dijkstra",
    dist_source: Any = None,
    dist_target: Any = None,
    n_landmarks: int = 50,
    fgw_alpha: float = 0.0,
    C_linear: Any = None,
    s_shared: int | None = None,
    M: int = 50,
    alpha: float = 0.9,
    max_iter: int = 500,
    tol: float = 1e-5,
    epsilon: float = 0.001,
    k: int = 30,
    min_iter_before_converge: int = 50,
    device: Any = None,
    verbose: bool = False,
    verbose_every: int = 20,
    log: bool = False,
    differentiable: bool = False,
    grad_mode: str = "implicit",
    semi_relaxed: bool = False,
    rho: float | None = None,
    rho_a: float = 1.0,
    rho_b: float = 1.0,
    multiscale: bool = False,
    n_coarse: int | None = None,
    lambda_ema_beta: float | None = None,
    mixed_precision: bool = False,
    T_init: Any = None,
    generator: torch.Generator | int | None = None,
) -> Any:
    """The plan (N, K) between points X_source (N, D) and X_target (K, E), dense and in float64.

    Args:
        X_source: (N, D) points; None with distance_mode="precomputed" or fgw_alpha = 1.
        X_target: (K, E) points; None with distance_mode="precomputed" or fgw_alpha = 1.
        p: (N,) weights; None: uniform, with s_shared 1 / max(N, K) each.
        q: (K,) weights; None: as p.
        distance_mode: "dijkstra": shortest paths on graphs of k neighbours, searched from the anchors. "landmark": the largest
            difference of paths to n_landmarks points. "precomputed": dist_source (N, N) and dist_target (K, K).
        dist_source: (N, N) distances, with distance_mode="precomputed".
        dist_target: (K, K) distances, with distance_mode="precomputed".
        n_landmarks: the number of landmarks, with distance_mode="landmark".
        fgw_alpha: the share of C_linear (N, K) in the linearised cost, from 0 to 1.
        C_linear: (N, K) costs, with fgw_alpha > 0.
        s_shared: how many points are matched, at most the smaller number; None: all.
        M: anchors of a step.
        alpha: the share of the newest plan in what anchors are drawn from.
        max_iter: the maximum number of steps.
        tol: changes nothing. Steps end when the linearised cost falls no more.
        epsilon: the original's; it starts at ten times as much and shrinks.
        k: the neighbours of a point in the graphs.
        min_iter_before_converge: steps, at least.
        device: where to compute; None: where the tensors are.
        verbose: whether the linearised cost is printed.
        verbose_every: after how many steps it is printed.
        log: a dict follows: "err_list" (the linearised cost of each step), "n_iter", "gw_cost".
        differentiable: the plan has gradients with respect to those of X_source, X_target, dist_source, dist_target, C_linear, p and q
            that require them, through one more linearisation with M anchors. Points move the lengths of edges; neighbours are
            constants. At fgw_alpha = 1 gradients are those of the whole map.
        grad_mode: changes nothing.
        semi_relaxed: the target's sums are relaxed by KL of strength rho_b, times rho where that is given.
        rho: relaxes both sums, with strengths rho rho_a and rho rho_b.
        rho_a: the source's factor of rho.
        rho_b: the target's factor of rho.
        multiscale: without T_init, start from the plan of 200 points of each set.
        n_coarse: changes nothing.
        lambda_ema_beta: changes nothing.
        mixed_precision: True: float32 in the place of float64. On a GPU, steps with fgw_alpha < 1 are float32 in any case.
        T_init: a plan (N, K) to start from, a matrix or a :class:`warpalign.transport.TransportPlan`.
        generator: a torch.Generator on the CPU or a seed; None: torch's default generator.
    """
    check_modes(distance_mode, fgw_alpha, C_linear)

    def tensor(given: Any) -> Tensor:
        one = torch.as_tensor(given).to(device)
        is_single = mixed_precision or (one.is_cuda and fgw_alpha < 1)
        one = one.to(torch.float32 if is_single else torch.float64)
        return one if differentiable else one.detach()

    costs = None if C_linear is None else tensor(C_linear)
    if fgw_alpha == 1 and costs is not None:
        sides = [costs[:, 0], costs[0]]  # only their lengths are looked at
    else:
        sides = sides_of(distance_mode, (X_source, X_target), (dist_source, dist_target), tensor)
    n, m = (len(side) for side in sides)
    largest = max(n, m)
    weights = [
        (None if s_shared is None else side.new_full((len(side),), 1 / largest)) if w is None else tensor(w)
        for side, w in zip(sides, (p, q), strict=True)
    ]
    # (1 − f) Λ + f C at epsilon is 2 (1 − w) Λ + w C at 2 epsilon / (1 + f), with w = 2 f / (1 + f).
    factor = 2 / (1 + fgw_alpha)
    options: dict[str, Any] = {
        "a": weights[0],
        "b": weights[1],
        "epsilon": factor * epsilon,
        "mass": _shared(s_shared, n, m),
        **_strengths(semi_relaxed, rho, rho_a, rho_b, factor),
    }
    annealing = factor * epsilon * ANNEALING
    if fgw_alpha == 1:
        plan, record = _linear(costs, options | {"annealing": annealing})
    else:
        fused: dict[str, Any] = {
            "feature_cost": costs if fgw_alpha > 0 else None,
            "feature_weight": fgw_alpha * factor,
        }
        given, distances = geometry_of(sides, distance_mode, k, n_landmarks)
        found, record = searched(
            given,
            _detached(options | fused),
            annealing=annealing,
            init=start_of(multiscale, T_init, tensor),
            n_anchors=M,
            step=alpha,
            max_iter=max_iter,
            min_iter=min_iter_before_converge,
            generator=generator,
            verbose_every=verbose_every if verbose else None,
        )
        plan = found.plan
        if require_gradients(*sides, *weights, fused["feature_cost"]):
            plan = differentiable_plan(found, distances(), M, generator, **options, **fused)
    dense = plan.to_dense().double()
    return (dense, record) if log else dense


def __getattr__(name: str) -> Any:
    problem = f"module 'warpalign.compat.torchgw' has no attribute {name!r}"
    if name.endswith("Provider"):
        # Not an AttributeError, whose words "from ... import" would leave out.
        raise ImportError(
            f"{problem}: expected a distance_mode in place of a distance provider: write "
            'sampled_gw(..., distance_mode="precomputed", "dijkstra" or "landmark")',
            name=name,
        )
    raise AttributeError(problem)


def _linear(costs: Tensor | None, options: dict[str, Any]) -> tuple[TransportPlan, dict[str, Any]]:
    """Plan and log of fgw_alpha = 1: the linear problem alone."""
    result = sinkhorn(cost_matrix=costs, tol=1e-7, max_iter=10000, **options)
    record = {"err_list": [float(result.error)], "n_iter": int(result.iterations), "gw_cost": float("nan")}
    return result.plan, record


def build_knn_graph(X: Any, k: int = 30) -> Any:
    """The connected graph of k nearest neighbours, as a SciPy matrix (N, N) in compressed rows. It needs SciPy.

    Args:
        X: (N, D) points, an array or a tensor.
        k: the number of neighbours of a point.
    """
    optional.load("scipy", "warpalign.compat.torchgw.build_knn_graph", "cluster")
    from scipy.sparse import csr_matrix

    points = torch.as_tensor(X)
    graph = knn_graph(points.cpu(), k)
    parts = (graph.weights.numpy(), graph.indices.numpy(), graph.indptr.numpy())
    return csr_matrix(parts, shape=(len(points), len(points)))


def joint_embedding(
    anchor_name: str,
    data: Mapping[str, Any],
    plans: Mapping[str, Any],
    graphs: Mapping[str, Any] | None = None,
    reg: float = 1.0,
    dim: int = 30,
) -> dict[str, Tensor]:
    """:func:`warpalign.transport.joint_embedding` with the original's names: for each set (N, dim) in float64.

    Args:
        anchor_name: the set that all others were matched with.
        data: for each set's name its features (N, D), an array or a tensor.
        plans: for the name of each set but the anchor the plan (N of the anchor, N of the set), a matrix or a
            :class:`warpalign.transport.TransportPlan`.
        graphs: for some sets' names a graph of their points, as :func:`warpalign.transport.shortest_paths` takes it.
        reg: the weight of Laplacians, >= 0.
        dim: features of the space, at most.
    """
    return embedding(
        {name: torch.as_tensor(x) for name, x in data.items()},
        {name: p if isinstance(p, TransportPlan) else torch.as_tensor(p) for name, p in plans.items()},
        anchor=anchor_name,
        graphs=graphs,
        reg=reg,
        dim=dim,
    )


def _strengths(
    semi_relaxed: bool, rho: float | None, rho_a: float, rho_b: float, factor: float
) -> dict[str, float | None]:
    """In the units of the problem that is solved; None: exact sums."""
    if not semi_relaxed and rho is None:
        return {"rho_a": None, "rho_b": None}
    strength = 1.0 if rho is None else float(rho)
    return {"rho_a": None if semi_relaxed else factor * strength * rho_a, "rho_b": factor * strength * rho_b}


def _shared(s_shared: int | None, n: int, m: int) -> float | None:
    """The mass that is moved."""
    if s_shared is None:
        return None
    if not 0 < s_shared <= min(n, m):
        raise ValueError(f"s_shared: expected from 1 to {min(n, m)} points, got {s_shared}")
    return s_shared / max(n, m)


def _detached(options: dict[str, Any]) -> dict[str, Any]:
    return {name: one.detach() if isinstance(one, Tensor) else one for name, one in options.items()}
