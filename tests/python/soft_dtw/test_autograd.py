"""Derivatives as torch's autograd sees them."""

from __future__ import annotations

import itertools

import pytest
import torch

import warpalign
from tests.python.helpers import randn
from tests.python.soft_dtw.reference import pair

F64 = torch.float64


def lengths_of(device: torch.device, *values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32, device=device)


@pytest.mark.parametrize("gamma", [0.1, 1.0, 20.0])
@pytest.mark.parametrize(("n", "m", "d"), [(1, 1, 1), (4, 6, 2), (7, 1, 3)])
def test_gradcheck_series(device: torch.device, n: int, m: int, d: int, gamma: float) -> None:
    x, y = pair(2, n, m, d, device=device, dtype=F64, grad=True)
    loss = lambda x, y: warpalign.soft_dtw(x, y, gamma=gamma)  # noqa: E731
    assert torch.autograd.gradcheck(loss, (x, y), check_batched_grad=True)


def test_gradcheck_series_with_lengths(device: torch.device) -> None:
    x, y = pair(3, 5, 6, 2, device=device, dtype=F64, grad=True)
    options = {"x_lengths": lengths_of(device, 5, 1, 3), "y_lengths": lengths_of(device, 2, 6, 4)}
    assert torch.autograd.gradcheck(lambda x, y: warpalign.soft_dtw(x, y, **options), (x, y))


@pytest.mark.parametrize("single", ["x", "y"])
def test_gradcheck_series_broadcast(device: torch.device, single: str) -> None:
    x, y = pair(3, 4, 5, 2, device=device, dtype=F64)
    x, y = (x[:1], y) if single == "x" else (x, y[:1])
    inputs = (x.clone().requires_grad_(), y.clone().requires_grad_())
    assert torch.autograd.gradcheck(warpalign.soft_dtw, inputs)


def test_gradcheck_series_unbatched_and_strided(device: torch.device) -> None:
    x, y = pair(1, 4, 5, 3, device=device, dtype=F64, grad=True)
    assert torch.autograd.gradcheck(lambda x, y: warpalign.soft_dtw(x[0], y[0]), (x, y))
    flipped = x.detach().transpose(1, 2).contiguous().requires_grad_()
    assert torch.autograd.gradcheck(lambda x, y: warpalign.soft_dtw(x.mT, y), (flipped, y))


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_gradcheck_reductions(device: torch.device, reduction: str) -> None:
    x, y = pair(3, 4, 5, 2, device=device, dtype=F64, grad=True)
    cost = randn(3, 4, 5, seed=0, device=device, dtype=F64, grad=True)
    assert torch.autograd.gradcheck(lambda x, y: warpalign.soft_dtw(x, y, reduction=reduction), (x, y))
    assert torch.autograd.gradcheck(lambda c: warpalign.soft_dtw_cost(c, reduction=reduction), (cost,))


@pytest.mark.parametrize("gamma", [0.1, 1.0, 20.0])
def test_gradcheck_cost_matrix(device: torch.device, gamma: float) -> None:
    cost = randn(3, 5, 4, seed=1, device=device, dtype=F64, grad=True)
    options = {"x_lengths": lengths_of(device, 5, 1, 3), "y_lengths": lengths_of(device, 2, 4, 4)}
    assert torch.autograd.gradcheck(lambda c: warpalign.soft_dtw_cost(c, gamma=gamma), (cost,))
    assert torch.autograd.gradcheck(lambda c: warpalign.soft_dtw_cost(c, gamma=gamma, **options), (cost,))
    assert torch.autograd.gradcheck(lambda c: warpalign.soft_dtw_cost(c[0], gamma=gamma), (cost,))


def test_gradcheck_value_beside_the_alignment(device: torch.device) -> None:
    x, y = pair(2, 4, 5, 2, device=device, dtype=F64, grad=True)
    assert torch.autograd.gradcheck(lambda x, y: warpalign.soft_dtw_alignment(x, y).value, (x, y))


def test_the_alignment_is_not_differentiable(device: torch.device) -> None:
    x, y = pair(2, 4, 5, 2, device=device, grad=True)
    value, alignment = warpalign.soft_dtw_alignment(x, y)
    assert value.requires_grad
    assert not alignment.requires_grad
    value.sum().backward()
    expected = torch.autograd.grad(warpalign.soft_dtw(x, y).sum(), x)[0]
    assert torch.allclose(x.grad, expected, rtol=1e-5, atol=1e-6)


