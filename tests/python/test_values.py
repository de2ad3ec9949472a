"""Values, gradients and alignments against the float64 reference, and what must hold whatever the numbers are."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import warpalign
from reference import (
    gradient_tolerance,
    hard_dtw_reference,
    log_delannoy,
    numpy64,
    pair,
    paths,
    randn,
    relative_error,
    soft_dtw_reference,
    squared_distances,
    value_and_alignment,
    value_tolerance,
)

SIZES = [1, 2, 31, 32, 33, 97, 255, 257]
DIMS = [1, 2, 3, 8, 64]
GAMMAS = [1e-3, 0.1, 1.0, 10.0, 1e3]
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
HALF_DTYPES = [torch.float16, torch.bfloat16]

# Every pair of lengths, with D and gamma taken in turn so that each meets short and long series.
LENGTH_CASES = [
    (n, m, DIMS[(i + 2 * j) % len(DIMS)], GAMMAS[(2 * i + j) % len(GAMMAS)])
    for (i, n), (j, m) in itertools.product(enumerate(SIZES), enumerate(SIZES))
]


def value_and_gradients(
    x: torch.Tensor, y: torch.Tensor, **options: object
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Of leaves made from x and y, with a gradient of 1 into every value."""
    x, y = x.detach().requires_grad_(), y.detach().requires_grad_()
    value = warpalign.soft_dtw(x, y, **options)
    grad_x, grad_y = torch.autograd.grad(value.sum(), (x, y))
    return value.detach(), grad_x, grad_y


def assert_close(got: torch.Tensor, expected: torch.Tensor, tolerance: float) -> None:
    assert got.shape == expected.shape
    assert relative_error(got, numpy64(expected)) <= tolerance


def assert_values_close(got: torch.Tensor, expected: torch.Tensor, gamma: float = 1.0) -> None:
    """Of two ways to compute the same values, each with an error of its own."""
    floor = 2 * value_tolerance(0.0, gamma, 100, 100, got.dtype)
    torch.testing.assert_close(got, expected, rtol=2e-6, atol=floor)


def assert_matches_reference(x: torch.Tensor, y: torch.Tensor, gamma: float) -> None:
    n, m = x.shape[1], y.shape[1]
    value, grad_x, grad_y = value_and_gradients(x, y, gamma=gamma)
    assert value.shape == x.shape[:1]
    assert value.dtype == (torch.float64 if x.dtype == torch.float64 else torch.float32)
    assert (grad_x.shape, grad_x.dtype, grad_x.device) == (x.shape, x.dtype, x.device)
    assert (grad_y.shape, grad_y.dtype, grad_y.device) == (y.shape, y.dtype, y.device)
    for b in range(len(x)):
        expected = soft_dtw_reference(numpy64(x[b]), numpy64(y[b]), gamma)
        assert abs(float(value[b]) - expected.value) <= value_tolerance(expected.value, gamma, n, m, x.dtype)
        assert relative_error(grad_x[b], expected.grad_x) <= gradient_tolerance(gamma, x.dtype)
        assert relative_error(grad_y[b], expected.grad_y) <= gradient_tolerance(gamma, x.dtype)


# The reference itself.


@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 4), (3, 3), (4, 5)])
def test_reference_equals_the_sum_over_all_paths(n: int, m: int) -> None:
    cost, gamma = numpy64(randn(n, m, seed=0)), 0.7
    costs = np.array([sum(cost[cell] for cell in path) for path in paths(n, m)])
    weights = np.exp(-costs / gamma)
    expected = np.zeros((n, m))
    for path, weight in zip(paths(n, m), weights / weights.sum(), strict=True):
        for cell in path:
            expected[cell] += weight
    value, alignment = value_and_alignment(cost, gamma)
    assert value == pytest.approx(-gamma * math.log(weights.sum()), rel=1e-13)
    assert alignment == pytest.approx(expected, rel=1e-12)
    assert hard_dtw_reference(cost) == pytest.approx(costs.min(), rel=1e-14)
    assert log_delannoy(n, m) == pytest.approx(math.log(len(costs)))


# Against the reference.


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize(("n", "m", "d", "gamma"), LENGTH_CASES)
def test_lengths(device: torch.device, n: int, m: int, d: int, gamma: float, dtype: torch.dtype) -> None:
    assert_matches_reference(*pair(2, n, m, d, device=device, dtype=dtype), gamma)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("d", DIMS)
def test_features_gammas_and_dtypes(device: torch.device, d: int, gamma: float, dtype: torch.dtype) -> None:
    assert_matches_reference(*pair(3, 33, 40, d, device=device, dtype=dtype), gamma)


