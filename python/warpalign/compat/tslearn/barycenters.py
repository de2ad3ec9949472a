"""Drop-in for tslearn.barycenters: under soft-DTW, and DTW barycenter averaging."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

import warpalign
from warpalign._core import optional
from warpalign._core.series import SeriesSet, resampled
from warpalign.compat.tslearn._common import Array, Band, array, dataset_of, naming_the_slope, one_of

__all__ = ["dtw_barycenter_averaging", "softdtw_barycenter"]


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
        gamma: smoothing, > 0.
        weights: one per series; anything of another length counts as all ones.
        tol: SciPy's: the search ends when the loss changes by less.
        max_iter: SciPy's: the maximum number of iterations.
        init: (N', D) where to begin; default: the weighted mean of the series, resampled to the longest.
        n_jobs: kept for the signature.
        metric_params: a band, by the arguments of :func:`soft_dtw`.
    """
    band = Band(**metric_params)
    series = dataset_of(X, "X")
    values, lengths = series.values.detach(), series.true_lengths()
    count, size, _ = values.shape
    weight = _weights(weights, count)
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
        with naming_the_slope():
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


def dtw_barycenter_averaging(
    X: Any,
    barycenter_size: int | None = None,
    init_barycenter: Any = None,
    max_iter: int = 30,
    tol: float = 1e-5,
    weights: Any = None,
    metric_params: dict[str, Any] | None = None,
    verbose: bool = False,
    n_init: int = 1,
    n_jobs: int | None = None,
) -> Array:
    """DTW barycenter averaging (Petitjean, Ketterlin & Gancarski, Pattern Recognition 2011): a float64 array.

    In turn every series is aligned with the barycenter under DTW, and every time step of the barycenter becomes the weighted mean
    of what is aligned with it.

    Args:
        X: the series, as in :func:`cdist_soft_dtw`.
        barycenter_size: time steps of the result; default: the longest series' or those of init_barycenter.
        init_barycenter: (sz, D) or (sz,) where to begin; default: the mean of the series, resampled.
        max_iter: rounds at most.
        tol: a round that changes the mean squared DTW by less is the last one.
        weights: one per series; None: all 1.
        metric_params: a band, by the arguments of :func:`soft_dtw`.
        verbose: print the mean in every round.
        n_init: kept for the signature: all attempts begin at the same place, and end at the same one.
        n_jobs: kept for the signature.
    """
    band = Band(**(metric_params or {}))
    series = dataset_of(X, "X")
    values = series.values.detach()
    count, size, _ = values.shape
    weight = _weights(weights, count)
    if init_barycenter is None:
        center = _mean(values, barycenter_size or size)
    else:
        center = one_of(init_barycenter).to(values.device)
    factor = torch.from_numpy(weight).to(values.device)
    known = None if series.lengths is None else series.lengths.to(values.device)
    steps = torch.arange(size, device=values.device)
    filled = values if known is None else torch.where((steps < known[:, None])[:, :, None], values, 0.0)
    before = np.inf
    for turn in range(max_iter):
        with naming_the_slope():
            squares, paths = warpalign.soft_dtw_alignment(
                center[None], values, gamma=0.0, y_lengths=known, **band.options
            )
        loss = float(factor @ squares) / float(factor.sum())
        if verbose:
            print(f"[DBA] epoch {turn + 1}, cost: {loss:.3f}")
        weighted = paths * factor[:, None, None]
        center = (weighted @ filled).sum(0) / weighted.sum((0, 2))[:, None]
        if abs(before - loss) < tol:
            break
        if before < loss:
            warnings.warn(
                "DBA loss is increasing while it should not be. Stopping optimization.", stacklevel=2
            )
            break
        before = loss
    return array(center, False)


def _weights(weights: Any, count: int) -> np.ndarray[Any, Any]:
    """tslearn's: anything of another length counts as all ones."""
    return np.ones(count) if weights is None or len(weights) != count else np.asarray(weights, dtype=float)


def _mean(values: Tensor, size: int) -> Tensor:
    """(size, D): the mean of what there is at every time step, then resampled."""
    mean = values.nanmean(0)
    return mean if len(mean) == size else resampled(SeriesSet(mean[None], None), size)[0]
