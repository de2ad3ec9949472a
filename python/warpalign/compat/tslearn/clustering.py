"""Drop-in for tslearn.clustering.TimeSeriesKMeans; needs scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from warpalign._core import optional
from warpalign._core.series import as_series, resampled
from warpalign.compat.tslearn._common import dataset_of
from warpalign.compat.tslearn.barycenters import dtw_barycenter_averaging, softdtw_barycenter
from warpalign.compat.tslearn.metrics import cdist_dtw, cdist_soft_dtw

optional.load("sklearn", "warpalign.compat.tslearn.TimeSeriesKMeans", "cluster")

from sklearn.base import BaseEstimator, ClusterMixin, TransformerMixin  # noqa: E402  (after the message that says how to get it)
from sklearn.cluster import kmeans_plusplus  # noqa: E402
from sklearn.utils import check_random_state  # noqa: E402
from sklearn.utils.validation import check_is_fitted  # noqa: E402

__all__ = ["EmptyClusterError", "TimeSeriesKMeans"]

Array = np.ndarray[Any, Any]


class EmptyClusterError(Exception):
    """No series is nearest to some center."""

    def __init__(self) -> None:
        super().__init__("Cluster assignments lead to at least one empty cluster")


class TimeSeriesKMeans(TransformerMixin, ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """tslearn's k-means of time series, draw by draw: the same random_state gives the same clusters.

    :class:`warpalign.SoftDTWKMeans` computes all clusters' barycenters in one batch, and lowers the sum of soft-DTW itself.

    Args:
        n_clusters: the number of clusters.
        max_iter: the maximum number of iterations of a run.
        tol: a run ends when the inertia changes by less.
        n_init: the number of runs, of which the one with the least inertia is kept.
        metric: "euclidean", "dtw" or "softdtw".
        max_iter_barycenter: iterations of a center's search; of "softdtw" alone, as in tslearn.
        metric_params: gamma and the band's arguments of :func:`warpalign.compat.tslearn.soft_dtw`.
        n_jobs: kept for the signature; torch.set_num_threads says how many threads compute.
        dtw_inertia: take the inertia by DTW, whatever the metric is.
        verbose: not 0: print the inertia.
        random_state: None, an int or a numpy RandomState, which draws as tslearn's does.
        init: "k-means++", "random" or an array (k, sz, d).

    Attributes:
        labels_: (n,).
        cluster_centers_: (k, sz, d), float64.
        inertia_: mean of the squared distances between series and centers: of soft-DTW values too, as in tslearn.
        n_iter_: iterations of the run that was kept.
    """

    labels_: Array
    cluster_centers_: Array
    inertia_: float
    n_iter_: int

    def __init__(
        self,
        n_clusters: int = 3,
        max_iter: int = 50,
        tol: float = 1e-6,
        n_init: int = 1,
        metric: str = "euclidean",
        max_iter_barycenter: int = 100,
        metric_params: dict[str, Any] | None = None,
        n_jobs: int | None = None,
        dtw_inertia: bool = False,
        verbose: int = 0,
        random_state: Any = None,
        init: Any = "k-means++",
    ) -> None:
        self.n_clusters = n_clusters
        self.max_iter = max_iter
        self.tol = tol
        self.n_init = n_init
        self.metric = metric
        self.max_iter_barycenter = max_iter_barycenter
        self.metric_params = metric_params
        self.n_jobs = n_jobs
        self.dtw_inertia = dtw_inertia
        self.verbose = verbose
        self.random_state = random_state
        self.init = init

    def fit(self, X: Any, y: Any = None) -> TimeSeriesKMeans:
        """Clusters the series X (n, sz, d), (n, sz) or a list of unequal ones; y is ignored."""
        if self.metric not in ("dtw", "softdtw", "euclidean"):
            raise ValueError(
                f"Incorrect metric: {self.metric} (should be one of 'dtw', 'softdtw', 'euclidean')"
            )
        values = dataset_of(X, "X").values.detach().cpu()
        random = check_random_state(self.random_state)
        best: tuple[float, Array, int] | None = None
        runs = 0
        for _ in range(max(self.n_init, 10)):
            if runs == self.n_init:
                break
            try:
                run = self._run(values, random)
            except EmptyClusterError:
                if self.verbose:
                    print("Resumed because of empty cluster")
                continue
            runs += 1
            if best is None or run[0] < best[0]:
                best = run
        if best is None:
            raise EmptyClusterError
        self.inertia_, self.cluster_centers_, self.n_iter_ = best
        self.labels_ = self._distances(values, self.cluster_centers_).argmin(1)
        self.n_features_in_ = values.shape[2]
        return self

    def fit_predict(self, X: Any, y: Any = None) -> Array:
        """(n,) the cluster of each series of X, which is fitted."""
        return self.fit(X).labels_

    def predict(self, X: Any) -> Array:
        """(n,) index of the nearest center of every series."""
        nearest: Array = self.transform(X).argmin(1)
        return nearest

    def transform(self, X: Any) -> Array:
        """(n, k) distances between series and centers."""
        check_is_fitted(self)
        return self._distances(dataset_of(X, "X").values.detach().cpu(), self.cluster_centers_)

    def _params(self) -> dict[str, Any]:
        return {name: value for name, value in (self.metric_params or {}).items() if name != "n_jobs"}

    def _distances(self, values: Tensor, centers: Array, metric: str | None = None) -> Array:
        metric = self.metric if metric is None else metric
        if metric == "euclidean":
            table: Array = torch.cdist(values.flatten(1), torch.from_numpy(centers).flatten(1)).numpy()
            return table
        distance = cdist_dtw if metric == "dtw" else cdist_soft_dtw
        params = self._params() if metric == self.metric else {}
        found: Array = distance(values.numpy(), centers, **params)
        return found

    def _run(self, values: Tensor, random: Any) -> tuple[float, Array, int]:
        """Inertia, centers and iterations from one start."""
        centers = self._start(values, random)
        inertias: list[float] = []
        for _ in range(self.max_iter):
            distances = self._distances(values, centers)
            labels = distances.argmin(1)
            if len(np.unique(labels)) < self.n_clusters:
                raise EmptyClusterError
            if self.dtw_inertia and self.metric != "dtw":
                distances = self._distances(values, centers, "dtw")
            inertias.append(float((distances[np.arange(len(labels)), labels] ** 2).sum() / len(labels)))
            if self.verbose:
                print(f"{inertias[-1]:.3f}", end=" --> ")
            centers = np.stack([self._center(values[labels == k], centers[k]) for k in range(len(centers))])
            if len(inertias) > 1 and abs(inertias[-2] - inertias[-1]) < self.tol:
                break
        if self.verbose:
            print()
        return inertias[-1], centers, len(inertias)

    def _center(self, members: Tensor, center: Array) -> Array:
        found: Array
        if self.metric == "dtw":
            found = dtw_barycenter_averaging(
                members.numpy(), init_barycenter=center, metric_params=self._params()
            )
        elif self.metric == "softdtw":
            options = {"max_iter": self.max_iter_barycenter, **self._params()}
            found = softdtw_barycenter(members.numpy(), init=center, **options)
        else:
            found = members.numpy().mean(0)
        return found

    def _start(self, values: Tensor, random: Any) -> Array:
        """(k, sz, d), of full length."""
        if hasattr(self.init, "__array__"):
            centers = torch.from_numpy(np.array(self.init, dtype=float))
            if len(centers) != self.n_clusters:
                raise ValueError(f"init: expected {self.n_clusters} centers, got {len(centers)}")
        elif self.init == "k-means++" and self.metric == "euclidean":
            flat, _ = kmeans_plusplus(values.flatten(1).numpy(), self.n_clusters, random_state=random)
            centers = torch.from_numpy(flat).view(-1, *values.shape[1:])
        elif self.init == "k-means++":
            centers = values[self._plusplus(values, random)]
        elif self.init == "random":
            centers = values[random.choice(len(values), self.n_clusters, replace=False)]
        else:
            raise ValueError(f"Value {self.init!r} for parameter 'init' is invalid")
        full: Array = resampled(as_series(centers, "init"), centers.shape[1]).numpy()
        return full

    def _plusplus(self, values: Tensor, random: Any) -> list[int]:
        """Greedy k-means++ (Arthur & Vassilvitskii 2007) by the squares of the distances, in tslearn's order of draws."""

        def squares(chosen: list[int]) -> Array:
            result: Array = self._distances(values, values[chosen].numpy()).T ** 2
            return result

        chosen = [int(random.randint(len(values)))]
        nearest = squares(chosen)[0]
        for _ in range(1, self.n_clusters):
            draws = random.random_sample(2 + int(np.log(self.n_clusters))) * nearest.sum()
            candidates = np.searchsorted(nearest.cumsum(), draws).clip(max=len(values) - 1).tolist()
            after = np.minimum(nearest, squares(candidates))
            best = int(after.sum(1).argmin())
            chosen.append(candidates[best])
            nearest = after[best]
        return chosen
