"""The page for users of aeon and sktime, with both packages, where they are installed.

The code of the page that needs neither runs with the other pages, in core/test_docs.py. aeon pins older releases of numba and NumPy
than the other packages that tests compare with, so it has an environment of its own:
pip install --target=FOLDER aeon sktime, and FOLDER in front of PYTHONPATH.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import warpalign
from warpalign._core import checks

PAGE = Path(__file__).parents[3] / "docs" / "howto" / "aeon-sktime.md"
PACKAGES_BLOCK = re.compile(r"^```py\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture(autouse=True)
def nothing_warned(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """warpalign's warnings are errors, but where they are expected."""
    monkeypatch.setattr(checks, "_warned", set())
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*one time step")
        yield


def rows() -> dict[str, str]:
    """What the page says to write, by the container's name."""
    table = re.findall(
        r"^\| [^|]* \| (?:aeon's |sktime's )?`(\w[\w-]*)`[^|]*\| `([^`]*)` \|$",
        PAGE.read_text(),
        re.MULTILINE,
    )
    return dict(table)


def written(code: str, X: Any) -> list[Any]:
    return list(eval(code, {"np": np, "X": X}))


def same(series: list[Any], expected: Any) -> None:
    """Series (N_i, D) as they are in the array or list."""
    assert len(series) == len(expected)
    for one, other in zip(series, expected, strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


def test_the_page_has_every_container() -> None:
    assert set(rows()) == {"numpy3D", "numpy2D", "np-list", "df-list", "pd-multiindex", "nested_univ"}


def test_the_pages_code_runs_with_aeon() -> None:
    pytest.importorskip("aeon")
    names: dict[str, object] = {}
    blocks = PACKAGES_BLOCK.findall(PAGE.read_text())
    assert len(blocks) == 2
    for block in blocks:
        exec(block, names)
    assert names["accuracy"] == 147 / 150


def test_gunpoint_with_channels_first_warns_and_scores_less() -> None:
    datasets = pytest.importorskip("aeon.datasets")
    (train, labels), (test, test_labels) = (datasets.load_gunpoint(split=part) for part in ("train", "test"))
    with pytest.warns(UserWarning, match=r"one time step with 150 features: .* write X\.swapaxes\(1, 2\)"):
        model = warpalign.SoftDTWKNeighborsClassifier(1, gamma=0.1).fit(train, labels)
    assert model.score(test, test_labels) == 137 / 150


def test_containers_of_aeon() -> None:
    datasets = pytest.importorskip("aeon.datasets")
    motions, _ = datasets.load_basic_motions(split="train")  # (40, 6, 100)
    same(written(rows()["numpy3D"], motions), np.moveaxis(motions, 1, 2))
    vowels, labels = datasets.load_japanese_vowels(split="train")  # 270 of (12, T_i)
    with pytest.raises(ValueError, match=r"time comes first: write \[a\.T for a in X\]"):
        warpalign.cdist_soft_dtw(vowels)
    series = written(rows()["np-list"], vowels)
    assert {one.shape[1] for one in series} == {12} and len({len(one) for one in series}) > 5
    model = warpalign.SoftDTWKNeighborsClassifier(1, gamma=0).fit(series[::2], labels[::2])
    assert model.score(series[1::2], labels[1::2]) > 0.9


@pytest.mark.parametrize("name", ["numpy3D", "numpy2D", "df-list", "pd-multiindex", "nested_univ"])
def test_containers_of_sktime(name: str) -> None:
    datatypes = pytest.importorskip("sktime.datatypes")
    random = np.random.default_rng(0)
    channels = 1 if name == "numpy2D" else 3
    X = random.normal(size=(5, channels, 20))
    container = datatypes.convert_to(X, "numpyflat" if name == "numpy2D" else name, as_scitype="Panel")
    if name in ("pd-multiindex", "nested_univ"):
        with pytest.raises(ValueError, match="write"):
            warpalign.cdist_soft_dtw(container)
    series = written(rows()[name], container)
    same([np.reshape(np.asarray(one), (20, channels)) for one in series], X.swapaxes(1, 2))
    table = warpalign.cdist_soft_dtw(container if name in ("numpy2D", "df-list") else series)
    assert table.equal(warpalign.cdist_soft_dtw(X.swapaxes(1, 2)))
