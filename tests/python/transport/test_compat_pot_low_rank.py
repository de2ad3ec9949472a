"""POT's low-rank functions: types, logs, units and options. Their signatures are in test_compat.py and test_compat_gromov.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.python.helpers import Array
from tests.python.transport.pot import squared_distances
from tests.python.transport.pot_low_rank import distortion, linear, problem
from warpalign.compat import pot
from warpalign.transport import LowRankPlan

OF = problem(30, 25, 2, 2, 4, 1)
LINEAR, GROMOV = pot.lowrank.lowrank_sinkhorn, pot.gromov.lowrank_gromov_wasserstein_samples
BOTH = pytest.mark.parametrize("function", [LINEAR, GROMOV])


def largest_of_factors(x: Array, y: Array) -> float:
    """What POT divides squared distances by."""
    left = np.column_stack([np.square(x).sum(1), np.ones(len(x)), -2 * x])
    right = np.column_stack([np.ones(len(y)), np.square(y).sum(1), y])
    return float(np.sqrt(left.max() * right.max()))


@pytest.mark.parametrize("init", ["random", "kmeans", "deterministic"])
def test_linear_values_are_in_pot_s_units(init: str) -> None:
    q, r, g, log = LINEAR(OF.x, OF.y, OF.a, OF.b, rank=4, init=init, log=True)
    assert q.shape == (30, 4) and r.shape == (25, 4) and g.shape == (4,) and isinstance(q, np.ndarray)
    plan = q / g @ r.T
    np.testing.assert_allclose(plan.sum(1), OF.a, atol=1e-12)
    np.testing.assert_allclose(plan.sum(0), OF.b, atol=1e-12)
    assert isinstance(log["lazy_plan"], LowRankPlan)
    np.testing.assert_allclose(np.asarray(log["lazy_plan"]), plan, atol=1e-15)
    expected = linear(plan, OF) / largest_of_factors(OF.x, OF.y)
    assert float(log["value_linear"]) == pytest.approx(expected) == pytest.approx(float(log["value"]))
    raw = LINEAR(OF.x, OF.y, OF.a, OF.b, rank=4, init=init, rescale_cost=False, log=True)
    assert float(raw[3]["value"]) == pytest.approx(linear(raw[0] / raw[2] @ raw[1].T, OF))
    worst = float((OF.a[:, None] * OF.b * squared_distances(OF.x, OF.y)).sum())
    assert linear(plan, OF) < 0.6 * worst


def test_distortions_are_in_pot_s_units() -> None:
    q, r, g, log = GROMOV(OF.x, OF.y, OF.a, OF.b, rank=4, log=True)
    plan = q / g @ r.T
    scales = [np.sqrt(1 / largest_of_factors(z, z)) for z in (OF.x, OF.y)]
    scaled = OF._replace(x=OF.x * scales[0], y=OF.y * scales[1])
    assert float(log["value_quad"]) == pytest.approx(distortion(plan, scaled))
    x, y = OF.x, OF.y
    factors = (
        np.column_stack([np.square(x).sum(1), np.ones(30), -2 * x]),
        np.column_stack([np.ones(30), np.square(x).sum(1), x]),
    )
    given = GROMOV(x, y, OF.a, OF.b, rank=4, cost_factorized_Xs=factors, rescale_cost=False, log=True)
    assert float(given[3]["value"]) == pytest.approx(distortion(given[0] / given[2] @ given[1].T, OF))


@BOTH
def test_entropies_and_tensors(function: Any) -> None:
    x, y = torch.from_numpy(OF.x).requires_grad_(), torch.from_numpy(OF.y)
    q, r, g, log = function(x, y, rank=3, reg=0.05, log=True)
    linear_name = "value_linear" if function is LINEAR else "value_quad"
    entropies = sum(float(torch.xlogy(t, t).sum()) for t in (q.detach(), r.detach(), g.detach()))
    assert float(log["value"]) == pytest.approx(float(log[linear_name]) + 0.05 * entropies)
    (gradient,) = torch.autograd.grad(log["value"], x)
    assert bool(gradient.isfinite().all()) and float(gradient.abs().max()) > 0


@BOTH
def test_ranks_and_warnings(function: Any) -> None:
    q, _, _ = function(OF.x[:5], OF.y[:4])
    assert q.shape == (5, 4)
    assert function(OF.x[:5], OF.y[:4], rank=9)[0].shape == (5, 4)
    single = function(OF.x.astype(np.float32), OF.y.astype(np.float32), rank=2)
    assert single[0].dtype == np.float32
    if function is GROMOV:
        with pytest.warns(UserWarning, match="Low Rank GW did not converge"):
            function(OF.x, OF.y, rank=4, numItermax=2)
