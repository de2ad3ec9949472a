"""Names and checks of arguments that are no tensors, for every front end: this module imports no framework.

Messages name the argument, what was expected and what came.
"""

from __future__ import annotations

import sys
from numbers import Integral, Real
from typing import Literal, get_args

Reduction = Literal["none", "mean", "sum"]
Precision = Literal["highest", "high", "medium"]
Cost = Literal["sqeuclidean", "euclidean", "l1", "cosine", "huber"]
REDUCTIONS: tuple[str, ...] = get_args(Reduction)
PRECISIONS: tuple[str, ...] = get_args(Precision)
COSTS: tuple[str, ...] = get_args(Cost)


def check_number(value: object, name: str, least: float | None = 0) -> float:
    """A finite number of at least `least`; None: above 0."""
    # float and int stand before Real, because asking an abstract class takes ten times as long.
    if isinstance(value, bool) or not isinstance(value, (float, int, Real)):
        raise TypeError(f"{name}: expected a float, got {type(value).__name__}")
    number = value if isinstance(value, (int, float)) else float(value)  # an int may exceed every float
    # Comparisons that torch.compile can trace where the number varies from call to call; NaN fails them.
    is_enough = number > 0 if least is None else number >= least
    if not (is_enough and number <= sys.float_info.max):
        raise ValueError(
            f"{name}: expected a finite number {'> 0' if least is None else f'>= {least}'}, got {value}"
        )
    return float(number)


def check_flag(value: object, name: str) -> bool:
    if not (isinstance(value, bool) or type(value).__name__ in ("bool", "bool_")):  # the latter are NumPy's
        raise TypeError(f"{name}: expected a bool, got {type(value).__name__}")
    return bool(value)


def check_count(value: object, name: str, least: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name}: expected an int, got {type(value).__name__}")
    if value < least:
        raise ValueError(f"{name}: expected at least {least}, got {value}")
    return int(value)


def precision_number(precision: object) -> int:
    """The number of a precision in the operators."""
    if not isinstance(precision, str):
        raise TypeError(f"precision: expected a str or None, got {type(precision).__name__}")
    if precision not in PRECISIONS:
        expected = ", ".join(f'"{name}"' for name in PRECISIONS)
        raise ValueError(f"precision: expected one of {expected}, or None, got {precision!r}")
    return PRECISIONS.index(precision)


def check_reduction(reduction: object) -> Reduction:
    if reduction not in REDUCTIONS:
        raise ValueError(f'reduction: expected "none", "mean" or "sum", got {reduction!r}')
    return reduction  # type: ignore[return-value]


def check_column(given: object, name: str, columns: int) -> int:
    """A column of the logits, counted from the end if it is below 0."""
    if isinstance(given, bool) or not isinstance(given, Integral):
        raise TypeError(f"{name}: expected an int, got {type(given).__name__}")
    if not -columns <= int(given) < columns:
        raise ValueError(
            f"{name}: expected a column of {columns}, from {-columns} to {columns - 1}, got {given}"
        )
    return int(given) % columns
