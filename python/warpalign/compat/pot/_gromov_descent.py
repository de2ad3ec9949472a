"""Conditional gradients with an exact line search, and the linear problems that are simple; for _gromov_linear.py.

Sources: Vayer et al., "Optimal transport for structured data with application on graphs", ICML 2019; Vincent-Cuaz et al.,
"Semi-relaxed Gromov-Wasserstein divergence", ICLR 2022.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from warpalign._core import optional
from warpalign.compat.pot._common import warn_at_caller
from warpalign.compat.pot._gromov_problem import Problem
from warpalign.compat.pot._gromov_semirelaxed import record_of

_TIES = 1e-15


class Assignments:
    """The cheapest plan (1, n, n) of costs: a permutation, by Crouse's form of the Hungarian algorithm."""

    def __init__(self, given: Problem) -> None:
        p, q = given.p.detach(), given.q.detach()
        if p.shape != q.shape or not all(bool(torch.isclose(w, p[0, 0], rtol=1e-6).all()) for w in (p, q)):
            raise NotImplementedError(
                "p, q: expected as many points with equal weights on both sides, because warpalign has no network simplex, "
                f"got {p.shape[1]} and {q.shape[1]} points: entropic_gromov_wasserstein with solver='PPA' takes them"
            )
        optional.load("scipy", "ot.gromov without entropy", "cluster")
        self._given, self._mass = given, p[0, 0]

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

        cost = cost.cpu()
        if bool(cost.isnan().any()):
            raise ValueError(self._given.not_finite())
        rows, columns = (torch.from_numpy(part) for part in linear_sum_assignment(cost[0].numpy()))
        return rows, columns


class Cheapest:
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


def differentiate(
    record: dict[str, Any], name: str, given: Problem, oracle: Assignments | Cheapest, plan: Any
) -> None:
    """Gives a loss its gradients with respect to the weights: the potentials of the problem that is linear at the plan, as POT's."""
    if not (given.p.requires_grad or given.q.requires_grad):
        return
    cost = given.of.detached().cost(plan.detach()[None])
    for weights, potential in zip((given.p, given.q), oracle.potentials(cost), strict=True):
        if weights.requires_grad:
            record[name] = record[name] + ((weights - weights.detach()) * potential).sum()


def descend_exactly(
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
    if not given.is_finite(plan):
        warn_at_caller(f"Numerical errors: the plan is not finite. {given.not_finite()}")
    if not log:
        return kind.out(plan[0])
    return kind.out(plan[0]), {"loss": losses} | record_of(given, plan, names)


def _lowest(curvature: float, slope: float) -> float:
    """Where curvature t² + slope t is lowest in [0, 1]."""
    if curvature > 0:
        return min(1.0, max(0.0, -slope / (2 * curvature)))
    return 1.0 if curvature + slope < 0 else 0.0
