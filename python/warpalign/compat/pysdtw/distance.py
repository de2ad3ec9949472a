"""The original's cost functions, from differences: the same formula in both, as neither loses digits here."""

from __future__ import annotations

from torch import Tensor

from warpalign.compat._common import squared_distances


def pairwise_l2_squared(x: Tensor, y: Tensor) -> Tensor:
    """(B, N, M) squared Euclidean distances.

    Args:
        x: (B, N, D) series, floating-point.
        y: (B, M, D) series of the same dtype.
    """
    return squared_distances(x, y)


def pairwise_l2_squared_exact(x: Tensor, y: Tensor) -> Tensor:
    """The same as :func:`pairwise_l2_squared`.

    Args:
        x: (B, N, D) series, floating-point.
        y: (B, M, D) series of the same dtype.
    """
    return squared_distances(x, y)


SQUARED = (pairwise_l2_squared, pairwise_l2_squared_exact)
