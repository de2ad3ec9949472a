"""Shapes, broadcasting, strides and dtypes."""

from __future__ import annotations

import pytest
import torch

import warpalign
from tests.python.helpers import DTYPES, HALF_DTYPES, assert_close, numpy64, randn, relative_error
from tests.python.soft_dtw.reference import (
    assert_values_close,
    gradient_tolerance,
    pair,
    soft_dtw_reference,
    value_and_alignment,
    value_and_gradients,
)
from warpalign._core.transforms import scaled_in_place


@pytest.mark.parametrize("single", ["x", "y", "both"])
def test_broadcasting(device: torch.device, single: str) -> None:
    x, y = pair(4, 20, 31, 3, device=device)
    x = x[:1] if single != "y" else x
    y = y[:1] if single != "x" else y
    value, grad_x, grad_y = value_and_gradients(x, y)
    batch = 1 if single == "both" else 4
    x_all, y_all = x.expand(batch, -1, -1), y.expand(batch, -1, -1)
    expected, expected_x, expected_y = value_and_gradients(x_all.contiguous(), y_all.contiguous())
    assert value.shape == (batch,)
    assert_values_close(value, expected)
    assert_close(grad_x, expected_x.sum(0, keepdim=True) if single != "y" else expected_x, 1e-5)
    assert_close(grad_y, expected_y.sum(0, keepdim=True) if single != "x" else expected_y, 1e-5)
    assert warpalign.soft_dtw_alignment(x, y).alignment.shape == (batch, 20, 31)


