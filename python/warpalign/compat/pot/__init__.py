"""Drop-in for POT (``import ot``): its entropic solvers, linear and Gromov-Wasserstein, for NumPy arrays, lists and tensors.

Signatures, defaults, returned types and keys of logs are those of POT 0.9.7. All solvers compute in the log domain, whatever method
is named, and end when no logarithm of a scaling vector moves by more than the threshold: at least as far as POT's. A log's list of
errors has the last one alone. Gradients are the converged solution's (implicit differentiation), in the place of POT's through all
iterations. What needs a network simplex raises NotImplementedError.

These differ from POT as well:

* Unsupported values raise NotImplementedError: ``reg_type="l2"``, initial plans ``G0`` by name other than ``"product"``, ``method``
  of :func:`solve_sample`, and ``debias="split"``.
* Balanced weights whose sums differ are refused, also with ``reg_m=inf`` and with several histograms. POT iterates without a limit.
* Integer matrices are computed in floating point, with a warning. POT rounds the plan to integers, which are 0.
* Problems whose kernel exp(−M / reg) underflows have their solution, where POT warns of numerical errors and returns zeros or NaN. A cost
  that is not finite is warned of here, too.
"""

from importlib import import_module
from types import ModuleType
from typing import Any

from warpalign.compat.pot import batch, bregman, gromov, lowrank, partial, unbalanced
from warpalign.compat.pot._common import kind_of
from warpalign.compat.pot._dist import dist
from warpalign.compat.pot._solve_gromov import solve_gromov
from warpalign.compat.pot.bregman import sinkhorn, sinkhorn2
from warpalign.compat.pot.solvers import solve, solve_sample
from warpalign.compat.pot.unbalanced import sinkhorn_unbalanced, sinkhorn_unbalanced2

__all__ = [
    "batch",
    "bregman",
    "da",
    "dist",
    "gromov",
    "lowrank",
    "partial",
    "sinkhorn",
    "sinkhorn2",
    "sinkhorn_unbalanced",
    "sinkhorn_unbalanced2",
    "solve",
    "solve_gromov",
    "solve_sample",
    "unbalanced",
    "unif",
]


def unif(n: int, type_as: Any = None) -> Any:
    """Uniform weights, float64 or of the kind and dtype of type_as.

    Args:
        n: how many weights, 1 / n each.
        type_as: an array or a tensor whose kind, dtype and device the weights take; None: a NumPy array.
    """
    import numpy as np

    weights = np.full(n, 1 / n)
    return weights if type_as is None else kind_of(type_as).out(kind_of(type_as).tensor(weights))


def __getattr__(name: str) -> ModuleType:
    if name == "da":  # needs scikit-learn
        return import_module("warpalign.compat.pot.da")
    raise AttributeError(f"module 'warpalign.compat.pot' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
