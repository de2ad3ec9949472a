"""sinkhorn_divergence and its module."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.python.helpers import randn
from tests.python.transport import reference
from tests.python.transport.gradchecks import gradcheck, gradgradcheck, one_on_cuda
from tests.python.transport.test_autograd import EXACT, problem
from tests.python.transport.test_values import weights
from warpalign.transport import SinkhornDivergence, sinkhorn, sinkhorn_divergence

RHOS = (None, 0.8)


@pytest.mark.parametrize("rho", RHOS)
def test_it_is_the_three_values_of_its_definition(rho: float | None, device: torch.device) -> None:
    x, y = (randn(n, 3, seed=n, dtype=torch.float64) for n in (12, 9))
    a, b = weights(12, 3, dtype=torch.float64), weights(9, 4, dtype=torch.float64)
    if rho is not None:
        a = 1.7 * a

    def value(p: Tensor, q: Tensor, u: Tensor, v: Tensor) -> float:
        table = reference.costs(p, q, "sqeuclidean") / 2
        return float(reference.solve(table, u, v, 0.5, rho_a=rho, rho_b=rho).value)

    expected = value(x, y, a, b) - (value(x, x, a, a) + value(y, y, b, b)) / 2
    if rho is not None:
        expected += 0.5 / 2 * float(a.sum() - b.sum()) ** 2
    given: dict[str, Any] = {
        "a": a.to(device),
        "b": b.to(device),
        "epsilon": 0.5,
        "cost_scale": 0.5,
        "rho": rho,
    }
    got = sinkhorn_divergence(x.to(device), y.to(device), tol=1e-12, **given)
    assert float(got) == pytest.approx(expected, rel=1e-9)
    biased = sinkhorn_divergence(x.to(device), y.to(device), debias=False, tol=1e-12, **given)
    assert float(biased) == pytest.approx(value(x, y, a, b), rel=1e-9)


@pytest.mark.parametrize("rho", RHOS)
@pytest.mark.parametrize("cost", ["sqeuclidean", "euclidean", "l1"])
def test_it_is_zero_for_equal_sets_and_positive_else(
    cost: Any, rho: float | None, device: torch.device
) -> None:
    x = randn(4, 20, 2, seed=1, device=device)
    y = x + 0.3 * randn(4, 20, 2, seed=2, device=device)
    options: dict[str, Any] = {"epsilon": 0.1, "cost": cost, "rho": rho}
    assert not sinkhorn_divergence(x, x.clone(), **options).any()
    shuffled = x[:, torch.randperm(20, device=device)]
    # Sums in another order: float32's rounding of values of some 0.1.
    assert float(sinkhorn_divergence(x, shuffled, **options).abs().max()) < 1e-6
    there, back = sinkhorn_divergence(x, y, **options), sinkhorn_divergence(y, x, **options)
    assert bool((there > 1e-3).all())
    torch.testing.assert_close(there, back, rtol=1e-4, atol=1e-6)


@one_on_cuda("rho", RHOS)
def test_gradients(rho: float | None, device: torch.device) -> None:
    of = problem(device)

    def value(x: Tensor, y: Tensor, a: Tensor, epsilon: Tensor) -> Tensor:
        if rho is None:
            a = a / a.sum(1, keepdim=True)
        return sinkhorn_divergence(
            x, y, a=a, epsilon=epsilon, rho=rho, x_lengths=[5, 3] if rho else None, **EXACT
        )

    inputs = (of["x"], of["y"], of["a"], of["epsilon"])
    assert gradcheck(value, inputs)
    assert gradgradcheck(value, inputs)


def test_the_gradient_is_zero_where_sets_are_equal(device: torch.device) -> None:
    x = randn(20, 2, seed=1, device=device, dtype=torch.float64, grad=True)
    (grad,) = torch.autograd.grad(sinkhorn_divergence(x, x.detach().clone(), epsilon=0.5, tol=1e-12), x)
    assert float(grad.abs().max()) < 1e-9


def test_a_function_as_cost(device: torch.device) -> None:
    x, y = randn(2, 6, 3, seed=1, device=device), randn(1, 5, 3, seed=2, device=device)
    x[1, 4:] = torch.nan

    def squares(p: Tensor, q: Tensor) -> Tensor:
        return (p[:, :, None] - q[:, None]).square().sum(-1)

    options: dict[str, Any] = {"epsilon": 0.5, "x_lengths": [6, 4]}
    torch.testing.assert_close(
        sinkhorn_divergence(x, y, cost=squares, **options), sinkhorn_divergence(x, y, **options)
    )


def test_module(device: torch.device) -> None:
    x, y = randn(3, 6, 2, seed=1, device=device), randn(3, 5, 2, seed=2, device=device)
    a = weights(6, 3).to(device).expand(3, -1)
    loss = SinkhornDivergence(0.5, rho=1.0, reduction="mean", cost="l1").to(device)
    expected = sinkhorn_divergence(x, y, a=a, epsilon=0.5, rho=1.0, cost="l1").mean()
    assert torch.equal(loss(x, y, a), expected)
    assert repr(loss) == "SinkhornDivergence(epsilon=0.5, cost='l1', reduction='mean', rho=1.0)"
    tensor = SinkhornDivergence(torch.tensor([0.5, 0.7, 0.9]), reduction="sum").to(device)
    assert list(tensor.state_dict()) == ["epsilon"]
    assert torch.equal(tensor(x, y), sinkhorn_divergence(x, y, epsilon=tensor.epsilon).sum())
    own = sinkhorn(x, y, epsilon=0.5, updates="mixed").value
    assert torch.equal(SinkhornDivergence(0.5, debias=False)(x, y), own)


def test_compile_and_vmap(device: torch.device) -> None:
    x, y = randn(3, 6, 2, seed=1, device=device), randn(3, 5, 2, seed=2, device=device)
    loss = SinkhornDivergence(0.5, rho=1.0)
    torch._dynamo.reset()
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, y), loss(x, y))
    torch.testing.assert_close(torch.func.vmap(loss)(x, y), loss(x, y))
