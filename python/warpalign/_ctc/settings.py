"""What CTC's functions may be told besides logits, targets and lengths, for every front end: this module imports no framework."""

from __future__ import annotations

import math
from numbers import Integral
from typing import Any, Literal, NamedTuple

from warpalign._core.scalars import check_column, check_flag

_LARGEST = 2**31 - 1


class Settings(NamedTuple):
    """What all operators take besides their tensors: keyword arguments of their schemas."""

    blank: int = 0
    star: int = -1
    from_log_probs: bool = False
    zero_infinity: bool = False
    batch_invariant: bool = False


def as_keywords(settings: tuple[Any, ...]) -> dict[str, Any]:
    """Settings go through Function.apply as a plain tuple, which torch.compile of vmap understands."""
    return dict(zip(Settings._fields, settings, strict=True))


def check_settings(
    *,
    classes: int,
    blank: object,
    star: object,
    from_log_probs: object,
    zero_infinity: object = False,
    batch_invariant: object = False,
) -> Settings:
    settings = Settings(
        blank=check_column(blank, "blank", classes),
        star=_check_star(star),
        from_log_probs=check_flag(from_log_probs, "from_log_probs"),
        zero_infinity=check_flag(zero_infinity, "zero_infinity"),
        batch_invariant=check_flag(batch_invariant, "batch_invariant"),
    )
    if settings.star == settings.blank:
        raise ValueError(f"star: expected another label than blank = {settings.blank}, got {star}")
    return settings


def _check_star(value: object) -> int:
    if value is None:
        return -1
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"star: expected an int or None, got {type(value).__name__}")
    if not 0 <= int(value) <= _LARGEST:
        raise ValueError(f"star: expected a label >= 0, or None, got {value}")
    return int(value)


MonotonicOutput = Literal["path", "durations"]


def check_output(given: object) -> MonotonicOutput:
    """Of monotonic alignment search."""
    if given == "path" or given == "durations":
        return given
    raise ValueError(f'output: expected "path" or "durations", got {given!r}')


def check_blank_logprob(value: object) -> float:
    """Of the forward-sum loss."""
    if isinstance(value, bool) or not isinstance(value, (float, int)):
        raise TypeError(f"blank_logprob: expected a float, got {type(value).__name__}")
    if not math.isfinite(value):
        raise ValueError(f"blank_logprob: expected a finite number, got {value}")
    return float(value)
