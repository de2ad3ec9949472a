"""Drop-in for softdtw-cuda-torch's package ``softdtw_cuda`` (github.com/BGU-CS-VIL/sdtw-cuda-torch), texts of its errors included."""

from __future__ import annotations

from warpalign.compat.softdtw_cuda import distances
from warpalign.compat.softdtw_cuda.barycenters import (
    dtw_barycenter,
    softdtw_barycenter,
    softdtw_barycenter_cpu,
)
from warpalign.compat.softdtw_cuda.functional import dtw, softdtw
from warpalign.compat.softdtw_cuda.module import DTW, SoftDTW

__all__ = [
    "DTW",
    "SoftDTW",
    "distances",
    "dtw",
    "dtw_barycenter",
    "softdtw",
    "softdtw_barycenter",
    "softdtw_barycenter_cpu",
]
