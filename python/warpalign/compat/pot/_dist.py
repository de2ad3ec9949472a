"""ot.dist: costs of points by any metric that POT has; handed on by the package."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from warpalign._core import optional
from warpalign.compat.pot._common import METRICS, Kind, costs_of, kind_of

_OF_TORCH = (*METRICS, "minkowski", "correlation")


def dist(
    x1: Any,
    x2: Any = None,
    metric: Any = "sqeuclidean",
    p: float = 2,
    w: Any = None,
    backend: str = "auto",
    nx: Any = None,
    use_tensor: bool = False,
) -> Any:
    """Costs (n, m) of points (n, d) and (m, d), by default of x1 and itself.

    Args:
        x1: (n, d) points.
        x2: (m, d) points; None: x1.
        metric: "sqeuclidean", "euclidean", "cityblock", "minkowski", "cosine" or "correlation", which are differentiable. For
            arrays also a function of two points, or any other name of ``scipy.spatial.distance.cdist``, which SciPy computes.
        p: the norm of "minkowski".
        w: (d,) weights of the features for "minkowski", and for those of SciPy's metrics that take them.
        backend: "scipy": SciPy computes every metric, without gradients. "auto": only those that are not listed above.
        nx: changes nothing: the kind of x1 decides.
        use_tensor: of "minkowski": computes all features at once from n · m · d numbers; else one after the other.

    Raises:
        NotImplementedError: the metric is not available for tensors.
    """
    kind = kind_of(x1, x2)
    x = kind.tensor(x1)
    y = x if x2 is None else kind.tensor(x2)
    if backend == "scipy":
        return _of_scipy(kind, x, y, metric, p, w)
    if isinstance(metric, str) and metric in METRICS:
        return kind.out(costs_of(metric, x, y))
    if metric == "minkowski":
        return kind.out(_minkowski(x, y, p, None if w is None else kind.tensor(w), use_tensor=use_tensor))
    if metric == "correlation":
        centred = (points - points.mean(1, keepdim=True) for points in (x, y))
        return kind.out(costs_of("cosine", *centred))
    if kind.is_torch:
        names = ", ".join(f'"{name}"' for name in _OF_TORCH)
        raise NotImplementedError(
            f'metric: expected one of {names} for tensors, got {metric!r}: with backend="scipy" SciPy computes it, without gradients'
        )
    return _of_scipy(kind, x, y, metric, p, w)


def _minkowski(x: Tensor, y: Tensor, p: float, w: Tensor | None, *, use_tensor: bool) -> Tensor:
    """(Σ w |x − y|^p)^(1/p)"""
    factors = x.new_ones(x.shape[1]) if w is None else w
    if use_tensor:
        powers = ((x[:, None] - y).abs().pow(p) * factors).sum(2)
    else:
        powers = x.new_zeros(len(x), len(y))
        for k in range(x.shape[1]):
            powers = powers + factors[k] * (x[:, k, None] - y[:, k]).abs().pow(p)
    # The root's derivative at 0 is infinite: equal points have the derivative 0.
    apart = powers > 0
    return powers.where(apart, 1.0).pow(1 / p) * apart


def _of_scipy(kind: Kind, x: Tensor, y: Tensor, metric: Any, p: float, w: Any) -> Any:
    optional.load("scipy", "warpalign.compat.pot.dist", "cluster")
    from scipy.spatial.distance import cdist

    options: dict[str, Any] = (
        {} if w is None else {"w": w.detach().cpu().numpy() if isinstance(w, Tensor) else np.asarray(w)}
    )
    if isinstance(metric, str) and metric.endswith("minkowski"):
        options["p"] = p
    first, second = (points.detach().cpu().numpy() for points in (x, y))
    costs = torch.from_numpy(np.asarray(cdist(first, second, metric=metric, **options)))
    return kind.out(kind.tensor(costs))
