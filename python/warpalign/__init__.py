"""Differentiable alignment: soft-DTW on CPUs and GPUs."""

from warpalign._version import __version__
from warpalign.functional import (
    DTWPath,
    SoftDTWAlignment,
    dtw,
    dtw_path,
    soft_dtw,
    soft_dtw_alignment,
    soft_dtw_cost,
)
from warpalign.modules import SoftDTW

__all__ = [
    "DTWPath",
    "SoftDTW",
    "SoftDTWAlignment",
    "__version__",
    "dtw",
    "dtw_path",
    "soft_dtw",
    "soft_dtw_alignment",
    "soft_dtw_cost",
]
