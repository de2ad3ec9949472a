"""Plots of alignments, costs, distances, barycenters and clusters with matplotlib (pip install 'warpalign[plot]').

Every function except :func:`clusters` draws into `ax` (default: the current Axes) and returns it; the caller creates and saves figures.
Series are tensors or arrays (N, D), or (N,) for univariate ones. Results of :mod:`warpalign`'s functions are accepted directly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from warpalign._core import optional
from warpalign._core.checks import check_count, check_pair
from warpalign._core.series import as_series
from warpalign.timeseries import BarycenterResult, SoftDTWAlignment, dtw_path, soft_dtw_alignment

optional.load("matplotlib", "warpalign.plot", "plot")

from matplotlib import pyplot as plt  # noqa: E402  (after the message that says how to get it)
from matplotlib.collections import LineCollection  # noqa: E402
from matplotlib.lines import Line2D  # noqa: E402

from warpalign.plot._draw import (  # noqa: E402
    QUIET,
    X_COLOR,
    Y_COLOR,
    check_names,
    draw_group,
    heat_map,
    make_room,
    one_series,
    path_within,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["alignment", "barycenter", "clusters", "cost_matrix", "distances", "matching"]


def alignment(
    x: object,
    y: object,
    alignment: object = None,
    *,
    gamma: float = 1.0,
    ax: Axes | None = None,
    names: tuple[str, str] = ("x", "y"),
    margins: bool = True,
    colorbar: bool = False,
    **image: Any,
) -> Axes:
    """Heat map of an alignment, x downwards on its left margin and y above it.

    Args:
        x: (N, D) series.
        y: (M, D) series.
        alignment: (N, M), an expected alignment or a path as a matrix, or the result of :func:`warpalign.soft_dtw_alignment`
            for this pair; default: the expected alignment at gamma. Its square root is drawn, so that improbable cells can
            still be seen; color limits and color bar are of the root.
        gamma: smoothing for the default alignment.
        ax: where to draw.
        names: of x and y, for the axes.
        margins: draw the series along the heat map, in Axes of their own (ax.child_axes) within the place that ax has; the heat
            map becomes smaller.
        colorbar: draw a color bar.
        image: further arguments of Axes.imshow, such as cmap.

    Raises:
        ValueError: alignment has another shape than (N, M).
    """
    first, second = one_series(x, "x"), one_series(y, "y")
    shape = (len(first), len(second))
    if alignment is None:
        table = soft_dtw_alignment(first, second, gamma=gamma).alignment
    else:
        given = alignment.alignment if isinstance(alignment, SoftDTWAlignment) else alignment
        table = torch.as_tensor(given).detach().cpu().double()
        table = table[0] if table.dim() == 3 and len(table) == 1 else table
        if table.shape != shape:
            raise ValueError(f"alignment: expected shape {shape}, got {tuple(table.shape)}")
    options = {"cmap": "Blues", "vmin": 0.0, "vmax": 1.0, "label": "square root of the expected alignment"}
    return heat_map(table.clamp(min=0).sqrt(), first, second, ax, names, margins, colorbar, options | image)


def cost_matrix(
    x: object,
    y: object,
    *,
    path: object = None,
    ax: Axes | None = None,
    names: tuple[str, str] = ("x", "y"),
    margins: bool = True,
    colorbar: bool = False,
    **image: Any,
) -> Axes:
    """Heat map of the squared Euclidean costs ||x[i] - y[j]||^2, x downwards on its left margin and y above it.

    Args:
        x: (N, D) series.
        y: (M, D) series.
        path: (L, 2) index pairs (i, j) of a warping path, or the result of :func:`warpalign.dtw_path` for this pair, drawn as a
            line.
        ax: where to draw.
        names: of x and y, for the axes.
        margins: draw the series along the heat map, as :func:`alignment` does.
        colorbar: draw a color bar.
        image: further arguments of Axes.imshow, such as cmap.

    Raises:
        ValueError: path is not (L, 2), or leaves the matrix.
    """
    first, second = one_series(x, "x"), one_series(y, "y")
    costs = (first[:, None] - second[None]).square().sum(-1)
    options = {"cmap": "Greys", "label": "squared distance"}
    axes = heat_map(costs, first, second, ax, names, margins, colorbar, options | image)
    if path is not None:
        steps = path_within(path, (len(first), len(second)))
        axes.plot(steps[:, 1].numpy(), steps[:, 0].numpy(), color="C3", linewidth=1.5)
    return axes


def matching(
    x: object,
    y: object,
    path: object = None,
    *,
    ax: Axes | None = None,
    names: tuple[str, str] = ("x", "y"),
    every: int = 1,
    gap: float | None = None,
    **line: Any,
) -> Axes:
    """Two series, x above y, and lines between the time steps that a path matches.

    Args:
        x: (N, D) series; the lines join their first features.
        y: (M, D) series.
        path: (L, 2) index pairs (i, j), or the result of :func:`warpalign.dtw_path` for this pair; default: that of hard DTW.
        ax: where to draw.
        names: of x and y, for the legend.
        every: draw every n-th line.
        gap: by how much y is moved down. Default: so far that the series do not touch.
        line: further arguments of matplotlib's LineCollection for the lines, such as colors.

    Raises:
        ValueError: path is not (L, 2), or leaves the matrix; D differs.
    """
    first, second = one_series(x, "x"), one_series(y, "y")
    check_pair(first, second, ("x", "y"))
    steps = path_within(dtw_path(first, second) if path is None else path, (len(first), len(second)))
    height = torch.cat([first, second]).max() - torch.cat([first, second]).min()
    shift = float(second.max() - first.min() + 0.25 * height) if gap is None else gap
    axes = plt.gca() if ax is None else ax
    lower = second - shift
    chosen = steps[:: check_count(every, "every")]
    ends = [
        torch.stack([chosen[:, side].to(points), points[chosen[:, side], 0]], 1)
        for side, points in enumerate((first, lower))
    ]
    options: dict[str, Any] = {"colors": QUIET, "linewidths": 0.6, "zorder": 1} | line
    axes.add_collection(LineCollection(list(torch.stack(ends, 1).numpy()), **options))
    for points, name, color in ((first, names[0], X_COLOR), (lower, names[1], Y_COLOR)):
        for d in range(points.shape[1]):
            alpha = 1.0 if d == 0 else 0.45
            label = name if d == 0 else None
            axes.plot(points[:, d].numpy(), color=color, alpha=alpha, linewidth=1.6, label=label)
    axes.set_xlabel("time step")
    axes.set_yticks([])  # y is not where its numbers would be
    axes.legend()
    return axes


def distances(
    table: object,
    *,
    names: Sequence[str] | None = None,
    dendrogram: bool = True,
    method: str = "average",
    ax: Axes | None = None,
    colorbar: bool = False,
    **image: Any,
) -> Axes:
    """Heat map of the distances between the series of a set, similar ones side by side, under the tree that says how similar.

    Args:
        table: (n, n), symmetric: the result of ``cdist_soft_dtw(X, normalize=True)`` for instance.
        names: of the n series, for the axes. Default: their indices.
        dendrogram: order the series by hierarchical clustering and draw its tree (needs SciPy), in Axes of its own (ax.child_axes).
        method: how the clustering measures the distance of two clusters: scipy.cluster.hierarchy.linkage's argument.
        ax: where to draw.
        colorbar: draw a color bar.
        image: further arguments of Axes.imshow, such as cmap.

    Raises:
        ValueError: table is not square, not symmetric or not finite, or names are not n.
        ImportError: dendrogram without SciPy.
    """
    values = torch.as_tensor(table).detach().cpu().double()
    if values.dim() != 2 or values.shape[0] != values.shape[1]:
        raise ValueError(f"table: expected shape (n, n), got {tuple(values.shape)}")
    if not torch.allclose(
        values, values.T, rtol=1e-4, atol=1e-6 * float(values.abs().max())
    ):  # NaN is not close
        raise ValueError("table: expected finite distances, as far one way as the other, got others")
    count = len(values)
    if names is not None and len(names) != count:
        raise ValueError(f"names: expected {count}, one per series, got {len(names)}")
    axes = plt.gca() if ax is None else ax
    order = list(range(count))
    if dendrogram and count > 1:
        hierarchy = optional.load("scipy.cluster.hierarchy", "plot.distances with a dendrogram", "cluster")
        distances = optional.load("scipy.spatial.distance", "plot.distances with a dendrogram", "cluster")
        # Divergences are below 0 by rounding; a diagonal that is none, as of soft-DTW itself, does not count.
        clean = ((values + values.T) / 2).clamp(min=0).fill_diagonal_(0.0)
        tree = hierarchy.linkage(distances.squareform(clean.numpy()), method)
        make_room(axes, left=0.0, above=0.22)
        above = axes.inset_axes((0, 1.02, 1, 0.26))
        drawn = hierarchy.dendrogram(
            tree, ax=above, no_labels=True, color_threshold=0, above_threshold_color="0.4"
        )
        above.set_xlim(0, 10 * count)  # SciPy's leaves are 10 apart
        above.set_axis_off()
        order = drawn["leaves"]
    options: dict[str, Any] = {"cmap": "viridis_r", "aspect": "auto", "interpolation": "nearest"} | image
    drawn_image = axes.imshow(values[order][:, order].numpy(), **options)
    if colorbar:
        axes.figure.colorbar(drawn_image, ax=axes, label="distance")
    labels = [str(index) if names is None else names[index] for index in order]
    if names is not None or count <= 30:
        is_tight = count > 12 or max(map(len, labels), default=0) > 2
        size = "small" if count > 20 else None
        axes.set_xticks(range(count), labels, rotation=90 if is_tight else 0, fontsize=size)
        axes.set_yticks(range(count), labels, fontsize=size)
    axes.set_xlabel("series")
    return axes


def clusters(
    X: object,
    labels: Any,
    centers: object = None,
    *,
    figure: Figure | None = None,
    columns: int | None = None,
    names: Sequence[str] | None = None,
    **line: Any,
) -> list[Axes]:
    """The series of every cluster, thin, and its center over them, thick: an Axes per cluster, which share their axes.

    Args:
        X: the series, in any form that :func:`warpalign.cdist_soft_dtw` takes.
        labels: (n,) the cluster of each, from 0 to k - 1; or a fitted :class:`warpalign.SoftDTWKMeans`, which has its centers.
        centers: (k, sz, D). Default: none are drawn, or the estimator's.
        figure: where to make the Axes. Default: the current figure.
        columns: Axes in a row. Default: all k, at most 4.
        names: of the D features, for one legend, in the first Axes. Default: no legend.
        line: further arguments of Axes.plot for the centers.

    Raises:
        ValueError: labels are not n, or below 0; centers are not one per cluster with the D features of X.
    """
    if hasattr(labels, "cluster_centers_"):
        centers = labels.cluster_centers_ if centers is None else centers
        labels = labels.labels_
    series = as_series(X, "X")
    own = torch.as_tensor(labels).cpu().long()
    if own.shape != (len(series.values),) or (len(own) and int(own.min()) < 0):
        raise ValueError(
            f"labels: expected {len(series.values)} numbers from 0, one per series, got shape {tuple(own.shape)}"
        )
    table = None if centers is None else as_series(centers, "centers").values.detach().cpu()
    features = series.values.shape[2]
    if table is not None and table.shape[2] != features:
        raise ValueError(f"centers: expected D = {features} features as in X, got {table.shape[2]}")
    if names is not None:
        check_names(names, features, "names")
    count = int(own.max()) + 1 if table is None else len(table)
    if count <= int(own.max()):
        raise ValueError(f"centers: expected one per cluster, {int(own.max()) + 1}, got {count}")
    wide = min(count, 4) if columns is None else check_count(columns, "columns")
    target = plt.gcf() if figure is None else figure
    if target.get_layout_engine() is None:
        target.set_layout_engine("constrained")
    grid = target.subplots(-(-count // wide), wide, sharex=True, sharey=True, squeeze=False)
    axes = list(grid.flat)
    for unused in axes[count:]:
        unused.set_axis_off()
    for k, ax in enumerate(axes[:count]):
        members = (own == k).nonzero()[:, 0]
        draw_group(series, members, None if table is None else table[k], ax, None, line)
        ax.set_title(f"cluster {k}: {len(members)} series")
        ax.label_outer()
    if names is not None:
        handles = [Line2D([], [], color=f"C{d}", label=names[d]) for d in range(features)]
        axes[0].legend(handles=handles)
    return axes[:count]


def barycenter(
    X: object,
    barycenter: object,
    *,
    ax: Axes | None = None,
    labels: Sequence[str] | None = None,
    **line: Any,
) -> Axes:
    """A group of series, thin, and their barycenter over them, thick; one color per feature.

    Args:
        X: the series, in any form that :func:`warpalign.soft_dtw_barycenter` takes.
        barycenter: (sz, D), or a BarycenterResult of one group. Where its length is not a series' own, it is drawn over the
            longest series' time.
        ax: where to draw.
        labels: names of the D features, for the legend. Default: none.
        line: further arguments of Axes.plot for the barycenter.

    Raises:
        ValueError: barycenter or labels do not have the D features of X.
    """
    series = as_series(X, "X")
    center = one_series(
        barycenter.barycenter if isinstance(barycenter, BarycenterResult) else barycenter, "barycenter"
    )
    longest, features = series.values.shape[1:]
    if center.shape[1] != features:
        raise ValueError(f"barycenter: expected D = {features} features as in X, got {center.shape[1]}")
    if labels is not None:
        check_names(labels, features, "labels")
    axes = plt.gca() if ax is None else ax
    draw_group(series, torch.arange(len(series.values)), center, axes, labels, line)
    if labels is not None:
        axes.legend()
    return axes
