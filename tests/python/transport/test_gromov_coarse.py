"""Gromov-Wasserstein transport from coarse problems, and calls at the edge of what it can solve."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.python.transport import pot_gromov
from tests.python.transport.clouds import spiral, swiss_roll
from tests.python.transport.gromov import solve_exact, solve_sampled
from tests.python.transport.test_gromov import geodesics
from warpalign._transport.gromov_solver import Objective
from warpalign._transport.mixing import Mixing
from warpalign.transport import (
    Geodesic,
    TransportPlan,
    sinkhorn,
)


def test_a_coarse_start_is_no_worse() -> None:
    """Of the spiral and the roll, whose coarse problem has half of the points."""
    tables = geodesics(spiral(400, 0)).float(), geodesics(swiss_roll(500, 1)).float()
    truth = Objective(tables[0][None], tables[1][None], True, None, 0.0)

    def distortion(plan: TransportPlan) -> float:
        return float(truth.distortion(plan.to_dense()[None]))

    plain = solve_exact(distances=tables)
    coarse = solve_exact(distances=tables, init="multiscale")
    assert bool(coarse.converged)
    assert float(coarse.value) <= 1.001 * float(plain.value)
    options: dict[str, Any] = {"distances": tables, "generator": 1}
    sampled = solve_sampled(**options, init="multiscale", restarts=2)
    assert distortion(sampled.plan) <= 1.02 * distortion(solve_sampled(**options).plan)
    again = solve_sampled(**options, init="multiscale", restarts=2)
    assert torch.equal(again.plan.f, sampled.plan.f)


KINDS: dict[str, dict[str, Any]] = {
    "balanced": {},
    "relaxed": {"rho_a": 0.5, "rho_b": 0.0},
    "partial": {"mass": 0.6},
    "fused": {"feature_weight": 0.4},
}


@pytest.mark.parametrize("kind", KINDS)
def test_coarse_starts_of_a_batch(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve of 23 and 19 points stand for all; one problem has points of weight 0."""
    monkeypatch.setattr("warpalign._transport.gromov_coarse._POINTS", 12)
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.rand(2, n, 2, generator=generator, dtype=torch.float64) for n in (23, 19))
    a = torch.rand(2, 23, generator=generator, dtype=torch.float64) + 0.1
    a[1, :15] = 0
    a = a / a.sum(1, keepdim=True)
    options: dict[str, Any] = {"epsilon": 0.02, "init": "multiscale", "feature_weight": 0.0} | KINDS[kind]
    features = torch.rand(2, 23, 19, generator=generator, dtype=torch.float64)
    together = solve_exact(x, y, a=a, feature_cost=features, **options).plan.to_dense()
    assert bool(together.isfinite().all()) and float(together[1, :15].abs().max()) == 0
    for k in range(2):
        alone = solve_exact(x[k], y[k], a=a[k], feature_cost=features[k], **options).plan.to_dense()
        torch.testing.assert_close(together[k], alone, rtol=1e-9, atol=1e-12)
        sampled = solve_sampled(x[k], y[k], a=a[k], feature_cost=features[k], max_iter=10, **options)
        assert bool(sampled.plan.to_dense().isfinite().all())


def test_a_start_of_all_points_is_the_answer() -> None:
    """Drawn points in another order stand for themselves."""
    x, y = spiral(60, 0).double(), swiss_roll(50, 1).double()
    options: dict[str, Any] = {"epsilon": 0.01, "tol": 1e-8, "max_iter": 300}
    plain = solve_exact(x, y, **options)
    coarse = solve_exact(x, y, init="multiscale", **options)
    assert bool(plain.converged) and bool(coarse.converged)
    torch.testing.assert_close(coarse.plan.to_dense(), plain.plan.to_dense(), rtol=0, atol=1e-5)


