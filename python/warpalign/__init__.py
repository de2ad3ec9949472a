"""Differentiable alignment: soft-DTW on CPUs and GPUs."""

from warpalign._version import __version__
from warpalign.barycenter import BarycenterResult, soft_dtw_barycenter
from warpalign.functional import SoftDTWAlignment, soft_dtw, soft_dtw_alignment, soft_dtw_cost
from warpalign.modules import SoftDTW
from warpalign.pairwise import cdist_soft_dtw, cdist_soft_dtw_normalized

__all__ = [
    "BarycenterResult",
    "SoftDTW",
    "SoftDTWAlignment",
    "__version__",
    "cdist_soft_dtw",
    "cdist_soft_dtw_normalized",
    "soft_dtw",
    "soft_dtw_alignment",
    "soft_dtw_barycenter",
    "soft_dtw_cost",
]
