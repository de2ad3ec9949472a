"""Costs divided by their size: points, costs and functions alike, without a gradient of the size."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from warpalign._transport import costs as costs_module
from warpalign.transport import sinkhorn

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
        got = sinkhorn(**form, scale=scale, x_lengths=n, **OPTIONS)
        torch.testing.assert_close(got.value, expected.value, rtol=1e-10, atol=0)
        torch.testing.assert_close(got.plan.to_dense(), expected.plan.to_dense(), rtol=1e-9, atol=1e-15)


def test_infinite_costs_and_costs_of_zero_have_no_part(device: torch.device) -> None:
    table = torch.tensor([[1.0, torch.inf], [4.0, 3.0]], device=device)
    got = sinkhorn(cost_matrix=table, scale="max", **OPTIONS)
    torch.testing.assert_close(got.value, sinkhorn(cost_matrix=table / 4, **OPTIONS).value)
    nothing = torch.zeros(3, 4, device=device)
    assert float(sinkhorn(cost_matrix=nothing, scale="mean", epsilon=0.1).value) == pytest.approx(0, abs=1e-7)


def test_the_size_is_a_constant(device: torch.device) -> None:
    x = torch.randn(6, 2, dtype=torch.float64, device=device).requires_grad_()
    y = torch.randn(5, 2, dtype=torch.float64, device=device)
    size = FUNCTIONS["sqeuclidean"](x[None], y[None]).max().item()
    (got,) = torch.autograd.grad(sinkhorn(x, y, scale="max", **OPTIONS).value, x)
    (expected,) = torch.autograd.grad(sinkhorn(x, y, cost_scale=1 / size, **OPTIONS).value, x)
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-12)


def test_under_vmap_and_compile(device: torch.device) -> None:
    x, y = torch.randn(3, 6, 2, device=device), torch.randn(3, 5, 2, device=device)

    def value(x: Tensor, y: Tensor) -> Tensor:
        return sinkhorn(x, y, scale="mean", **OPTIONS).value

    expected = value(x, y)
    torch.testing.assert_close(torch.func.vmap(value)(x, y), expected)
    compiled = torch.compile(value, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, y), expected)