def test_mixing_finds_a_limit_and_does_not_run_away() -> None:
    limit, modes = torch.rand(1, 40).double(), torch.rand(3, 40).double()
    basis = torch.linalg.qr(modes.T).Q
    shrunk = basis @ torch.diag(torch.tensor([0.99, 0.9, 0.5]).double()) @ basis.T
    mixing = Mixing(limit + modes.sum(0))
    for _ in range(6):
        mixing.next(lambda point: (limit + (point - limit) @ shrunk, ()))
    torch.testing.assert_close(mixing.found[0], limit, rtol=1e-5, atol=1e-5)
    # Potentials of sums that cannot be met grow without end, by the same step but for rounding.
    points = [torch.rand(1, 40)]
    along = points[0] / 10

    def endless(point: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        points.append(point)
        return point + along, ()

    mixing = Mixing(points[0])
    for _ in range(7):
        mixing.next(endless)
    assert float((points[-1] - (points[-2] + along)).abs().max()) <= 20 * 0.5


def test_weight_0_forbids_nothing() -> None:
    x, y = spiral(20, 0), swiss_roll(25, 1)
    features = torch.rand(20, 25)
    features[0, 0] = torch.inf
    plain = solve_exact(x, y).plan.to_dense()
    for init in ("eccentricity", "product", "multiscale"):
        options: Any = {"feature_cost": features, "feature_weight": 0.0, "init": init}
        with_features = solve_exact(x, y, **options)
        assert bool(with_features.value.isfinite())
        if init == "eccentricity":
            assert torch.equal(with_features.plan.to_dense(), plain)
    forbidden = solve_exact(x, y, feature_cost=features, feature_weight=0.1, restarts=2)
    assert float(forbidden.plan.to_dense()[0, 0]) == 0 and bool(forbidden.value.isfinite())


def test_one_infinite_distance_is_refused_with_its_problem() -> None:
    tables = [torch.rand(2, n, n, dtype=torch.float64) for n in (6, 7)]
    tables = [t + t.mT for t in tables]
    tables[0][1, 0, 1] = tables[0][1, 1, 0] = torch.inf
    with pytest.raises(
        ValueError, match="infinite ones between connected points in problem 1: write shortest_paths"
    ):
        solve_exact(distances=(tables[0], tables[1]), epsilon=0.1)


def test_two_anchors_of_five_points_keep_the_sums() -> None:
    """POT's test of its sampled solver has these points, two samples, epsilon 1 and 20 steps."""
    cx, cy = (torch.from_numpy(c) for c in pot_gromov.gauss(5, 42))
    plan = solve_sampled(distances=(cx, cy), n_anchors=2, epsilon=1.0, max_iter=20, generator=42).plan
    assert float((plan.marginal(1) - 0.2).abs().max()) <= 1e-4
    assert float((plan.marginal(0) - 0.2).abs().max()) <= 1e-4


def sums_off(plan: Tensor, given: Tensor, axis: int) -> float:
    return float(((plan.sum(axis) - given) / given.clamp(min=1e-3)).abs().max())


def test_random_calls() -> None:
    """Sums, mass and zero weights hold for any options and odd sizes."""
    for seed in range(40):
        draw = random.Random(seed)
        generator = torch.Generator().manual_seed(seed)
        dtype = draw.choice([torch.float64, torch.float32])
        n, m = (draw.choice([1, 2, 3, 9, 17, 33]) for _ in range(2))
        x, y = (torch.randn(s, draw.randint(1, 3), generator=generator, dtype=dtype) for s in (n, m))
        weights = [torch.rand(s, generator=generator, dtype=dtype) + 0.1 for s in (n, m)]
        for w in weights:
            w[1:] *= torch.rand(len(w) - 1, generator=generator) > 0.3
        a, b = (w / w.sum() for w in weights)
        sides = draw.choice(["balanced", "relaxed", "partial"])
        options: dict[str, Any] = {
            "geometry": draw.choice(
                [
                    *("euclidean", "sqeuclidean"),
                    *(Geodesic(k=draw.randint(1, 5), n_landmarks=count) for count in (None, 50)),
                ]
            ),
            "cost_normalization": draw.choice(["max", "mean", "common"]),
            "epsilon": draw.choice([1e-3, 1e-2, 1.0]),
            "annealing": draw.choice([None, 0.1]),
            "init": draw.choice(["eccentricity", "multiscale"]),
            "max_iter": draw.choice([1, 15]),
            "generator": seed,
        }
        if sides == "relaxed":
            options |= {"rho_a": draw.choice([None, 0.1]), "rho_b": draw.choice([0.0, 1.0])}
        if sides == "partial":
            options["mass"] = draw.uniform(0.1, 0.9)
        if draw.random() < 0.5:
            plan = solve_sampled(x, y, a=a, b=b, n_anchors=draw.choice([1, 40]), **options).plan.to_dense()
        else:
            result = solve_exact(x, y, a=a, b=b, step=draw.choice([1.0, 0.5]), **options)
            plan = result.plan.to_dense()
            assert bool(result.value.isfinite()), seed
        assert bool(plan.isfinite().all()) and float(plan.min()) >= 0, seed
        assert float(plan[a == 0].sum()) == 0 and float(plan[:, b == 0].sum()) == 0, seed
        if sides == "partial":
            assert float(plan.sum()) == pytest.approx(options["mass"], rel=1e-3), seed
        elif options.get("rho_a") is None:
            assert sums_off(plan, a, 1) <= 5e-3, seed


def test_partial_mass_at_costs_far_above_epsilon() -> None:
    """A constant on all costs changes the value alone, however large it is."""
    cost = torch.rand(9, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    given: dict[str, Any] = {"epsilon": 1e-3, "mass": 0.6, "max_iter": 5000, "tol": 1e-9}
    low = sinkhorn(cost_matrix=cost, **given)
    for constant in (1.0, 50.0):
        for updates in ("alternating", "symmetric"):
            high = sinkhorn(cost_matrix=cost + constant, updates=updates, **given)
            torch.testing.assert_close(high.plan.to_dense(), low.plan.to_dense(), rtol=1e-4, atol=1e-7)
            assert float(high.value) == pytest.approx(float(low.value) + 0.6 * constant, rel=1e-6)
