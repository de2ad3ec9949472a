"""Values, gradients and alignments against the float64 reference."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import warpalign
from tests.python.helpers import DTYPES, numpy64, randn, relative_error
from tests.python.soft_dtw.reference import (
    assert_values_close,
    gradient_tolerance,
    hard_dtw_reference,
    log_delannoy,
    pair,
    paths,
    soft_dtw_reference,
    value_and_alignment,
    value_and_gradients,
    value_tolerance,
)

SIZES = [1, 2, 31, 32, 33, 97, 255, 257]
DIMS = [1, 2, 3, 8, 64]
GAMMAS = [1e-3, 0.1, 1.0, 10.0, 1e3]

# Every pair of lengths, with D and gamma taken in turn so that each meets short and long series.
LENGTH_CASES = [
    (n, m, DIMS[(i + 2 * j) % len(DIMS)], GAMMAS[(2 * i + j) % len(GAMMAS)])
    for (i, n), (j, m) in itertools.product(enumerate(SIZES), enumerate(SIZES))
]


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
