"""joint_embedding: canonical correlations, graphs, and several sets."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from warpalign.transport import ConvergenceWarning, joint_embedding, knn_graph, sinkhorn


def views(seed: int, count: int = 120) -> tuple[Tensor, Tensor, Tensor]:
    """Two sets with three latent features in common and noise in others, and the order of the second one."""
    generator = torch.Generator().manual_seed(seed)
    latent = torch.randn(count, 3, generator=generator).double()
    noise = [0.3 * torch.randn(count, d, generator=generator).double() for d in (6, 5)]
    mixing = [torch.randn(3, d, generator=generator).double() for d in (6, 5)]
    x, y = (latent @ m + e for m, e in zip(mixing, noise, strict=True))
    order = torch.randperm(count, generator=generator)
    return x, y[order], order


def matching(order: Tensor) -> Tensor:
    plan = torch.zeros(len(order), len(order), dtype=torch.float64)
    plan[order, torch.arange(len(order))] = 1 / len(order)
    return plan


def test_canonical_correlations() -> None:
    x, y, order = views(0)
    both = joint_embedding({"x": x, "y": y}, {"y": matching(order)}, anchor="x", dim=4)
    assert both["x"].shape == both["y"].shape == (120, 4)
    roots = [torch.linalg.qr(z - z.mean(0))[0] for z in (x[order], y)]
    expected = torch.linalg.svdvals(roots[0].T @ roots[1])[:4]
    found = both["x"][order].T @ both["y"] / 120
    torch.testing.assert_close(found, torch.diag(expected), rtol=1e-6, atol=1e-7)
    for z in both.values():
        torch.testing.assert_close(z.T @ z / 120, torch.eye(4, dtype=torch.float64), rtol=0, atol=1e-6)
    assert float(expected[2]) > 0.9


def test_scales_and_the_order_of_points_change_nothing() -> None:
    x, y, order = views(1)
    first = joint_embedding({"x": x, "y": y}, {"y": matching(order)}, anchor="x", dim=3)
    again = joint_embedding(
        {"x": 1e3 * x.flip(0), "y": 7 + y}, {"y": 5 * matching(order).flip(0)}, anchor="x", dim=3
    )
    torch.testing.assert_close(again["x"].flip(0), first["x"], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(again["y"], first["y"], rtol=1e-6, atol=1e-6)


def test_graphs_prefer_what_changes_little_along_edges() -> None:
    """A coordinate without noise is preferred to one with it, unless neighbours differ in it."""
    generator = torch.Generator().manual_seed(0)
    along = torch.linspace(0, 10, 120).double()
    rough, noise = torch.randn(2, 120, generator=generator).double()
    x, y = torch.stack([along, 0.1 * rough], 1), torch.stack([along + 0.5 * noise, 0.1 * rough], 1)
    graphs = {"x": knn_graph(x, 6), "y": knn_graph(y, 6)}
    identity = matching(torch.arange(120))

    def first(**options: Any) -> Tensor:
        return joint_embedding({"x": x, "y": y}, {"y": identity}, anchor="x", dim=1, **options)["x"][:, 0]

    def correlation(z: Tensor, other: Tensor) -> float:
        return abs(float(torch.corrcoef(torch.stack([z, other]))[0, 1]))

    assert correlation(first(), rough) > 0.95
    assert correlation(first(graphs=graphs, reg=10.0), along) > 0.95
    torch.testing.assert_close(first(graphs=graphs, reg=0.0), first())


def test_three_sets_and_lazy_plans() -> None:
    x, y, order = views(3)
    z = x.flip(0).float()
    costs = torch.ones(120, 120, dtype=torch.float64)
    costs[order, torch.arange(120)] = 0
    plan = sinkhorn(cost_matrix=costs, epsilon=0.02).plan
    sets = joint_embedding(
        {"a": y, "b": x, "c": z}, {"a": plan, "c": torch.eye(120).flip(0)}, anchor="b", dim=3
    )
    for name, mine in (("a", sets["b"][order]), ("c", sets["b"].flip(0))):
        for column in range(3):
            pair = torch.stack([mine[:, column], sets[name][:, column]])
            assert float(torch.corrcoef(pair)[0, 1]) > 0.9, name


def test_a_plan_that_is_not_finite_is_refused() -> None:
    x, y, _ = views(4)
    costs = torch.full((len(x), len(y)), torch.nan, dtype=torch.float64)
    with pytest.warns(ConvergenceWarning):
        plan = sinkhorn(cost_matrix=costs, epsilon=1.0).plan
    for given in (plan, torch.zeros(len(x), len(y))):
        with pytest.raises(
            ValueError, match="plans\\['y'\\]: expected finite numbers with a sum > 0, got the sum (nan|0):"
        ):
            joint_embedding({"x": x, "y": y}, {"y": given}, anchor="x")