def test_the_derivative_by_grad_output_is_linear(device: torch.device) -> None:
    """create_graph must not break what needs first derivatives alone."""
    x, y = pair(2, 4, 5, 2, device=device, dtype=F64, grad=True)
    plain = torch.autograd.grad(warpalign.soft_dtw(x, y).sum(), x)[0]
    with_graph = torch.autograd.grad(warpalign.soft_dtw(x, y).sum(), x, create_graph=True)[0]
    assert torch.equal(plain, with_graph.detach())


@pytest.mark.parametrize("wanted", ["x", "y"])
def test_only_one_side_wants_gradients(device: torch.device, wanted: str) -> None:
    x, y = pair(2, 33, 40, 3, device=device, grad=True)
    both = dict(zip("xy", torch.autograd.grad(warpalign.soft_dtw(x, y).sum(), (x, y)), strict=True))
    x, y = x.detach().requires_grad_(wanted == "x"), y.detach().requires_grad_(wanted == "y")
    value = warpalign.soft_dtw(x, y)
    value.sum().backward()
    leaf, other = (x, y) if wanted == "x" else (y, x)
    assert torch.allclose(leaf.grad, both[wanted], rtol=1e-5, atol=1e-6)
    assert other.grad is None


def test_without_gradients_nothing_is_kept(device: torch.device) -> None:
    x, y = pair(2, 33, 40, 3, device=device, grad=True)
    cost = randn(2, 5, 6, seed=0, device=device, grad=True)
    calls = [
        lambda: warpalign.soft_dtw(x, y),
        lambda: warpalign.soft_dtw_cost(cost),
        lambda: warpalign.soft_dtw_alignment(x, y).value,
    ]
    expected = [call().detach() for call in calls]
    for context in (torch.no_grad(), torch.inference_mode()):
        with context:
            values = [call() for call in calls]
        for value, with_grad in zip(values, expected, strict=True):
            assert value.grad_fn is None and not value.requires_grad
            assert torch.allclose(value.clone(), with_grad, rtol=2e-6)
    plain = warpalign.soft_dtw(x.detach(), y.detach())
    assert plain.grad_fn is None and not plain.requires_grad


def test_each_pair_is_scaled_by_its_own_grad_output(device: torch.device) -> None:
    x, y = pair(4, 20, 31, 3, device=device, dtype=F64, grad=True)
    weights = torch.tensor([2.0, 0.0, -1.5, 1e-3], dtype=F64, device=device)
    ones = torch.autograd.grad(warpalign.soft_dtw(x, y).sum(), (x, y))
    weighted = torch.autograd.grad(warpalign.soft_dtw(x, y), (x, y), weights)
    for one, got in zip(ones, weighted, strict=True):
        assert torch.allclose(got, one * weights[:, None, None], rtol=1e-12, atol=0)
    cost = randn(4, 20, 31, seed=2, device=device, dtype=F64, grad=True)
    (one,) = torch.autograd.grad(warpalign.soft_dtw_cost(cost).sum(), cost)
    (got,) = torch.autograd.grad(warpalign.soft_dtw_cost(cost), cost, weights)
    assert torch.allclose(got, one * weights[:, None, None], rtol=1e-12, atol=0)


def test_an_expanded_grad_output(device: torch.device) -> None:
    x, y = pair(3, 6, 7, 2, device=device, grad=True)
    grad_output = torch.tensor(2.0, device=device).expand(3)
    (doubled,) = torch.autograd.grad(warpalign.soft_dtw(x, y), x, grad_output)
    (one,) = torch.autograd.grad(warpalign.soft_dtw(x, y).sum(), x)
    assert torch.equal(doubled, 2 * one)


def test_backward_twice_through_a_kept_graph(device: torch.device) -> None:
    x, y = pair(2, 33, 40, 3, device=device, grad=True)
    value = warpalign.soft_dtw(x, y).sum()
    first = torch.autograd.grad(value, (x, y), retain_graph=True)
    second = torch.autograd.grad(value, (x, y))
    for once, again in zip(first, second, strict=True):
        assert torch.equal(once, again)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(value, (x, y))


def test_gradients_accumulate(device: torch.device) -> None:
    x, y = pair(2, 6, 7, 2, device=device, grad=True)
    for _ in range(2):
        warpalign.soft_dtw(x, y).sum().backward()
    (once,) = torch.autograd.grad(warpalign.soft_dtw(x, y).sum(), x)
    assert torch.equal(x.grad, 2 * once)


def test_returned_gradients_are_the_callers_to_change(device: torch.device) -> None:
    """An optimizer that changes .grad in place must not reach what a kept graph returns next."""
    x, y = pair(1, 6, 7, 2, device=device, grad=True)
    value = warpalign.soft_dtw(x, y)[0]
    value.backward(retain_graph=True)
    first = x.grad.clone()
    x.grad.zero_()
    value.backward()
    assert torch.equal(x.grad, first)


