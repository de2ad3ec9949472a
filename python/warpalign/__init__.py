"""Differentiable alignment on CPUs and GPUs: soft-DTW, transducers, CTC, optimal transport, and the LSTM.

Every public function and class of warpalign.timeseries, .transducer, .ctc, .transport and .recurrent is here too, and so are
the estimators of warpalign.estimators, which need scikit-learn and are loaded when they are first named. So are
warpalign.plot, which needs matplotlib, warpalign.metrics, which takes torchmetrics where it is installed,
warpalign.io and warpalign.compat.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from warpalign import ctc, recurrent, timeseries, transducer, transport
from warpalign._version import __version__ as __version__
from warpalign.ctc import *  # noqa: F403
from warpalign.recurrent import *  # noqa: F403
from warpalign.timeseries import *  # noqa: F403
from warpalign.transducer import *  # noqa: F403
from warpalign.transport import *  # noqa: F403

__all__ = ["__version__"]
__all__ += ctc.__all__
__all__ += recurrent.__all__
__all__ += timeseries.__all__
__all__ += transducer.__all__
__all__ += transport.__all__

if TYPE_CHECKING:
    from warpalign import compat as compat
    from warpalign import estimators as estimators
    from warpalign import io as io
    from warpalign import metrics as metrics
    from warpalign import plot as plot
    from warpalign.estimators import DomainAdaptationClassifier as DomainAdaptationClassifier
    from warpalign.estimators import GromovTransport as GromovTransport
    from warpalign.estimators import SinkhornTransport as SinkhornTransport
    from warpalign.estimators import SoftDTWKMeans as SoftDTWKMeans
    from warpalign.estimators import SoftDTWKNeighborsClassifier as SoftDTWKNeighborsClassifier
    from warpalign.estimators import SoftDTWKNeighborsRegressor as SoftDTWKNeighborsRegressor

_OPERATORS = {"ctc", "recurrent", "timeseries", "transducer", "transport"}
_LAZY_MODULES = {"compat", "estimators", "io", "metrics", "plot"}
_ESTIMATORS = {
    "DomainAdaptationClassifier",
    "GromovTransport",
    "SinkhornTransport",
    "SoftDTWKMeans",
    "SoftDTWKNeighborsClassifier",
    "SoftDTWKNeighborsRegressor",
}


def __getattr__(name: str) -> Any:
    if name in _ESTIMATORS:
        return getattr(import_module("warpalign.estimators"), name)
    if name in _LAZY_MODULES:
        return import_module(f"warpalign.{name}")
    raise AttributeError(f"module 'warpalign' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names alone."""
    return sorted([*__all__, *_ESTIMATORS, *_OPERATORS, *_LAZY_MODULES])
