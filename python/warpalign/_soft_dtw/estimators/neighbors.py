"""Nearest neighbours under soft-DTW, as scikit-learn estimators (pip install 'warpalign[estimators]')."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from warpalign._core.checks import check_count, check_device, check_flag
from warpalign._core.series import SeriesSet
from warpalign._soft_dtw.estimators.base import SeriesEstimator
from warpalign._soft_dtw.pairwise import all_pairs

# isort: split
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    check_array,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
)

Array = NDArray[Any]
_CELLS_AT_ONCE = 2**24  # of the table between queries and fitted series


class _Neighbors(SeriesEstimator):
    """Fitted series, and those nearest to others."""

    n_samples_fit_: int

    def __init__(
        self,
        n_neighbors: int = 5,
        weights: Literal["uniform", "distance"] | Callable[[Array], Array] = "uniform",
        gamma: float | Literal["auto"] = 1.0,
        normalize: bool = False,
        device: Any = None,
        metric_params: dict[str, Any] | None = None,
        bandwidth: int | None = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.weights = weights
        self.gamma = gamma
        self.normalize = normalize
        self.device = device
        self.metric_params = metric_params
        self.bandwidth = bandwidth

    def _fit(self, X: Any, y: Any, check: Callable[[Array], object]) -> Array:
        """Remembers the series; their checked targets (n,)."""
        check_count(self.n_neighbors, "n_neighbors")
        check_flag(self.normalize, "normalize")
        if not (callable(self.weights) or self.weights in ("uniform", "distance")):
            raise ValueError(f'weights: expected "uniform", "distance" or a function, got {self.weights!r}')
        if self.weights == "distance" and not self.normalize and (self.gamma == "auto" or self.gamma != 0):
            raise ValueError(
                'weights: expected distances that are not negative for "distance", which normalize=True and gamma=0 give'
            )
        series = self._read(X, reset=True)
        self._metric(series)
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        targets: Array = column_or_1d(
            check_array(y, ensure_2d=False, dtype=None, input_name="y", estimator=self), warn=True
        )
        check_consistent_length(series.values, targets)
        check(targets)
        self._X_fit = series.values.cpu().numpy()
        self._lengths_fit = None if series.lengths is None else series.lengths.numpy()
        self._mask_fit = None if series.mask is None else series.mask.cpu().numpy()
        self.n_samples_fit_ = len(self._X_fit)
        return targets

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

    def _weights(self, distances: Array) -> Array:
        """(n, k): how much each neighbour counts."""
        if callable(self.weights):
            return np.asarray(self.weights(distances))
        if self.weights == "uniform":
            return np.ones_like(distances)
        is_same = distances == 0  # equal series outvote all others
        with np.errstate(divide="ignore"):
            return np.where(is_same.any(1, keepdims=True), is_same, 1 / distances)

    def _tables(self, X: Any) -> Iterator[Array]:
        """Distances (rows, n_samples_fit_) between queries and fitted series, some queries at a time."""
        fitted = SeriesSet(
            torch.from_numpy(self._X_fit),
            None if self._lengths_fit is None else torch.from_numpy(self._lengths_fit),
            None if self._mask_fit is None else torch.from_numpy(self._mask_fit),
        )
        if X is None:
            queries = fitted if self.device is None else fitted.to(check_device(self.device, "device"))
        else:
            queries = self._read(X, reset=False, like=self._X_fit)
        fitted = fitted.to(queries.values.device)
        rows = max(1, _CELLS_AT_ONCE // len(fitted.values))
        for index in torch.arange(len(queries.values)).split(rows):
            values, _, mask = queries.take(index)
            lengths = None if queries.lengths is None else queries.lengths[index]
            options = {"normalize": bool(self.normalize), **self._metric()}
            table: Array = all_pairs(SeriesSet(values, lengths, mask), fitted, **options).cpu().numpy()
            if self.normalize:
                table = table.clip(min=0)  # rounding can leave them negative
            if X is None:
                table[np.arange(len(index)), index.numpy()] = np.inf
            yield table


class SoftDTWKNeighborsClassifier(ClassifierMixin, _Neighbors):  # type: ignore[misc]
    """Class of a series by a vote of the fitted series that are nearest to it under soft-DTW, or, with gamma=0, under DTW.

    Names and defaults are those of tslearn's KNeighborsTimeSeriesClassifier(metric="softdtw"). The field's baseline, one nearest
    neighbour under DTW, is SoftDTWKNeighborsClassifier(1, gamma=0); with a Sakoe-Chiba band, bandwidth=r.

    Args:
        n_neighbors: number of neighbours that vote.
        weights: "uniform", "distance" (votes weigh 1 / distance), or a function from distances (n, k) to weights (n, k).
        gamma: smoothing of soft-DTW, in units of its cost; >= 0. 0: DTW, whose values are sums of squared differences, as aeon's
            are; tslearn's distances are their square roots. "auto": tslearn's heuristic for the series to fit, as in
            :func:`warpalign.cdist_soft_dtw`.
        normalize: take soft-DTW divergences for distances (see :func:`warpalign.cdist_soft_dtw`), which are not negative, instead
            of soft-DTW values, which can be; weights="distance" needs it.
        device: the device of the computation, for instance "cuda". None: the device of X if it is a tensor, else the CPU.
        metric_params: further arguments of :func:`warpalign.soft_dtw`, out of cost, bandwidth, band, max_slope, step_penalty and precision.
        bandwidth: radius of a band around the diagonal, in time steps, as in :func:`warpalign.soft_dtw`: Sakoe and Chiba's, unless
            metric_params has another band. None: no band, or that of metric_params.

    Attributes:
        classes_: (c,) the classes.
        n_samples_fit_: number of fitted series.
        gamma_: the gamma that was used.
        n_features_in_: d; of a table (n, sz) its columns, scikit-learn's features.

    In every method X has the forms of :class:`warpalign.SoftDTWKMeans`.

    Examples:
        >>> import numpy as np
        >>> X = np.array([[0.0, 0, 1, 0], [0, 1, 0, 0], [1, 1, 0, 1], [0, 1, 1, 1]])
        >>> SoftDTWKNeighborsClassifier(n_neighbors=1, gamma=0.1).fit(X, [0, 0, 1, 1]).predict([[0.0, 0, 1, 1]])
        array([1])
    """

    classes_: Array

    def fit(self, X: Any, y: Any) -> SoftDTWKNeighborsClassifier:
        """Stores the series X and their classes y (n,)."""
        classes = self._fit(X, y, check_classification_targets)
        self.classes_, self._classes_fit = np.unique(classes, return_inverse=True)
        return self

    def predict(self, X: Any) -> Array:
        """(n,) class of every series; the first one in classes_ of those with as many votes."""
        most = self._votes(X).argmax(1)
        predicted: Array = self.classes_[most]
        return predicted

    def predict_proba(self, X: Any) -> Array:
        """(n, c) fraction of the votes of each class."""
        votes = self._votes(X)
        shares: Array = votes / votes.sum(1, keepdims=True)
        return shares

    def _votes(self, X: Any) -> Array:
        check_is_fitted(self)
        distances, indices = self.kneighbors(X)
        votes = np.zeros((len(indices), len(self.classes_)))
        np.add.at(
            votes,
            (np.arange(len(indices))[:, None], self._classes_fit[indices]),
            self._weights(distances),
        )
        return votes


class SoftDTWKNeighborsRegressor(RegressorMixin, _Neighbors):  # type: ignore[misc]
    """Number of a series: the weighted mean of those of the fitted series that are nearest to it under soft-DTW or DTW.

    Names and defaults are those of tslearn's KNeighborsTimeSeriesRegressor(metric="softdtw").

    Args:
        n_neighbors: number of neighbours whose numbers are averaged.
        weights: "uniform", "distance" (numbers weigh 1 / distance), or a function from distances (n, k) to weights (n, k).
        gamma: smoothing of soft-DTW, in units of its cost; >= 0. 0: DTW, whose values are sums of squared differences. "auto":
            tslearn's heuristic for the series to fit.
        normalize: take soft-DTW divergences for distances, which are not negative; weights="distance" needs it.
        device: the device of the computation, for instance "cuda". None: the device of X if it is a tensor, else the CPU.
        metric_params: further arguments of :func:`warpalign.soft_dtw`, out of cost, bandwidth, band, max_slope, step_penalty and precision.
        bandwidth: radius of a band around the diagonal, in time steps: Sakoe and Chiba's, unless metric_params has another band.
            None: no band, or that of metric_params.

    Attributes:
        n_samples_fit_: number of fitted series.
        gamma_: the gamma that was used.
        n_features_in_: d; of a table (n, sz) its columns, scikit-learn's features.

    In every method X has the forms of :class:`warpalign.SoftDTWKMeans`.

    Examples:
        >>> import numpy as np
        >>> X = np.array([[0.0, 0, 1, 0], [0, 1, 0, 0], [1, 1, 0, 1], [0, 1, 1, 1]])
        >>> SoftDTWKNeighborsRegressor(n_neighbors=2, gamma=0.1).fit(X, [0.0, 1, 2, 4]).predict([[0.0, 0, 1, 0]])
        array([0.5])
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = (
            True  # on data whose columns are no time steps, as in scikit-learn's checks
        )
        return tags

    def fit(self, X: Any, y: Any) -> SoftDTWKNeighborsRegressor:
        """Stores the series X and their target values y (n,)."""
        numbers = self._fit(X, y, lambda y: check_array(y, ensure_2d=False, input_name="y", estimator=self))
        self._numbers_fit = numbers.astype(np.float64)
        return self

    def predict(self, X: Any) -> Array:
        """(n,) predicted values of the series."""
        check_is_fitted(self)
        distances, indices = self.kneighbors(X)
        weights = self._weights(distances)
        numbers: Array = (weights * self._numbers_fit[indices]).sum(1) / weights.sum(1)
        return numbers


def _nearest(table: Array, count: int) -> tuple[Array, Array]:
    """The least values of each row, and where they are; of equal ones the first."""
    order = table.argsort(axis=1, kind="stable")[:, :count]
    return np.take_along_axis(table, order, axis=1), order
