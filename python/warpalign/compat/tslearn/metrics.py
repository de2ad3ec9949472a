"""Drop-in for tslearn.metrics: soft-DTW and DTW."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import warpalign
from warpalign._core.series import alike
from warpalign._soft_dtw.gamma import heuristic
from warpalign._soft_dtw.pairwise import all_pairs
from warpalign.compat._common import check_shapes, promoted, squared_distances
from warpalign.compat.tslearn._common import (
    Array,
    Band,
    Number,
    array,
    dataset_of,
    naming_the_slope,
    number,
    pair_of,
    wants_tensor,
)

__all__ = [
    "SoftDTWLossPyTorch",
    "cdist_dtw",
    "cdist_soft_dtw",
    "cdist_soft_dtw_normalized",
    "dtw",
    "dtw_path",
    "gamma_soft_dtw",
    "soft_dtw",
    "soft_dtw_alignment",
    "soft_dtw_normalized",
]


def soft_dtw(
    s1: Any,
    s2: Any,
    gamma: float = 1.0,
    global_constraint: str | None = None,
    sakoe_chiba_radius: int | None = None,
    itakura_max_slope: float | None = None,
    be: Any = None,
) -> Number:
    """Soft-DTW of two series: a float, or a 0-d float64 tensor with its gradient.

    Args:
        s1: (N, D) or (N,) series: an array, a list or a tensor, computed in float64. Steps of NaN at its end are left
            out.
        s2: (M, D) or (M,) series.
        gamma: smoothing, >= 0; 0: DTW squared.
        global_constraint: "sakoe_chiba", "itakura" or None: the band.
        sakoe_chiba_radius: the radius of a Sakoe-Chiba band; None: 1, where the band is one.
        itakura_max_slope: the largest slope of an Itakura parallelogram; None: 2, where the band is one.
        be: the kind of the result: "numpy" or "pytorch"; None: that of the first array or tensor given.
    """
    band = Band(global_constraint, sakoe_chiba_radius, itakura_max_slope)
    x, y = pair_of(s1, s2)
    return number(_value(x, y, gamma, band), wants_tensor(be, s1, s2))


def soft_dtw_normalized(
    s1: Any,
    s2: Any,
    gamma: float = 1.0,
    global_constraint: str | None = None,
    sakoe_chiba_radius: int | None = None,
    itakura_max_slope: float | None = None,
    be: Any = None,
) -> Number:
    """Soft-DTW divergence s(x, y) − (s(x, x) + s(y, y)) / 2, as :func:`soft_dtw`.

    Args:
        s1: (N, D) or (N,) series: an array, a list or a tensor, computed in float64. Steps of NaN at its end are left
            out.
        s2: (M, D) or (M,) series.
        gamma: smoothing, >= 0; 0: DTW squared.
        global_constraint: "sakoe_chiba", "itakura" or None: the band.
        sakoe_chiba_radius: the radius of a Sakoe-Chiba band; None: 1, where the band is one.
        itakura_max_slope: the largest slope of an Itakura parallelogram; None: 2, where the band is one.
        be: the kind of the result: "numpy" or "pytorch"; None: that of the first array or tensor given.
    """
    band = Band(global_constraint, sakoe_chiba_radius, itakura_max_slope)
    x, y = pair_of(s1, s2)
    value = _value(x, y, gamma, band)
    if gamma != 0:
        value = value - 0.5 * (_value(x, x, gamma, band) + _value(y, y, gamma, band))
    return number(value, wants_tensor(be, s1, s2))


def soft_dtw_alignment(
    s1: Any,
    s2: Any,
    gamma: float = 1.0,
    global_constraint: str | None = None,
    sakoe_chiba_radius: int | None = None,
    itakura_max_slope: float | None = None,
    be: Any = None,
) -> tuple[Array, Number]:
    """(expected alignment (N, M), soft-DTW): in this order.

    Args:
        s1: (N, D) or (N,) series: an array, a list or a tensor, computed in float64. Steps of NaN at its end are left
            out.
        s2: (M, D) or (M,) series.
        gamma: smoothing, >= 0; 0: the best path's cells as ones, and DTW squared.
        global_constraint: "sakoe_chiba", "itakura" or None: the band.
        sakoe_chiba_radius: the radius of a Sakoe-Chiba band; None: 1, where the band is one.
        itakura_max_slope: the largest slope of an Itakura parallelogram; None: 2, where the band is one.
        be: the kind of the result: "numpy" or "pytorch"; None: that of the first array or tensor given.
    """
    band = Band(global_constraint, sakoe_chiba_radius, itakura_max_slope)
    x, y = pair_of(s1, s2)
    with naming_the_slope():
        value, alignment = warpalign.soft_dtw_alignment(x, y, gamma=gamma, **band.options)
    if wants_tensor(be, s1, s2):
        return alignment.float() if gamma == 0 else alignment, value
    return array(alignment, False), value.item() if gamma == 0 else np.float64(value.item())


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
        dataset2: series in the same forms. None: dataset1 itself.
        gamma: smoothing. 0: DTW, here *not* squared, as in tslearn.
        global_constraint: "sakoe_chiba", "itakura" or None: the band.
        sakoe_chiba_radius: the radius of a Sakoe-Chiba band; None: 1, where the band is one.
        itakura_max_slope: the largest slope of an Itakura parallelogram; None: 2, where the band is one.
        n_jobs: kept for the signature; torch.set_num_threads says how many threads compute.
        verbose: not 0: a progress bar.
        be: changes nothing. The kind of dataset1 decides.
    """
    band = Band(global_constraint, sakoe_chiba_radius, itakura_max_slope)
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
    """(n, m) soft-DTW divergences of all pairs, as :func:`cdist_soft_dtw`.

    Args:
        dataset1: series (n, N, D) or (n, N), a list of unequal ones, or one series (N,).
        dataset2: series in the same forms; None: dataset1 itself.
        gamma: smoothing, >= 0; 0: DTW, not squared.
        global_constraint: "sakoe_chiba", "itakura" or None: the band.
        sakoe_chiba_radius: the radius of a Sakoe-Chiba band; None: 1, where the band is one.
        itakura_max_slope: the largest slope of an Itakura parallelogram; None: 2, where the band is one.
        n_jobs: has no effect; torch.set_num_threads says how many threads compute.
        verbose: not 0: a progress bar.
        be: the kind of the result: "numpy" or "pytorch"; None: that of the first array or tensor given.
    """
    band = Band(global_constraint, sakoe_chiba_radius, itakura_max_slope)
    return _all_pairs(dataset1, dataset2, gamma, band, verbose, be, normalize=gamma != 0)


