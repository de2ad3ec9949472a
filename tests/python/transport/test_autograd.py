"""sinkhorn as a citizen of torch: gradcheck, opcheck, compile, torch.func."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.python.helpers import assert_close, assert_compiled_equals_eager, randn
from tests.python.transport.gradchecks import gradcheck, gradgradcheck, one_on_cuda
from tests.python.transport.test_values import MARGINALS
from warpalign._core.costs import COSTS
from warpalign.transport import SinkhornResult, sinkhorn

EXACT: dict[str, Any] = {"tol": 1e-14, "max_iter": 3000}


def problem(device: torch.device) -> dict[str, Tensor]:
    """Two problems in float64, whose tensors require gradients; weights sum to 1."""
    options: dict[str, Any] = {"device": device, "dtype": torch.float64}
    x, y = randn(2, 5, 3, seed=1, **options), randn(2, 4, 3, seed=2, **options)
    a, b = (torch.softmax(randn(2, n, seed=n, **options), 1) for n in (5, 4))
    epsilon = torch.tensor([0.7, 1.3], **options)
    named = {"x": x, "y": y, "a": a, "b": b, "epsilon": epsilon}
    return {name: t.detach().requires_grad_() for name, t in named.items()}


def kept_balanced(of: dict[str, Tensor], options: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """The weights; where both sides are hard they are normalised, because a problem needs equal masses."""
    a, b = of["a"], of["b"]
    if options.get("rho_a") is None and options.get("rho_b") is None and options.get("mass") is None:
        return a / a.sum(1, keepdim=True), b / b.sum(1, keepdim=True)
    return a, b


@one_on_cuda("name", MARGINALS)
def test_gradcheck(name: str, device: torch.device) -> None:
    options, of = MARGINALS[name], problem(device)

    def value(*tensors: Tensor) -> Tensor:
        given = dict(zip(of, tensors, strict=True))
        a, b = kept_balanced(given, options)
        return sinkhorn(given["x"], given["y"], a=a, b=b, epsilon=given["epsilon"], **EXACT, **options).value

    assert gradcheck(value, tuple(of.values()))


@one_on_cuda("cost", COSTS)
def test_gradcheck_of_costs(cost: str, device: torch.device) -> None:
    of = problem(device)

    def value(x: Tensor, y: Tensor) -> Tensor:
        return sinkhorn(x, y, cost=cost, cost_scale=1.5, epsilon=0.5, **EXACT).value  # type: ignore[arg-type]

    assert gradcheck(value, (of["x"], of["y"]))
    table = torch.rand(2, 4, 6, device=device, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda c: sinkhorn(cost_matrix=c, cost_scale=1.5, epsilon=0.3, **EXACT).value, table)


def of_tensors(of: dict[str, Tensor], options: dict[str, Any], *tensors: Tensor) -> SinkhornResult:
    given = dict(zip(of, tensors, strict=True))
    a, b = kept_balanced(given, options)
    result = sinkhorn(given["x"], given["y"], a=a, b=b, epsilon=given["epsilon"], **EXACT, **options)
    if any(options.get(name) is not None for name in ("rho_a", "rho_b", "mass")):
        return result
    apart = (result.f.mean(1) - result.g.mean(1)) / 2  # the constant that is open
    return result._replace(f=result.f - apart[:, None], g=result.g + apart[:, None])


def test_symmetric_updates_of_partial_transport_have_derivatives() -> None:
    """Potentials of points with less than their weight go to 0 and do not arrive."""
    of = problem(torch.device("cpu"))
    options = {"mass": 0.6, "reference": "counting", "updates": "symmetric"}
    symmetric = of_tensors(of, options, *of.values())
    alternating = of_tensors(of, options | {"updates": "alternating"}, *of.values())
    assert ((alternating.g == 0) & (symmetric.g < 0)).any()
    leaves = tuple(of.values())
    for field in ("linear", "g"):
        weight = torch.ones_like(getattr(symmetric, field)).cumsum(-1)
        got, expected = (
            torch.autograd.grad((getattr(result, field) * weight).sum(), leaves, retain_graph=True)
            for result in (symmetric, alternating)
        )
        for one, other in zip(got, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("field", ["linear", "f", "g"])
@one_on_cuda("name", MARGINALS)
def test_gradcheck_of_potentials_and_linear(name: str, field: str, device: torch.device) -> None:
    options, of = MARGINALS[name], problem(device)
    assert gradcheck(lambda *tensors: getattr(of_tensors(of, options, *tensors), field), tuple(of.values()))


@one_on_cuda("name", MARGINALS)
def test_gradgradcheck_of_the_value(name: str, device: torch.device) -> None:
    options, of = MARGINALS[name], problem(device)
    assert gradgradcheck(lambda *tensors: of_tensors(of, options, *tensors).value, tuple(of.values()))


@one_on_cuda("cost", COSTS)
def test_second_order_of_costs(cost: str, device: torch.device) -> None:
    of = problem(device)

    def result(x: Tensor, y: Tensor) -> SinkhornResult:
        return sinkhorn(x, y, cost=cost, cost_scale=1.5, epsilon=0.5, **EXACT)  # type: ignore[arg-type]

    assert gradgradcheck(lambda x, y: result(x, y).value, (of["x"], of["y"]))
    assert gradcheck(lambda x, y: result(x, y).linear, (of["x"], of["y"]))
    table = torch.rand(2, 4, 3, device=device, dtype=torch.float64, requires_grad=True)
    assert gradgradcheck(lambda c: sinkhorn(cost_matrix=c, cost_scale=1.5, epsilon=0.3, **EXACT).value, table)


def test_forward_mode(device: torch.device) -> None:
    of = problem(device)
    x, y = of["x"].detach(), of["y"].detach()
    along = randn(2, 5, 3, seed=9, device=device, dtype=torch.float64)

    def fields(x: Tensor) -> tuple[Tensor, ...]:
        result = sinkhorn(x, y, epsilon=0.5, rho_a=1.0, **EXACT)
        return result.value, result.linear, result.f, result.g

    _, tangents = torch.func.jvp(fields, (x,), (along,))
    step = 1e-5
    ahead, behind = fields(x + step * along), fields(x - step * along)
    for tangent, one, other in zip(tangents, ahead, behind, strict=True):
        torch.testing.assert_close(tangent, (one - other) / (2 * step), rtol=1e-6, atol=1e-7)
    hessian = torch.func.hessian(lambda x: fields(x)[0].sum())(x)
    torch.testing.assert_close(hessian, hessian.permute(3, 4, 5, 0, 1, 2), rtol=1e-8, atol=1e-9)


def test_float32_second_order_is_close_to_float64(device: torch.device) -> None:
    grads = {}
    for dtype in (torch.float64, torch.float32):
        x = randn(150, 3, seed=1, device=device, dtype=dtype, grad=True)
        y = randn(130, 3, seed=2, device=device, dtype=dtype)
        result = sinkhorn(x, y, epsilon=1.0, tol=1e-7, max_iter=3000)
        weight = randn(150, seed=3, device=device, dtype=dtype)
        (of_potentials,) = torch.autograd.grad((result.f * weight).sum(), x, retain_graph=True)
        (first,) = torch.autograd.grad(result.value, x, create_graph=True)
        (second,) = torch.autograd.grad((first * weight[:, None]).sum(), x)
        grads[dtype] = (of_potentials, second)
    for got, truth in zip(grads[torch.float32], grads[torch.float64], strict=True):
        # The system's condition number, some 100 here, on float32's 6e-8 per product.
        assert_close(got, truth, 1e-4)


def test_points_without_weight_have_second_derivatives(device: torch.device) -> None:
    """A weight of 0 may grow: the value's second derivatives are there."""
    of = problem(device)
    a = torch.tensor([[0.4, 0.0, 0.2, 0.0, 0.3]], device=device, dtype=torch.float64).expand(2, -1)
    y, step = of["y"].detach(), 1e-5

    def slope(a: Tensor) -> tuple[Tensor, Tensor]:
        leaf = a.detach().requires_grad_()
        value = sinkhorn(of["x"].detach(), y, a=leaf, rho_a=1.0, rho_b=1.0, epsilon=0.5, **EXACT).value
        return torch.autograd.grad(value.sum(), leaf, create_graph=True)[0], leaf

    along = torch.rand(2, 5, device=device, dtype=torch.float64)
    first, leaf = slope(a.clone())
    (product,) = torch.autograd.grad((first * along).sum(), leaf)
    # One-sided differences of second order, because weights below 0 are refused.
    at_one, at_two = (slope(a + k * step * along)[0].detach() for k in (1, 2))
    differences = (-3 * first.detach() + 4 * at_one - at_two) / (2 * step)
    torch.testing.assert_close(product, differences, rtol=1e-5, atol=1e-6)


