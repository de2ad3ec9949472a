"""Soft-DTW in float64 numpy, written from the definition and apart from the package, and what the tests share."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from tests.python.helpers import Array, randn
from warpalign import soft_dtw


class Reference(NamedTuple):
    value: float
    alignment: Array
    grad_x: Array
    grad_y: Array


def squared_distances(x: Array, y: Array) -> Array:
    return ((x[:, None, :] - y[None, :, :]) ** 2).sum(axis=-1)


def band_mask(
    band: str, n: int, m: int, *, bandwidth: int | None = None, max_slope: float = 2.0
) -> NDArray[np.bool_]:
    """(N, M): whether a path may use a cell, by the definitions of warpalign.soft_dtw."""
    i, j = np.arange(n)[:, None], np.arange(m)[None, :]
    if band == "itakura":
        bounds = [j * k * n / m for k in (1 / max_slope, max_slope)]
        steep, flat = max_slope * n / m, n / m / max_slope
        low, high = np.round(bounds[0], 2), np.round(bounds[1], 2)
        low = np.maximum(low, np.round(n - 1 - steep * (m - 1 - j), 2))
        high = np.minimum(high, np.round(n - 1 - flat * (m - 1 - j), 2))
        return (low <= i) & (i <= high)
    if bandwidth is None:
        return np.ones((n, m), dtype=bool)
    if band == "abs":
        return np.abs(i - j) <= bandwidth
    if band == "slanted":
        return np.abs(i * (m - 1) - j * (n - 1)) <= bandwidth * (max(n, m) - 1)
    longer = m - n
    return (i - bandwidth + min(longer, 0) <= j) & (j <= i + max(longer, 0) + bandwidth)


def antidiagonals(n: int, m: int) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Row and column indices, counted from 1, of the cells of each anti-diagonal."""
    for total in range(2, n + m + 1):
        rows = np.arange(max(1, total - m), min(n, total - 1) + 1)
        yield rows, total - rows


def values_and_alignments(
    cost: Array,
    gamma: float | Array,
    n: NDArray[np.intp] | None = None,
    m: NDArray[np.intp] | None = None,
    *,
    penalty: float = 0.0,
) -> tuple[Array, Array]:
    """Of a batch (B, N, M), with true lengths n and m (B,), beyond which costs do not matter: values (B,), E (B, N, M).

    gamma is one number, or one per pair; 0 takes the best step, of equal ones the diagonal, then the downward one. The
    penalty is for steps that are not diagonal.

    The recursion over anti-diagonals; then the expected alignment, from the probabilities of the steps into each cell. Cells
    are counted from 1, so that row 0 and column 0 are the border of the recursion.
    """
    batch, height, width = cost.shape
    smoothing = np.broadcast_to(gamma, batch)[:, None]
    is_hard = bool((smoothing == 0).all())
    n = np.full(batch, height) if n is None else n
    m = np.full(batch, width) if m is None else m
    table = np.full((batch, height + 1, width + 1), np.inf)
    table[:, 0, 0] = 0.0
    steps = np.zeros((3, batch, height + 2, width + 2))  # into each cell: diagonally, downwards, to the right
    diagonals = list(antidiagonals(height, width))
    for rows, columns in diagonals:
        before = np.stack(
            [
                table[:, rows - 1, columns - 1],
                table[:, rows - 1, columns] + penalty,
                table[:, rows, columns - 1] + penalty,
            ]
        )
        best = before.min(axis=0)
        with np.errstate(invalid="ignore"):
            if is_hard:
                weights = 1.0 * (before.argmin(axis=0) == np.arange(3)[:, None, None])
            else:
                weights = np.exp((best - before) / smoothing)
            weights = np.where(np.isinf(best), 0.0, weights)
        total = weights.sum(axis=0)
        reached = total > 0
        safe = np.where(reached, total, 1.0)
        table[:, rows, columns] = cost[:, rows - 1, columns - 1] + np.where(
            reached, best - smoothing * np.log(safe), np.inf
        )
        steps[:, :, rows, columns] = weights / safe
    pairs = np.arange(batch)
    values = table[pairs, n, m]
    expected = np.zeros((batch, height + 2, width + 2))
    expected[pairs, n, m] = np.isfinite(values)
    for rows, columns in reversed(diagonals):
        expected[:, rows, columns] += (
            expected[:, rows + 1, columns + 1] * steps[0][:, rows + 1, columns + 1]
            + expected[:, rows + 1, columns] * steps[1][:, rows + 1, columns]
            + expected[:, rows, columns + 1] * steps[2][:, rows, columns + 1]
        )
    return values, expected[:, 1:-1, 1:-1]


