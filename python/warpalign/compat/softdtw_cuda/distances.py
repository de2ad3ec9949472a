"""The original's cost functions."""

from __future__ import annotations

from torch import Tensor

from warpalign.compat._common import squared_distances

SQUARED = ("sqeuclidean", "sq_euclidean", "squared_euclidean")


def sqeuclidean(x: Tensor, y: Tensor) -> Tensor:
    """(B, N, M) squared Euclidean distances, from differences.

    Args:
        x: (B, N, D) series, floating-point.
        y: (B, M, D) series, floating-point.
    """
    if x.dim() != 3 or y.dim() != 3:
        raise ValueError(f"Expected x,y as (B,N,D)/(B,M,D). Got {tuple(x.shape)} and {tuple(y.shape)}")
    if x.shape[0] != y.shape[0] or x.shape[2] != y.shape[2]:
        raise ValueError(f"Batch/features mismatch: {tuple(x.shape)} vs {tuple(y.shape)}")
    return squared_distances(x, y)


def cosine(x: Tensor, y: Tensor) -> Tensor:
    """(B, N, M) costs 1 − cos, with the original's guard against length 0.

    Args:
        x: (B, N, D) series, floating-point.
        y: (B, M, D) series, floating-point.
    """
    x, y = (t / (t.norm(dim=-1, keepdim=True) + 1e-12) for t in (x, y))
    return 1.0 - x @ y.mT


def pairwise_distance(x: Tensor, y: Tensor, *, dist: str) -> Tensor:
    """(B, N, M) costs by name.

    Args:
        x: (B, N, D) series, floating-point.
        y: (B, M, D) series, floating-point.
        dist: "sqeuclidean" (also "sq_euclidean", "squared_euclidean") or "cosine".
    """
    name = dist.lower()
    if name in SQUARED:
        return sqeuclidean(x, y)
    if name == "cosine":
        return cosine(x, y)
    raise ValueError(f"Unknown dist='{name}'. Supported: 'sqeuclidean', 'cosine'")
