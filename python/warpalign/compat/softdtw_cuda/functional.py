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
    """:class:`SoftDTW` as a function: (B,) values, (1,) without the batch.

    Args:
        x: (B, N, D) series, or (N, D).
        y: (B, M, D) series, or (M, D).
        gamma: smoothing, finite and > 0.
        bandwidth: only cells with |i − j| <= bandwidth; None, 0 and less: no band. A pair without a path has value inf.
        normalize: s(x, y) − (s(x, x) + s(y, y)) / 2, refused for N != M as in the original.
        dist: "sqeuclidean" (also "sq_euclidean", "squared_euclidean") or "cosine".
        fused: True is refused where the original cannot fuse; otherwise it makes no difference here.
    """
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
    """:class:`DTW` as a function: (B,) values without a gradient, (1,) without the batch.

    Args:
        x: (B, N, D) series, or (N, D).
        y: (B, M, D) series, or (M, D).
        dist: "sqeuclidean" (also "sq_euclidean", "squared_euclidean") or "cosine".
        fused: True is refused where the original cannot fuse; otherwise it makes no difference here.
        bandwidth: only cells with |i − j| <= bandwidth; None, 0 and less: no band. A pair without a path has value inf.
    """
    value: Tensor = DTW(dist=dist, fused=fused, bandwidth=bandwidth)(x, y)
    return value
