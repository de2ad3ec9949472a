"""Sets of series in other packages' layouts: channels first, frames with two levels of rows, long frames. None is misread in silence."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas
import pytest
import torch

import warpalign
from warpalign import plot
from warpalign._core import checks
from warpalign.compat import tslearn

SERIES = np.random.default_rng(0).normal(size=(5, 7))
CHANNELS_FIRST = SERIES[:, None, :]  # (n, 1, T)
LABELS = [0, 1, 0, 1, 0]
REMEDY = r"series of one time step with 7 features: .* write {}\.swapaxes\(1, 2\)"


@pytest.fixture(autouse=True)
def nothing_warned(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Warnings come once in a process: here once in a test, and only where they are expected."""
    monkeypatch.setattr(checks, "_warned", set())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


DOORS: dict[str, tuple[Callable[[Any], object], str]] = {
    "cdist_soft_dtw": (warpalign.cdist_soft_dtw, "X"),
    "cdist_soft_dtw, Y": (lambda X: warpalign.cdist_soft_dtw(np.zeros((2, 3, 7)), X), "Y"),
    "soft_dtw_barycenter": (lambda X: warpalign.soft_dtw_barycenter(X, max_iter=1, tol=0), "X"),
    "SoftDTWKMeans": (lambda X: warpalign.SoftDTWKMeans(2, max_iter=1, tol=0).fit(X), "X"),
    "SoftDTWKNeighborsClassifier": (lambda X: warpalign.SoftDTWKNeighborsClassifier().fit(X, LABELS), "X"),
    "SoftDTWKNeighborsRegressor": (lambda X: warpalign.SoftDTWKNeighborsRegressor().fit(X, LABELS), "X"),
    "plot.clusters": (lambda X: plot.clusters(X, LABELS), "X"),
    "compat.tslearn.cdist_soft_dtw": (tslearn.cdist_soft_dtw, "dataset1"),
}  # fmt: skip


@pytest.mark.parametrize("door", DOORS)
def test_channels_first_warns_once(door: str) -> None:
    call, name = DOORS[door]
    with pytest.warns(UserWarning, match=REMEDY.format(name)) as caught:
        call(CHANNELS_FIRST)
    assert len(caught) == 1 and caught[0].filename == __file__
    call(CHANNELS_FIRST)  # a second warning would raise


@pytest.mark.parametrize("door", DOORS)
def test_what_the_warning_says_to_write_is_taken(door: str) -> None:
    call, _ = DOORS[door]
    if door != "cdist_soft_dtw, Y":  # the other side has 7 features
        call(CHANNELS_FIRST.swapaxes(1, 2))


@pytest.mark.parametrize(
    "function", [warpalign.soft_dtw, warpalign.dtw, warpalign.SoftDTW(), warpalign.dtw_path]
)
def test_pairs_of_one_step_warn(function: Callable[..., object]) -> None:
    x = torch.from_numpy(CHANNELS_FIRST)
    with pytest.warns(
        UserWarning, match=r"7 time steps, write x\.swapaxes\(1, 2\) and y\.swapaxes\(1, 2\)"
    ) as caught:
        function(x, x.flip(0))
    assert len(caught) == 1 and caught[0].filename == __file__
    function(x, x.flip(0))


def test_series_of_one_step_that_are_meant_bring_no_warning() -> None:
    x, longer, ones = torch.zeros(3, 1, 7), torch.zeros(3, 4, 7), [1, 1, 1]
    warpalign.soft_dtw(x, x, x_lengths=ones)  # a batch in training whose longest series has one step
    warpalign.soft_dtw(x, longer)
    warpalign.soft_dtw(x[..., :1], x[..., :1])
    warpalign.soft_dtw(x[0], x[0], unbatched=True)
    warpalign.cdist_soft_dtw(x, longer, x_lengths=ones)
    warpalign.cdist_soft_dtw(x[..., :1])
    warpalign.cdist_soft_dtw(np.zeros((3, 1)))
    warpalign.cdist_soft_dtw(torch.nn.utils.rnn.pack_sequence(list(x)))
    warpalign.soft_dtw_barycenter(x, x_lengths=ones, max_iter=1, tol=0)
    torch.func.vmap(warpalign.soft_dtw)(x[:, None], x[:, None])


def test_lists_with_channels_first() -> None:
    equal = [torch.from_numpy(one) for one in CHANNELS_FIRST]
    with pytest.warns(UserWarning, match=r"write \[a\.T for a in X\]"):
        warpalign.cdist_soft_dtw(equal)
    ragged = [SERIES[:2, : 4 + i] for i in range(3)]  # (D, T_i)
    message = (
        r"X\[1\]: expected D = 4 features as in X\[0\], got 5: time comes first: write \[a\.T for a in X\]"
    )
    for given in (
        ragged,
        np.array([*ragged, None], dtype=object)[:-1],
        [torch.from_numpy(one) for one in ragged],
    ):
        for call in (
            warpalign.cdist_soft_dtw,
            warpalign.soft_dtw_barycenter,
            warpalign.SoftDTWKMeans(2).fit,
            lambda X: warpalign.SoftDTWKNeighborsClassifier().fit(X, LABELS[:3]),
        ):
            with pytest.raises(ValueError, match=message):
                call(given)
    turned = [a.T for a in ragged]
    assert warpalign.cdist_soft_dtw(turned).shape == (3, 3)
    with pytest.raises(ValueError) as caught:  # time first, but other features: nothing is said about axes
        warpalign.cdist_soft_dtw([np.zeros((4, 2)), np.zeros((5, 3))])
    assert str(caught.value) == "X[1]: expected D = 2 features as in X[0], got 3"


