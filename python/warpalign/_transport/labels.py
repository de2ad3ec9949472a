"""Labels of points: which of them say that a point has none, and how names become numbers.

A point is unlabelled where its label is −1, "-1" (what NumPy makes of −1 among names), None, NaN, pandas.NA or NaT, or a pandas
category that is missing. Plans take ints alone, with −1; the estimators take all of these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from warpalign._core.checks import check_count, shape_of
from warpalign._core.torch_internals import is_transforming

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

UNLABELLED = -1
_REMEDY = "write pandas.factorize(labels)[0], or give names to transform_labels of SinkhornTransport or GromovTransport"


def check_labels(
    labels: object, num_classes: object, shape: torch.Size, device: torch.device
) -> tuple[Tensor, int]:
    """Ints of the shape on the device, −1 where there is none, and the number of classes."""
    given = labels if isinstance(labels, Tensor) else _ints(labels)
    if given.is_floating_point() or given.is_complex() or given.dtype == torch.bool:
        raise TypeError(
            f"labels: expected ints from 0 on, and −1 where a row has no label, got {given.dtype}: {_REMEDY}"
        )
    if given.shape != shape:
        raise ValueError(
            f"labels: expected ints of shape {tuple(shape)}, one per row, got {given.dtype} of shape {shape_of(given)}"
        )
    classes = -1 if num_classes is None else check_count(num_classes, "num_classes")
    hidden = is_transforming() or torch.compiler.is_compiling()
    if not hidden and given.device.type == "cpu" and given.numel():
        low, high = (int(end) for end in given.aminmax())
        if low < UNLABELLED or 0 < classes <= high:
            wrong = low if low < UNLABELLED else high
            until = "" if classes < 0 else f" to {classes - 1}"
            raise ValueError(
                f"labels: expected ints from 0{until}, or −1 where a row has no label, got {wrong}"
            )
    if classes < 0:
        classes = int(given.max()) + 1
        if classes == 0:
            raise ValueError(
                "labels: expected a row that has a label, got −1 for every row: write num_classes= for a result of zeros"
            )
    return given.to(device), classes


def _ints(labels: Any) -> Tensor:
    """Of an array or list. All else is an error, whatever torch would make of it."""
    array = labels.__array__() if hasattr(labels, "__array__") else labels
    kind = type(labels).__name__
    if hasattr(array, "dtype"):
        if array.dtype.kind in "iu":
            return torch.tensor(array.astype("int64"))
        kind = f"values of type {array.dtype}"
    elif isinstance(labels, (list, tuple)):
        try:
            return torch.tensor(labels)
        except (TypeError, ValueError, RuntimeError):
            others = [type(label).__name__ for label in labels if not isinstance(label, int)]
            kind = f"values of type {others[0]}" if others else kind
    raise TypeError(
        f"labels: expected ints from 0 on, and −1 where a row has no label, got {kind}: {_REMEDY}"
    )


def label_places(y: Any, name: str, count: int) -> tuple[NDArray[np.int64], list[Any]]:
    """The place of each sample's label among the sorted classes, −1 where there is none, and the classes.

    Args:
        y: (count,) ints, names, or both kinds of missing ones; a pandas Series or Categorical, too.
    """
    import numpy as np  # plans do without

    given = y.detach().cpu().numpy() if isinstance(y, Tensor) else y
    row = given if isinstance(given, np.ndarray) else np.asarray(given, dtype=object)
    if row.ndim == 2 and row.shape[1] == 1:
        row = row[:, 0]
    if row.shape != (count,):
        got = str(len(row)) if row.ndim == 1 else f"an array of shape {row.shape}"
        raise ValueError(f"{name}: expected {count} labels, one per sample, got {got}")
    labels = [label.item() if isinstance(label, np.generic) else label for label in row.tolist()]
    known = np.array([not _is_missing(label) for label in labels], dtype=bool)
    values = [label for label, is_known in zip(labels, known, strict=True) if is_known]
    _check_classes(values, name)
    classes = sorted(set(values))
    number = {label: place for place, label in enumerate(classes)}
    places = np.full(count, UNLABELLED, dtype=np.int64)
    places[known] = [number[label] for label in values]
    return places, classes


def _is_missing(label: object) -> bool:
    if label is None or type(label).__name__ in (
        "NAType",
        "NaTType",
    ):  # pandas' NA is neither equal nor unequal
        return True
    return bool(label != label or label in (UNLABELLED, str(UNLABELLED)))


def _check_classes(values: list[Any], name: str) -> None:
    """Ints or names that can be ordered."""
    for label in values:
        if isinstance(label, float) and not label.is_integer():
            raise ValueError(
                f"{name}: expected labels of classes, ints or names, got the number {label}: round numbers, or divide them "
                "into classes, before they are labels"
            )
        if not isinstance(label, (int, float, str, bytes, bool)):
            raise TypeError(
                f"{name}: expected labels of classes, ints or names, got {type(label).__name__}: write {name}.astype(str)"
            )
    if len({isinstance(label, (str, bytes)) for label in values}) > 1:
        raise TypeError(
            f"{name}: expected ints or names, got both: write [str(label) for label in {name}], which keeps −1 unlabelled"
        )
