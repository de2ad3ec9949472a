"""What the tests of the drop-ins share.

The originals keep float64 tables in float32 (torch.Tensor(array)), and form E from differences of R: errors of
eps32 * max|R| in the value, and of eps32 * max|R| / gamma in the exponent of each of the N + M steps behind a cell of E.
The tolerances below are these, with R at most 30 here.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from tests.python.helpers import numpy64, randn
from tests.python.soft_dtw.reference import squared_distances, value_and_alignment

EPS32 = 1.2e-7
VALUE = 30 * EPS32  # times max(1, |value|)


def gradient_tolerance(gamma: float, n: int, m: int) -> float:
    """Relative, of float32's tables."""
    return 30 * EPS32 / gamma * (n + m)


def pair(
    n: int, m: int, *, batch: int = 3, d: int = 2, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor]:
    x = 0.7 * randn(batch, n, d, seed=n, dtype=dtype)
    y = 0.7 * randn(batch, m, d, seed=100 + m, dtype=dtype)
    return x.requires_grad_(), y.requires_grad_()


def with_gradients(loss: Callable[..., Tensor], x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Value and gradients, with a different weight for each pair."""
    value = loss(x, y)
    weights = torch.linspace(1, 2, value.numel(), dtype=value.dtype)
    grad_x, grad_y = torch.autograd.grad(weights @ value, (x, y))
    return value.detach(), grad_x, grad_y


def same(got: tuple[Tensor, ...], expected: tuple[Tensor, ...], gradient: float) -> None:
    assert got[0].shape == expected[0].shape and got[0].dtype == expected[0].dtype
    assert torch.allclose(got[0], expected[0], rtol=VALUE, atol=VALUE)
    for ours_, theirs in zip(got[1:], expected[1:], strict=True):
        assert (ours_ - theirs).norm() <= gradient * theirs.norm()


def reference(x: Tensor, y: Tensor, gamma: float, allowed: Callable[[int, int], bool]) -> tuple[Tensor, ...]:
    """Value and gradients from the float64 reference over the allowed cells (indices from 1); weights as above."""
    values, grads_x, grads_y = [], [], []
    weights = np.linspace(1, 2, len(x))
    for a, b, weight in zip(numpy64(x), numpy64(y), weights, strict=True):
        cost = squared_distances(a, b)
        for i, j in np.ndindex(cost.shape):
            if not allowed(i + 1, j + 1):
                cost[i, j] = np.inf
        value, e = value_and_alignment(cost, gamma)
        values.append(value)
        grads_x.append(2 * weight * (e.sum(1)[:, None] * a - e @ b))
        grads_y.append(2 * weight * (e.sum(0)[:, None] * b - e.T @ a))
    return (
        torch.tensor(values, dtype=torch.float64),
        torch.tensor(np.array(grads_x)),
        torch.tensor(np.array(grads_y)),
    )


SIZES = [(1, 1), (1, 5), (6, 1), (7, 7), (9, 6), (6, 11)]


def l1(x: Tensor, y: Tensor) -> Tensor:
    return (x[:, :, None] - y[:, None]).abs().sum(-1)
