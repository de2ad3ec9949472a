"""Drop-in for tslearn's soft-DTW (release 0.10): tslearn.metrics and tslearn.barycenters.

Tensors give tensors, anything else NumPy; both in float64, as there. A series ends before its trailing NaN. A band is chosen
by `global_constraint` ("sakoe_chiba", "itakura" or None), or by the one of `sakoe_chiba_radius` (default 1) and
`itakura_max_slope` (default 2) that is given. A negative gamma raises, where tslearn returns NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

import warpalign
from warpalign._core.series import SeriesSet, alike, as_series, resampled
from warpalign.compat._common import check_shapes

__all__ = [
    "SoftDTWLossPyTorch",
    "cdist_soft_dtw",
    "cdist_soft_dtw_normalized",
    "gamma_soft_dtw",
    "soft_dtw",
    "soft_dtw_alignment",
    "soft_dtw_normalized",
    "softdtw_barycenter",
]

Number: TypeAlias = Any  # a float, or a 0-d tensor
Array: TypeAlias = Any  # a NumPy array, or a tensor

_CONSTRAINTS = {None: None, "": None, "itakura": "itakura", "sakoe_chiba": "sakoe_chiba"}


def soft_dtw(
    s1: Any,
    s2: Any,
    gamma: float = 1.0,
    global_constraint: str | None = None,
    sakoe_chiba_radius: int | None = None,
    itakura_max_slope: float | None = None,
    be: Any = None,
) -> Number:
    """Soft-DTW of two series (N, D) or (N,): a float, or a 0-d float64 tensor with its gradient. gamma 0: DTW squared."""
    band = _Band(global_constraint, sakoe_chiba_radius, itakura_max_slope)
    x, y = _pair(s1, s2)
    return _number(_value(x, y, gamma, band), _wants_tensor(be, s1, s2))


def soft_dtw_normalized(
    s1: Any,
    s2: Any,
    gamma: float = 1.0,
    global_constraint: str | None = None,
    sakoe_chiba_radius: int | None = None,
    itakura_max_slope: float | None = None,
    be: Any = None,
) -> Number:
    """Soft-DTW divergence s(x, y) - (s(x, x) + s(y, y)) / 2, as :func:`soft_dtw`. gamma 0: DTW squared."""
    band = _Band(global_constraint, sakoe_chiba_radius, itakura_max_slope)
    x, y = _pair(s1, s2)
    value = _value(x, y, gamma, band)
    if gamma != 0:
        value = value - 0.5 * (_value(x, x, gamma, band) + _value(y, y, gamma, band))
    return _number(value, _wants_tensor(be, s1, s2))


def soft_dtw_alignment(
    s1: Any,
    s2: Any,
    gamma: float = 1.0,
    global_constraint: str | None = None,
    sakoe_chiba_radius: int | None = None,
    itakura_max_slope: float | None = None,
    be: Any = None,
) -> tuple[Array, Number]:
    """(expected alignment (N, M), soft-DTW): in this order. gamma 0: the best path's cells as ones, and DTW squared."""
    band = _Band(global_constraint, sakoe_chiba_radius, itakura_max_slope)
    x, y = _pair(s1, s2)
    with _naming_the_slope():
        value, alignment = warpalign.soft_dtw_alignment(x, y, gamma=gamma, **band.options)
    as_tensor = _wants_tensor(be, s1, s2)
    return alignment if as_tensor else alignment.detach().cpu().numpy(), _number(value, as_tensor)


def cdist_soft_dtw(
    dataset1: Any,
    dataset2: Any = None,
    gamma: float = 1.0,
    global_constraint: str | None = None,
    sakoe_chiba_radius: int | None = None,
    itakura_max_slope: float | None = None,
    n_jobs: int | None = None,
    verbose: int = 0,
    be: Any = None,
) -> Array:
    """Soft-DTW of all pairs: (n, m).

    Args:
        dataset1: series (n, N, D) or (n, N), a list of unequal ones, or one series (N,).
        dataset2: likewise; None: dataset1 itself.
        gamma: smoothing. 0: DTW, here *not* squared, as in tslearn.
        n_jobs: kept for the signature; torch.set_num_threads says how many threads compute.
        verbose: not 0: a progress bar.
    """
    band = _Band(global_constraint, sakoe_chiba_radius, itakura_max_slope)
    return _all_pairs(dataset1, dataset2, gamma, band, verbose, be, normalize=False)


def cdist_soft_dtw_normalized(
    dataset1: Any,
    dataset2: Any = None,
    gamma: float = 1.0,
    global_constraint: str | None = None,
    sakoe_chiba_radius: int | None = None,
    itakura_max_slope: float | None = None,
    n_jobs: int | None = None,
    verbose: int = 0,
    be: Any = None,
) -> Array:
    """Soft-DTW divergences of all pairs, as :func:`cdist_soft_dtw`: (n, m). gamma 0: DTW, not squared."""
    band = _Band(global_constraint, sakoe_chiba_radius, itakura_max_slope)
    return _all_pairs(dataset1, dataset2, gamma, band, verbose, be, normalize=gamma != 0)


