"""What the estimators of domain adaptation share. scikit-learn is needed from here on."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from warpalign._core import optional
from warpalign._core.checks import check_device
from warpalign._transport.labels import UNLABELLED, label_places
from warpalign._transport.plan import TransportPlan

optional.load("sklearn", "warpalign.estimators", "estimators")

import numpy as np  # noqa: E402  (after the message that says how to get it)
from sklearn.base import BaseEstimator  # noqa: E402
from sklearn.exceptions import ConvergenceWarning  # noqa: E402
from sklearn.utils.validation import check_array, check_is_fitted, column_or_1d  # noqa: E402

__all__ = [
    "EPSILON",
    "Array",
    "ConvergenceWarning",
    "DomainTransport",
    "as_array",
    "as_given_labels",
    "check_is_fitted",
    "differing_labels",
]

Array = NDArray[Any]

EPSILON = 5e-3
"""The default of all estimators, in units of costs or squared distances that are divided by their maximum."""


class DomainTransport(BaseEstimator):  # type: ignore[misc]
    """A plan between the samples of two domains, and what is read off it."""

    plan_: TransportPlan
    xs_: Array
    xt_: Array
    device: Any

    def transform_labels(self, ys: Any) -> Array:
        """(nt, classes): what share of each target sample's mass comes from source samples of each class, in sorted order.

        Args:
            ys: (ns,) ints or names: an array, list, tensor, or pandas Series or Categorical. A sample is unlabelled where its label is
                −1, "-1", None, NaN or missing in pandas. Its mass belongs to no class: shares may add up to less than 1.
        """
        check_is_fitted(self, "plan_")
        return self._labels(ys, "ys", self.plan_, len(self.xs_))

    def inverse_transform_labels(self, yt: Any) -> Array:
        """(ns, classes): what share of each source sample's mass goes to target samples of each class, in sorted order.

        Args:
            yt: (nt,) labels of the target, as those of transform_labels.
        """
        check_is_fitted(self, "plan_")
        return self._labels(yt, "yt", self.plan_.T, len(self.xt_))

    @property
    def coupling_(self) -> Array:
        check_is_fitted(self, "plan_")
        return as_array(self.plan_.to_dense())

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
        places, classes = label_places(y, name, count)
        if not classes:
            raise ValueError(
                f"{name}: expected a sample that has a label, got none: −1, None and NaN say that there is none"
            )
        return as_array(plan.transfer_labels(torch.from_numpy(places), len(classes)))


def differing_labels(ys: Any, yt: Any, sizes: tuple[int, int]) -> Tensor:
    """(ns, nt) bool: whether both samples have a label, and not the same."""
    source, source_classes = label_places(ys, "ys", sizes[0])
    target, target_classes = label_places(yt, "yt", sizes[1])
    kinds = [
        {isinstance(label, (str, bytes)) for label in classes} for classes in (source_classes, target_classes)
    ]
    if kinds[0] and kinds[1] and kinds[0] != kinds[1]:
        names = ["names" if True in kind else "ints" for kind in kinds]
        raise TypeError(
            f"yt: expected {names[0]}, as ys has, got {names[1]}: no label of one domain is one of the other"
        )
    # The target's classes by the source's numbers; those that the source lacks get numbers of their own.
    number = {label: place for place, label in enumerate(source_classes)}
    common = np.array([number.setdefault(label, len(number)) for label in target_classes] + [UNLABELLED])
    target = common[target]
    known = (source[:, None] != UNLABELLED) & (target != UNLABELLED)
    return torch.from_numpy((source[:, None] != target) & known)


def as_given_labels(places: Array, classes: list[Any]) -> Array:
    """The labels behind places among the classes, as an array of ints or names."""
    row: Array = np.asarray(classes)[places]
    return row


def as_array(tensor: Tensor) -> Array:
    array: Array = tensor.detach().cpu().numpy()
    return array
