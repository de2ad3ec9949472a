"""The original's modules as functions."""

from __future__ import annotations

from torch import Tensor

from warpalign.compat.softdtw_cuda.module import DTW, SoftDTW


def softdtw(
    x: Tensor,
    y: Tensor,
    *,
    gamma: float = 1.0,
    bandwidth: float | None = None,
    normalize: bool = False,
    dist: str = "sqeuclidean",
    fused: bool | None = None,
) -> Tensor:
    """:class:`SoftDTW` as a function: x (B, N, D), y (B, M, D) -> (B,)."""
    loss = SoftDTW(gamma=gamma, bandwidth=bandwidth, normalize=normalize, dist=dist, fused=fused)
    value: Tensor = loss(x, y)
    return value


def dtw(
    x: Tensor,
    y: Tensor,
    dist: str = "sqeuclidean",
    fused: bool | None = None,
    bandwidth: float | None = None,
) -> Tensor:
    """:class:`DTW` as a function."""
    value: Tensor = DTW(dist=dist, fused=fused, bandwidth=bandwidth)(x, y)
    return value
