"""The original's modules."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from warpalign.compat._common import (
    absolute_band,
    absolute_radius,
    promoted,
    soft_dtw_in_band,
    soft_dtw_of_table,
)
from warpalign.compat.softdtw_cuda.distances import SQUARED, pairwise_distance


class SoftDTW(nn.Module):
    """Soft-DTW with the original's constructor.

    Args:
        gamma: smoothing, finite and > 0.
        bandwidth: only cells with |i - j| <= bandwidth; None, 0 and less are no band. A pair without a path has value inf.
        normalize: s(x, y) - (s(x, x) + s(y, y)) / 2, refused for N != M as in the original.
            :func:`warpalign.soft_dtw` computes it for any lengths.
        dist: "sqeuclidean" (also "sq_euclidean", "squared_euclidean") or "cosine": 1 - cosine similarity.
        fused: True is refused where the original cannot fuse; otherwise it makes no difference here.
    """

    def __init__(
        self,
        *,
        gamma: float = 1.0,
        bandwidth: float | None = None,
        normalize: bool = False,
        dist: str = "sqeuclidean",
        fused: bool | None = None,
    ) -> None:
        super().__init__()
        self.gamma = float(gamma)
        if self.gamma <= 0:
            raise ValueError(f"gamma must be > 0, got {self.gamma}")
        if not math.isfinite(self.gamma):
            raise ValueError(f"gamma must be finite, got {self.gamma}")
        self.bandwidth = None if bandwidth is None or float(bandwidth) <= 0 else float(bandwidth)
        self.normalize = bool(normalize)
        self.dist = str(dist)
        self.fused = fused

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """(B,) values; (1,) without the batch.

        Args:
            x: (B, N, D) series, or (N, D).
            y: (B, M, D) series, or (M, D).
        """
        x, y = (t.unsqueeze(0) if t.dim() == 2 else t for t in (x, y))
        if x.dim() != 3 or y.dim() != 3:
            raise ValueError(
                "Expected x,y to have shape (B,N,D) and (B,M,D) (or unbatched (N,D)). "
                f"Got x={tuple(x.shape)}, y={tuple(y.shape)}"
            )
        n, m = x.shape[1], y.shape[1]
        if self.normalize and n != m:
            raise ValueError(
                "normalize=True currently requires equal sequence lengths (N==M) because it uses the concatenation trick. "
                f"Got N={n}, M={m}."
            )
        if x.shape[2] != y.shape[2]:
            raise ValueError(
                f"Feature dims must match. Got x.shape[-1]={x.shape[2]}, y.shape[-1]={y.shape[2]}"
            )
        if x.shape[0] != y.shape[0]:
            raise ValueError(f"Batch sizes must match. Got x.shape[0]={x.shape[0]}, y.shape[0]={y.shape[0]}")
        if n == 0 or m == 0:
            raise ValueError(f"Sequence lengths must be > 0. Got N={n}, M={m}.")
        _check_fused(self.fused, self.dist, x, y)
        if not self.normalize:
            return self._values(x, y)
        values = self._values(torch.cat([x, x, y]), torch.cat([y, x, y]))
        xy, xx, yy = values.view(3, -1).unbind()
        return xy - (xx + yy) / 2

    def _values(self, x: Tensor, y: Tensor) -> Tensor:
        return _values(x, y, self.gamma, self.bandwidth, self.dist)


class DTW(nn.Module):
    """Hard DTW of squared Euclidean or cosine distances: values alone, without a gradient, as in the original.

    Args:
        dist: as in :class:`SoftDTW`.
        fused: as in :class:`SoftDTW`.
        bandwidth: as in :class:`SoftDTW`.
    """

    def __init__(
        self, dist: str = "sqeuclidean", fused: bool | None = None, bandwidth: float | None = None
    ) -> None:
        super().__init__()
        self.dist = dist
        self.fused = fused
        self.bandwidth = -1.0 if bandwidth is None else float(bandwidth)

    @torch.no_grad()
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """(B,) values; (1,) without the batch.

        Args:
            x: (B, N, D) series, or (N, D).
            y: (B, M, D) series, or (M, D).
        """
        x, y = (t.unsqueeze(0) if t.dim() == 2 else t for t in (x, y))
        if x.dim() != 3 or y.dim() != 3:
            raise ValueError(
                "Expected x,y to have shape (B,N,D)/(B,M,D) (or unbatched (N,D)). "
                f"Got x={tuple(x.shape)}, y={tuple(y.shape)}"
            )
        if x.shape[0] != y.shape[0]:
            raise ValueError(f"Batch sizes must match. Got {x.shape[0]} vs {y.shape[0]}")
        if x.shape[2] != y.shape[2]:
            raise ValueError(f"Feature dims must match. Got {x.shape[2]} vs {y.shape[2]}")
        if x.shape[1] == 0 or y.shape[1] == 0:
            raise ValueError(f"Sequence lengths must be > 0. Got N={x.shape[1]}, M={y.shape[1]}.")
        _check_fused(self.fused, self.dist, x, y)
        return _values(x, y, 0.0, self.bandwidth, self.dist)


def _values(x: Tensor, y: Tensor, gamma: float, bandwidth: float | None, dist: str) -> Tensor:
    x, y = promoted(x, y)
    radius = absolute_radius(bandwidth)
    if dist.lower() in SQUARED:
        return soft_dtw_in_band(x, y, gamma, radius)
    band = absolute_band(x.shape[1], y.shape[1], radius, x.device)
    return soft_dtw_of_table(pairwise_distance(x, y, dist=dist), gamma, band)


def _check_fused(fused: bool | None, dist: str, x: Tensor, y: Tensor) -> None:
    if fused is True and not (dist.lower() in SQUARED and x.is_cuda and y.is_cuda and x.device == y.device):
        raise ValueError("fused=True requires CUDA tensors and dist='sqeuclidean'.")
