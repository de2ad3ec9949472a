"""Soft-DTW in float64, written from the definition and apart from the package, and what its tests and benchmarks share."""

from __future__ import annotations

import itertools
import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tests.python.helpers import Array, randn
from warpalign import soft_dtw


class Reference(NamedTuple):
    value: float
    alignment: Array
    grad_x: Array
    grad_y: Array


def squared_distances(x: Array, y: Array) -> Array:
    distances: Array = ((x[:, None, :] - y[None, :, :]) ** 2).sum(axis=-1)
    return distances


def band_mask(
    band: str, n: int, m: int, *, bandwidth: int | None = None, max_slope: float = 2.0
) -> NDArray[np.bool_]:
    """(N, M): whether a path may use a cell, by the definitions of warpalign.soft_dtw."""
    i: NDArray[Any]
    j: NDArray[Any]
    mask: NDArray[np.bool_]
    i, j = np.arange(n)[:, None], np.arange(m)[None, :]
    if band == "itakura":
        bounds = [j * k * n / m for k in (1 / max_slope, max_slope)]
        steep, flat = max_slope * n / m, n / m / max_slope
        low, high = np.round(bounds[0], 2), np.round(bounds[1], 2)
        low = np.maximum(low, np.round(n - 1 - steep * (m - 1 - j), 2))
        high = np.minimum(high, np.round(n - 1 - flat * (m - 1 - j), 2))
        mask = (low <= i) & (i <= high)
    elif bandwidth is None:
        mask = np.ones((n, m), dtype=bool)
    elif band == "abs":
        mask = np.abs(i - j) <= bandwidth
    elif band == "slanted":
        mask = np.abs(i * (m - 1) - j * (n - 1)) <= bandwidth * (max(n, m) - 1)
    else:
        longer = m - n
        mask = (i - bandwidth + min(longer, 0) <= j) & (j <= i + max(longer, 0) + bandwidth)
    return mask


FORBIDDEN = 1e30  # stands for an infinite cost: its derivatives are finite


def tables(cost: Tensor, gamma: float | Tensor, *, penalty: float = 0.0, anywhere: bool = False) -> Tensor:
    """The recursion of Cuturi & Blondel 2017, equation 2, as torch's autograd differentiates it, as often as one likes.

        R[i, j] = C[i, j] + softmin_gamma(R[i-1, j-1], R[i-1, j] + penalty, R[i, j-1] + penalty)

    Args:
        cost: (B, N, M) float64; inf, or FORBIDDEN, where a path must not go.
        gamma: one number, or (B,) one per pair. The number 0 takes the best step: of equal ones the diagonal one, then the
            one from i - 1.
        penalty: of steps that are not diagonal.
        anywhere: whether paths begin in any cell (0, j), and not in (0, 0) alone.

    Returns:
        (N + M - 1, B, N + 1): R[i, j] is at [i + j, :, i + 1]; FORBIDDEN or more where no path comes.
    """
    batch, height, width = cost.shape
    diagonals = height + width - 1
    padded = torch.nn.functional.pad(cost.clamp(max=FORBIDDEN), (0, height), value=FORBIDDEN)
    skewed = padded.flatten(1)[:, : height * diagonals].view(batch, height, diagonals).unbind(2)
    border, start = cost.new_full((batch, 1), FORBIDDEN), cost.new_zeros(batch, 1)
    last = cost.new_full((batch, height + 1), FORBIDDEN)
    before = torch.cat([start, last[:, 1:]], 1)  # the cell before (0, 0) is the beginning
    smoothing = gamma.view(-1, 1) if isinstance(gamma, Tensor) else gamma
    rows = []
    for costs in skewed:
        diagonal, down, right = before[:, :-1], last[:, :-1] + penalty, last[:, 1:] + penalty
        if isinstance(smoothing, Tensor) or smoothing > 0:
            steps = torch.stack([diagonal, down, right])
            best = -smoothing * torch.logsumexp(-steps / smoothing, 0)
        else:
            best = torch.where(diagonal <= down, diagonal, down)
            best = torch.where(best <= right, best, right)
        before, last = last, torch.cat([border, costs + best], 1)
        rows.append(last)
        if anywhere:
            before = torch.cat([start, before[:, 1:]], 1)
    return torch.stack(rows)


def values(
    cost: Tensor,
    gamma: float | Tensor,
    n: Tensor | None = None,
    m: Tensor | None = None,
    *,
    penalty: float = 0.0,
) -> Tensor:
    """(B,) R[n-1, m-1] of tables(), where n and m are (B,) true lengths; what lies beyond them must be no NaN."""
    batch, height, width = cost.shape
    ends = torch.tensor([height, width], device=cost.device).expand(batch, 2)
    n, m = ends[:, 0] if n is None else n.long(), ends[:, 1] if m is None else m.long()
    return tables(cost, gamma, penalty=penalty)[n + m - 2, torch.arange(batch, device=cost.device), n]


