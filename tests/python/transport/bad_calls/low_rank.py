"""Low-rank transport."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tests.python.bad_calls import BadCall, BadCalls, Given
from tests.python.transport.bad_calls.compat import of
from tests.python.transport.bad_calls.functional import made
from warpalign.compat import pot
from warpalign.transport import gromov_wasserstein_low_rank, sinkhorn_low_rank

X = np.ones((3, 2))


def bad(
    function: Any = sinkhorn_low_rank,
    *,
    error: type[BaseException] = ValueError,
    message: str,
    cpu_only: bool = False,
    **changed: Any,
) -> BadCall:
    def call(given: Given) -> object:
        return function(**{"x": given.x, "y": given.y, "rank": 2} | made(given, changed))

    return BadCall(call, error, message, cpu_only)


def zeros(*shape: int, **options: Any) -> Any:
    return lambda given: torch.zeros(*shape, device=given.device, **options)


def factors(*shapes: tuple[int, ...]) -> Any:
    return lambda given: tuple(torch.zeros(*shape, device=given.device) for shape in shapes)


def pairs(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Any:
    def made_of(given: Given) -> object:
        a1, a2, b1, b2 = (torch.zeros(*shape, device=given.device) for shape in shapes)
        return (a1, a2), (b1.to(dtype), b2.to(dtype))

    return made_of


def _of_both(name: str, function: Any) -> BadCalls:
    settings: dict[str, tuple[Any, type[BaseException], str]] = {
        "rank": (6, ValueError, "rank: expected at most the smaller number of points, 5, got 6"),
        "a": (
            lambda given: -torch.ones(5, device=given.device),
            ValueError,
            "a: expected finite weights >= 0, got -1",
        ),
        "b": (
            lambda given: torch.ones(6, device=given.device),
            ValueError,
            "b: expected the sum of a, 1: write b / b.sum(), got 6",
        ),
        "epsilon": (-1.0, ValueError, "epsilon: expected a finite number >= 0, got -1.0"),
        "init": (
            "eye",
            ValueError,
            'init: expected "kmeans", "random", a LowRankPlan or its factors (q, r, weights), got \'eye\'',
        ),
        "generator": (
            "seed",
            TypeError,
            "generator: expected a torch.Generator, an int or None, got str",
        ),
        "restarts": (0, ValueError, "restarts: expected at least 1, got 0"),
        "step": (0.0, ValueError, "step: expected a finite number > 0, got 0.0"),
        "max_iter": (0, ValueError, "max_iter: expected at least 1, got 0"),
        "tol": (-1.0, ValueError, "tol: expected a finite number >= 0, got -1.0"),
        "projection_iters": (1, ValueError, "projection_iters: expected at least 2, got 1"),
        "polish_iters": (0, ValueError, "polish_iters: expected at least 1, got 0"),
        "min_weight": (0.6, ValueError, "min_weight: expected at most 1 / rank = 0.5, got 0.6"),
    }
    of_values = {"a", "b"}
    return {
        f"{name}: {argument}": bad(
            function, error=error, message=message, cpu_only=argument in of_values, **{argument: value}
        )
        for argument, (value, error, message) in settings.items()
    }


CALLS: BadCalls = {
    **_of_both("sinkhorn_low_rank", sinkhorn_low_rank),
    **_of_both("gromov_wasserstein_low_rank", gromov_wasserstein_low_rank),
    "sinkhorn_low_rank: no points": bad(
        x=None, message="x: expected points, or cost_factors in the place of x and y, got None"
    ),
    "sinkhorn_low_rank: no other points": bad(
        y=None, message="y: expected points, or cost_factors in the place of x and y, got None"
    ),
    "sinkhorn_low_rank: points and factors": bad(
        cost_factors=factors((5, 2), (6, 2)), message="x: expected None with cost_factors, got Tensor"
    ),
    "sinkhorn_low_rank: one factor": bad(
        x=None,
        y=None,
        cost_factors=zeros(5, 2),
        error=TypeError,
        message="cost_factors: expected a pair (A, B) of tensors, got Tensor",
    ),
    "sinkhorn_low_rank: other columns": bad(
        x=None,
        y=None,
        cost_factors=factors((5, 2), (6, 3)),
        message="cost_factors: B: expected K = 2 columns as in A, got shape (6, 3)",
    ),
    "sinkhorn_low_rank: another batch": bad(
        x=None,
        y=None,
        cost_factors=factors((2, 5, 2), (3, 6, 2)),
        message="cost_factors: B: expected the batch of cost_factors: A, which has shape (2, 5, 2), got shape (3, 6, 2)",
    ),
    "sinkhorn_low_rank: no weight": bad(
        a=zeros(5), message="a: expected some weight above 0, got none", cpu_only=True
    ),
    "sinkhorn_low_rank: weights with a gradient": bad(
        a=lambda given: torch.full((5,), 0.2, device=given.device, requires_grad=True),
        error=NotImplementedError,
        message="a: expected weights without a gradient, because derivatives of low-rank transport with respect to weights are not "
        "available, got one that requires it: write a.detach()",
    ),
    "sinkhorn_low_rank: another init": bad(
        init=3,
        error=TypeError,
        message='init: expected "kmeans", "random", a LowRankPlan or its factors (q, r, weights), got int',
    ),
    "sinkhorn_low_rank: init of another dtype": bad(
        init=lambda given: tuple(t.double() for t in factors((5, 2), (6, 2), (2,))(given)),
        error=TypeError,
        message="init: q: expected torch.float32 on DEVICE, got torch.float64 on DEVICE",
    ),
    "sinkhorn_low_rank: init of another rank": bad(
        init=factors((5, 2), (6, 3), (2,)),
        message="init: r: expected shape (3, 6, 2) or (6, 2), got (6, 3)",
    ),
    "gromov_wasserstein_low_rank: no points": bad(
        gromov_wasserstein_low_rank,
        x=None,
        message="x: expected points, or distance_factors in the place of x and y, got None",
    ),
    "gromov_wasserstein_low_rank: another dtype": bad(
        gromov_wasserstein_low_rank,
        y=zeros(3, 6, 2, dtype=torch.float64),
        error=TypeError,
        message="y: expected torch.float32 on DEVICE, as x, got torch.float64 on DEVICE",
    ),
    "gromov_wasserstein_low_rank: points and factors": bad(
        gromov_wasserstein_low_rank,
        distance_factors=pairs((5, 2), (5, 2), (6, 2), (6, 2)),
        message="x: expected None with distance_factors, got Tensor",
    ),
    "gromov_wasserstein_low_rank: one pair": bad(
        gromov_wasserstein_low_rank,
        x=None,
        y=None,
        distance_factors=zeros(5, 2),
        error=TypeError,
        message="distance_factors: expected a pair ((A1, A2), (B1, B2)), got Tensor",
    ),
    "gromov_wasserstein_low_rank: other rows": bad(
        gromov_wasserstein_low_rank,
        x=None,
        y=None,
        distance_factors=pairs((5, 2), (4, 2), (6, 2), (6, 2)),
        message="distance_factors: x: expected as many rows in both factors, got 5 and 4",
    ),
    "gromov_wasserstein_low_rank: sides of two dtypes": bad(
        gromov_wasserstein_low_rank,
        x=None,
        y=None,
        distance_factors=pairs((5, 2), (5, 2), (6, 2), (6, 2), dtype=torch.float64),
        message="distance_factors: y: expected torch.float32 on DEVICE and the axes of x, got torch.float64 on DEVICE",
    ),
    "pot.lowrank: rank": of(
        lambda: pot.lowrank.lowrank_sinkhorn(X, X, rank=0), "The rank parameter cannot have a negative value"
    ),
    "pot.lowrank: alpha": of(
        lambda: pot.lowrank.lowrank_sinkhorn(X, X, rank=2, alpha=0.6),
        "alpha (0.6) should be smaller than 1/rank (0.5) for the Dykstra algorithm to converge.",
    ),
    "pot.lowrank: gamma": of(
        lambda: pot.lowrank.lowrank_sinkhorn(X, X, gamma_init="theory"),
        'Not implemented gamma_init="theory"',
        NotImplementedError,
    ),
    "pot.lowrank: init": of(
        lambda: pot.lowrank.lowrank_sinkhorn(X, X, init="eye"),
        'init: expected "random", "kmeans" or "deterministic", got \'eye\'',
    ),
}
