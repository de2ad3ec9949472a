"""Differentiable alignment on CPUs and GPUs: soft-DTW, transducers, CTC, optimal transport, and the LSTM.

Every public function and class of warpalign.timeseries, .transducer, .ctc, .decoding, .transport and .recurrent is here too, and so are
the estimators of warpalign.estimators, which need scikit-learn and are loaded when they are first named. So are
warpalign.plot, which needs matplotlib, warpalign.metrics, which takes torchmetrics where it is installed,
warpalign.io and warpalign.compat.

Where torch is not imported yet, the operators are loaded when one is first named: warpalign.jax, the front end for JAX, needs no torch.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from warpalign._version import __version__ as __version__

if TYPE_CHECKING:
    from warpalign import compat as compat
    from warpalign import ctc, decoding, recurrent, timeseries, transducer, transport
    from warpalign import estimators as estimators
    from warpalign import io as io
    from warpalign import jax as jax
    from warpalign import metrics as metrics
    from warpalign import plot as plot
    from warpalign.ctc import *  # noqa: F403
    from warpalign.decoding import *  # noqa: F403
    from warpalign.estimators import DomainAdaptationClassifier as DomainAdaptationClassifier
    from warpalign.estimators import GromovTransport as GromovTransport
    from warpalign.estimators import SinkhornTransport as SinkhornTransport
    from warpalign.estimators import SoftDTWKMeans as SoftDTWKMeans
    from warpalign.estimators import SoftDTWKNeighborsClassifier as SoftDTWKNeighborsClassifier
    from warpalign.estimators import SoftDTWKNeighborsRegressor as SoftDTWKNeighborsRegressor
    from warpalign.recurrent import *  # noqa: F403
    from warpalign.timeseries import *  # noqa: F403
    from warpalign.transducer import *  # noqa: F403
    from warpalign.transport import *  # noqa: F403

    __all__ = ["__version__"]
    __all__ += ctc.__all__
    __all__ += decoding.__all__
    __all__ += recurrent.__all__
    __all__ += timeseries.__all__
    __all__ += transducer.__all__
    __all__ += transport.__all__

_OPERATORS = ("ctc", "decoding", "recurrent", "timeseries", "transducer", "transport")
_LAZY_MODULES = {"compat", "estimators", "io", "jax", "metrics", "plot"}
_ESTIMATORS = {
    "DomainAdaptationClassifier",
    "GromovTransport",
    "SinkhornTransport",
    "SoftDTWKMeans",
    "SoftDTWKNeighborsClassifier",
    "SoftDTWKNeighborsRegressor",
}


def _load_operators() -> None:
    """Puts the operators' modules and their public names here. They import torch."""
    public = ["__version__"]
    for name in _OPERATORS:
        module = import_module(f"warpalign.{name}")
        globals().update({each: getattr(module, each) for each in module.__all__})
        public += module.__all__
    globals()["__all__"] = public


def __getattr__(name: str) -> Any:
    if name in _ESTIMATORS:
        return getattr(import_module("warpalign.estimators"), name)
    if name in _LAZY_MODULES or name in _OPERATORS:
        return import_module(f"warpalign.{name}")
    # Names with underscores that are looked up in every package, such as __path__, load nothing.
    if "__all__" not in globals() and (name == "__all__" or not name.startswith("_")):
        _load_operators()
        if name in globals():
            return globals()[name]
    raise AttributeError(f"module 'warpalign' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names alone."""
    public: list[str] = __getattr__("__all__") if "__all__" not in globals() else globals()["__all__"]
    return sorted([*public, *_ESTIMATORS, *_OPERATORS, *_LAZY_MODULES])


# torch.ops.warpalign, and programs that torch.export has saved, need the operators.
if sys.modules.get("torch") is not None:
    _load_operators()