@pytest.mark.parametrize("d", [4, 5, 7, 16, 31, 33, 100, 200])
def test_other_features(device: torch.device, d: int) -> None:
    assert_matches_reference(*pair(2, 65, 34, d, device=device), 1.0)


@pytest.mark.parametrize(("n", "m"), [(1, 1000), (1000, 1), (3, 1500), (700, 40), (600, 600)])
def test_long_and_thin(device: torch.device, n: int, m: int) -> None:
    assert_matches_reference(*pair(1, n, m, 2, device=device), 1.0)


@pytest.mark.parametrize("batch", [1, 7, 300])
def test_batches(device: torch.device, batch: int) -> None:
    assert_matches_reference(*pair(batch, 9, 5, 3, device=device), 0.5)


@pytest.mark.parametrize(("gamma", "tolerance"), [(1.0, 1e-5), (0.01, 1e-4)])
@pytest.mark.parametrize("d", [1, 64])
def test_gradient_digits_at_512(device: torch.device, d: int, gamma: float, tolerance: float) -> None:
    x, y = pair(2, 512, 512, d, device=device)
    _, grad_x, grad_y = value_and_gradients(x, y, gamma=gamma)
    expected = [soft_dtw_reference(numpy64(x[b]), numpy64(y[b]), gamma) for b in range(2)]
    assert relative_error(grad_x, np.stack([e.grad_x for e in expected])) <= tolerance
    assert relative_error(grad_y, np.stack([e.grad_y for e in expected])) <= tolerance


@pytest.mark.parametrize("gamma", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 6), (33, 97), (130, 31)])
def test_cost_matrix(device: torch.device, n: int, m: int, dtype: torch.dtype, gamma: float) -> None:
    """Costs of either sign: the user's matrix is taken as it is."""
    cost = randn(3, n, m, seed=n + m, device=device, dtype=dtype, grad=True)
    value = warpalign.soft_dtw_cost(cost, gamma=gamma)
    assert value.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    (grad,) = torch.autograd.grad(value.sum(), cost)
    assert (grad.shape, grad.dtype) == (cost.shape, dtype)
    for b in range(3):
        expected, alignment = value_and_alignment(numpy64(cost[b]), gamma)
        scale = float(np.abs(alignment * numpy64(cost[b])).sum())  # costs of both signs cancel
        assert abs(float(value[b].detach()) - expected) <= value_tolerance(scale, gamma, n, m, dtype)
        assert relative_error(grad[b], alignment) <= gradient_tolerance(gamma, dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_cost_matrix_agrees_with_series(device: torch.device, dtype: torch.dtype) -> None:
    x, y = pair(3, 40, 29, 4, device=device, dtype=dtype)
    cost = ((x[:, :, None] - y[:, None]) ** 2).sum(-1)
    assert_values_close(warpalign.soft_dtw_cost(cost, gamma=0.3), warpalign.soft_dtw(x, y, gamma=0.3), 0.3)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("n", "m", "d", "gamma"), [(1, 1, 1, 1.0), (33, 70, 3, 0.1), (97, 64, 64, 1.0)])
def test_alignment(device: torch.device, n: int, m: int, d: int, gamma: float, dtype: torch.dtype) -> None:
    x, y = pair(2, n, m, d, device=device, dtype=dtype)
    result = warpalign.soft_dtw_alignment(x, y, gamma=gamma)
    value, alignment = result
    assert value is result.value and alignment is result.alignment
    assert alignment.shape == (2, n, m)
    assert alignment.dtype == value.dtype
    assert_values_close(value, warpalign.soft_dtw(x, y, gamma=gamma), gamma)
    for b in range(2):
        expected = soft_dtw_reference(numpy64(x[b]), numpy64(y[b]), gamma)
        assert relative_error(alignment[b], expected.alignment) <= gradient_tolerance(gamma, value.dtype)


def test_finite_differences_of_the_value(device: torch.device) -> None:
    x, y = pair(1, 20, 30, 2, device=device, dtype=torch.float64)
    direction, step = randn(1, 20, 2, seed=5, device=device, dtype=torch.float64), 1e-6
    _, grad_x, _ = value_and_gradients(x, y, gamma=0.5)
    ahead = warpalign.soft_dtw(x + step * direction, y, gamma=0.5)
    behind = warpalign.soft_dtw(x - step * direction, y, gamma=0.5)
    slope = float((ahead - behind) / (2 * step))
    assert slope == pytest.approx(float((grad_x * direction).sum()), rel=1e-7)


