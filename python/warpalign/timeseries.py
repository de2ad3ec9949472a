"""Soft-DTW and DTW of time series: values, alignments, paths, subsequences, barycenters, and all pairs of a set."""

from warpalign._core.costs import Mahalanobis
from warpalign._soft_dtw.barycenter import BarycenterResult, soft_dtw_barycenter
from warpalign._soft_dtw.elastic import elastic_distance
from warpalign._soft_dtw.functional import (
    SoftDTWAlignment,
    dtw,
    soft_dtw,
    soft_dtw_alignment,
    soft_dtw_cost,
)
from warpalign._soft_dtw.modules import SoftDTW
from warpalign._soft_dtw.pairwise import cdist_soft_dtw, cdist_soft_dtw_normalized
from warpalign._soft_dtw.paths import DTWPath, SoftDTWSubsequence, dtw_path, soft_dtw_subsequence
from warpalign._soft_dtw.sampling import SoftDTWSample, soft_dtw_sample
from warpalign._soft_dtw.scheduler import GammaScheduler

__all__ = [
    "BarycenterResult",
    "DTWPath",
    "GammaScheduler",
    "Mahalanobis",
    "SoftDTW",
    "SoftDTWAlignment",
    "SoftDTWSample",
    "SoftDTWSubsequence",
    "cdist_soft_dtw",
    "cdist_soft_dtw_normalized",
    "dtw",
    "dtw_path",
    "elastic_distance",
    "soft_dtw",
    "soft_dtw_alignment",
    "soft_dtw_barycenter",
    "soft_dtw_cost",
    "soft_dtw_sample",
    "soft_dtw_subsequence",
]
