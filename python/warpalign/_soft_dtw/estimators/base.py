"""What the scikit-learn estimators share: how they read series. scikit-learn is needed from here on."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from warpalign._core import optional
from warpalign._core.checks import check_device
from warpalign._core.panels import check_panel
from warpalign._core.series import SeriesSet, as_list, as_series, check_finite, without_mask
from warpalign._soft_dtw.checks import check_band, check_metric_params
from warpalign._soft_dtw.gamma import gamma_of_set

optional.load("sklearn", "warpalign.estimators", "estimators")

from sklearn.base import BaseEstimator  # noqa: E402  (after the message that says how to get it)
from sklearn.utils.validation import check_array, validate_data  # noqa: E402


class SeriesEstimator(BaseEstimator):  # type: ignore[misc]
    """An estimator of sets of series.

    A table (n, sz) is n univariate series, and follows scikit-learn's rules: its columns are the features, of which later
    tables must have as many. Arrays and tensors (n, sz, d) and lists of series may differ in their lengths from call to
    call, as series do, but not in d. NaN at the end of a series is padding, elsewhere an error. Time steps that a NumPy masked array
    masks are missing.
    """

    n_features_in_: int
    gamma: float | Literal["auto"]
    gamma_: float
    bandwidth: int | None
    metric_params: dict[str, Any] | None
    _has_columns: bool  # fitted on a table

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = False  # as missing values: NaN is taken as padding alone
        tags.input_tags.three_d_array = True
        return tags

    def _metric(self, fitted: SeriesSet | None = None) -> dict[str, Any]:
        """What gamma, bandwidth and metric_params are for soft_dtw; the series to fit decide what "auto" is."""
        given = dict(check_metric_params(self.metric_params))
        if self.bandwidth is not None:
            if given.get("bandwidth") is not None:
                raise ValueError(
                    f"bandwidth: expected None with metric_params={{'bandwidth': {given['bandwidth']!r}}}, got {self.bandwidth!r}"
                )
            given["bandwidth"] = self.bandwidth
        if fitted is not None:
            band = {name: given.get(name) for name in ("bandwidth", "max_slope")}
            check_band(**band, band=given.get("band", "sakoe_chiba"))
            self.gamma_ = gamma_of_set(self.gamma, fitted)
        return {"gamma": self.gamma_, **given}

    def _read(self, X: Any, *, reset: bool, like: np.ndarray[Any, Any] | None = None) -> SeriesSet:
        """The series of an argument X, on the estimator's device.

        Args:
            reset: this is the data to fit: remember what its features are.
            like: what was fitted (k, sz, d), whose dtype and d the series must have.
        """
        check_panel(X, "X")
        X, mask = without_mask(as_list(X), "X")
        if _is_table(X):
            options = {"ensure_all_finite": "allow-nan", "dtype": (np.float64, np.float32)}
            if reset or self._has_columns:
                X = validate_data(self, X, reset=reset, **options)
            else:
                X = check_array(X, input_name="X", estimator=self, **options)
            series = as_series(X, "X", mask=mask)
            if reset:
                self._has_columns = True
        else:
            series = as_series(X, "X", mask=mask)
            if reset:
                self._has_columns = False
                self.n_features_in_ = series.values.shape[2]
        check_finite(series, "X")
        values = series.values.detach()
        if like is not None:
            if values.shape[2] != like.shape[2]:
                remedy = ": if time is the last axis, write X.swapaxes(1, 2)" if values.shape[1] == 1 else ""
                raise ValueError(
                    f"X: expected d = {like.shape[2]} features as in fit, got {values.shape[2]}{remedy}"
                )
            values = values.to(torch.from_numpy(like[:0]).dtype)
        series = series._replace(values=values)
        device = getattr(self, "device", None)
        return series if device is None else series.to(check_device(device, "device"))


def _is_table(X: Any) -> bool:
    """Whether scikit-learn can judge X: not a tensor, and neither three axes nor series of unequal lengths."""
    if isinstance(X, (Tensor, PackedSequence)):
        return False
    if isinstance(X, (list, tuple)):
        return all(np.ndim(row) == 1 and len(row) == len(X[0]) for row in X) if _holds_series(X) else True
    axes = X.ndim if hasattr(X, "ndim") else np.asarray(X).ndim
    return bool(axes != 3)


def _holds_series(X: list[Any] | tuple[Any, ...]) -> bool:
    return len(X) > 0 and all(
        hasattr(row, "__len__") and not isinstance(row, (str, bytes, dict)) for row in X
    )