def dtw(
    s1: Any,
    s2: Any,
    global_constraint: str | None = None,
    sakoe_chiba_radius: int | None = None,
    itakura_max_slope: float | None = None,
    be: Any = None,
) -> Number:
    """DTW of two series, the root of the least sum of squared distances: a float, or a 0-d tensor with its gradient.

    Args:
        s1: (N, D) or (N,) series: an array, a list or a tensor, computed in float64. Steps of NaN at its end are left
            out.
        s2: (M, D) or (M,) series.
        global_constraint: "sakoe_chiba", "itakura" or None: the band.
        sakoe_chiba_radius: the radius of a Sakoe-Chiba band; None: 1, where the band is one.
        itakura_max_slope: the largest slope of an Itakura parallelogram; None: 2, where the band is one.
        be: the kind of the result: "numpy" or "pytorch"; None: that of the first array or tensor given.
    """
    band = Band(global_constraint, sakoe_chiba_radius, itakura_max_slope)
    x, y = pair_of(s1, s2)
    return number(_value(x, y, 0.0, band).sqrt(), wants_tensor(be, s1, s2))


def dtw_path(
    s1: Any,
    s2: Any,
    global_constraint: str | None = None,
    sakoe_chiba_radius: int | None = None,
    itakura_max_slope: float | None = None,
    be: Any = None,
) -> tuple[list[tuple[int, int]], Number]:
    """(cells (i, j) of the best path, DTW).

    Of equally good steps into a cell the diagonal one is taken, then the one from i − 1.

    Args:
        s1: (N, D) or (N,) series: an array, a list or a tensor, computed in float64. Steps of NaN at its end are left
            out.
        s2: (M, D) or (M,) series.
        global_constraint: "sakoe_chiba", "itakura" or None: the band.
        sakoe_chiba_radius: the radius of a Sakoe-Chiba band; None: 1, where the band is one.
        itakura_max_slope: the largest slope of an Itakura parallelogram; None: 2, where the band is one.
        be: the kind of the result: "numpy" or "pytorch"; None: that of the first array or tensor given.
    """
    band = Band(global_constraint, sakoe_chiba_radius, itakura_max_slope)
    x, y = pair_of(s1, s2)
    with naming_the_slope():
        value, path = warpalign.dtw_path(x, y, **band.options)
    assert isinstance(path, Tensor)  # of one pair
    return [(i, j) for i, j in path.tolist()], number(value.sqrt(), wants_tensor(be, s1, s2))