def test_changing_an_input_in_place_is_noticed_or_harmless(device: torch.device) -> None:
    """Gradients are those of the values that the forward pass saw."""
    x, y = pair(2, 6, 7, 2, device=device, grad=True)
    (expected,) = torch.autograd.grad(warpalign.soft_dtw(x, y).sum(), x)
    inner = x * 1
    value = warpalign.soft_dtw(inner, y).sum()
    inner.detach().zero_()
    try:
        (got,) = torch.autograd.grad(value, x)
    except RuntimeError as error:
        assert "inplace" in str(error).replace("-", "").replace(" ", "")
    else:
        assert torch.equal(got, expected)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_reductions(device: torch.device, reduction: str) -> None:
    x, y = pair(4, 20, 31, 3, device=device, grad=True)
    expected = getattr(warpalign.soft_dtw(x, y), reduction)()
    cost = randn(4, 5, 6, seed=0, device=device)
    for value in (
        warpalign.soft_dtw(x, y, reduction=reduction),
        warpalign.SoftDTW(reduction=reduction)(x, y),
    ):
        assert value.shape == ()
        assert torch.equal(value, expected)
    got = torch.autograd.grad(warpalign.soft_dtw(x, y, reduction=reduction), (x, y))
    for one, other in zip(got, torch.autograd.grad(expected, (x, y)), strict=True):
        assert torch.equal(one, other)
    expected = getattr(warpalign.soft_dtw_cost(cost), reduction)()
    assert torch.equal(warpalign.soft_dtw_cost(cost, reduction=reduction), expected)


def test_one_tensor_on_both_sides(device: torch.device) -> None:
    x, _ = pair(2, 12, 12, 3, device=device, dtype=F64, grad=True)
    twin = x.detach().clone().requires_grad_()
    (got,) = torch.autograd.grad(warpalign.soft_dtw(x, x).sum(), x)
    parts = torch.autograd.grad(warpalign.soft_dtw(x, twin).sum(), (x, twin))
    assert torch.allclose(got, parts[0] + parts[1], rtol=1e-12, atol=1e-12)
    small = randn(1, 4, 2, seed=3, device=device, dtype=F64, grad=True)
    assert torch.autograd.gradcheck(lambda x: warpalign.soft_dtw(x, x), (small,))
    assert torch.autograd.gradcheck(lambda x: warpalign.soft_dtw(x, x.flip(1)), (small,))


def test_half_gradients_are_those_of_float32_rounded(device: torch.device) -> None:
    cases = itertools.product((torch.float16, torch.bfloat16), (3, 20), ("highest", "high"))
    for dtype, features, precision in cases:
        x, y = pair(2, 33, 40, features, device=device, dtype=dtype, grad=True)
        wide_x, wide_y = (t.detach().float().requires_grad_() for t in (x, y))
        (got,) = torch.autograd.grad(warpalign.soft_dtw(x, y, precision=precision).sum(), x)
        wide = warpalign.soft_dtw(wide_x, wide_y, precision=precision)
        (expected,) = torch.autograd.grad(wide.sum(), wide_x)
        assert torch.equal(got, expected.to(dtype))


def test_descent_lowers_the_loss(device: torch.device) -> None:
    x, y = pair(1, 12, 12, 2, device=device)
    x.requires_grad_()
    optimizer = torch.optim.Adam([x], lr=0.05)
    loss = warpalign.SoftDTW(gamma=0.01, reduction="sum")
    first = float(loss(x, y).detach())
    for _ in range(150):
        optimizer.zero_grad()
        loss(x, y).backward()
        optimizer.step()
    assert float(loss(x, y).detach()) < 0.3 * first


def test_several_backwards_through_one_graph(device: torch.device) -> None:
    """The first backward scales the gradients in place; what it used up is computed again."""
    x = torch.randn(3, 9, 2, device=device, requires_grad=True)
    y = torch.randn(3, 7, 2, device=device, requires_grad=True)
    value = warpalign.soft_dtw(x, y, gamma=0.5)
    factors = torch.tensor([2.0, -1.0, 0.5], device=device)
    first = torch.autograd.grad(value, (x, y), factors, retain_graph=True)
    kept = [g.clone() for g in first]
    second = torch.autograd.grad(value, (x, y), 3 * factors, retain_graph=True)
    third = torch.autograd.grad(value, (x, y), factors)
    for a, before, b, c in zip(first, kept, second, third, strict=True):
        assert torch.equal(a, before)
        assert torch.equal(a, c)
        torch.testing.assert_close(b, 3 * a)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(value, x, factors)