@st.composite
def problems(draw: st.DrawFn) -> tuple[torch.Tensor, torch.Tensor, float, list[int], list[int]]:
    batch, n, m = draw(st.integers(1, 4)), draw(st.integers(1, 70)), draw(st.integers(1, 70))
    d, dtype = draw(st.integers(1, 20)), draw(st.sampled_from([torch.float64, torch.float32]))
    x, y = pair(batch, n, m, d, dtype=dtype)
    scale, gamma = 10.0 ** draw(st.integers(-2, 2)), 10.0 ** draw(st.integers(-2, 3))
    x_lengths = draw(st.lists(st.integers(1, n), min_size=batch, max_size=batch))
    y_lengths = draw(st.lists(st.integers(1, m), min_size=batch, max_size=batch))
    return scale * x, scale * y, gamma, x_lengths, y_lengths


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(problem=problems())
def test_any_problem(
    device: torch.device, problem: tuple[torch.Tensor, torch.Tensor, float, list[int], list[int]]
) -> None:
    x, y, gamma, x_lengths, y_lengths = problem
    value, grad_x, grad_y = value_and_gradients(
        x.to(device),
        y.to(device),
        gamma=gamma,
        x_lengths=torch.tensor(x_lengths, device=device),
        y_lengths=torch.tensor(y_lengths, device=device),
    )
    for b, (p, q) in enumerate(zip(x_lengths, y_lengths, strict=True)):
        expected = soft_dtw_reference(numpy64(x[b, :p]), numpy64(y[b, :q]), gamma)
        assert abs(float(value[b]) - expected.value) <= value_tolerance(expected.value, gamma, p, q, x.dtype)
        # At 100 times the scale, gamma is 10,000 times smaller beside the costs.
        assert relative_error(grad_x[b, :p], expected.grad_x) <= gradient_tolerance(0.01, x.dtype)
        assert relative_error(grad_y[b, :q], expected.grad_y) <= gradient_tolerance(0.01, x.dtype)
        assert (grad_x[b, p:] == 0).all() and (grad_y[b, q:] == 0).all()


# Lengths.


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


def test_full_lengths_change_nothing(device: torch.device) -> None:
    x, y = pair(3, 12, 9, 2, device=device)
    full = {
        "x_lengths": torch.full((3,), 12, device=device),
        "y_lengths": torch.full((3,), 9, device=device),
    }
    for got, expected in zip(value_and_gradients(x, y, **full), value_and_gradients(x, y), strict=True):
        assert_close(got, expected, 1e-5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16], ids=str)