def cdist_dtw(
    dataset1: Any,
    dataset2: Any = None,
    global_constraint: str | None = None,
    sakoe_chiba_radius: int | None = None,
    itakura_max_slope: float | None = None,
    n_jobs: int | None = None,
    verbose: int = 0,
    be: Any = None,
) -> Array:
    """(n, m) DTW of all pairs, as :func:`cdist_soft_dtw`.

    Args:
        dataset1: series (n, N, D) or (n, N), a list of unequal ones, or one series (N,).
        dataset2: series in the same forms; None: dataset1 itself.
        global_constraint: "sakoe_chiba", "itakura" or None: the band.
        sakoe_chiba_radius: the radius of a Sakoe-Chiba band; None: 1, where the band is one.
        itakura_max_slope: the largest slope of an Itakura parallelogram; None: 2, where the band is one.
        n_jobs: has no effect; torch.set_num_threads says how many threads compute.
        verbose: not 0: a progress bar.
        be: the kind of the result: "numpy" or "pytorch"; None: that of the first array or tensor given.
    """
    band = Band(global_constraint, sakoe_chiba_radius, itakura_max_slope)
    return _all_pairs(dataset1, dataset2, 0.0, band, verbose, be, normalize=False)


def gamma_soft_dtw(dataset: Any, n_samples: int = 100, random_state: Any = None, be: Any = None) -> Number:
    """A gamma for the data: 2 sz m^2, m being the median distance between `n_samples` time steps drawn from all series (Cuturi,
    "Fast global alignment kernels", ICML 2011). Much smoothing: it grows with the length of the series.

    Args:
        dataset: as in :func:`cdist_soft_dtw`.
        n_samples: the number of time steps that are drawn.
        random_state: None, an int or a numpy RandomState.
        be: changes nothing. The kind of dataset decides.
    """
    values = dataset_of(dataset, "dataset").values
    steps = values.flatten(0, 1)
    steps = steps[steps.isfinite().all(1)]
    random: Any = np.random if random_state is None else random_state  # None: NumPy's own generator
    if not hasattr(random, "choice"):
        random = np.random.RandomState(random_state)
    chosen = torch.from_numpy(random.choice(len(steps), n_samples, replace=len(steps) < n_samples))
    as_tensor = wants_tensor(be, dataset)
    gamma = heuristic(steps[chosen.to(steps.device)], values.shape[1], None if as_tensor else 0.5)
    return gamma if as_tensor else np.float64(gamma.item())


class SoftDTWLossPyTorch(nn.Module):
    """tslearn's loss module: x (B, N, D), y (B, M, D) -> (B,).

    Args:
        gamma: smoothing.
        normalize: the divergence s(x, y) - (s(x, x) + s(y, y)) / 2.
        dist_func: costs (B, N, M) of (B, N, D) and (B, M, D); None: squared Euclidean distances, for which no table is made.
        global_constraint: "sakoe_chiba", "itakura" or None: the band.
        sakoe_chiba_radius: the radius of a Sakoe-Chiba band; None: 1, where the band is one.
        itakura_max_slope: the largest slope of an Itakura parallelogram; None: 2, where the band is one.
    """

    @staticmethod
    def _euclidean_squared_dist(x: Tensor, y: Tensor) -> Tensor:
        """The default of dist_func, under the original's name."""
        return squared_distances(x, y)

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
        self.dist_func = self._euclidean_squared_dist if dist_func is None else dist_func
        self.global_constraint = global_constraint
        self.sakoe_chiba_radius = sakoe_chiba_radius
        self.itakura_max_slope = itakura_max_slope

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """(B,) values, in the dtype that holds both; of integers in torch's default dtype.

        Args:
            x: (B, N, D) series.
            y: (B, M, D) series.
        """
        check_shapes(x, y)
        x, y = promoted(x, y)
        band = Band(self.global_constraint, self.sakoe_chiba_radius, self.itakura_max_slope)
        value = self._values(x, y, band)
        if self.normalize:
            value = value - 0.5 * (self._values(x, x, band) + self._values(y, y, band))
        return value

    def _values(self, x: Tensor, y: Tensor, band: Band) -> Tensor:
        with naming_the_slope():
            if self.dist_func is self._euclidean_squared_dist and x.shape[2]:
                return warpalign.soft_dtw(x, y, gamma=self.gamma, **band.options)
            return warpalign.soft_dtw_cost(self.dist_func(x, y), gamma=self.gamma, **band.options)


def _value(x: Tensor, y: Tensor, gamma: float, band: Band) -> Tensor:
    with naming_the_slope():
        return warpalign.soft_dtw(x, y, gamma=gamma, unbatched=True, **band.options)


def _all_pairs(
    dataset1: Any, dataset2: Any, gamma: float, band: Band, verbose: int, be: Any, *, normalize: bool
) -> Array:
    x = dataset_of(dataset1, "dataset1")
    y = None
    if dataset2 is not None:
        y = dataset_of(dataset2, "dataset2")
        x, y = alike(y, "dataset2", x, "dataset1")
    options: dict[str, Any] = {"normalize": normalize, "progress": bool(verbose), **band.options}
    with naming_the_slope():
        values = all_pairs(x, y, gamma=gamma, **options)
    return array(values.sqrt() if gamma == 0 else values, wants_tensor(be, dataset1, dataset2))
