"""True lengths: what lies behind them, and in other pairs, influences nothing; nor do NaN and infinity leave their pair."""

from __future__ import annotations

import math

import pytest
import torch

import warpalign
from tests.python.helpers import DTYPES, assert_close, numpy64, randn, relative_error
from tests.python.soft_dtw.reference import (
    assert_values_close,
    gradient_tolerance,
    pair,
    soft_dtw_reference,
    value_and_alignment,
    value_and_gradients,
    value_tolerance,
)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("d", [1, 3, 64])
@pytest.mark.parametrize("filling", [math.nan, math.inf, 0.0])
@pytest.mark.parametrize("length_dtype", [torch.int32, torch.int64], ids=str)
def test_padding_never_leaks(
    device: torch.device, dtype: torch.dtype, d: int, filling: float, length_dtype: torch.dtype
) -> None:
    n, m, gamma = 70, 45, 0.5
    x, y = pair(5, n, m, d, device=device, dtype=dtype)
    x_lengths, y_lengths = [70, 1, 33, 64, 5], [45, 45, 32, 1, 7]
    for b in range(5):
        x[b, x_lengths[b] :] = filling
        y[b, y_lengths[b] :] = filling
    lengths = {
        "x_lengths": torch.tensor(x_lengths, dtype=length_dtype, device=device),
        "y_lengths": torch.tensor(y_lengths, dtype=length_dtype, device=device),
    }
    value, grad_x, grad_y = value_and_gradients(x, y, gamma=gamma, **lengths)
    alignment = warpalign.soft_dtw_alignment(x, y, gamma=gamma, **lengths).alignment
    for b, (p, q) in enumerate(zip(x_lengths, y_lengths, strict=True)):
        expected = soft_dtw_reference(numpy64(x[b, :p]), numpy64(y[b, :q]), gamma)
        assert abs(float(value[b]) - expected.value) <= value_tolerance(expected.value, gamma, p, q, dtype)
        assert relative_error(grad_x[b, :p], expected.grad_x) <= gradient_tolerance(gamma, dtype)
        assert relative_error(grad_y[b, :q], expected.grad_y) <= gradient_tolerance(gamma, dtype)
        assert relative_error(alignment[b, :p, :q], expected.alignment) <= gradient_tolerance(
            gamma, alignment.dtype
        )
        assert (grad_x[b, p:] == 0).all() and (grad_y[b, q:] == 0).all()
        assert (alignment[b, p:] == 0).all() and (alignment[b, :, q:] == 0).all()


@pytest.mark.parametrize("which", ["x_lengths", "y_lengths"])
def test_lengths_of_one_side(device: torch.device, which: str) -> None:
    x, y = pair(3, 12, 9, 2, device=device)
    lengths = torch.tensor([3, 9, 1], device=device)
    value, grad_x, grad_y = value_and_gradients(x, y, **{which: lengths})
    for b, length in enumerate(lengths.tolist()):
        p, q = (length, 9) if which == "x_lengths" else (12, length)
        expected = value_and_gradients(x[b : b + 1, :p], y[b : b + 1, :q])
        assert_values_close(value[b : b + 1], expected[0])
        assert_close(grad_x[b : b + 1, :p], expected[1], 1e-5)
        assert_close(grad_y[b : b + 1, :q], expected[2], 1e-5)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16], ids=str)
def test_narrow_integer_lengths(device: torch.device, dtype: torch.dtype) -> None:
    """A series longer than the dtype of the lengths can count."""
    x = randn(2, 300, 2, seed=0, device=device)
    lengths = [100, 3]
    got = warpalign.soft_dtw(x, x, x_lengths=torch.tensor(lengths, dtype=dtype, device=device))
    expected = warpalign.soft_dtw(x, x, x_lengths=torch.tensor(lengths, dtype=torch.int32, device=device))
    assert torch.equal(got, expected)


def test_full_lengths_change_nothing(device: torch.device) -> None:
    x, y = pair(3, 12, 9, 2, device=device)
    full = {
        "x_lengths": torch.full((3,), 12, device=device),
        "y_lengths": torch.full((3,), 9, device=device),
    }
    for got, expected in zip(value_and_gradients(x, y, **full), value_and_gradients(x, y), strict=True):
        assert_close(got, expected, 1e-5)


