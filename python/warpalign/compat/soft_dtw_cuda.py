"""Drop-in for Maghoumi's ``soft_dtw_cuda.py`` (github.com/Maghoumi/pytorch-softdtw-cuda)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from warpalign.compat._common import (
    absolute_band,
    absolute_radius,
    check_device,
    check_shapes,
    promoted,
    soft_dtw_in_band,
    soft_dtw_of_table,
    squared_distances,
)

__all__ = ["SoftDTW"]


class SoftDTW(nn.Module):
    """Soft-DTW with the original's constructor.

    Args:
        use_cuda: kept for the signature; it warns where it contradicts the tensors' device.
        gamma: smoothing, > 0.
        normalize: s(x, y) - (s(x, x) + s(y, y)) / 2; here for series of different lengths too.
        bandwidth: only cells with |i - j| <= bandwidth; None and 0 are no band. A pair without a path has value inf.
        dist_func: costs (B, N, M) of (B, N, D) and (B, M, D), any function that torch can differentiate. None: squared
            Euclidean distances, for which no table of costs is made.
    """

    @staticmethod
    def _euclidean_dist_func(x: Tensor, y: Tensor) -> Tensor:
        """The default of dist_func, under the original's name."""
        return squared_distances(x, y)

    def __init__(
        self,
        use_cuda: bool,
        gamma: float = 1.0,
        normalize: bool = False,
        bandwidth: float | None = None,
        dist_func: Callable[[Tensor, Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.use_cuda = use_cuda
        self.gamma = gamma
        self.normalize = normalize
        self.bandwidth = 0 if bandwidth is None else float(bandwidth)
        self.dist_func = SoftDTW._euclidean_dist_func if dist_func is None else dist_func

    def forward(self, X: Tensor, Y: Tensor) -> Tensor:
        """(B,) values, in the dtype that holds both; of integers in torch's default dtype.

        Args:
            X: (B, N, D) series.
            Y: (B, M, D) series.
        """
        check_shapes(X, Y)
        check_device(self.use_cuda, X)
        X, Y = promoted(X, Y)
        if not self.normalize:
            return self._values(X, Y)
        if X.shape[1] != Y.shape[1]:
            return self._values(X, Y) - (self._values(X, X) + self._values(Y, Y)) / 2
        values = self._values(torch.cat([X, X, Y]), torch.cat([Y, X, Y]))
        xy, xx, yy = values.view(3, -1).unbind()
        return xy - (xx + yy) / 2

    def _values(self, x: Tensor, y: Tensor) -> Tensor:
        radius = absolute_radius(self.bandwidth)
        if self.dist_func is SoftDTW._euclidean_dist_func:
            return soft_dtw_in_band(x, y, self.gamma, radius)
        band = absolute_band(x.shape[1], y.shape[1], radius, x.device)
        return soft_dtw_of_table(self.dist_func(x, y), self.gamma, band)
