"""What the drop-ins share."""

from __future__ import annotations

import math
import warnings

import torch
from torch import Tensor

import warpalign

_COMPLEX = (torch.complex32, torch.complex64, torch.complex128)


class ShapeError(AssertionError, ValueError):
    """For what the originals assert: both their error's type and ours."""


def check_shapes(x: Tensor, y: Tensor) -> None:
    """Two batches of the same size with the same number of features: the originals do not broadcast."""
    for name, tensor in (("X", x), ("Y", y)):
        if tensor.dim() != 3:
            raise ShapeError(f"{name}: expected a batch of 3 axes, got shape {tuple(tensor.shape)}")
    if x.shape[0] != y.shape[0]:
        raise ShapeError(f"Y: expected a batch of {x.shape[0]}, as X has, got {y.shape[0]}")
    if x.shape[2] != y.shape[2]:
        raise ShapeError(f"Y: expected {x.shape[2]} features, as X has, got {y.shape[2]}")


def promoted(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Both in the dtype that holds both, as torch's own losses compute; integers in torch's default one."""
    dtype = torch.promote_types(x.dtype, y.dtype)
    if not dtype.is_floating_point and dtype not in (torch.bool, *_COMPLEX):
        dtype = torch.get_default_dtype()
    return x.to(dtype), y.to(dtype)


def check_device(use_cuda: bool, x: Tensor) -> None:
    """Says so where `use_cuda` and the tensors disagree; the tensors are right."""
    if use_cuda != x.is_cuda:
        warnings.warn(
            f"use_cuda={use_cuda}, but the series are on {x.device}: computed there (warpalign runs where the tensors are)",
            stacklevel=3,
        )


def absolute_radius(bandwidth: float | None) -> int | None:
    """The radius r of the cells with |i - j| <= bandwidth; None, infinity, NaN, 0 and less are no band."""
    return None if bandwidth is None or not 0 < bandwidth < math.inf else math.floor(bandwidth)


def soft_dtw_in_band(x: Tensor, y: Tensor, gamma: float, radius: int | None) -> Tensor:
    """(B,) soft-DTW over the cells with |i - j| <= radius; inf with gradient 0 where they hold no path."""
    n, m = x.shape[1], y.shape[1]
    if (radius is not None and radius < abs(n - m)) or x.shape[2] == 0:
        # warpalign refuses both, where the originals have inf, and costs of 0.
        return soft_dtw_of_table(squared_distances(x, y), gamma, absolute_band(n, m, radius, x.device))
    if radius is None:
        return warpalign.soft_dtw(x, y, gamma=gamma)
    return warpalign.soft_dtw(x, y, gamma=gamma, band="abs", bandwidth=radius)


def absolute_band(n: int, m: int, radius: int | None, device: torch.device) -> Tensor | None:
    """(n, m) bool: the cells with |i - j| <= radius; None: all."""
    if radius is None:
        return None
    i, j = torch.arange(n, device=device), torch.arange(m, device=device)
    return (i[:, None] - j).abs() <= radius


def soft_dtw_of_table(
    cost: Tensor,
    gamma: float,
    allowed: Tensor | None,
    x_lengths: Tensor | None = None,
    y_lengths: Tensor | None = None,
) -> Tensor:
    """(B,) soft-DTW of costs (B, N, M) over paths through allowed cells (N, M) or (B, N, M)."""
    if allowed is not None:
        cost = torch.where(allowed, cost, torch.inf)
    return warpalign.soft_dtw_cost(cost, gamma=gamma, x_lengths=x_lengths, y_lengths=y_lengths)


def squared_distances(x: Tensor, y: Tensor) -> Tensor:
    """(B, N, M) from differences; unlike the formula written out, it keeps no (B, N, M, D) table for the backward pass."""
    if x.shape[2] == 0:  # torch.cdist has no derivative then
        return x.sum(2)[:, :, None] + y.sum(2)[:, None]
    return torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist").square()