def test_third_derivatives_are_refused(device: torch.device) -> None:
    x = problem(device)["x"]
    result = sinkhorn(x, x.detach() + 1, epsilon=0.5)
    (first,) = torch.autograd.grad(result.value.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="third derivatives"):
        torch.autograd.grad(second.sum(), x)
    (of_f,) = torch.autograd.grad(result.f.square().sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="second ones of its potentials"):
        torch.autograd.grad(of_f.square().sum(), x)


def test_padding_gets_no_gradient(device: torch.device) -> None:
    of = problem(device)
    value = sinkhorn(
        of["x"], of["y"], a=of["a"], rho_a=1.0, epsilon=0.5, x_lengths=[5, 2], y_lengths=[1, 4]
    ).value
    by_x, by_y, by_a = torch.autograd.grad(value.sum(), (of["x"], of["y"], of["a"]))
    assert by_x[0].any() and by_x[1, :2].any() and not by_x[1, 2:].any()
    assert not by_y[0, 1:].any() and not by_a[1, 2:].any()


def arguments(device: torch.device, points: bool) -> tuple[tuple[Any, ...], dict[str, Any]]:
    options: dict[str, Any] = {"device": device}
    x, y, cost = (
        randn(2, 5, 3, seed=1, **options),
        randn(2, 4, 3, seed=2, **options),
        randn(2, 5, 4, seed=3, **options),
    )
    tables = (x, y, None) if points else (None, None, cost)
    a, b = torch.full((2, 5), 0.2, **options), torch.full((2, 4), 0.25, **options)
    lengths = [torch.tensor(n, dtype=torch.int32, device=device) for n in ([5, 3], [2, 4])]
    start = torch.zeros(2, 5, **options), torch.zeros(2, 4, **options)
    epsilons = torch.tensor([0.5, 0.7], **options)
    needs = (points, points, not points)
    return (*tables, a, b, epsilons, *lengths, *start, *needs), {
        "rho_a": 1.0,
        "rho_b": float("inf"),
        "max_iterations": 5,
    }


