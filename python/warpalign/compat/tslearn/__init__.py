"""Drop-in for tslearn's DTW and soft-DTW (release 0.10): metrics, barycenters, k-means and nearest neighbours.

Tensors give tensors, anything else NumPy; both in float64, as there. A series ends before its trailing NaN. A band is chosen
by `global_constraint` ("sakoe_chiba", "itakura" or None), or by the one of `sakoe_chiba_radius` (default 1) and
`itakura_max_slope` (default 2) that is given. A negative gamma raises, where tslearn returns NaN.

The estimators need scikit-learn (pip install 'warpalign[estimators]'), and load when they are named.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from warpalign.compat.tslearn.barycenters import dtw_barycenter_averaging, softdtw_barycenter
from warpalign.compat.tslearn.metrics import (
    SoftDTWLossPyTorch,
    cdist_dtw,
    cdist_soft_dtw,
    cdist_soft_dtw_normalized,
    dtw,
    dtw_path,
    gamma_soft_dtw,
    soft_dtw,
    soft_dtw_alignment,
    soft_dtw_normalized,
)

if TYPE_CHECKING:
    from warpalign.compat.tslearn.clustering import TimeSeriesKMeans as TimeSeriesKMeans
    from warpalign.compat.tslearn.neighbors import (
        KNeighborsTimeSeriesClassifier as KNeighborsTimeSeriesClassifier,
    )

__all__ = [
    "SoftDTWLossPyTorch",
    "cdist_dtw",
    "cdist_soft_dtw",
    "cdist_soft_dtw_normalized",
    "dtw",
    "dtw_barycenter_averaging",
    "dtw_path",
    "gamma_soft_dtw",
    "soft_dtw",
    "soft_dtw_alignment",
    "soft_dtw_normalized",
    "softdtw_barycenter",
]
_LAZY = {"TimeSeriesKMeans": "clustering", "KNeighborsTimeSeriesClassifier": "neighbors"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
    raise AttributeError(f"module '{__name__}' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_LAZY])
