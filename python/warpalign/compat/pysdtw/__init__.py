"""Drop-in for ``pysdtw`` (pypi.org/project/pysdtw, release 0.0.5)."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

import warpalign
from warpalign.compat._common import (
    check_device,
    check_shapes,
    promoted,
    soft_dtw_of_table,
    squared_distances,
)
from warpalign.compat.pysdtw import distance
from warpalign.compat.pysdtw.distance import pairwise_l2_squared

__all__ = ["SoftDTW", "distance", "pairwise_l2_squared"]
__version__ = "0.0.5"  # of the release that this stands for


class SoftDTW(nn.Module):
    """Soft-DTW with the original's constructor.

    Args:
        gamma: smoothing, > 0.
        dist_func: costs (B, N, M) of (B, N, D) and (B, M, D), any function that torch can differentiate. None, and the
            functions of :mod:`warpalign.compat.pysdtw.distance`: squared Euclidean distances, for which no table is made.
        use_cuda: kept for the signature; it warns where it contradicts the tensors' device.
        bandwidth: a band around the diagonal of each pair's own rectangle: with i and j counted from 1 and the shorter
            series' index stretched by the ratio of the lengths, only cells with |i - j| <= bandwidth. None and 0 are no
            band. The corner (1, 1) itself is outside where the ratio is above 1 + bandwidth: then the value is inf. A table
            of costs is made. (The original's gradients with a band and different lengths within a batch are wrong; these are
            those of its values.)
    """

    def __init__(
        self,
        gamma: float = 1.0,
        dist_func: Callable[[Tensor, Tensor], Tensor] | None = None,
        use_cuda: bool = True,
        bandwidth: float | None = None,
    ) -> None:
        super().__init__()
        self.gamma = gamma
        self.bandwidth = 0 if bandwidth is None else float(bandwidth)
        self.dist_func = pairwise_l2_squared if dist_func is None else dist_func
        self.use_cuda = use_cuda
        self.dtw_func = _dtw_func

    def forward(self, X: Tensor | PackedSequence, Y: Tensor | PackedSequence) -> Tensor:
        """(B,) values, in the dtype that holds both; of integers in torch's default dtype.

        Args:
            X: (B, N, D) series, or a packed sequence.
            Y: (B, M, D) series, or a packed sequence.
        """
        x, n = _unpacked(X)
        y, m = _unpacked(Y)
        check_shapes(x, y)
        check_device(self.use_cuda, x)
        x, y = promoted(x, y)
        is_default = self.dist_func in distance.SQUARED
        if is_default and x.shape[2] and not 0 < self.bandwidth < math.inf and self.dtw_func is _dtw_func:
            return warpalign.soft_dtw(x, y, gamma=self.gamma, x_lengths=n, y_lengths=m)
        cost = squared_distances(x, y) if is_default else self.dist_func(x, y)
        rows = torch.full((len(x),), x.shape[1], device=x.device) if n is None else n
        columns = torch.full((len(y),), y.shape[1], device=y.device) if m is None else m
        return self.dtw_func(cost, torch.stack([rows, columns], 1), self.gamma, self.bandwidth)


def _dtw_func(D: Tensor, lengths: Tensor, gamma: float, bandwidth: float) -> Tensor:
    """The original's attribute dtw_func: (B,) soft-DTW of costs D (B, N, M) of pairs with lengths (B, 2)."""
    rows, columns = lengths.unbind(1)
    _, n, m = D.shape
    allowed = _band(rows, columns, n, m, bandwidth) if 0 < bandwidth < math.inf else None
    return soft_dtw_of_table(D, gamma, allowed, rows, columns)


def _unpacked(series: Tensor | PackedSequence) -> tuple[Tensor, Tensor | None]:
    """Padded series (B, N, D), in the caller's order, and their true lengths (B,) on their device."""
    if not isinstance(series, PackedSequence):
        return series, None
    padded, lengths = pad_packed_sequence(series, batch_first=True)
    return padded, lengths.to(padded.device)


def _band(rows: Tensor, columns: Tensor, n: int, m: int, bandwidth: float) -> Tensor:
    """(B, n, m) bool; rows and columns (B,) are the pairs' true lengths."""
    i = torch.arange(1, n + 1, device=rows.device, dtype=torch.float64)[:, None]
    j = torch.arange(1, m + 1, device=rows.device, dtype=torch.float64)
    rows, columns = rows[:, None, None], columns[:, None, None]
    # Multiplied before divided, as the original does: which cells lie on the edge depends on the rounding.
    stretched_i = torch.where(columns > rows, i * columns / rows, i)
    stretched_j = torch.where(columns < rows, j * rows / columns, j)
    return (stretched_i - stretched_j).abs() <= bandwidth