def test_queries_with_channels_first() -> None:
    model = warpalign.SoftDTWKNeighborsClassifier(1).fit(SERIES[..., None], LABELS)
    with pytest.warns(UserWarning, match="one time step"), pytest.raises(ValueError) as caught:
        model.predict(CHANNELS_FIRST)
    assert str(caught.value) == (
        "X: expected d = 1 features as in fit, got 7: if time is the last axis, write X.swapaxes(1, 2)"
    )


# Data frames.


def panel(features: int = 1) -> pandas.DataFrame:
    """sktime's pd-multiindex: a row per time step, labelled by series and time."""
    index = pandas.MultiIndex.from_product([range(5), range(7)], names=["instance", "time"])
    columns = {f"dim_{d}": SERIES.ravel() + d for d in range(features)}
    return pandas.DataFrame(columns, index=index)


def long(order: str = "id") -> pandas.DataFrame:
    return (
        panel()
        .reset_index()
        .rename(columns={"instance": "id", "dim_0": "value"})
        .sort_values([order], kind="stable")
    )


SETS: dict[str, Callable[[Any], object]] = {
    "cdist_soft_dtw": warpalign.cdist_soft_dtw,
    "soft_dtw_barycenter": lambda X: warpalign.soft_dtw_barycenter(X, max_iter=1, tol=0),
    "SoftDTWKMeans": lambda X: warpalign.SoftDTWKMeans(2, max_iter=1, tol=0).fit(X),
    "SoftDTWKNeighborsClassifier": lambda X: warpalign.SoftDTWKNeighborsClassifier().fit(X, LABELS),
}


def written(message: str, frame: pandas.DataFrame) -> Any:
    """What the code after "write" in a message makes of the frame."""
    code = message.split(": write ")[1].split(", or X.to_numpy()")[0]
    return eval(code, {"np": np, "X": frame})


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize(
    "frame", [panel(), panel(3), long(), long("time")], ids=["panel", "wide panel", "long", "by time"]
)
def test_panels_are_refused_with_what_to_write(name: str, frame: pandas.DataFrame) -> None:
    with pytest.raises(
        ValueError, match="X: expected a row per series, got a (long data frame|data frame with 2)"
    ) as caught:
        SETS[name](frame)
    series = written(str(caught.value), frame)
    assert len(series) == 5
    np.testing.assert_array_equal(np.stack(series)[..., 0], SERIES)
    SETS[name](series)


def test_series_in_cells_are_refused_with_what_to_write() -> None:
    """sktime's nested_univ."""
    frame = pandas.DataFrame(
        {name: [pandas.Series(row + d) for row in SERIES] for d, name in enumerate("ab")}
    )
    for call in SETS.values():
        with pytest.raises(
            ValueError, match="X: expected numbers, got a data frame with series in its cells"
        ) as caught:
            call(frame)
        series = written(str(caught.value), frame)
        np.testing.assert_array_equal(np.stack(series), np.stack([SERIES, SERIES + 1], axis=2))
        call(series)


def test_three_levels_of_rows() -> None:
    frame = pandas.concat({"a": panel(), "b": panel()})
    with pytest.raises(ValueError, match="3 levels of row labels") as caught:
        warpalign.cdist_soft_dtw(frame)
    assert len(written(str(caught.value), frame)) == 10


def test_one_series_of_pairs_is_no_panel() -> None:
    x = SERIES[0][:, None]
    for frame in (panel().loc[[0]], panel().loc[0]):
        assert warpalign.dtw_path(frame, x).value == 0
    with pytest.raises(
        ValueError, match="x: expected one series, got a data frame with 2 levels of row labels"
    ) as caught:
        warpalign.dtw_path(panel(), x)
    assert "X.groupby" not in str(caught.value) and "x.groupby(level=0)" in str(caught.value)


def test_tables_of_series_are_taken() -> None:
    expected = warpalign.cdist_soft_dtw(SERIES)
    for frame in (
        pandas.DataFrame(SERIES),
        pandas.DataFrame(SERIES, columns=[f"t{i}" for i in range(7)]),
        pandas.DataFrame(SERIES, index=list("abcde")),
    ):
        assert torch.equal(warpalign.cdist_soft_dtw(frame), expected)
    assert torch.equal(warpalign.cdist_soft_dtw([one for _, one in panel().groupby(level=0)]), expected)
    counts = np.random.default_rng(0).integers(0, 9, size=(20, 7))
    for table in (counts, np.sort(counts, axis=0), np.sort(counts, axis=1), np.zeros((20, 7), int)):
        warpalign.cdist_soft_dtw(pandas.DataFrame(table, columns=list("abcdefg")))
