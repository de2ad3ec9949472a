"""What the estimators of domain adaptation share. scikit-learn is needed from here on."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from warpalign._core import optional
from warpalign._core.checks import check_device
from warpalign.transport import TransportPlan

optional.load("sklearn", "warpalign.adaptation", "cluster")

import numpy as np  # noqa: E402  (after the message that says how to get it)
from sklearn.base import BaseEstimator  # noqa: E402
from sklearn.exceptions import ConvergenceWarning  # noqa: E402
from sklearn.utils.validation import check_array, check_is_fitted, column_or_1d  # noqa: E402

__all__ = [
    "Array",
    "ConvergenceWarning",
    "DomainTransport",
    "as_array",
    "check_is_fitted",
    "differing_labels",
]

Array = NDArray[Any]
UNLABELLED = -1


class DomainTransport(BaseEstimator):  # type: ignore[misc]
    """A plan between the samples of two domains, and what is read off it."""

    plan_: TransportPlan
    xs_: Array
    xt_: Array
    device: Any

    def transform_labels(self, ys: Any) -> Array:
        """(nt, classes): what share of each target sample's mass comes from source samples of each label, in np.unique's order."""
        check_is_fitted(self, "plan_")
        return self._labels(ys, "ys", self.plan_, len(self.xs_))

    def inverse_transform_labels(self, yt: Any) -> Array:
        """(ns, classes): the same for source samples, from labels of the target's."""
        check_is_fitted(self, "plan_")
        return self._labels(yt, "yt", self.plan_.T, len(self.xt_))

    @property
    def coupling_(self) -> Array:
        check_is_fitted(self, "plan_")
        return as_array(self.plan_.dense())

    def _array(self, X: Any, name: str, features: int | None = None) -> Array:
        """X in float32 or float64; of a fitted model in its dtype, with so many features."""
        given = X.detach().cpu().numpy() if isinstance(X, Tensor) else X
        array: Array = check_array(given, input_name=name, estimator=self, dtype=(np.float64, np.float32))
        if features is None:
            return array
        if array.shape[1] != features:
            raise ValueError(f"{name}: expected {features} features as in fit, got {array.shape[1]}")
        return array.astype(self.xs_.dtype, copy=False)

    def _read_domains(self, Xs: Any, Xt: Any) -> None:
        """xs_ and xt_, of one dtype."""
        if Xt is None:
            raise ValueError("Xt: expected target samples (nt, d), got None")
        self.xs_, self.xt_ = self._array(Xs, "Xs"), self._array(Xt, "Xt")
        if self.xs_.dtype != self.xt_.dtype:
            self.xs_, self.xt_ = self.xs_.astype(np.float64), self.xt_.astype(np.float64)

    def _tensor(self, array: Array) -> Tensor:
        device = torch.device("cpu") if self.device is None else check_device(self.device, "device")
        return torch.from_numpy(np.ascontiguousarray(array)).to(device)

    def _weights(self, given: Any, name: str, points: Tensor) -> Tensor | None:
        if given is None:
            return None
        row = column_or_1d(given, input_name=name).astype(self.xs_.dtype)
        return self._tensor(row).to(points.device)

    def _nearest(self, x: Tensor, fitted: Tensor) -> Tensor:
        """(n,) int64: the fitted sample that is nearest to each of x."""
        return torch.cat([torch.cdist(part, fitted).argmin(1) for part in x.split(4096)])

    def _labels(self, y: Any, name: str, plan: TransportPlan, count: int) -> Array:
        classes, places = np.unique(label_row(y, name, count), return_inverse=True)
        labels = torch.from_numpy(places.reshape(-1)).to(plan.f.device)
        return as_array(plan.transfer_labels(labels, len(classes)))


def differing_labels(ys: Any, yt: Any, sizes: tuple[int, int]) -> Tensor:
    """(ns, nt) bool: whether both samples have a label, and not the same."""
    source, target = label_row(ys, "ys", sizes[0]), label_row(yt, "yt", sizes[1])
    known = (source[:, None] != UNLABELLED) & (target != UNLABELLED)
    return torch.from_numpy((source[:, None] != target) & known)


def label_row(y: Any, name: str, count: int) -> Array:
    row: Array = column_or_1d(y, input_name=name)
    if len(row) != count:
        raise ValueError(f"{name}: expected {count} labels, one per sample, got {len(row)}")
    return row


def as_array(tensor: Tensor) -> Array:
    array: Array = tensor.detach().cpu().numpy()
    return array