def alignments(cost: Tensor, *arguments: Any, **options: Any) -> tuple[Tensor, Tensor]:
    """values(), inf where there is no path, and E = d value / d cost (B, N, M)."""
    with torch.enable_grad():
        cost = cost.detach().clamp(max=FORBIDDEN).requires_grad_()
        value = values(cost, *arguments, **options)
        reached = value < FORBIDDEN / 2
        (expected,) = torch.autograd.grad(value[reached].sum(), cost)
    return torch.where(reached, value, torch.inf).detach(), expected


class Reference64(NamedTuple):
    """Value (B,), gradients (B, N, D) and (B, M, D), and expected alignment (B, N, M), all float64."""

    value: Tensor
    grad_x: Tensor
    grad_y: Tensor
    alignment: Tensor


def soft_dtw_float64(x: Tensor, y: Tensor, gamma: float = 1.0) -> Reference64:
    """Squared distances of x (B, N, D) and y (B, M, D), on their device; about 10 tables of (N + M) N doubles per pair."""
    x, y = x.detach().double(), y.detach().double()
    cost = torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist").square()
    value, e = alignments(cost, gamma)
    grad_x = 2.0 * (e.sum(2, keepdim=True) * x - e @ y)
    grad_y = 2.0 * (e.sum(1).unsqueeze(2) * y - e.transpose(1, 2) @ x)
    return Reference64(value, grad_x, grad_y, e)


def values_and_alignments(
    cost: Array,
    gamma: float | Array,
    n: NDArray[np.intp] | None = None,
    m: NDArray[np.intp] | None = None,
    *,
    penalty: float = 0.0,
) -> tuple[Array, Array]:
    """alignments() of arrays. Zeros alone are the number 0: hard DTW."""
    is_number = np.ndim(gamma) == 0 or not np.any(gamma)
    smoothing = float(np.max(gamma)) if is_number else torch.as_tensor(gamma, dtype=torch.float64)
    lengths = (None if one is None else torch.as_tensor(one) for one in (n, m))
    value, expected = alignments(torch.from_numpy(cost), smoothing, *lengths, penalty=penalty)
    return value.numpy(), expected.numpy()


def value_and_alignment(cost: Array, gamma: float) -> tuple[float, Array]:
    """The value of one pair's costs (N, M), and its expected alignment."""
    values, alignments = values_and_alignments(cost[None], gamma)
    return float(values[0]), alignments[0]


def soft_dtw_reference(x: Array, y: Array, gamma: float) -> Reference:
    """Everything about one pair: x (N, D) and y (M, D)."""
    found = soft_dtw_float64(torch.from_numpy(x)[None], torch.from_numpy(y)[None], gamma)
    grad_x, grad_y, alignment = (one[0].numpy() for one in found[1:])
    return Reference(float(found.value), alignment, grad_x, grad_y)


def hard_dtw_reference(cost: Array) -> float:
    """The value of one pair's costs (N, M) at gamma 0; inf without a path."""
    value = float(values(torch.from_numpy(cost[None]), 0.0))
    return value if value < FORBIDDEN / 2 else math.inf


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


def training_step(x: torch.Tensor, y: torch.Tensor, **options: Any) -> tuple[torch.Tensor, ...]:
    """Value and both gradients, with another weight for every pair."""
    x, y = x.detach().requires_grad_(), y.detach().requires_grad_()
    value = soft_dtw(x, y, **options)
    weights = torch.arange(1.0, 1 + value.numel(), dtype=value.dtype, device=value.device)
    grads = torch.autograd.grad((value * weights.reshape(value.shape)).sum(), (x, y))
    return value.detach(), *grads


def value_and_gradients(
    x: torch.Tensor, y: torch.Tensor, **options: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Values and gradients for leaves made of x and y. Every value's upstream gradient is 1."""
    x, y = x.detach().requires_grad_(), y.detach().requires_grad_()
    value = soft_dtw(x, y, **options)
    grad_x, grad_y = torch.autograd.grad(value.sum(), (x, y))
    return value.detach(), grad_x, grad_y


def assert_values_close(got: torch.Tensor, expected: torch.Tensor, gamma: float = 1.0) -> None:
    """Asserts that two ways to compute the same values agree. Each way has an error of its own."""
    floor = 2 * value_tolerance(0.0, gamma, 100, 100, got.dtype)
    torch.testing.assert_close(got, expected, rtol=2e-6, atol=floor)