@pytest.mark.parametrize("points", [True, False])
def test_opcheck(points: bool, device: torch.device) -> None:
    positional, keywords = arguments(device, points)
    torch.library.opcheck(torch.ops.warpalign.sinkhorn.default, positional, keywords)
    torch.library.opcheck(torch.ops.warpalign.sinkhorn_potentials.default, positional[:10], keywords)
    nothing = (*positional[:3], *(None,) * 7, False, False, False)
    torch.library.opcheck(torch.ops.warpalign.sinkhorn.default, nothing, keywords)
    tables, (a, b, epsilons, *lengths, f, g), needs = positional[:3], positional[3:10], positional[10:]
    along = [None if t is None else t.cos() for t in tables]
    solved = (*tables, a, b, epsilons, *lengths, f, g, torch.zeros_like(epsilons))
    rows = (a.cos(), b.cos(), epsilons.cos(), epsilons.sin(), f.cos(), g.sin())
    operator = torch.ops.warpalign.sinkhorn_jvp.default
    torch.library.opcheck(operator, (*solved, *along, *rows, *needs), keywords)
    torch.library.opcheck(operator, (*solved, *(None,) * 9, False, False, False), keywords)


@pytest.mark.parametrize("dynamic", [False, True])
def test_compile(dynamic: bool, device: torch.device) -> None:
    def step(x: Tensor, y: Tensor, a: Tensor, epsilon: Tensor) -> Tensor:
        result = sinkhorn(x * 2, y, a=a.softmax(-1), epsilon=epsilon, rho_b=1.0)
        return result.value.sum() + result.f.square().mean()

    calls = []
    for n in (5, 6, 7):
        made = randn(2, n, 3, seed=n), randn(2, 4, 3, seed=2), randn(2, n, seed=3), torch.tensor([0.5, 0.9])
        calls.append(([tensor.to(device) for tensor in made], ()))
    assert_compiled_equals_eager(step, calls, dynamic)


