"""What the columns of a transducer's logits mean: labels, blank, big blanks, durations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, ValuesView
from numbers import Integral
from typing import NamedTuple

from warpalign._core.scalars import check_column

_MOST_BIG_BLANKS, _MOST_DURATIONS, _LONGEST = 8, 16, 64


class Columns(NamedTuple):
    """What the columns of logits mean, checked."""

    labels: int | None
    """V: all columns but those of durations. None: not known."""
    blank: int
    durations: tuple[int, ...]
    """Of TDT's arcs, or else of the big blanks."""
    big_blank_columns: tuple[int, ...]
    tdt: bool


def check_columns(
    blank: object, durations: object, big_blanks: object, columns: int | None, owner: str = ""
) -> Columns:
    """columns: of the joint network, V + D; None: not known. owner: what messages put before the names of the arguments."""
    frames = () if durations is None else check_durations(durations, f"{owner}durations")
    labels = None if columns is None else columns - len(frames)
    if labels is not None and labels < 1:
        raise ValueError(
            f"{owner}weight: expected more rows than the {len(frames)} of durations, got {columns}"
        )
    known = 2**31 - 1 if labels is None else labels
    column = check_column(blank, f"{owner}blank", known)
    if durations is None:
        frames, big_blank_columns = check_big_blanks(big_blanks, column, known, f"{owner}big_blanks")
        return Columns(labels, column, frames, big_blank_columns, False)
    if not isinstance(big_blanks, (Sequence, Mapping)) or big_blanks:
        raise ValueError(f"{owner}big_blanks: expected none with durations, got {big_blanks}")
    return Columns(labels, column, frames, (), True)


def _check_ints(given: object, name: str) -> tuple[int, ...]:
    if isinstance(given, str) or not isinstance(given, (Sequence, ValuesView)):
        raise TypeError(f"{name}: expected a sequence of ints, got {type(given).__name__}")
    for value in given:
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise TypeError(f"{name}: expected a sequence of ints, got one with {type(value).__name__}")
    return tuple(int(value) for value in given)


def check_big_blanks(
    given: object, blank: int, columns: int, name: str = "big_blanks"
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(durations, columns) of the big blanks. Durations alone have the columns before the blank's, the first one nearest."""
    durations = _check_ints(given.values() if isinstance(given, Mapping) else given, name)
    if len(durations) > _MOST_BIG_BLANKS:
        raise ValueError(f"{name}: expected at most {_MOST_BIG_BLANKS}, got {len(durations)}")
    for value in durations:
        if not 2 <= value <= _LONGEST:
            raise ValueError(f"{name}: expected 2 to {_LONGEST} frames each, got {value}")
    if isinstance(given, Mapping):
        big_blank_columns = tuple(check_column(column, name, columns) for column in given)
        if len({blank, *big_blank_columns}) != 1 + len(big_blank_columns):
            raise ValueError(
                f"{name}: expected different columns, and not blank's {blank}, got {big_blank_columns}"
            )
        return durations, big_blank_columns
    if len(durations) > blank:
        raise ValueError(
            f"{name}: expected {{column: frames}} where blank = {blank} has fewer than {len(durations)} columns before it, "
            f"got {durations}"
        )
    return durations, tuple(blank - 1 - i for i in range(len(durations)))


def check_durations(given: object, name: str = "durations") -> tuple[int, ...]:
    durations = _check_ints(given, name)
    if not 1 <= len(durations) <= _MOST_DURATIONS:
        raise ValueError(f"{name}: expected 1 to {_MOST_DURATIONS}, got {len(durations)}")
    for value in durations:
        if not 0 <= value <= _LONGEST:
            raise ValueError(f"{name}: expected 0 to {_LONGEST} frames each, got {value}")
    if not any(durations):
        raise ValueError(f"{name}: expected one at least above 0, got {durations}")
    if len(set(durations)) < len(durations):
        raise ValueError(
            f"{name}: expected different numbers of frames, got {durations}: write each duration once, with one column "
            "of duration logits"
        )
    return durations
