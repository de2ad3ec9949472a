"""Costs divided by their size: points, costs and functions alike, without a gradient of the size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.python.transport.gromov import solve_exact, solve_sampled
from warpalign import GromovTransport
from warpalign._transport import costs as costs_module
from warpalign.transport import SinkhornDivergence, sinkhorn, sinkhorn_divergence

FUNCTIONS: dict[str, Any] = {
    "sqeuclidean": lambda x, y: (x[:, :, None] - y[:, None]).square().sum(-1),
    "euclidean": lambda x, y: (x[:, :, None] - y[:, None]).norm(dim=-1),
    "l1": lambda x, y: (x[:, :, None] - y[:, None]).abs().sum(-1),
}
OPTIONS: dict[str, Any] = {"epsilon": 0.1, "max_iter": 30, "tol": 0.0, "rho_a": 0.5}


@pytest.fixture(params=[1 << 22, 20], ids=["one block", "a row a block"])
def blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs_module, "_MOST_ENTRIES", request.param)


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("scale", ["max", "mean"])
@pytest.mark.parametrize("cost", FUNCTIONS)
def test_costs_are_divided(cost: str, scale: Any, device: torch.device) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 7, 3, dtype=torch.float64, generator=generator).to(device)
    y = torch.randn(2, 9, 3, dtype=torch.float64, generator=generator).to(device)
    n = torch.tensor([5, 7], device=device)
    table = FUNCTIONS[cost](x, y)
    of_pair = [c[:k] for c, k in zip(table, (5, 7), strict=True)]
    size = torch.stack([c.max() if scale == "max" else c.mean() for c in of_pair])
    expected = sinkhorn(cost_matrix=table / size[:, None, None], x_lengths=n, **OPTIONS)
    forms: list[dict[str, Any]] = [
        {"x": x, "y": y, "cost": cost},
        {"x": x, "y": y, "cost": FUNCTIONS[cost]},
        {"cost_matrix": table},
    ]
    for form in forms:
        got = sinkhorn(**form, cost_normalization=scale, x_lengths=n, **OPTIONS)
        torch.testing.assert_close(got.value, expected.value, rtol=1e-10, atol=0)
        torch.testing.assert_close(got.plan.to_dense(), expected.plan.to_dense(), rtol=1e-9, atol=1e-15)


def test_infinite_costs_and_costs_of_zero_have_no_part(device: torch.device) -> None:
    table = torch.tensor([[1.0, torch.inf], [4.0, 3.0]], device=device)
    got = sinkhorn(cost_matrix=table, cost_normalization="max", **OPTIONS)
    torch.testing.assert_close(got.value, sinkhorn(cost_matrix=table / 4, **OPTIONS).value)
    nothing = torch.zeros(3, 4, device=device)
    assert float(
        sinkhorn(cost_matrix=nothing, cost_normalization="mean", epsilon=0.1).value
    ) == pytest.approx(0, abs=1e-7)


def test_the_size_is_a_constant(device: torch.device) -> None:
    x = torch.randn(6, 2, dtype=torch.float64, device=device).requires_grad_()
    y = torch.randn(5, 2, dtype=torch.float64, device=device)
    size = FUNCTIONS["sqeuclidean"](x[None], y[None]).max().item()
    (got,) = torch.autograd.grad(sinkhorn(x, y, cost_normalization="max", **OPTIONS).value, x)
    (expected,) = torch.autograd.grad(sinkhorn(x, y, cost_scale=1 / size, **OPTIONS).value, x)
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-12)


def test_under_vmap_and_compile(device: torch.device) -> None:
    x, y = torch.randn(3, 6, 2, device=device), torch.randn(3, 5, 2, device=device)

    def value(x: Tensor, y: Tensor) -> Tensor:
        return sinkhorn(x, y, cost_normalization="mean", **OPTIONS).value

    expected = value(x, y)
    torch.testing.assert_close(torch.func.vmap(value)(x, y), expected)
    compiled = torch.compile(value, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, y), expected)


SIDES = {
    "max": lambda cx, cy: (cx.max(), cy.max()),
    "mean": lambda cx, cy: (cx.mean(), cy.mean()),
    "common": lambda cx, cy: (torch.maximum(cx.max(), cy.max()),) * 2,
}


@pytest.mark.parametrize("normalization", ["max", "mean"])
@pytest.mark.parametrize("cost", FUNCTIONS)
def test_a_divergence_has_one_divisor(cost: str, normalization: Any, device: torch.device) -> None:
    """Of the costs between x and y, for the problems between each set and itself too."""
    x = torch.randn(2, 7, 3, dtype=torch.float64, device=device)
    y = 2 * torch.randn(2, 9, 3, dtype=torch.float64, device=device)
    table = FUNCTIONS[cost](x, y)
    size = table.amax((1, 2)) if normalization == "max" else table.mean((1, 2))
    options: dict[str, Any] = {"epsilon": 0.1, "max_iter": 30, "tol": 0.0, "rho": 0.5}
    expected = [
        sinkhorn_divergence(x[k], y[k], cost=cost, cost_scale=1 / float(size[k]), **options) for k in range(2)
    ]
    for form in (cost, FUNCTIONS[cost]):
        got = sinkhorn_divergence(x, y, cost=form, cost_normalization=normalization, **options)
        torch.testing.assert_close(got, torch.stack(expected), rtol=1e-9, atol=1e-12)
    module = SinkhornDivergence(
        0.1, cost=cost, cost_normalization=normalization, max_iter=30, tol=0.0, rho=0.5
    )
    torch.testing.assert_close(module(x, y), torch.stack(expected), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("normalization", SIDES)
def test_distances_of_both_sides_are_divided(normalization: Any, device: torch.device) -> None:
    """Of fewer than 500 points the sampled solver finds the sizes of all distances."""
    generator = torch.Generator().manual_seed(0)
    x, y = (
        k * torch.rand(n, 2, generator=generator, dtype=torch.float64).to(device) for k, n in ((3, 9), (2, 7))
    )
    cx, cy = torch.cdist(x, x), torch.cdist(y, y)
    of_x, of_y = SIDES[normalization](cx, cy)
    for solve in (solve_exact, solve_sampled):
        options: dict[str, Any] = {"epsilon": 0.05, "max_iter": 12}
        got = solve(distances=(cx, cy), cost_normalization=normalization, **options).plan
        expected = solve(distances=(cx / of_x, cy / of_y), cost_normalization=None, **options).plan
        # The mixing of last iterations amplifies rounding.
        torch.testing.assert_close(got.to_dense(), expected.to_dense(), rtol=2e-3, atol=1e-6)


def test_a_common_divisor_tells_sizes_apart() -> None:
    """Parts of the larger set match the small set better than the whole larger set does."""
    large = torch.linspace(0, 4, 40, dtype=torch.float64)[:, None]
    small = torch.linspace(0, 1, 10, dtype=torch.float64)[:, None]
    for solve in (solve_exact, solve_sampled):
        spans = []
        for normalization in ("max", "common"):
            plan = solve(
                small, large, mass=0.2, epsilon=1e-3, cost_normalization=normalization, max_iter=100
            ).plan
            used = plan.marginal(0) > 1e-2 * plan.marginal(0).max()
            spans.append(float(large[used].max() - large[used].min()))
        assert spans[1] < spans[0], solve


def test_the_estimator_normalises_as_the_function_does() -> None:
    xs, xt = np.random.default_rng(0).normal(size=(2, 20, 2))
    xt *= 3
    for normalization in (None, *SIDES):
        got = GromovTransport(0.05, cost_normalization=normalization, max_iter=20).fit(xs, Xt=xt).plan_
        expected = solve_exact(
            torch.tensor(xs), torch.tensor(xt), epsilon=0.05, cost_normalization=normalization, max_iter=20
        ).plan
        torch.testing.assert_close(
            got.to_dense(), expected.to_dense(), rtol=2e-3, atol=1e-6
        )  # mixing amplifies rounding
