"""Differentiable alignment: soft-DTW on CPUs and GPUs."""

from warpalign._version import __version__
from warpalign.functional import (
    DTWPath,
    SoftDTWAlignment,
    SoftDTWSubsequence,
    dtw,
    dtw_path,
    soft_dtw,
    soft_dtw_alignment,
    soft_dtw_cost,
    soft_dtw_subsequence,
)
from warpalign.modules import SoftDTW

__all__ = [
    "DTWPath",
    "SoftDTW",
    "SoftDTWAlignment",
    "SoftDTWSubsequence",
    "__version__",
    "dtw",
    "dtw_path",
    "soft_dtw",
    "soft_dtw_alignment",
    "soft_dtw_cost",
    "soft_dtw_subsequence",
]
