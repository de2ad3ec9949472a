"""Drop-in for tslearn.neighbors.KNeighborsTimeSeriesClassifier; needs scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from warpalign._core import optional
from warpalign.compat.tslearn._common import dataset_of
from warpalign.compat.tslearn.metrics import cdist_dtw, cdist_soft_dtw

optional.load("sklearn", "warpalign.compat.tslearn.KNeighborsTimeSeriesClassifier", "cluster")

from sklearn.base import BaseEstimator, ClassifierMixin  # noqa: E402  (after the message that says how to get it)
from sklearn.neighbors import KNeighborsClassifier  # noqa: E402
from sklearn.utils.validation import check_is_fitted  # noqa: E402

__all__ = ["KNeighborsTimeSeriesClassifier"]

Array = np.ndarray[Any, Any]
_FLAT = {"euclidean": 2.0, "sqeuclidean": 2.0, "cityblock": 1.0}  # norms of series as vectors
_METRICS = ("dtw", "softdtw", *_FLAT)


class KNeighborsTimeSeriesClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """tslearn's vote of the nearest fitted series: scikit-learn's KNeighborsClassifier on our distances.

    Args:
        n_neighbors: the number of neighbours that vote.
        weights: "uniform", "distance" or a function, as scikit-learn's KNeighborsClassifier takes them.
        metric: "dtw", "softdtw", "euclidean", "sqeuclidean" or "cityblock"; tslearn's "ctw", "frechet" and "sax" are not here.
        metric_params: gamma (or gamma_sdtw) and the band's arguments of :func:`warpalign.compat.tslearn.soft_dtw`.
        n_jobs: kept for the signature.
        verbose: kept for the signature.

    Attributes:
        classes_: (c,) the classes.
    """

    classes_: Array

    def __init__(
        self,
        n_neighbors: int = 5,
        weights: Any = "uniform",
        metric: str = "dtw",
        metric_params: dict[str, Any] | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.weights = weights
        self.metric = metric
        self.metric_params = metric_params
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> KNeighborsTimeSeriesClassifier:
        """Remembers the series X (n, sz, d), (n, sz) or a list of unequal ones, and their classes y (n,)."""
        if self.metric not in _METRICS:
            raise ValueError(
                f"Unrecognized time series metric string: {self.metric} (should be one of {', '.join(map(repr, _METRICS))})"
            )
        self._ts_fit = _values(X)
        self._vote = KNeighborsClassifier(
            self.n_neighbors, weights=self.weights, algorithm="brute", metric="precomputed"
        )
        self._vote.fit(np.zeros((len(self._ts_fit),) * 2), y)  # the table of a query says all
        self.classes_ = self._vote.classes_
        self.n_features_in_ = self._ts_fit.shape[2]
        return self

    def predict(self, X: Any) -> Array:
        """(n,) class of every series."""
        check_is_fitted(self)
        found: Array = self._vote.predict(self._distances(_values(X)))
        return found

    def predict_proba(self, X: Any) -> Array:
        """(n, c) fraction of the votes of each class."""
        check_is_fitted(self)
        found: Array = self._vote.predict_proba(self._distances(_values(X)))
        return found

    def kneighbors(
        self, X: Any = None, n_neighbors: int | None = None, return_distance: bool = True
    ) -> Array | tuple[Array, Array]:
        """Distances (n, k), increasing, and indices (n, k) of the fitted series nearest to those of X; or the indices alone.

        None: the fitted series, none of which is its own neighbour.
        """
        check_is_fitted(self)
        table = self._distances(self._ts_fit if X is None else _values(X))
        count = self.n_neighbors if n_neighbors is None else n_neighbors
        if X is None:
            np.fill_diagonal(table, np.inf)
        nearest = table.argsort(1, kind="stable")[:, : min(count, table.shape[1] - (X is None))]
        distances = np.take_along_axis(table, nearest, axis=1)
        return (distances, nearest) if return_distance else nearest

    def _distances(self, values: Tensor) -> Array:
        """(n, number of fitted series)."""
        table: Array
        if self.metric in _FLAT:
            flat = torch.cdist(values.flatten(1), self._ts_fit.flatten(1), p=_FLAT[self.metric])
            table = (flat.square() if self.metric == "sqeuclidean" else flat).numpy()
            return table
        given = dict(self.metric_params or {})
        params = {
            name: value for name, value in given.items() if name not in ("n_jobs", "verbose", "gamma_sdtw")
        }
        if "gamma_sdtw" in given:
            params["gamma"] = given["gamma_sdtw"]
        distance = cdist_dtw if self.metric == "dtw" else cdist_soft_dtw
        table = distance(values.numpy(), self._ts_fit.numpy(), **params)
        return table


def _values(X: Any) -> Tensor:
    """(n, sz, d), float64, NaN behind a series' end."""
    return dataset_of(X, "X").values.detach().cpu()
