"""What holds whatever the numbers are: symmetry, reversal, scaling, translation, bounds, sums of the alignment."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import warpalign
from tests.python.helpers import assert_close, numpy64
from tests.python.soft_dtw.reference import (
    assert_values_close,
    gradient_tolerance,
    hard_dtw_reference,
    log_delannoy,
    pair,
    squared_distances,
    value_and_gradients,
    value_tolerance,
)


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