@pytest.mark.parametrize("filling", [math.nan, math.inf, 0.0])
@pytest.mark.parametrize("gamma", [0.5, 0.0])
def test_padding_never_leaks_through_the_callers_costs(
    device: torch.device, gamma: float, filling: float
) -> None:
    """Nor through their derivative, which does not exist at 0."""

    def cosine(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x, y = (t / t.square().sum(-1, keepdim=True).sqrt() for t in (x, y))
        return 1 - x @ y.mT

    x, y = pair(3, 7, 6, 2, device=device, dtype=torch.float64)
    lengths = torch.tensor([7, 1, 4], device=device), torch.tensor([2, 6, 5], device=device)
    for series, true in zip((x, y), lengths, strict=True):
        series[torch.arange(series.shape[1], device=device) >= true[:, None]] = filling
        series.requires_grad_()
    value = warpalign.soft_dtw(x, y, gamma=gamma, cost=cosine, x_lengths=lengths[0], y_lengths=lengths[1])
    grads = torch.autograd.grad(value.sum(), (x, y))
    for b, (n, m) in enumerate(zip(*(true.tolist() for true in lengths), strict=True)):
        one, other = x.detach()[b, :n].requires_grad_(), y.detach()[b, :m].requires_grad_()
        expected = warpalign.soft_dtw(one, other, gamma=gamma, cost="cosine")
        torch.testing.assert_close(value[b], expected)
        for grad, length, wanted in zip(
            grads, (n, m), torch.autograd.grad(expected, (one, other)), strict=True
        ):
            torch.testing.assert_close(grad[b, :length], wanted)
            assert not grad[b, length:].any()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16], ids=str)
def test_cost_matrix_padding_never_leaks(device: torch.device, dtype: torch.dtype) -> None:
    cost = randn(3, 20, 35, seed=1, device=device, dtype=dtype)
    rows, columns = [20, 1, 7], [35, 34, 2]
    for b in range(3):
        cost[b, rows[b] :] = math.nan
        cost[b, :, columns[b] :] = math.nan
    cost.requires_grad_()
    value = warpalign.soft_dtw_cost(
        cost, x_lengths=torch.tensor(rows, device=device), y_lengths=torch.tensor(columns, device=device)
    )
    (grad,) = torch.autograd.grad(value.sum(), cost)
    for b, (p, q) in enumerate(zip(rows, columns, strict=True)):
        expected, alignment = value_and_alignment(numpy64(cost[b, :p, :q]), 1.0)
        assert float(value[b].detach()) == pytest.approx(expected, rel=1e-5, abs=1e-5)
        assert relative_error(grad[b, :p, :q], alignment) <= gradient_tolerance(1.0, dtype)
        assert (grad[b, p:] == 0).all() and (grad[b, :, q:] == 0).all()


@pytest.mark.parametrize("d", [1, 64])
def test_a_pair_does_not_depend_on_its_batch_mates(device: torch.device, d: int) -> None:
    x, y = pair(4, 50, 60, d, device=device)
    lengths = torch.tensor([50, 20, 31, 44], device=device)
    first = value_and_gradients(x, y, x_lengths=lengths)
    x[1:] = randn(3, 50, d, seed=9, device=device)
    y[1:] = math.inf
    lengths = torch.tensor([50, 1, 2, 3], device=device)
    second = value_and_gradients(x, y, x_lengths=lengths)
    for before, after in zip(first, second, strict=True):
        assert torch.equal(before[0], after[0])


@pytest.mark.parametrize("d", [1, 3, 24])
def test_batch_invariant(device: torch.device, d: int) -> None:
    """The same bits in a batch of one, which a GPU would sweep from both ends, as in one that fills it."""
    x, y = pair(300, 70, 100, d, device=device)
    whole = value_and_gradients(x, y, batch_invariant=True)
    for part in (slice(0, 1), slice(7, 40)):
        alone = value_and_gradients(x[part], y[part], batch_invariant=True)
        for got, expected in zip(alone, whole, strict=True):
            assert torch.equal(got, expected[part])
    assert "batch_invariant=True" in repr(warpalign.SoftDTW(batch_invariant=True))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("d", [1, 3, 64])
def test_a_bad_pair_stays_alone(device: torch.device, d: int, dtype: torch.dtype, bad: float) -> None:
    x, y = pair(3, 40, 37, d, device=device, dtype=dtype)
    clean = value_and_gradients(x, y, gamma=0.5)
    x[1, 20, d - 1] = bad
    value, grad_x, grad_y = value_and_gradients(x, y, gamma=0.5)
    for before, after in zip(clean, (value, grad_x, grad_y), strict=True):
        assert torch.equal(before[[0, 2]], after[[0, 2]])
    if math.isnan(bad):
        assert value[1].isnan() and grad_x[1].isnan().all() and grad_y[1].isnan().all()
    else:  # every path crosses the row whose costs are all inf
        assert value[1] == math.inf and (grad_x[1] == 0).all() and (grad_y[1] == 0).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_infinite_costs_are_walls(device: torch.device, dtype: torch.dtype) -> None:
    cost = randn(3, 30, 40, seed=3, device=device, dtype=dtype).abs()
    cost[0, 5:, :5] = math.inf  # goes around
    cost[1, 12] = math.inf  # no way through
    cost[2, 7, 9] = math.nan
    cost.requires_grad_()
    value = warpalign.soft_dtw_cost(cost, gamma=0.5)
    (grad,) = torch.autograd.grad(value.sum(), cost)
    expected, alignment = value_and_alignment(numpy64(cost[0]), 0.5)
    assert float(value[0].detach()) == pytest.approx(expected, rel=1e-5)
    assert relative_error(grad[0], alignment) <= 1e-5
    assert (grad[0, 5:, :5] == 0).all()
    assert value[1] == math.inf and (grad[1] == 0).all()
    assert value[2].isnan() and grad[2].isnan().all()
