"""Differentiable alignment on CPUs and GPUs: soft-DTW, transducers, optimal transport, and the LSTM.

Modules are loaded when they are first named. Some need further packages: the estimators SoftDTWKMeans,
SoftDTWKNeighborsClassifier, SoftDTWKNeighborsRegressor, SinkhornTransport, GromovTransport and DomainAdaptationClassifier
need scikit-learn, warpalign.plot needs matplotlib. warpalign.metrics takes torchmetrics where it is installed.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from warpalign._version import __version__
from warpalign.barycenter import BarycenterResult, soft_dtw_barycenter
from warpalign.decoding import (
    JointWeights,
    TransducerHypotheses,
    transducer_beam_decode,
    transducer_greedy_decode,
)
from warpalign.functional import (
    DTWPath,
    SoftDTWAlignment,
    SoftDTWSubsequence,
    TransducerAlignment,
    TransducerPosteriors,
    dtw,
    dtw_path,
    soft_dtw,
    soft_dtw_alignment,
    soft_dtw_cost,
    soft_dtw_subsequence,
    tdt_loss,
    transducer_align,
    transducer_loss,
    transducer_loss_from_joint,
)
from warpalign.modules import SoftDTW, TDTLoss, TransducerJointLoss, TransducerLoss
from warpalign.pairwise import cdist_soft_dtw, cdist_soft_dtw_normalized

__all__ = [
    "BarycenterResult",
    "DTWPath",
    "JointWeights",
    "SoftDTW",
    "SoftDTWAlignment",
    "SoftDTWSubsequence",
    "TDTLoss",
    "TransducerAlignment",
    "TransducerHypotheses",
    "TransducerJointLoss",
    "TransducerLoss",
    "TransducerPosteriors",
    "__version__",
    "cdist_soft_dtw",
    "cdist_soft_dtw_normalized",
    "dtw",
    "dtw_path",
    "soft_dtw",
    "soft_dtw_alignment",
    "soft_dtw_barycenter",
    "soft_dtw_cost",
    "soft_dtw_subsequence",
    "tdt_loss",
    "transducer_align",
    "transducer_beam_decode",
    "transducer_greedy_decode",
    "transducer_loss",
    "transducer_loss_from_joint",
]

if TYPE_CHECKING:
    from warpalign import adaptation as adaptation
    from warpalign import cluster as cluster
    from warpalign import compat as compat
    from warpalign import io as io
    from warpalign import metrics as metrics
    from warpalign import neighbors as neighbors
    from warpalign import plot as plot
    from warpalign import recurrent as recurrent
    from warpalign import transport as transport
    from warpalign.adaptation import DomainAdaptationClassifier as DomainAdaptationClassifier
    from warpalign.adaptation import GromovTransport as GromovTransport
    from warpalign.adaptation import SinkhornTransport as SinkhornTransport
    from warpalign.cluster import SoftDTWKMeans as SoftDTWKMeans
    from warpalign.neighbors import SoftDTWKNeighborsClassifier as SoftDTWKNeighborsClassifier
    from warpalign.neighbors import SoftDTWKNeighborsRegressor as SoftDTWKNeighborsRegressor

_LAZY = {
    "DomainAdaptationClassifier": "adaptation",
    "GromovTransport": "adaptation",
    "SinkhornTransport": "adaptation",
    "SoftDTWKMeans": "cluster",
    "SoftDTWKNeighborsClassifier": "neighbors",
    "SoftDTWKNeighborsRegressor": "neighbors",
}
_LAZY_MODULES = {
    "adaptation",
    "cluster",
    "compat",
    "io",
    "metrics",
    "neighbors",
    "plot",
    "recurrent",
    "transport",
}
_LOADED_MODULES = {"barycenter", "decoding", "functional", "modules", "pairwise"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(f"warpalign.{_LAZY[name]}"), name)
    if name in _LAZY_MODULES:
        return import_module(f"warpalign.{name}")
    raise AttributeError(f"module 'warpalign' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names alone."""
    return sorted([*__all__, *_LAZY, *_LAZY_MODULES, *_LOADED_MODULES])
