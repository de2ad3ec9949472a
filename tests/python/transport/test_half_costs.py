"""storage="half" is the problem of the rounded costs: the same bits on a CPU, and gradients through the rounding."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.python.helpers import assert_tensors_equal, randn
from warpalign._transport.storage import with_even_rows
from warpalign.transport import SinkhornResult, sinkhorn

OPTIONS: dict[str, Any] = {"epsilon": 0.2, "rho_b": 1.5, "max_iter": 20, "tol": 0.0}


def table(*shape: int, seed: int = 1) -> Tensor:
    """Costs that float16 does not have, with a forbidden pair."""
    costs = randn(*shape, seed=seed).square()
    costs[..., 0, 1] = torch.inf
    return costs


def read_off(result: SinkhornResult, columns: Tensor) -> tuple[Tensor, ...]:
    plan = result.plan
    rows = plan.rows([0, 2])
    return (*result[:4], plan.to_dense(), plan.apply(columns), plan.topk(2).values, plan.T.argmax(0), rows)


@pytest.mark.parametrize("shape", [(2, 9, 14), (1, 6, 7)])
def test_everything_is_that_of_the_rounded_costs(shape: tuple[int, int, int], device: torch.device) -> None:
    costs = table(*shape).to(device)
    columns = randn(shape[0], shape[2], 3, seed=2).to(device)
    half = costs.half()
    expected = read_off(sinkhorn(cost_matrix=half.float(), **OPTIONS), columns)
    for given in (costs, half, half.mT.contiguous().mT, costs.bfloat16().float().bfloat16()):
        got = read_off(sinkhorn(cost_matrix=given, storage="half", **OPTIONS), columns)
        wanted = expected
        if given.dtype == torch.bfloat16:
            wanted = read_off(sinkhorn(cost_matrix=given.half().float(), **OPTIONS), columns)
        if device.type == "cpu":
            assert_tensors_equal(got, wanted)
        for one, other in zip(got, wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_derivatives_pass_through_the_rounding(device: torch.device) -> None:
    def derivatives(costs: Tensor, **storage: Any) -> tuple[Tensor, ...]:
        costs = costs.to(device).requires_grad_()
        found = sinkhorn(cost_matrix=costs, **OPTIONS, **storage)
        (of_value,) = torch.autograd.grad(found.value.sum(), costs, create_graph=True)
        (second,) = torch.autograd.grad(of_value[0, 1].square().sum(), costs, retain_graph=True)
        (of_f,) = torch.autograd.grad(found.f.square().sum(), costs, retain_graph=True)
        (of_plan,) = torch.autograd.grad(found.plan.marginal(0).square().sum(), costs)
        return of_value.detach(), second, of_f, of_plan

    costs = randn(2, 5, 7, seed=3).square()
    got, expected = derivatives(costs.clone(), storage="half"), derivatives(costs.half().float())
    for one, other in zip(got, expected, strict=True):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_costs_are_not_written_to(dtype: torch.dtype, device: torch.device) -> None:
    """A GPU reads a copy of rows that begin at odd places. Autograd sees writes to the costs, and then fails."""
    costs = table(2, 5, 7, seed=8).to(device, dtype).requires_grad_()
    version = costs._version
    copy = with_even_rows(costs.detach())
    assert copy.stride(1) % 2 == 0
    assert_tensors_equal([copy], [costs.detach().half()])
    assert costs._version == version
    value = sinkhorn(cost_matrix=costs, storage="half", **OPTIONS).value
    (gradient,) = torch.autograd.grad(value.sum(), costs)
    assert gradient.dtype == dtype and gradient.isfinite().all()


def test_transforms_of_half_costs(device: torch.device) -> None:
    costs = randn(3, 5, 6, seed=4).square().half().to(device)

    def potential(one: Tensor) -> Tensor:
        return sinkhorn(cost_matrix=one, storage="half", **OPTIONS).f

    def value(one: Tensor) -> Tensor:
        return sinkhorn(cost_matrix=one, storage="half", **OPTIONS).value

    whole = potential(costs)
    torch.testing.assert_close(torch.func.vmap(potential)(costs), whole, rtol=1e-5, atol=1e-6)
    along = randn(3, 5, 6, seed=5).half().to(device)
    _, moved = torch.func.jvp(potential, (costs,), (along,))
    _, expected = torch.func.jvp(
        lambda c: sinkhorn(cost_matrix=c, **OPTIONS).f, (costs.float(),), (along.float(),)
    )
    torch.testing.assert_close(moved, expected, rtol=1e-4, atol=1e-5)
    gradients = torch.func.vmap(torch.func.grad(value))(costs.float())
    torch.testing.assert_close(
        gradients, torch.func.grad(lambda c: value(c).sum())(costs.float()), rtol=1e-5, atol=1e-6
    )


def test_costs_out_of_range_make_their_problem_nan(device: torch.device) -> None:
    costs = table(2, 4, 5).to(device)
    costs[1, 2, 2] = 1e5
    value = sinkhorn(cost_matrix=costs, storage="half", **OPTIONS).value
    assert value[0].isfinite() and value[1].isnan()
    scaled = sinkhorn(cost_matrix=costs, storage="half", cost_normalization="max", **OPTIONS).value
    assert scaled.isfinite().all()


def test_costs_of_a_function_are_rounded(device: torch.device) -> None:
    x, y = randn(4, 3, seed=6).to(device), randn(5, 3, seed=7).to(device)

    def cost(x: Tensor, y: Tensor) -> Tensor:
        return torch.cdist(x, y)

    got = sinkhorn(x, y, cost=cost, storage="half", **OPTIONS).value
    rounded = cost(x[None], y[None]).half().float()
    torch.testing.assert_close(got, sinkhorn(cost_matrix=rounded[0], **OPTIONS).value, rtol=1e-5, atol=1e-6)
