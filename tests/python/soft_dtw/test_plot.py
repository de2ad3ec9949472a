"""Plots: what is drawn is what was given, and it goes where it was asked to."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import warpalign
from tests.python.helpers import randn

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

from matplotlib import pyplot as plt  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402

from warpalign import plot  # noqa: E402


@pytest.fixture
def axes() -> Iterator[Axes]:
    figure, axes = plt.subplots()
    yield axes
    figure.savefig(io.BytesIO())  # drawing fails here, if it does
    plt.close(figure)


X, Y = randn(12, 2, seed=0), randn(9, 2, seed=1)


def test_alignment(axes: Axes) -> None:
    _, expected = warpalign.soft_dtw_alignment(X, Y, gamma=0.5)
    assert plot.alignment(X, Y, gamma=0.5, ax=axes, names=("query", "song"), cmap="Reds") is axes
    (image,) = axes.images
    np.testing.assert_allclose(image.get_array(), expected.sqrt(), rtol=1e-6)
    assert image.get_cmap().name == "Reds"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("song: time step", "query: time step")
    above, left = axes.child_axes
    for d in range(2):
        np.testing.assert_array_equal(above.lines[d].get_ydata(), Y[:, d])
        np.testing.assert_array_equal(left.lines[d].get_xdata(), X[:, d])
        np.testing.assert_array_equal(left.lines[d].get_ydata(), range(12))
    assert above.get_xlim() == axes.get_xlim() == (-0.5, 8.5)
    assert left.get_ylim() == axes.get_ylim() == (11.5, -0.5)


def test_a_given_alignment(axes: Axes) -> None:
    path = np.zeros((12, 9))
    path[3, 4] = 0.25
    figures = len(axes.figure.axes)
    plot.alignment(X.numpy(), Y.tolist(), path, ax=axes, margins=False, colorbar=True)
    assert axes.images[0].get_array()[3, 4] == 0.5
    assert not axes.child_axes and len(axes.figure.axes) == figures + 1


def test_cost_matrix(axes: Axes) -> None:
    path = torch.tensor([[0, 0], [1, 1], [11, 8]])
    assert plot.cost_matrix(X, Y, path=path, ax=axes) is axes
    np.testing.assert_allclose(axes.images[0].get_array(), torch.cdist(X, Y) ** 2, rtol=1e-4)
    (line,) = axes.lines
    np.testing.assert_array_equal(line.get_xydata(), [[0, 0], [1, 1], [8, 11]])


def test_barycenter(axes: Axes) -> None:
    series = [randn(12, 2, seed=0), randn(7, 2, seed=1), randn(9, 2, seed=2)]
    result = warpalign.soft_dtw_barycenter(series, barycenter_size=6, max_iter=3)
    assert plot.barycenter(series, result, ax=axes, labels=["left", "right"], linestyle="--") is axes
    lengths = [len(line.get_xdata()) for line in axes.lines]
    assert lengths == [12, 12, 7, 7, 9, 9, 6, 6]
    center = axes.lines[-1]
    np.testing.assert_array_equal(center.get_ydata(), result.barycenter[:, 1])
    assert (center.get_xdata()[0], center.get_xdata()[-1], center.get_linestyle()) == (0, 11, "--")
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["left", "right"]


def test_the_current_axes_are_the_default(axes: Axes) -> None:
    plt.sca(axes)
    series = randn(4, 10, seed=0)  # univariate
    assert plot.barycenter(series, series[0]) is axes
    plt.sca(axes)
    assert plot.cost_matrix(series[0], series[1]) is axes


@pytest.mark.gpu
def test_from_a_gpu(cuda: torch.device, axes: Axes) -> None:
    x, y = X.to(cuda).requires_grad_(), Y.to(cuda)
    found = warpalign.soft_dtw_alignment(x, y).alignment
    plot.alignment(x, y, found, ax=axes, margins=False)
    np.testing.assert_allclose(axes.images[0].get_array(), found.detach().sqrt().cpu(), rtol=1e-6)
    result = warpalign.soft_dtw_barycenter(x[None], max_iter=3)
    plot.barycenter(x[None], result, ax=axes)
    lines = [line.get_ydata() for line in axes.lines]
    drawn = [X[:, 0], X[:, 1], *result.barycenter.detach().cpu().T]
    for line, expected in zip(lines, drawn, strict=True):
        np.testing.assert_array_equal(line, expected)


def test_without_matplotlib() -> None:
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "import warpalign\n"
        "try: warpalign.plot\n"
        "except ImportError as error: print(error)"
    )
    environment = {"PYTHONPATH": str(Path(warpalign.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=120
    )
    message = "warpalign.plot needs matplotlib, which is not installed: pip install 'warpalign[plot]'\n"
    assert (done.stdout, done.returncode) == (message, 0), done.stderr
