"""Nearest neighbours under soft-DTW, as a scikit-learn classifier (pip install 'warpalign[cluster]')."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from warpalign._core.checks import check_count, check_flag
from warpalign._core.series import SeriesSet
from warpalign._estimator import SeriesEstimator
from warpalign.pairwise import cdist_soft_dtw

# isort: split
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    check_array,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
)

Array = NDArray[Any]
_CELLS_AT_ONCE = 2**24  # of the table between queries and fitted series


class SoftDTWKNeighborsClassifier(ClassifierMixin, SeriesEstimator):  # type: ignore[misc]
    """Class of a series by a vote of the fitted series that are nearest to it under soft-DTW.

    Names and defaults are those of tslearn's KNeighborsTimeSeriesClassifier(metric="softdtw").

    Args:
        n_neighbors: number of neighbours that vote.
        weights: "uniform", "distance" (votes weigh 1 / distance), or a function from distances (n, k) to weights (n, k).
        gamma: smoothing of soft-DTW, in units of its cost; > 0.
        normalize: take soft-DTW divergences for distances (see :func:`warpalign.cdist_soft_dtw`), which are not negative, instead
            of soft-DTW values, which can be; weights="distance" needs it.
        device: where to compute, "cuda" for instance. None: where X is, if it is a tensor, else the CPU.
        metric_params: further arguments of :func:`warpalign.soft_dtw`, out of cost, bandwidth, band, max_slope, step_penalty and precision.

    Attributes:
        classes_: (c,) the classes.
        n_samples_fit_: number of fitted series.
        n_features_in_: d; of a table (n, sz) its columns, scikit-learn's features.

    In every method X is what it is in :class:`warpalign.SoftDTWKMeans`.

    Examples:
        >>> import numpy as np
        >>> X = np.array([[0.0, 0, 1, 0], [0, 1, 0, 0], [1, 1, 0, 1], [0, 1, 1, 1]])
        >>> SoftDTWKNeighborsClassifier(n_neighbors=1, gamma=0.1).fit(X, [0, 0, 1, 1]).predict([[0.0, 0, 1, 1]])
        array([1])
    """

    classes_: Array
    n_samples_fit_: int

    def __init__(
        self,
        n_neighbors: int = 5,
        weights: Literal["uniform", "distance"] | Callable[[Array], Array] = "uniform",
        gamma: float = 1.0,
        normalize: bool = False,
        device: Any = None,
        metric_params: dict[str, Any] | None = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.weights = weights
        self.gamma = gamma
        self.normalize = normalize
        self.device = device
        self.metric_params = metric_params

    def fit(self, X: Any, y: Any) -> SoftDTWKNeighborsClassifier:
        """Remembers the series X and their classes y (n,)."""
        self._metric()
        check_count(self.n_neighbors, "n_neighbors")
        check_flag(self.normalize, "normalize")
        if not (callable(self.weights) or self.weights in ("uniform", "distance")):
            raise ValueError(f'weights: expected "uniform", "distance" or a function, got {self.weights!r}')
        if self.weights == "distance" and not self.normalize:
            raise ValueError(
                'weights: expected distances that are not negative for "distance", which normalize=True gives'
            )
        series = self._read(X, reset=True)
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        y = column_or_1d(
            check_array(y, ensure_2d=False, dtype=None, input_name="y", estimator=self), warn=True
        )
        check_consistent_length(series.values, y)
        check_classification_targets(y)
        self.classes_, self._classes_fit = np.unique(y, return_inverse=True)
        self._X_fit = series.values.cpu().numpy()
        self._lengths_fit = None if series.lengths is None else series.lengths.numpy()
        self.n_samples_fit_ = len(self._X_fit)
        return self

    def kneighbors(
        self, X: Any = None, n_neighbors: int | None = None, return_distance: bool = True
    ) -> Array | tuple[Array, Array]:
        """The fitted series nearest to every series of X.

        Args:
            X: the queries. None: the fitted series, none of which is its own neighbour.
            n_neighbors: how many; default: those of the estimator.
            return_distance: whether distances are returned too.

        Returns:
            Distances (n, k), increasing, and indices (n, k) of fitted series; or the indices alone.
        """
        check_is_fitted(self)
        count = check_count(self.n_neighbors if n_neighbors is None else n_neighbors, "n_neighbors")
        available = self.n_samples_fit_ - (X is None)
        if count > available:
            raise ValueError(
                f"Expected n_neighbors <= n_samples_fit, but n_neighbors = {count}, n_samples_fit = {self.n_samples_fit_}"
                + (", none of which is its own neighbour" if X is None else "")
            )
        distances, indices = zip(
            *(_nearest(table, count) for table in self._tables(X)),
            strict=True,
        )
        return (
            (np.concatenate(distances), np.concatenate(indices))
            if return_distance
            else np.concatenate(indices)
        )

    def predict(self, X: Any) -> Array:
        """(n,) class of every series; the first one in classes_ of those with as many votes."""
        most = self._votes(X).argmax(1)
        predicted: Array = self.classes_[most]
        return predicted

    def predict_proba(self, X: Any) -> Array:
        """(n, c) share of the votes that each class has."""
        votes = self._votes(X)
        shares: Array = votes / votes.sum(1, keepdims=True)
        return shares

    def _votes(self, X: Any) -> Array:
        check_is_fitted(self)
        distances, indices = self.kneighbors(X)
        if callable(self.weights):
            weights = np.asarray(self.weights(distances))
        elif self.weights == "distance":
            is_same = distances == 0  # equal series outvote all others
            with np.errstate(divide="ignore"):
                weights = np.where(is_same.any(1, keepdims=True), is_same, 1 / distances)
        else:
            weights = np.ones_like(distances)
        votes = np.zeros((len(indices), len(self.classes_)))
        np.add.at(votes, (np.arange(len(indices))[:, None], self._classes_fit[indices]), weights)
        return votes

    def _tables(self, X: Any) -> Iterator[Array]:
        """Distances (rows, n_samples_fit_) between queries and fitted series, some queries at a time."""
        fitted = torch.from_numpy(self._X_fit)
        fit_lengths = None if self._lengths_fit is None else torch.from_numpy(self._lengths_fit)
        if X is None:
            queries = SeriesSet(fitted if self.device is None else fitted.to(self.device), fit_lengths)
        else:
            queries = self._read(X, reset=False, like=self._X_fit)
        device = queries.values.device
        fitted = fitted.to(device)
        rows = max(1, _CELLS_AT_ONCE // len(fitted))
        for index in torch.arange(len(queries.values)).split(rows):
            values, lengths = queries.take(index)
            table: Array = (
                cdist_soft_dtw(
                    values,
                    fitted,
                    normalize=bool(self.normalize),
                    x_lengths=lengths,
                    y_lengths=None if fit_lengths is None else fit_lengths.to(device),
                    **self._metric(),
                )
                .cpu()
                .numpy()
            )
            if self.normalize:
                table = table.clip(min=0)  # rounding can leave them negative
            if X is None:
                table[np.arange(len(index)), index.numpy()] = np.inf
            yield table


def _nearest(table: Array, count: int) -> tuple[Array, Array]:
    """The least values of each row, and where they are; of equal ones the first."""
    order = table.argsort(axis=1, kind="stable")[:, :count]
    return np.take_along_axis(table, order, axis=1), order
