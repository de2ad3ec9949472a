"""Plots: what is drawn is what was given, and it goes where it was asked to."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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


def test_results_are_taken_as_they_are(axes: Axes) -> None:
    result = warpalign.soft_dtw_alignment(X, Y, gamma=0.5)
    in_batch = warpalign.soft_dtw_alignment(X[None], Y[None], gamma=0.5)
    for given in (result, result.alignment, in_batch):
        plot.alignment(X, Y, given, ax=axes)
        np.testing.assert_allclose(axes.images[-1].get_array(), result.alignment.sqrt(), rtol=1e-6)
    path = warpalign.dtw_path(X, Y)
    for steps in (path, path.paths, warpalign.dtw_path(X[None], Y[None])):
        plot.cost_matrix(X, Y, path=steps, ax=axes)
        np.testing.assert_array_equal(axes.lines[-1].get_xydata(), path.paths.flip(1))


@pytest.mark.parametrize("layout", [None, "tight", "constrained"])
@pytest.mark.parametrize("colorbar", [False, True])
@pytest.mark.filterwarnings("error")
def test_nothing_leaves_the_figure(layout: Any, colorbar: bool) -> None:
    """Every Axes with its texts; and the series stand beside their heat map, not on its numbers or the bar's."""
    figure, axes = plt.subplots(layout=layout)
    plot.cost_matrix(X, Y, ax=axes, colorbar=colorbar)
    figure.canvas.draw()
    everything = figure.get_tightbbox(figure.canvas.get_renderer())  # in inches
    assert everything.x0 >= 0 and everything.y0 >= 0
    assert (everything.x1 <= figure.get_size_inches()[0]) and everything.y1 <= figure.get_size_inches()[1]
    above, left = (child.get_window_extent() for child in axes.child_axes)
    heat = axes.get_window_extent()
    assert left.x1 <= heat.x0 and above.y0 >= heat.y1 and left.width > 0.1 * heat.width
    if colorbar:
        bar = figure.axes[1].get_tightbbox()
        label = axes.yaxis.get_tightbbox(figure.canvas.get_renderer())
        assert label.x1 <= bar.x0
    plt.close(figure)


def test_matching(axes: Axes) -> None:
    path = warpalign.dtw_path(X, Y)
    assert plot.matching(X, Y, ax=axes, names=("query", "song"), every=2, gap=7.0) is axes
    (lines,) = axes.collections
    joined = np.array(lines.get_segments())
    assert isinstance(path.paths, torch.Tensor)
    steps = path.paths[::2]
    np.testing.assert_allclose(joined[:, 0], np.stack([steps[:, 0], X[steps[:, 0], 0]], 1), rtol=1e-6)
    np.testing.assert_allclose(joined[:, 1], np.stack([steps[:, 1], Y[steps[:, 1], 0] - 7], 1), rtol=1e-5)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["query", "song"]
    np.testing.assert_allclose(axes.lines[1].get_ydata(), X[:, 1])
    np.testing.assert_allclose(axes.lines[3].get_ydata(), Y[:, 1] - 7, rtol=1e-5)
    plt.sca(axes)
    plot.matching(X[:, 0], Y[:, 0], torch.tensor([[0, 0], [11, 8]]))
    first, second = (line.get_ydata() for line in axes.lines[-2:])
    assert second.max() < first.min()  # apart


def test_distances(axes: Axes) -> None:
    groups = torch.tensor([0.0, 5.0, 0.2, 5.1, 0.1])
    table = (groups[:, None] - groups).abs() - 1e-9  # a little below 0, as divergences are
    assert plot.distances(table, ax=axes, names=list("abcde"), colorbar=True) is axes
    order = ["abcde".index(text.get_text()) for text in axes.get_xticklabels()]
    assert {*order[:2]} == {1, 3} or {*order[3:]} == {1, 3}  # like stands by like
    np.testing.assert_allclose(axes.images[0].get_array(), table[order][:, order], rtol=1e-6)
    (tree,) = axes.child_axes
    assert tree.get_xlim() == (0, 50) and tree.collections
    plain = plot.distances(table, ax=axes, dendrogram=False)
    np.testing.assert_allclose(plain.images[1].get_array(), table, rtol=1e-6)
    assert [text.get_text() for text in axes.get_xticklabels()] == list("01234")


def test_clusters() -> None:
    series = [randn(n, 2, seed=n) for n in (12, 7, 9, 10, 8)]
    centers = randn(3, 6, 2, seed=1)
    figure = plt.figure()
    axes = plot.clusters(series, [0, 2, 0, 1, 2], centers, figure=figure, columns=2, names=["left", "right"])
    assert len(axes) == 3 and len(figure.axes) == 4
    assert [ax.get_title() for ax in axes] == [
        "cluster 0: 2 series",
        "cluster 1: 1 series",
        "cluster 2: 2 series",
    ]
    assert [len(line.get_xdata()) for line in axes[0].lines] == [12, 12, 9, 9, 6, 6]
    np.testing.assert_array_equal(axes[2].lines[-1].get_ydata(), centers[2, :, 1])
    assert axes[0].get_ylim() == axes[2].get_ylim() and axes[0].get_xlim() == axes[1].get_xlim()
    assert [text.get_text() for text in axes[0].get_legend().get_texts()] == ["left", "right"]
    figure.canvas.draw()
    assert figure.get_tightbbox(figure.canvas.get_renderer()).y0 >= 0
    plt.close(figure)
    pytest.importorskip("sklearn")
    model = warpalign.SoftDTWKMeans(2, random_state=0, max_iter=1, max_iter_barycenter=1)
    model.fit([one.numpy() for one in series])
    by_model = plot.clusters(series, model, figure=plt.figure())
    assert len(by_model) == 2 and len(by_model[0].lines) + len(by_model[1].lines) == 2 * (5 + 2)
    without = plot.clusters(series, model.labels_, figure=plt.figure())
    assert len(without[0].lines) + len(without[1].lines) == 2 * 5
    plt.close("all")


def test_missing_steps_are_gaps(axes: Axes) -> None:
    masked = np.ma.masked_array(np.arange(12.0).reshape(2, 6), [[False, True] * 3, [False] * 6])
    plot.barycenter(masked, np.zeros(6), ax=axes)
    np.testing.assert_array_equal(np.isnan(axes.lines[0].get_ydata()), [False, True] * 3)


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
