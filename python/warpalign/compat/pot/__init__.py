"""Drop-in for POT (``import ot``): its entropic solvers, linear and Gromov-Wasserstein, for NumPy arrays, lists and tensors.

Signatures, defaults, returned types and keys of logs are those of POT 0.9.7. All solvers compute in the log domain, whatever method
is named, and end when no logarithm of a scaling vector moves by more than the threshold: at least as far as POT's. A log's list of
errors has the last one alone. Gradients are the converged solution's (implicit differentiation), in the place of POT's through all
iterations. What needs a network simplex raises NotImplementedError.
"""

from importlib import import_module
from types import ModuleType
from typing import Any

from warpalign.compat.pot import batch, bregman, gromov, partial, unbalanced
from warpalign.compat.pot._common import costs_of, kind_of
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


def dist(x1: Any, x2: Any = None, metric: str = "sqeuclidean") -> Any:
    """Costs (n, m) of points (n, d) and (m, d), by default of x1 and itself.

    metric: "sqeuclidean", "euclidean", "cityblock" or "cosine".
    """
    kind = kind_of(x1, x2)
    x = kind.tensor(x1)
    return kind.out(costs_of(metric, x, x if x2 is None else kind.tensor(x2)))


def unif(n: int, type_as: Any = None) -> Any:
    """(n,) weights 1 / n: an array, or what type_as is."""
    import numpy as np

    weights = np.full(n, 1 / n)
    return weights if type_as is None else kind_of(type_as).out(kind_of(type_as).tensor(weights))


def __getattr__(name: str) -> ModuleType:
    if name == "da":  # needs scikit-learn
        return import_module("warpalign.compat.pot.da")
    raise AttributeError(f"module 'warpalign.compat.pot' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