def value_and_alignment(cost: Array, gamma: float) -> tuple[float, Array]:
    """Of one pair (N, M)."""
    values, alignments = values_and_alignments(cost[None], gamma)
    return float(values[0]), alignments[0]


def soft_dtw_reference(x: Array, y: Array, gamma: float) -> Reference:
    """Of one pair: x (N, D) and y (M, D)."""
    value, alignment = value_and_alignment(squared_distances(x, y), gamma)
    grad_x = 2 * (alignment.sum(axis=1)[:, None] * x - alignment @ y)
    grad_y = 2 * (alignment.sum(axis=0)[:, None] * y - alignment.T @ x)
    return Reference(value, alignment, grad_x, grad_y)


def hard_dtw_reference(cost: Array) -> float:
    n, m = cost.shape
    table = np.full((n + 1, m + 1), np.inf)
    table[0, 0] = 0.0
    for rows, columns in antidiagonals(n, m):
        before = np.minimum(table[rows - 1, columns - 1], table[rows - 1, columns])
        table[rows, columns] = cost[rows - 1, columns - 1] + np.minimum(before, table[rows, columns - 1])
    return float(table[n, m])


@cache
def paths(n: int, m: int) -> list[list[tuple[int, int]]]:
    """Every warping path from (0, 0) to (n - 1, m - 1)."""
    if n == 1 and m == 1:
        return [[(0, 0)]]
    found = []
    for i, j in itertools.product((n, n - 1), (m, m - 1)):
        if i >= 1 and j >= 1 and (i, j) != (n, m):
            found += [path + [(n - 1, m - 1)] for path in paths(i, j)]
    return found


def log_delannoy(n: int, m: int) -> float:
    """Logarithm of the number of warping paths of an n x m table."""
    row = [1] * m
    for _ in range(n - 1):
        following = [1]
        for j in range(1, m):
            following.append(following[-1] + row[j] + row[j - 1])
        row = following
    return math.log(row[-1])


# What the tests share.


def pair(
    batch: int,
    n: int,
    m: int,
    d: int,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    grad: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    seed = 1000 * n + 10 * m + d
    return (
        randn(batch, n, d, seed=seed, device=device, dtype=dtype, grad=grad),
        randn(batch, m, d, seed=seed + 1, device=device, dtype=dtype, grad=grad),
    )


def value_tolerance(expected: float, gamma: float, n: int, m: int, dtype: torch.dtype) -> float:
    """The floor stands for values that cancel: costs against gamma times the entropy of the paths."""
    if dtype == torch.float64:
        return 1e-12 * abs(expected) + 1e-14 * gamma * (n + m)
    return 1e-6 * abs(expected) + 1.2e-7 * gamma * (n + m)


def gradient_tolerance(gamma: float, dtype: torch.dtype) -> float:
    if dtype == torch.float64:
        return 1e-10 if gamma >= 0.1 else 1e-9
    rounding_of_the_result = {torch.float32: 0.0, torch.float16: 2**-11, torch.bfloat16: 2**-8}[dtype]
    return rounding_of_the_result + (1e-5 if gamma > 0.01 else 1e-4)


def training_step(x: torch.Tensor, y: torch.Tensor, **options: object) -> tuple[torch.Tensor, ...]:
    """Value and both gradients, with another weight for every pair."""
    x, y = x.detach().requires_grad_(), y.detach().requires_grad_()
    value = soft_dtw(x, y, **options)
    weights = torch.arange(1.0, 1 + value.numel(), dtype=value.dtype, device=value.device)
    grads = torch.autograd.grad((value * weights.reshape(value.shape)).sum(), (x, y))
    return value.detach(), *grads


def value_and_gradients(
    x: torch.Tensor, y: torch.Tensor, **options: object
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Of leaves made from x and y, with a gradient of 1 into every value."""
    x, y = x.detach().requires_grad_(), y.detach().requires_grad_()
    value = soft_dtw(x, y, **options)
    grad_x, grad_y = torch.autograd.grad(value.sum(), (x, y))
    return value.detach(), grad_x, grad_y


def assert_values_close(got: torch.Tensor, expected: torch.Tensor, gamma: float = 1.0) -> None:
    """Of two ways to compute the same values, each with an error of its own."""
    floor = 2 * value_tolerance(0.0, gamma, 100, 100, got.dtype)
    torch.testing.assert_close(got, expected, rtol=2e-6, atol=floor)