def gamma_soft_dtw(dataset: Any, n_samples: int = 100, random_state: Any = None, be: Any = None) -> Number:
    """A gamma for the data: 2 sz m^2, m being the median distance between `n_samples` time steps drawn from all series (Cuturi,
    "Fast global alignment kernels", ICML 2011). Much smoothing: it grows with the length of the series.

    Args:
        dataset: as in :func:`cdist_soft_dtw`.
        random_state: None, an int or a numpy RandomState.
    """
    values = _dataset(dataset, "dataset").values
    steps = values.flatten(0, 1)
    steps = steps[steps.isfinite().all(1)]
    random: Any = np.random if random_state is None else random_state  # None: NumPy's own generator
    if not hasattr(random, "choice"):
        random = np.random.RandomState(random_state)
    chosen = torch.from_numpy(random.choice(len(steps), n_samples, replace=len(steps) < n_samples))
    distances = torch.pdist(steps[chosen.to(steps.device)])
    as_tensor = _wants_tensor(be, dataset)
    # Of an even number of distances torch takes the lower one of the two in the middle, NumPy their mean.
    median = distances.median() if as_tensor else distances.quantile(0.5)
    return _number(2 * values.shape[1] * median**2, as_tensor)


class SoftDTWLossPyTorch(nn.Module):
    """tslearn's loss module: x (B, N, D), y (B, M, D) -> (B,).

    Args:
        gamma: smoothing.
        normalize: the divergence s(x, y) - (s(x, x) + s(y, y)) / 2.
        dist_func: costs (B, N, M) of (B, N, D) and (B, M, D); None: squared Euclidean distances, for which no table is made.
        global_constraint, sakoe_chiba_radius, itakura_max_slope: a band, as the module's head says.
    """

    def __init__(
        self,
        gamma: float = 1.0,
        normalize: bool = False,
        dist_func: Callable[[Tensor, Tensor], Tensor] | None = None,
        global_constraint: str | None = None,
        sakoe_chiba_radius: int | None = None,
        itakura_max_slope: float | None = None,
    ) -> None:
        super().__init__()
        self.gamma = gamma
        self.normalize = normalize
        self.dist_func = dist_func
        self.global_constraint = global_constraint
        self.sakoe_chiba_radius = sakoe_chiba_radius
        self.itakura_max_slope = itakura_max_slope

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """x (B, N, D), y (B, M, D), of which one may hold integers -> (B,)."""
        check_shapes(x, y)
        dtype = torch.promote_types(x.dtype, y.dtype)
        x, y = x.to(dtype), y.to(dtype)
        band = _Band(self.global_constraint, self.sakoe_chiba_radius, self.itakura_max_slope)
        value = self._values(x, y, band)
        if self.normalize:
            value = value - 0.5 * (self._values(x, x, band) + self._values(y, y, band))
        return value

    def _values(self, x: Tensor, y: Tensor, band: _Band) -> Tensor:
        with _naming_the_slope():
            if self.dist_func is None:
                return warpalign.soft_dtw(x, y, gamma=self.gamma, **band.options)
            return warpalign.soft_dtw_cost(self.dist_func(x, y), gamma=self.gamma, **band.options)


def softdtw_barycenter(
    X: Any,
    gamma: float = 1.0,
    weights: Any = None,
    tol: float = 1e-3,
    max_iter: int = 50,
    init: Any = None,
    n_jobs: int | None = None,
    **metric_params: Any,
) -> Array:
    """tslearn.barycenters' soft-DTW barycenter, with the same optimiser (SciPy's L-BFGS-B): a float64 array.

    Args:
        X: the series, as in :func:`cdist_soft_dtw`.
        weights: one per series; anything of another length counts as all ones.
        tol, max_iter: SciPy's.
        init: (N', D) where to begin; default: the weighted mean of the series, resampled to the longest.
        n_jobs: kept for the signature.
        metric_params: a band, by the arguments of :func:`soft_dtw`.
    """
    from warpalign._core import optional

    band = _Band(**metric_params)
    series = _dataset(X, "X")
    values, lengths = series.values.detach(), series.true_lengths()
    count, size, _ = values.shape
    weight = np.ones(count) if weights is None or len(weights) != count else np.asarray(weights, dtype=float)
    if init is None:
        aligned = values if series.lengths is None else resampled(series, size)
        start = np.average(aligned.cpu().numpy(), axis=0, weights=weight)
    else:
        start = np.asarray(init, dtype=float)
    if max_iter <= 0:
        return start
    factor = torch.from_numpy(weight).to(values.device)
    known = None if series.lengths is None else lengths.to(values.device)

    def loss(flat: np.ndarray[Any, Any]) -> tuple[float, np.ndarray[Any, Any]]:
        center = torch.from_numpy(flat.reshape(start.shape)).to(values.device).requires_grad_()
        with _naming_the_slope():
            found = warpalign.soft_dtw(center[None], values, gamma=gamma, y_lengths=known, **band.options)
        total = factor @ found
        total.backward()
        assert center.grad is not None
        return total.item(), center.grad.flatten().cpu().numpy()

    minimize = optional.load("scipy.optimize", "softdtw_barycenter", "cluster").minimize
    result = minimize(
        loss, start.ravel(), method="L-BFGS-B", tol=tol, jac=True, options={"maxiter": max_iter}
    )
    return result.x.reshape(start.shape)