def test_broadcasting_with_lengths(device: torch.device) -> None:
    x, y = pair(4, 20, 31, 3, device=device)
    y_lengths = torch.tensor([31, 2, 9, 1], device=device)
    value, grad_x, grad_y = value_and_gradients(x[:1], y, y_lengths=y_lengths)
    expected, expected_x, expected_y = value_and_gradients(
        x[:1].expand(4, -1, -1).contiguous(), y, y_lengths=y_lengths
    )
    assert_values_close(value, expected)
    assert_close(grad_x, expected_x.sum(0, keepdim=True), 1e-5)
    assert_close(grad_y, expected_y, 1e-5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_unbatched(device: torch.device, dtype: torch.dtype) -> None:
    x, y = pair(1, 20, 31, 3, device=device, dtype=dtype)
    expected, expected_x, expected_y = value_and_gradients(x, y)
    value, grad_x, grad_y = value_and_gradients(x[0], y[0])
    assert value.shape == ()
    assert torch.equal(value, expected[0])
    assert torch.equal(grad_x, expected_x[0])
    assert torch.equal(grad_y, expected_y[0])
    value, alignment = warpalign.soft_dtw_alignment(x[0], y[0])
    assert value.shape == () and alignment.shape == (20, 31)
    cost = randn(20, 31, seed=0, device=device, dtype=dtype, grad=True)
    value = warpalign.soft_dtw_cost(cost)
    assert value.shape == ()
    value.backward()
    assert cost.grad is not None and cost.grad.shape == (20, 31)


def test_empty_batch(device: torch.device) -> None:
    x, y = pair(0, 5, 7, 2, device=device)
    value, grad_x, grad_y = value_and_gradients(x, y)
    assert value.shape == (0,) and grad_x.shape == x.shape and grad_y.shape == y.shape
    assert warpalign.soft_dtw_alignment(x, y).alignment.shape == (0, 5, 7)
    cost = randn(0, 5, 7, seed=0, device=device, grad=True)
    warpalign.soft_dtw_cost(cost).sum().backward()
    assert cost.grad is not None and cost.grad.shape == (0, 5, 7)


LAYOUTS = {
    "features first": lambda t: t.transpose(1, 2).contiguous().transpose(1, 2),
    "time first": lambda t: t.transpose(0, 1).contiguous().transpose(0, 1),
    "every second step": lambda t: t.repeat_interleave(2, dim=1)[:, ::2],
    "every second feature": lambda t: t.repeat_interleave(2, dim=2)[..., ::2],
    "inside a larger tensor": lambda t: torch.nn.functional.pad(t, (1, 2, 3, 1, 1, 1))[1:-1, 3:-1, 1:-2],
}


@pytest.mark.parametrize("d", [1, 5, 64])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(device: torch.device, layout: str, dtype: torch.dtype, d: int) -> None:
    x, y = pair(3, 33, 18, d, device=device, dtype=dtype)
    expected = value_and_gradients(x, y)
    x, y = LAYOUTS[layout](x), LAYOUTS[layout](y)
    for got, contiguous in zip(value_and_gradients(x, y), expected, strict=True):
        if device.type == "cuda" and d == 64:  # four adjacent features at a time are summed in another order
            rounding = {torch.float16: 2e-3, torch.bfloat16: 2e-2}.get(got.dtype, 1e-5)
            assert relative_error(got, numpy64(contiguous)) < rounding
        else:
            assert torch.equal(got, contiguous)


def test_expanded_inputs(device: torch.device) -> None:
    """One series for the whole batch, and one feature for all features."""
    x, y = pair(1, 20, 31, 1, device=device)
    x, y = x.expand(3, -1, 4), y.expand(3, -1, 4)
    expected = value_and_gradients(x.contiguous(), y.contiguous())
    for got, contiguous in zip(value_and_gradients(x, y), expected, strict=True):
        assert_close(got, contiguous, 2 * gradient_tolerance(1.0, got.dtype))
    leaf = randn(1, 20, 1, seed=1, device=device, grad=True)
    warpalign.soft_dtw(leaf.expand(3, -1, 4), y).sum().backward()
    _, grad, _ = value_and_gradients(leaf.expand(3, -1, 4).contiguous(), y)
    assert leaf.grad is not None
    assert_close(leaf.grad, grad.sum((0, 2)).reshape(1, 20, 1), 1e-5)


def test_cost_matrix_layouts(device: torch.device) -> None:
    cost = randn(2, 31, 20, seed=2, device=device)
    expected = warpalign.soft_dtw_cost(cost.transpose(1, 2).contiguous())
    leaf = cost.clone().requires_grad_()
    value = warpalign.soft_dtw_cost(leaf.transpose(1, 2))
    assert_values_close(value, expected)
    value.sum().backward()
    assert leaf.grad is not None
    assert relative_error(leaf.grad[0].T, value_and_alignment(numpy64(cost[0].T), 1.0)[1]) <= 1e-5
    row = cost[:1, :, :1].expand(2, 31, 20)
    assert_values_close(warpalign.soft_dtw_cost(row), warpalign.soft_dtw_cost(row.contiguous()))


@pytest.mark.parametrize("dtype", HALF_DTYPES, ids=str)
def test_half_types_sum_in_float32(device: torch.device, dtype: torch.dtype) -> None:
    """The value exceeds what float16 holds, and counts in steps finer than bfloat16's."""
    x = torch.full((1, 50, 1), 200.0, device=device, dtype=dtype)
    y = torch.zeros((1, 50, 1), device=device, dtype=dtype)
    y[0, 25] = 1.0
    value, grad_x, _ = value_and_gradients(x, y, gamma=1e-3)
    expected = soft_dtw_reference(numpy64(x[0]), numpy64(y[0]), 1e-3)
    assert float(value) == pytest.approx(expected.value, rel=1e-6)
    assert grad_x.isfinite().all()
    assert relative_error(grad_x[0], expected.grad_x) <= gradient_tolerance(1e-3, dtype)


@pytest.mark.parametrize("dtype", [*HALF_DTYPES, torch.float32], ids=str)
def test_gradients_are_scaled_and_rounded_once(device: torch.device, dtype: torch.dtype) -> None:
    """In the series' type where that is a half type, else where they are; each pair by its factor."""
    gradient, factor = randn(3, 5, 2, seed=1, device=device), randn(3, seed=2, device=device)
    expected = (gradient * factor[:, None, None]).to(dtype)
    found, none = scaled_in_place(factor, (gradient, gradient), (True, False), dtype)
    assert found is not None and none is None
    assert found.dtype == dtype and torch.equal(found, expected)
    assert (found.data_ptr() == gradient.data_ptr()) == (dtype == torch.float32)


@pytest.mark.parametrize("dtype", HALF_DTYPES, ids=str)
@pytest.mark.parametrize("side", [0, 1], ids=["x", "y"])
def test_gradients_of_half_types_are_summed_over_the_batch_in_float32(
    device: torch.device, side: int, dtype: torch.dtype
) -> None:
    """Each pair's gradient would be rounded, and beyond 65504 infinite, in float16."""
    series = [randn(64, 7, 2, seed=8, device=device), randn(64, 7, 2, seed=9, device=device)]
    series[side] = series[side][:1]
    series[1 - side][:2] = torch.tensor([3e4, -3e4], device=device)[:, None, None]
    halves = [one.to(dtype).requires_grad_() for one in series]
    wide = [one.detach().float().requires_grad_() for one in halves]
    for arguments in (halves, wide):
        warpalign.soft_dtw(*arguments).sum().backward()
    for half, one in zip(halves, wide, strict=True):
        assert torch.equal(half.grad, one.grad.to(dtype))
    assert halves[side].grad.isfinite().all()


def test_float64_is_not_computed_in_float32(device: torch.device) -> None:
    x = torch.zeros(1, 3, 1, dtype=torch.float64, device=device)
    y = torch.full((1, 3, 1), 1 + 1e-12, dtype=torch.float64, device=device)
    value = warpalign.soft_dtw(x, y, gamma=1e-9)
    expected = soft_dtw_reference(numpy64(x[0]), numpy64(y[0]), 1e-9).value
    assert float(value) == pytest.approx(expected, rel=1e-15)


def test_equal_series_and_large_values_stay_finite(device: torch.device) -> None:
    x = 1e3 * randn(2, 300, 8, seed=4, device=device)
    for gamma in (1e-3, 1.0, 1e6):
        for other in (x, -x):
            value, grad_x, grad_y = value_and_gradients(x, other, gamma=gamma)
            assert value.isfinite().all() and grad_x.isfinite().all() and grad_y.isfinite().all()


@pytest.mark.parametrize("d", [1, 5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_equal_series_of_one_step_give_no_negative_zero(
    device: torch.device, dtype: torch.dtype, d: int
) -> None:
    x = randn(2, 1, d, seed=0, device=device, dtype=dtype)
    values = [
        warpalign.soft_dtw(x, x),
        warpalign.dtw(x, x),
        warpalign.soft_dtw(x, x, normalize=True),
        warpalign.soft_dtw_alignment(x, x).value,
        warpalign.soft_dtw_subsequence(x, x).end_values,
        warpalign.soft_dtw_cost(x.new_zeros(2, 1, 1)),
        warpalign.cdist_soft_dtw(x).diagonal(),
    ]
    for value in values:
        assert (value == 0).all() and not value.signbit().any()
