"""Layouts of sets of series that other packages use, and that would be read as something else: what to write instead."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from warpalign._core.checks import warn_once

_COLUMNS = 8  # of a long frame that are looked at for identifiers and times
_TIMES = ("time", "date", "ds", "step", "timestamp", "timepoint", "t")  # usual names of a column of times


def warn_of_one_step(values: Tensor, given: object, name: str) -> None:
    """Says that series (n, 1, D) have one time step each, where their caller may have meant D time steps.

    aeon and sktime put channels before time. Series of one step are legal, so this is a warning; lengths or a mask, which say how
    many steps there are, silence it.
    """
    _, steps, features = values.shape
    if steps == 1 and features > 1:
        is_list = isinstance(given, (list, tuple))
        remedy = f"[a.T for a in {name}]" if is_list else f"{name}.swapaxes(1, 2)"
        warn_once(
            f"{name}: expected (n, N, D), time before features, got series of one time step with {features} features: if these "
            f"are {features} time steps, as in aeon and sktime, write {remedy}"
        )


def time_comes_first(given: list[Any] | tuple[Any, ...], name: str) -> str:
    """What to write for a list of series whose first axes agree and whose last axes do not."""
    shapes: list[Any] = [getattr(one, "shape", ()) for one in given]
    is_turned = all(len(shape) == 2 and shape[0] == shapes[0][0] for shape in shapes)
    return f": time comes first: write [a.T for a in {name}]" if is_turned else ""


def check_panel(given: Any, name: str, *, is_set: bool = True) -> None:
    """Refuses data frames that hold several series below each other, or series within cells.

    Args:
        is_set: the frame would be read as a set of series, one per row; else as one series.
    """
    levels = getattr(getattr(given, "index", None), "nlevels", 1)
    if levels > 1 and len(given.index.droplevel(-1).unique()) > 1:
        level = 0 if levels == 2 else list(range(levels - 1))
        raise ValueError(
            f"{name}: expected {'a row per series' if is_set else 'one series'}, got a data frame with {levels} levels of row labels, as "
            f"sktime's: write [one.to_numpy() for _, one in {name}.groupby(level={level})], or {name}.to_numpy() if each row is a "
            f"{'series' if is_set else 'time step of one series'}"
        )
    if not (is_set and hasattr(given, "columns") and hasattr(given, "to_numpy")):
        return
    if _has_series_in_cells(given):
        raise ValueError(
            f"{name}: expected numbers, got a data frame with series in its cells: write "
            f"[np.stack(row, axis=1) for row in {name}.to_numpy()]"
        )
    found = _identifier_and_time(given)
    if found is not None:
        identifier, time = found
        values = [column for column in given.columns if column not in found]
        raise ValueError(
            f"{name}: expected a row per series, got a long data frame, in which {time!r} starts again for each {identifier!r}: write "
            f"[one.sort_values({time!r})[{values!r}].to_numpy() for _, one in {name}.groupby({identifier!r})], or {name}.to_numpy() if "
            "each row is a series"
        )


def _has_series_in_cells(frame: Any) -> bool:
    cells = (frame[column].iloc[0] for column in frame.columns if len(frame) and _kind(frame, column) == "O")
    return any(hasattr(cell, "__len__") and not isinstance(cell, (str, bytes)) for cell in cells)


def _identifier_and_time(frame: Any) -> tuple[str, str] | None:
    """The names of a column of identifiers and of one of times, if each row of the frame is a time step of some series."""
    names = list(frame.columns)
    if len(names) < 3 or len(set(names)) < len(names) or not all(isinstance(one, str) for one in names):
        return None
    for outer in names[:_COLUMNS]:
        starts = _starts_of_runs(frame[outer].to_numpy()) if _kind(frame, outer) != "f" else None
        if starts is None:
            continue
        for inner in names[:_COLUMNS]:
            if inner != outer and _starts_again(frame[inner].to_numpy(), starts):
                is_time = _kind(frame, outer) == "M" or outer.lower() in _TIMES
                return (inner, outer) if is_time else (outer, inner)
    return None


def _kind(frame: Any, column: Any) -> str:
    """NumPy's letter for the kind of a column's dtype; "O" for what NumPy does not have."""
    return str(getattr(frame[column].dtype, "kind", "O"))


def _starts_of_runs(column: Any) -> Any:
    """Where equal values begin, if they stand together and two values at least come several times: bools for rows 1, 2, ..."""
    starts = column[1:] != column[:-1]
    lengths, length = [], 1
    for is_start in starts:
        if is_start:
            lengths.append(length)
        length = 1 if is_start else length + 1
    lengths.append(length)
    is_repeated = sum(length > 1 for length in lengths) > 1
    return starts if is_repeated and len(set(column.tolist())) == len(lengths) else None


def _starts_again(column: Any, starts: Any) -> bool:
    """Whether values increase within the runs, and go back between them."""
    try:
        increases = column[1:] > column[:-1]
    except TypeError:  # words and missing values have no order
        return False
    return bool((increases != starts).all())