def test_cost_matrix_padding_never_leaks(device: torch.device, dtype: torch.dtype) -> None:
    cost = randn(3, 20, 35, seed=1, device=device, dtype=dtype)
    rows, columns = [20, 1, 7], [35, 34, 2]
    for b in range(3):
        cost[b, rows[b] :] = math.nan
        cost[b, :, columns[b] :] = math.nan
    cost.requires_grad_()
    value = warpalign.soft_dtw_cost(
        cost, n_lengths=torch.tensor(rows, device=device), m_lengths=torch.tensor(columns, device=device)
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


# NaN and inf in the data.


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


# What holds whatever the numbers are.


@pytest.mark.parametrize("gamma", [0.01, 1.0])
@pytest.mark.parametrize("d", [1, 64])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_symmetry(device: torch.device, dtype: torch.dtype, d: int, gamma: float) -> None:
    x, y = pair(2, 65, 40, d, device=device, dtype=dtype)
    value, grad_x, grad_y = value_and_gradients(x, y, gamma=gamma)
    mirrored, mirrored_y, mirrored_x = value_and_gradients(y, x, gamma=gamma)
    assert_values_close(value, mirrored, gamma)
    assert_close(grad_x, mirrored_x, 2 * gradient_tolerance(gamma, dtype))
    assert_close(grad_y, mirrored_y, 2 * gradient_tolerance(gamma, dtype))


@pytest.mark.parametrize("gamma", [0.1, 10.0])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_reversal(device: torch.device, dtype: torch.dtype, gamma: float) -> None:
    x, y = pair(2, 65, 40, 3, device=device, dtype=dtype)
    value, grad_x, _ = value_and_gradients(x, y, gamma=gamma)
    reversed_value, reversed_grad_x, _ = value_and_gradients(x.flip(1), y.flip(1), gamma=gamma)
    assert_values_close(value, reversed_value, gamma)
    assert_close(reversed_grad_x.flip(1), grad_x, 2 * gradient_tolerance(gamma, dtype))


@pytest.mark.parametrize("factor", [2.0**-8, 0.3, 64.0])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_scaling(device: torch.device, dtype: torch.dtype, factor: float) -> None:
    x, y = pair(2, 65, 40, 3, device=device, dtype=dtype)
    value, grad_x, _ = value_and_gradients(x, y, gamma=1.0)
    scaled_value, scaled_grad_x, _ = value_and_gradients(factor * x, factor * y, gamma=factor**2)
    assert_close(scaled_value / factor**2, value, 1e-5)
    assert_close(scaled_grad_x / factor, grad_x, 1e-5)


@pytest.mark.parametrize("d", [1, 8, 64])
@pytest.mark.parametrize("offset", [1000.0, -1000.0])
def test_translation_invariance(device: torch.device, d: int, offset: float) -> None:
    """On a grid on which the sums are exact in float32, so that only the method's own error shows."""
    x, y = ((256 * tensor).round() / 256 for tensor in pair(2, 65, 40, d, device=device))
    value, grad_x, grad_y = value_and_gradients(x, y, gamma=1.0)
    moved_value, moved_grad_x, moved_grad_y = value_and_gradients(x + offset, y + offset, gamma=1.0)
    assert_values_close(moved_value, value)
    assert_close(moved_grad_x, grad_x, 1e-5)
    assert_close(moved_grad_y, grad_y, 1e-5)


@pytest.mark.parametrize("gamma", [1e-9, 1e-6, 1e-3, 0.1, 1.0, 1e3])
@pytest.mark.parametrize(("n", "m"), [(1, 1), (2, 9), (40, 65), (97, 97)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_bounds_by_hard_dtw(device: torch.device, dtype: torch.dtype, n: int, m: int, gamma: float) -> None:
    """0 <= dtw - soft_dtw <= gamma log(number of paths): in the limit gamma -> 0 the value is hard DTW's."""
    x, y = pair(1, n, m, 2, device=device, dtype=dtype)
    hard = hard_dtw_reference(squared_distances(numpy64(x[0]), numpy64(y[0])))
    soft = float(warpalign.soft_dtw(x, y, gamma=gamma))
    slack = value_tolerance(abs(hard) + gamma * log_delannoy(n, m), gamma, n, m, dtype)
    assert -slack <= hard - soft <= gamma * log_delannoy(n, m) + slack


@pytest.mark.parametrize(
    ("n", "m", "d", "gamma"),
    [(1, 1, 1, 1.0), (1, 50, 2, 1.0), (50, 33, 3, 1e-3), (257, 97, 64, 100.0), (1024, 1024, 64, 0.01)],
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_sums_of_the_alignment(
    device: torch.device, dtype: torch.dtype, n: int, m: int, d: int, gamma: float
) -> None:
    """A path crosses every row and column at least once, every anti-diagonal at most once, and both corners."""
    x, y = pair(1, n, m, d, device=device, dtype=dtype)
    alignment = numpy64(warpalign.soft_dtw_alignment(x, y, gamma=gamma).alignment[0])
    rounding, slack = (1e-12, 1e-9) if dtype == torch.float64 else (1e-5, 1e-4)
    assert alignment[0, 0] == pytest.approx(1, abs=rounding)
    assert alignment[-1, -1] == pytest.approx(1, abs=rounding)
    assert alignment.min() >= 0
    assert alignment.max() <= 1 + slack
    assert alignment.sum(axis=0).min() >= 1 - slack
    assert alignment.sum(axis=1).min() >= 1 - slack
    flipped = alignment[::-1]
    assert max(np.trace(flipped, offset) for offset in range(-n + 1, m)) <= 1 + slack


def test_value_and_alignment_give_the_entropy(device: torch.device) -> None:
    """d value / d gamma = (value - <E, C>) / gamma."""
    x, y = pair(1, 30, 41, 2, device=device, dtype=torch.float64)
    gamma, step = 0.8, 1e-5
    value, alignment = warpalign.soft_dtw_alignment(x, y, gamma=gamma)
    cost = ((x[:, :, None] - y[:, None]) ** 2).sum(-1)
    expected = float((value - (alignment * cost).sum()) / gamma)
    ahead, behind = (warpalign.soft_dtw(x, y, gamma=gamma + sign * step) for sign in (1, -1))
    assert float(ahead - behind) / (2 * step) == pytest.approx(expected, rel=1e-6)


def test_gradients_of_x_and_y_cancel(device: torch.device) -> None:
    """The value does not change when both series move together."""
    x, y = pair(2, 97, 65, 3, device=device)
    _, grad_x, grad_y = value_and_gradients(x, y)
    assert (grad_x.sum(1) + grad_y.sum(1)).norm() <= 1e-5 * grad_x.abs().sum()


# Shapes and layouts.


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
