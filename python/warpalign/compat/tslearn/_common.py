"""What tslearn's drop-ins share: bands, the forms of series, the choice of a backend."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from warpalign._core.series import SeriesSet, as_series

Number: TypeAlias = Any  # a float, or a 0-d tensor
Array: TypeAlias = Any  # a NumPy array, or a tensor

_CONSTRAINTS = {None: None, "": None, "itakura": "itakura", "sakoe_chiba": "sakoe_chiba"}


class Band:
    """tslearn's choice of cells from its three arguments."""

    def __init__(
        self,
        global_constraint: str | None = None,
        sakoe_chiba_radius: int | None = None,
        itakura_max_slope: float | None = None,
    ) -> None:
        self.kind = _CONSTRAINTS[global_constraint]
        if self.kind is None and sakoe_chiba_radius is not None and itakura_max_slope is not None:
            # Raised, not warned, in tslearn too.
            raise RuntimeWarning(
                "global_constraint is not set for DTW, but both sakoe_chiba_radius and itakura_max_slope are set, hence "
                "global_constraint cannot be inferred and no global constraint will be used."
            )
        if self.kind is None and sakoe_chiba_radius is not None:
            self.kind = "sakoe_chiba"
        elif self.kind is None and itakura_max_slope is not None:
            self.kind = "itakura"
        self.options: dict[str, Any] = {}
        """What warpalign.soft_dtw takes for it."""
        if self.kind == "sakoe_chiba":
            radius = 1 if sakoe_chiba_radius is None else int(sakoe_chiba_radius)
            self.options = {"band": "sakoe_chiba", "bandwidth": radius}
        elif self.kind == "itakura":
            self.options = {
                "band": "itakura",
                "max_slope": 2.0 if itakura_max_slope is None else itakura_max_slope,
            }


@contextmanager
def naming_the_slope() -> Iterator[None]:
    """A parallelogram without a path, in tslearn's words and with its type of error."""
    try:
        yield
    except ValueError as error:
        if not str(error).startswith("band: "):
            raise
        raise RuntimeWarning(
            "'itakura_max_slope' constraint is unfeasible (ie. leads to no admissible path) for the provided time series sizes"
        ) from error


def pair_of(s1: Any, s2: Any) -> tuple[Tensor, Tensor]:
    x, y = one_of(s1), one_of(s2)
    if len(x) == 0 or len(y) == 0:
        raise ValueError("One of the input time series contains only nans or has zero length.")
    if x.shape[1] != y.shape[1]:
        raise ValueError("All input time series must have the same feature size.")
    return x, y


def one_of(series: Any) -> Tensor:
    """(N, D), float64, without trailing NaN."""
    values = series if isinstance(series, Tensor) else torch.from_numpy(np.array(series, dtype=float))
    values = values.double()
    values = values.reshape(-1, 1) if values.dim() <= 1 else values
    steps = (~values.isnan().all(dim=1)).nonzero()
    return values[: int(steps[-1]) + 1 if len(steps) else 0]


def dataset_of(dataset: Any, name: str) -> SeriesSet:
    if isinstance(dataset, (Tensor, np.ndarray)):
        dataset = dataset[None] if dataset.ndim == 1 else dataset
    elif len(dataset) and np.ndim(dataset[0]) == 0:
        dataset = [dataset]
    if isinstance(dataset, (list, tuple)):
        return as_series([one_of(series) for series in dataset], name)
    values = dataset if isinstance(dataset, Tensor) else torch.from_numpy(np.array(dataset, dtype=float))
    return as_series(values.double(), name)


def wants_tensor(be: Any, *given: Any) -> bool:
    """tslearn's choice of a backend: what `be` says, else the first tensor or array among the arguments."""
    if be is not None:
        return not getattr(be, "is_numpy", "numpy" in str(be).lower())
    first = next((argument for argument in given if isinstance(argument, (Tensor, np.ndarray))), None)
    return isinstance(first, Tensor)


def number(value: Tensor, as_tensor: bool) -> Number:
    return value if as_tensor else value.item()


def array(values: Tensor, as_tensor: bool) -> Array:
    return values if as_tensor else values.detach().cpu().numpy()