# Bands.


class _Band:
    """tslearn's choice of cells from its three arguments."""

    def __init__(
        self,
        global_constraint: str | None = None,
        sakoe_chiba_radius: int | None = None,
        itakura_max_slope: float | None = None,
    ) -> None:
        self.kind = _CONSTRAINTS[global_constraint]
        if self.kind is None and sakoe_chiba_radius is not None and itakura_max_slope is not None:
            # Raised, not warned, in tslearn too.
            raise RuntimeWarning(
                "global_constraint is not set for DTW, but both sakoe_chiba_radius and itakura_max_slope are set, hence "
                "global_constraint cannot be inferred and no global constraint will be used."
            )
        if self.kind is None and sakoe_chiba_radius is not None:
            self.kind = "sakoe_chiba"
        elif self.kind is None and itakura_max_slope is not None:
            self.kind = "itakura"
        self.options: dict[str, Any] = {}
        """What warpalign.soft_dtw takes for it."""
        if self.kind == "sakoe_chiba":
            radius = 1 if sakoe_chiba_radius is None else int(sakoe_chiba_radius)
            self.options = {"band": "sakoe_chiba", "bandwidth": radius}
        elif self.kind == "itakura":
            self.options = {
                "band": "itakura",
                "max_slope": 2.0 if itakura_max_slope is None else itakura_max_slope,
            }


@contextmanager
def _naming_the_slope() -> Iterator[None]:
    """A parallelogram without a path, in tslearn's words and with its type of error."""
    try:
        yield
    except ValueError as error:
        if not str(error).startswith("band: "):
            raise
        raise RuntimeWarning(
            "'itakura_max_slope' constraint is unfeasible (ie. leads to no admissible path) for the provided time series sizes"
        ) from error


# Values.


def _value(x: Tensor, y: Tensor, gamma: float, band: _Band) -> Tensor:
    with _naming_the_slope():
        return warpalign.soft_dtw(x, y, gamma=gamma, **band.options)


def _all_pairs(
    dataset1: Any, dataset2: Any, gamma: float, band: _Band, verbose: int, be: Any, *, normalize: bool
) -> Array:
    x = _dataset(dataset1, "dataset1")
    y = None
    if dataset2 is not None:
        y = _dataset(dataset2, "dataset2")
        x, y = alike(y, "dataset2", x, "dataset1")
    options: dict[str, Any] = {"normalize": normalize, "progress": bool(verbose), **band.options}
    with _naming_the_slope():
        values = warpalign.cdist_soft_dtw(x.values, None if y is None else y.values, gamma=gamma, **options)
    return _array(values.sqrt() if gamma == 0 else values, _wants_tensor(be, dataset1, dataset2))


# Input and output.


def _pair(s1: Any, s2: Any) -> tuple[Tensor, Tensor]:
    x, y = _one(s1), _one(s2)
    if len(x) == 0 or len(y) == 0:
        raise ValueError("One of the input time series contains only nans or has zero length.")
    if x.shape[1] != y.shape[1]:
        raise ValueError("All input time series must have the same feature size.")
    return x, y


def _one(series: Any) -> Tensor:
    """(N, D), float64, without trailing NaN."""
    values = series if isinstance(series, Tensor) else torch.from_numpy(np.array(series, dtype=float))
    values = values.double()
    values = values.reshape(-1, 1) if values.dim() <= 1 else values
    steps = (~values.isnan().all(dim=1)).nonzero()
    return values[: int(steps[-1]) + 1 if len(steps) else 0]


def _dataset(dataset: Any, name: str) -> SeriesSet:
    if isinstance(dataset, (Tensor, np.ndarray)):
        dataset = dataset[None] if dataset.ndim == 1 else dataset
    elif len(dataset) and np.ndim(dataset[0]) == 0:
        dataset = [dataset]
    if isinstance(dataset, (list, tuple)):
        return as_series([_one(series) for series in dataset], name)
    values = dataset if isinstance(dataset, Tensor) else torch.from_numpy(np.array(dataset, dtype=float))
    return as_series(values.double(), name)


def _wants_tensor(be: Any, *given: Any) -> bool:
    """tslearn's choice of a backend: what `be` says, else the first tensor or array among the arguments."""
    if be is not None:
        return not getattr(be, "is_numpy", "numpy" in str(be).lower())
    first = next((argument for argument in given if isinstance(argument, (Tensor, np.ndarray))), None)
    return isinstance(first, Tensor)


def _number(value: Tensor, as_tensor: bool) -> Number:
    return value if as_tensor else value.item()


def _array(values: Tensor, as_tensor: bool) -> Array:
    return values if as_tensor else values.detach().cpu().numpy()
