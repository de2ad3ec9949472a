"""Several starts of one Gromov-Wasserstein problem, of which the one with the least objective is kept."""

from __future__ import annotations

import torch
from torch import Tensor

from warpalign._transport import autograd, plan_ops
from warpalign._transport.gromov_solver import Callback, Objective, Schedule, State, solve
from warpalign._transport.gromov_start import anchored_cost, plan_of_cost
from warpalign._transport.settings import Inputs, Settings, as_keywords


def objective_value(of: Objective, solution: autograd.Solution, plan: Tensor) -> Tensor:
    """(B,): E, entropy and marginal terms at the plan of a linearised problem.

    The problem's value has all but E, of which it has a linear part; that is replaced. By the envelope theorem the plan is
    a constant for E's derivatives, and the problem's value has those by weights, epsilon and features.
    """
    fixed = of.detached()
    linear = solution.linear.detach()
    if fixed.features is not None and of.weight > 0:
        linear = linear - of.weight * torch.where(plan == 0, 0.0, fixed.features * plan).sum((1, 2))
    value = solution.value - linear
    return value + (1 - of.weight) * of.distortion(plan) if of.weight < 1 else value


def best_state(
    of: Objective,
    weights: Inputs,
    start: Tensor,
    schedule: Schedule,
    inner: Settings,
    last: Settings,
    starts: int,
    generator: torch.Generator,
    callback: Callback | None = None,
    callback_of_others: Callback | None = None,
) -> State:
    """The state with the least objective of each problem. All starts but the first take a pair of points for matched.

    Args:
        weights: a and b; nothing else is looked at.
        start: the first plan (B, N, M), from which the pairs are drawn.
        inner: settings of a step's problem.
        last: those of the problem that gives the result.
        callback: of the first start, as of solve(); callback_of_others: of all others.
    """
    best = solve(of, weights, start, schedule, inner, callback)
    if starts == 1:
        return best
    value = _value_of(of, weights, best, schedule.epsilon, last)
    early = schedule.epsilon.clamp(min=schedule.epsilon_start)
    for _ in range(starts - 1):
        anchored = plan_of_cost(anchored_cost(of, weights, start, generator), weights, early, inner)
        other = solve(of, weights, anchored, schedule, inner, callback_of_others)
        other_value = _value_of(of, weights, other, schedule.epsilon, last)
        better = other_value < value
        value = value.where(~better, other_value)
        best = State(
            _chosen(better, other.plan, best.plan),
            _chosen(better, other.f, best.f),
            _chosen(better, other.g, best.g),
            _chosen(better, other.iterations, best.iterations),
            _chosen(better, other.converged, best.converged),
            best.moved,
        )
    return best


def _chosen(which: Tensor, one: Tensor, other: Tensor) -> Tensor:
    return torch.where(which.view(-1, *[1] * (one.dim() - 1)), one, other)


def _value_of(of: Objective, weights: Inputs, state: State, epsilons: Tensor, last: Settings) -> Tensor:
    """(B,): the objective that a state leads to."""
    given = weights._replace(
        cost=of.cost(state.plan), epsilons=epsilons, f0=state.f.contiguous(), g0=state.g.contiguous()
    )
    solution = autograd.sinkhorn(given, last)
    plan = plan_ops.dense(
        *given._replace(f0=solution.f, g0=solution.g), **as_keywords(last._replace(mass=0.0))
    )
    return objective_value(of, solution, plan)