def test_torch_func(device: torch.device) -> None:
    x, y = randn(3, 5, 2, seed=1, device=device), randn(3, 4, 2, seed=2, device=device)
    a = torch.softmax(randn(3, 5, seed=3, device=device), 1)

    def one(x: Tensor, y: Tensor, a: Tensor) -> Tensor:
        result = sinkhorn(x, y, a=a, epsilon=0.5, rho_a=1.0)
        return result.value + result.g.sum()

    mapped = torch.func.vmap(one)(x, y, a)
    by_x, by_a = torch.func.vmap(torch.func.grad(one, argnums=(0, 2)))(x, y, a)
    shared = torch.func.vmap(one, in_dims=(None, 0, None))(x[0], y, a[0])
    moved = torch.func.vmap(torch.func.grad(one), in_dims=(1, 0, 0))(x.movedim(0, 1), y, a)
    for k in range(3):
        leaf, weight = x[k].clone().requires_grad_(), a[k].clone().requires_grad_()
        value = one(leaf, y[k], weight)
        grads = torch.autograd.grad(value, (leaf, weight))
        torch.testing.assert_close(mapped[k], value)
        torch.testing.assert_close((by_x[k], by_a[k]), grads)
        torch.testing.assert_close(moved[k], grads[0])
        torch.testing.assert_close(shared[k], one(x[0], y[k], a[0]))
    jacobian = torch.func.jacrev(lambda x: sinkhorn(x, y, epsilon=0.5).value)(x)
    assert not jacobian[0, 1].any() and jacobian[0, 0].any()


def test_many_upstream_factors_at_once(device: torch.device) -> None:
    x = randn(2, 5, 2, seed=1, device=device, grad=True)
    value = sinkhorn(x, randn(2, 4, 2, seed=2, device=device), epsilon=0.5).value
    eye = torch.eye(2, device=device)
    (rows,) = torch.autograd.grad(value, x, eye, is_grads_batched=True, retain_graph=True)
    (both,) = torch.autograd.grad(value.sum(), x)
    torch.testing.assert_close(rows.sum(0), both)


def test_checkpoint_and_backward_twice(device: torch.device) -> None:
    from torch.utils.checkpoint import checkpoint

    x = randn(2, 5, 2, seed=1, device=device, grad=True)
    y = randn(2, 4, 2, seed=2, device=device)
    value = sinkhorn(x, y, epsilon=0.5).value.sum()
    first, second = (torch.autograd.grad(value, x, retain_graph=True)[0] for _ in range(2))
    again = checkpoint(lambda x: sinkhorn(x, y, epsilon=0.5).value.sum(), x, use_reentrant=False)
    assert torch.equal(first, second) and torch.equal(torch.autograd.grad(again, x)[0], first)
