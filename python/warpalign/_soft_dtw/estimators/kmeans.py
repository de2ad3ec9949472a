"""k-means under soft-DTW, as a scikit-learn estimator (pip install 'warpalign[estimators]')."""

from __future__ import annotations

import math
import warnings
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from warpalign._core.checks import check_count, check_number
from warpalign._core.series import SeriesSet, as_series, resampled, without_gaps
from warpalign._soft_dtw.barycenter import soft_dtw_barycenter
from warpalign._soft_dtw.estimators.base import SeriesEstimator
from warpalign._soft_dtw.pairwise import all_pairs, self_values

# isort: split
from sklearn.base import ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

Array = NDArray[Any]


class SoftDTWKMeans(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, SeriesEstimator):  # type: ignore[misc]
    """Clusters of series around soft-DTW or, with gamma=0, DTW barycenters: section 3.2 of Cuturi & Blondel, ICML 2017.

    Names and defaults are those of tslearn's TimeSeriesKMeans(metric="softdtw"). Different are: labels_ belong to the centers
    that are kept, so that labels_ equals predict(X); inertia_ is the sum of soft-DTW values that k-means lowers (tslearn: the
    mean of their squares); a cluster that loses all its series moves to the series farthest from its center (tslearn: starts
    again); tol is relative.

    Args:
        n_clusters: number of clusters k, at most the number of series.
        gamma: smoothing of soft-DTW, in units of its cost; >= 0. 0: DTW, with DTW barycenter averaging (method="dba" of
            :func:`warpalign.soft_dtw_barycenter`) for the centers, as tslearn's metric="dtw". "auto": tslearn's heuristic for the
            series to fit, as in :func:`warpalign.cdist_soft_dtw`.
        max_iter: the maximum number of iterations of k-means.
        tol: an iteration that lowers the inertia by no more than tol * |inertia| is the last one. 0: the iterations end
            when the inertia no longer falls, and do not warn if max_iter ends them first.
        n_init: runs from different initialisations, of which the one with the least inertia is kept.
        max_iter_barycenter: iterations of L-BFGS, or of DTW barycenter averaging, at most, for the centers of one iteration.
        init: "k-means++" (greedy; Arthur & Vassilvitskii 2007, with soft-DTW divergences for squared distances), "random" (series of
            X) or an array (k, sz, d) of centers.
        random_state: None, an int or a numpy RandomState, for init.
        verbose: 1 prints the inertia after every iteration.
        device: the device of the computation, for instance "cuda". None: the device of X if it is a tensor, else the CPU.
        metric_params: further arguments of :func:`warpalign.soft_dtw`, out of cost, bandwidth, band, max_slope, step_penalty and
            precision. With gamma=0 the cost is "sqeuclidean".
        bandwidth: radius of a band around the diagonal, in time steps, as in :func:`warpalign.soft_dtw`: Sakoe and Chiba's, unless
            metric_params has another band. None: no band, or that of metric_params.

    Attributes:
        cluster_centers_: (k, sz, d), sz being the longest series' length or that of init.
        labels_: (n,) the cluster of each series of X.
        inertia_: sum of the soft-DTW values between series and their centers; can be negative.
        n_iter_: iterations of the run that was kept. fit() gives a ConvergenceWarning of scikit-learn if the inertia still falls or is not
            finite, or if there are fewer than n_clusters distinct clusters.
        gamma_: the gamma that was used.
        n_features_in_: d; of a table (n, sz) its columns, scikit-learn's features.

    In every method X is an array or tensor (n, sz, d), a table (n, sz) of univariate series, or a list of series (sz_i, d) or
    (sz_i,), or what else :func:`warpalign.cdist_soft_dtw` takes; NaN at the end of a series is padding, and time steps that a NumPy masked
    array masks are missing. Time comes before features: write X.swapaxes(1, 2) for aeon's and sktime's arrays (n, d, sz). float32 is
    computed in float32, all else in float64.

    Examples:
        >>> import numpy as np
        >>> X = np.random.default_rng(0).normal(size=(20, 30, 2))
        >>> SoftDTWKMeans(n_clusters=2, gamma=0.1, random_state=0).fit(X).cluster_centers_.shape
        (2, 30, 2)
    """

    cluster_centers_: Array
    labels_: Array
    inertia_: float
    n_iter_: int

    def __init__(
        self,
        n_clusters: int = 3,
        gamma: float | Literal["auto"] = 1.0,
        max_iter: int = 50,
        tol: float = 1e-6,
        n_init: int = 1,
        max_iter_barycenter: int = 100,
        init: Any = "k-means++",
        random_state: Any = None,
        verbose: int = 0,
        device: Any = None,
        metric_params: dict[str, Any] | None = None,
        bandwidth: int | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.gamma = gamma
        self.max_iter = max_iter
        self.tol = tol
        self.n_init = n_init
        self.max_iter_barycenter = max_iter_barycenter
        self.init = init
        self.random_state = random_state
        self.verbose = verbose
        self.device = device
        self.metric_params = metric_params
        self.bandwidth = bandwidth

    def fit(self, X: Any, y: Any = None) -> SoftDTWKMeans:
        """Clusters the series X; y is ignored."""
        series = self._read(X, reset=True)
        metric, tol = self._metric(series), check_number(self.tol, "tol")
        if metric["gamma"] == 0 and metric.get("cost", "sqeuclidean") != "sqeuclidean":
            raise ValueError(
                f'metric_params: expected cost "sqeuclidean" with gamma=0, whose centers are means, got {metric["cost"]!r}: write gamma > 0'
            )
        clusters = check_count(self.n_clusters, "n_clusters")
        for name, least in (("max_iter", 1), ("n_init", 1), ("max_iter_barycenter", 0)):
            check_count(getattr(self, name), name, least)
        if len(series.values) < clusters:
            raise ValueError(f"n_samples={len(series.values)} should be >= n_clusters={clusters}.")
        random = check_random_state(self.random_state)
        best: _Clustering | None = None
        for _ in range(self.n_init):
            run = self._run(series, _first_centers(series, self.init, clusters, metric, random), metric, tol)
            if best is None or run.inertia < best.inertia:
                best = run
        assert best is not None
        self.cluster_centers_ = best.centers.cpu().numpy()
        self.labels_ = best.labels.cpu().numpy()
        self.inertia_ = best.inertia
        self.n_iter_ = best.iterations
        if text := self._fault(best):
            warnings.warn(f"SoftDTWKMeans: {text}", ConvergenceWarning, stacklevel=2)
        return self

    def _fault(self, found: _Clustering) -> str:
        """What the caller should know about clusters; empty: nothing."""
        distinct = len(found.labels.unique())
        if not math.isfinite(found.inertia):
            return (
                f"expected a finite inertia_, got {found.inertia:g}: values of X are too large for "
                f"{str(found.values.dtype).removeprefix('torch.')}, or the band leaves a pair no path: write X / abs(X).max(), or a "
                "wider band"
            )
        if distinct < len(found.centers):
            return (
                f"expected n_clusters = {len(found.centers)} distinct clusters, got {distinct}: series of X may be equal: write "
                f"n_clusters={distinct}"
            )
        if not found.converged and self.tol > 0:
            return (
                f"expected an inertia that falls by no more than tol = {self.tol:g}, got one that still falls by more after "
                f"max_iter = {self.max_iter} iterations: write a larger max_iter or tol, or tol=0 for at most max_iter iterations"
            )
        return ""

    def predict(self, X: Any) -> Array:
        """(n,) index of the nearest center of every series."""
        nearest: Array = self._values(X).argmin(1).cpu().numpy()
        return nearest

    def transform(self, X: Any) -> Array:
        """(n, k) soft-DTW values between series and centers."""
        values: Array = self._values(X).cpu().numpy()
        return values

    def score(self, X: Any, y: Any = None) -> float:
        """Minus the inertia of X: the higher, the better; y is ignored."""
        return -float(self._values(X).amin(1).double().sum())

    @property
    def _n_features_out(self) -> int:
        return len(self.cluster_centers_)

    def _values(self, X: Any) -> Tensor:
        check_is_fitted(self)
        series = self._read(X, reset=False, like=self.cluster_centers_)
        centers = torch.from_numpy(self.cluster_centers_).to(series.values.device)
        return _cdist(series, centers, self._metric())

    def _run(self, series: SeriesSet, centers: Tensor, metric: dict[str, Any], tol: float) -> _Clustering:
        best = _assigned(series, centers, metric, 0)
        # Means of what DTW aligns have no gamma, and are not asked for one.
        search = {"method": "dba", **metric, "gamma": 1.0} if metric["gamma"] == 0 else metric
        for iteration in range(1, self.max_iter + 1):
            centers, labels = _without_empty_clusters(series, best)
            centers = soft_dtw_barycenter(
                series.values,
                groups=labels,
                x_lengths=_on_device(series),
                x_mask=series.mask,
                init=centers,
                max_iter=self.max_iter_barycenter,
                **search,
            ).barycenter
            before, best = best, _assigned(series, centers, metric, iteration)
            if self.verbose:
                print(f"iteration {iteration}: inertia {best.inertia:.6g}")
            if not before.inertia - best.inertia > tol * abs(before.inertia):
                return best._replace(converged=True)
        return best


class _Clustering(NamedTuple):
    centers: Tensor
    """(k, sz, d)"""
    values: Tensor
    """(n,) soft-DTW between each series and its center."""
    labels: Tensor
    """(n,)"""
    inertia: float
    iterations: int
    converged: bool = False


def _assigned(series: SeriesSet, centers: Tensor, metric: dict[str, Any], iterations: int) -> _Clustering:
    values = _cdist(series, centers, metric)
    labels = values.argmin(1)
    own = values.gather(1, labels[:, None])[:, 0]
    return _Clustering(centers, own, labels, float(own.double().sum()), iterations)


def _without_empty_clusters(series: SeriesSet, clustering: _Clustering) -> tuple[Tensor, Tensor]:
    """Centers and labels in which each cluster without series has taken the one that was farthest from its center."""
    centers, labels = clustering.centers.clone(), clustering.labels.clone()
    counts = labels.bincount(minlength=len(centers)).tolist()
    farthest = iter(clustering.values.argsort(descending=True, stable=True).tolist())
    for cluster in (k for k, count in enumerate(counts) if count == 0):
        index = next(i for i in farthest if counts[int(labels[i])] > 1)
        counts[int(labels[index])] -= 1
        counts[cluster] = 1
        labels[index] = cluster
        centers[cluster] = _resampled(series, [index], centers.shape[1])[0]
    return centers, labels


def _first_centers(
    series: SeriesSet, init: Any, clusters: int, metric: dict[str, Any], random: Any
) -> Tensor:
    values = series.values
    if not isinstance(init, str):
        given = as_series(init, "init").values
        if len(given) != clusters or given.shape[2] != values.shape[2] or not bool(given.isfinite().all()):
            raise ValueError(
                f"init: expected finite centers ({clusters}, sz, {values.shape[2]}), got shape {tuple(given.shape)}"
                + ("" if bool(given.isfinite().all()) else " with NaN or infinity")
            )
        return given.detach().to(values)
    if init == "random":
        chosen = random.choice(len(values), clusters, replace=False).tolist()
    elif init == "k-means++":
        chosen = _plusplus(series, clusters, metric, random)
    else:
        raise ValueError(f'init: expected "k-means++", "random" or an array, got {init!r}')
    return _resampled(series, chosen, values.shape[1])


def _plusplus(series: SeriesSet, clusters: int, metric: dict[str, Any], random: Any) -> list[int]:
    """k-means++: each center is drawn in proportion to its divergence from the centers so far; the best of some draws."""
    own = self_values(series, metric, series.values.device)

    def divergences(chosen: list[int]) -> Array:
        table = _cdist(series, _taken(series, chosen), metric) - (own[:, None] / 2 + own[chosen] / 2)
        result: Array = table.clamp(min=0).double().cpu().numpy()  # rounding can leave them negative
        return result

    chosen = [int(random.randint(len(series.values)))]
    nearest = divergences(chosen)[:, 0]
    draws = 2 + int(np.log(clusters))
    while len(chosen) < clusters:
        sums = nearest.cumsum()
        candidates = np.searchsorted(sums, random.uniform(size=draws) * sums[-1], side="right")
        candidates = candidates.clip(max=len(sums) - 1).tolist()
        after = np.minimum(nearest[:, None], divergences(candidates))
        best = int(after.sum(0).argmin())
        chosen.append(candidates[best])
        nearest = after[:, best]
    return chosen


def _taken(series: SeriesSet, chosen: list[int]) -> SeriesSet:
    index = torch.tensor(chosen)
    on_device = index.to(series.values.device)
    return SeriesSet(
        series.values[on_device],
        None if series.lengths is None else series.lengths[index],
        None if series.mask is None else series.mask[on_device],
    )


def _resampled(series: SeriesSet, chosen: list[int], size: int) -> Tensor:
    return resampled(without_gaps(_taken(series, chosen)), size)


def _on_device(series: SeriesSet) -> Tensor | None:
    return None if series.lengths is None else series.lengths.to(series.values.device)


def _cdist(series: SeriesSet, centers: Tensor | SeriesSet, metric: dict[str, Any]) -> Tensor:
    return all_pairs(
        series, centers if isinstance(centers, SeriesSet) else SeriesSet(centers, None), **metric
    )
