"""gromov_wasserstein_sampled: quality, seeds, and what no table of costs changes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.python.transport.clouds import spiral, swiss_roll
from tests.python.transport.test_gromov import geodesics
from warpalign._transport import gromov_anchors
from warpalign._transport.gromov_solver import Objective
from warpalign.transport import gromov_wasserstein_sampled, knn_graph


@pytest.mark.parametrize("seed", range(3))
def test_spiral_and_swiss_roll(seed: int) -> None:
    """The exact gradient's distortion is 1.6e-3 at this epsilon; a mirrored matching has four times that."""
    x, y = spiral(400, 0), swiss_roll(500, 1)
    result = gromov_wasserstein_sampled(graphs=(knn_graph(x, 5), knn_graph(y, 5)), seed=seed)
    assert result.converged and result.iterations < 60
    plan = result.plan.dense()
    cx, cy = (geodesics(z).float()[None] for z in (x, y))
    distortion = float(Objective(cx, cy, True, None, 0.0).distortion(plan[None]))
    assert distortion <= 2.0e-3
    # The largest distance from 500 points is that of all points here; the estimate's own deviation is 4 %.
    assert abs(float(result.estimate) - distortion) <= 5 * float(result.estimate_std)
    assert float(result.estimate_std) <= 0.1 * distortion
    places = result.plan.barycentric_map(torch.arange(500.0)[:, None])[:, 0]
    ranks = places.argsort().argsort().float()
    assert float(torch.corrcoef(torch.stack([ranks, torch.arange(400.0)]))[0, 1]) >= 0.998
    assert float((result.plan.marginal(1) * 400 - 1).abs().max()) <= 1e-3
    assert float((result.plan.marginal(0) * 500 - 1).abs().max()) <= 1e-2


def test_the_seed_alone_decides(device: torch.device) -> None:
    x, y = spiral(60, 0).to(device), swiss_roll(70, 1).to(device)
    one, again, other = (
        gromov_wasserstein_sampled(x, y, seed=seed, max_iter=30).plan.dense() for seed in (1, 1, 2)
    )
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


OPTIONS: dict[str, dict[str, Any]] = {
    "balanced": {},
    "one whole step": {"step": 1.0},
    "fused": {"features": (torch.rand(50, 2).double(), torch.rand(60, 2).double()), "feature_weight": 0.3},
    "semi-relaxed": {"rho_b": 0.0},
    "unbalanced": {"rho_a": 0.5, "rho_b": 0.5},
    "partial": {"mass": 0.6},
}


@pytest.mark.parametrize("kind", OPTIONS)
def test_a_stored_table_of_costs_changes_nothing(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = spiral(50, 0).double(), swiss_roll(60, 1).double()
    options: dict[str, Any] = {"epsilon": 0.01, "epsilon_start": 0.02, "max_iter": 12, "n_anchors": 20}
    stored = gromov_wasserstein_sampled(x, y, **options | OPTIONS[kind])
    monkeypatch.setattr(gromov_anchors, "_STORED_ENTRIES", 0)
    made = gromov_wasserstein_sampled(x, y, **options | OPTIONS[kind])
    torch.testing.assert_close(made.plan.dense(), stored.plan.dense(), rtol=1e-6, atol=1e-12)
    torch.testing.assert_close(made.history, stored.history, rtol=1e-6, atol=1e-12)
    mass = float(made.plan.mass())
    assert mass == pytest.approx(OPTIONS[kind].get("mass", 1.0), rel=1e-4) or kind == "unbalanced"
    if kind in ("balanced", "semi-relaxed"):
        assert float((made.plan.marginal(1) * 50 - 1).abs().max()) < 1e-6


def test_features_decide_where_distances_do_not() -> None:
    """Points on a circle have any rotation for a match; features choose one."""
    angles = torch.arange(40) * (2 * torch.pi / 40)
    x = torch.stack([angles.cos(), angles.sin()], 1)
    label = (torch.arange(40) / 40)[:, None]
    order = torch.randperm(40)
    result = gromov_wasserstein_sampled(
        x, x[order], features=(label, label[order]), feature_weight=0.5, epsilon=2e-3
    )
    assert torch.equal(order[result.plan.argmax()], torch.arange(40))


def test_geometries_and_few_points() -> None:
    x, y = spiral(30, 0), swiss_roll(25, 1)
    distances = (torch.cdist(x, x), torch.cdist(y, y))
    for options in ({"distances": distances}, {"x": x, "y": y, "geometry": "geodesic", "k": 4}):
        assert gromov_wasserstein_sampled(**options, max_iter=10).plan.shape == (30, 25)  # type: ignore[arg-type]
    one = torch.zeros(1, 2)
    assert gromov_wasserstein_sampled(one, one).plan.dense().tolist() == [[1.0]]
