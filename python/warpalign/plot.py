"""Plots of alignments, costs and barycenters into matplotlib Axes (pip install 'warpalign[plot]').

Every function draws into `ax` (default: the current Axes) and returns it; figures, titles and files are the caller's.
Series are tensors or arrays (N, D), or (N,) for univariate ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from warpalign._core import optional
from warpalign._core.series import as_series
from warpalign.barycenter import BarycenterResult
from warpalign.functional import soft_dtw_alignment

optional.load("matplotlib", "warpalign.plot", "plot")

from matplotlib import pyplot as plt  # noqa: E402  (after the message that says how to get it)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_X_COLOR, _Y_COLOR, _QUIET = "C0", "C1", "0.65"


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
        x, y: the series, (N, D) and (M, D).
        alignment: (N, M), an expected alignment or a path as a matrix; default: the expected alignment at gamma. Its square
            root is drawn, so that improbable cells can still be seen; color limits and color bar are of the root.
        gamma: smoothing for the default alignment.
        ax: where to draw.
        names: of x and y, for the axes.
        margins: draw the series along the heat map, in Axes of their own (ax.child_axes).
        colorbar: draw a color bar.
        image: further arguments of Axes.imshow, such as cmap.

    Raises:
        ValueError: alignment has another shape than (N, M).
    """
    first, second = _one(x, "x"), _one(y, "y")
    shape = (len(first), len(second))
    if alignment is None:
        table = soft_dtw_alignment(first, second, gamma=gamma).alignment
    else:
        table = torch.as_tensor(alignment).detach().cpu().double()
        if table.shape != shape:
            raise ValueError(f"alignment: expected shape {shape}, got {tuple(table.shape)}")
    options = {"cmap": "Blues", "vmin": 0.0, "vmax": 1.0, "label": "square root of the expected alignment"}
    return _heat_map(table.clamp(min=0).sqrt(), first, second, ax, names, margins, colorbar, options | image)


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
        x, y: the series, (N, D) and (M, D).
        path: (L, 2) index pairs (i, j) of a warping path, drawn as a line.
        ax, names, margins, colorbar, image: as for :func:`alignment`.

    Raises:
        ValueError: path is not (L, 2), or leaves the matrix.
    """
    first, second = _one(x, "x"), _one(y, "y")
    costs = (first[:, None] - second[None]).square().sum(-1)
    options = {"cmap": "Greys", "label": "squared distance"}
    axes = _heat_map(costs, first, second, ax, names, margins, colorbar, options | image)
    if path is not None:
        steps = torch.as_tensor(path).detach().cpu()
        if steps.dim() != 2 or steps.shape[1] != 2:
            raise ValueError(f"path: expected shape (L, 2), got {tuple(steps.shape)}")
        if bool((steps < 0).any()) or bool((steps >= torch.tensor(costs.shape)).any()):
            raise ValueError(f"path: expected index pairs within {tuple(costs.shape)}, got others")
        axes.plot(steps[:, 1].numpy(), steps[:, 0].numpy(), color="C3", linewidth=1.5)
    return axes


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
    center = _one(
        barycenter.barycenter if isinstance(barycenter, BarycenterResult) else barycenter, "barycenter"
    )
    longest, features = series.values.shape[1:]
    if center.shape[1] != features:
        raise ValueError(f"barycenter: expected D = {features} features as in X, got {center.shape[1]}")
    if labels is not None and len(labels) != features:
        raise ValueError(f"labels: expected {features}, one per feature, got {len(labels)}")
    axes = plt.gca() if ax is None else ax
    values = series.values.detach().cpu()
    alpha = max(0.08, min(0.5, 5 / len(values)))
    for one, length in zip(values, series.true_lengths().tolist(), strict=True):
        for d in range(features):
            axes.plot(one[:length, d].numpy(), color=f"C{d}", linewidth=0.7, alpha=alpha)
    steps = torch.linspace(0, longest - 1, len(center)) if len(center) > 1 else torch.zeros(1)
    for d in range(features):
        name = None if labels is None else labels[d]
        options: dict[str, Any] = {"color": f"C{d}", "linewidth": 2.4, "label": name} | line
        axes.plot(steps.numpy(), center[:, d].numpy(), **options)
    axes.set_xlabel("time step")
    if labels is not None:
        axes.legend()
    return axes


def _one(series: object, name: str) -> Tensor:
    """(N, D) on the CPU."""
    try:
        values = as_series([series], name).values
    except (TypeError, ValueError) as error:
        raise type(error)(str(error).replace(f"{name}[0]", name)) from error
    return values[0].detach().cpu()


def _heat_map(
    table: Tensor,
    x: Tensor,
    y: Tensor,
    ax: Axes | None,
    names: tuple[str, str],
    margins: bool,
    colorbar: bool,
    options: dict[str, Any],
) -> Axes:
    axes = plt.gca() if ax is None else ax
    label = options.pop("label")
    image = axes.imshow(table.numpy(), **({"aspect": "auto", "interpolation": "nearest"} | options))
    if colorbar:
        axes.figure.colorbar(image, ax=axes, label=label)
    axes.set_xlabel(f"{names[1]}: time step")
    axes.set_ylabel(f"{names[0]}: time step")
    if margins:
        above = axes.inset_axes((0, 1.02, 1, 0.22), sharex=axes)
        left = axes.inset_axes((-0.24, 0, 0.22, 1), sharey=axes)
        above.plot(y.numpy(), color=_Y_COLOR if y.shape[1] == 1 else None, linewidth=1.2)
        left.plot(x.numpy(), range(len(x)), color=_X_COLOR if x.shape[1] == 1 else None, linewidth=1.2)
        left.invert_xaxis()  # larger values away from the heat map, as above it
        for margin in (above, left):
            margin.set_axis_off()
        # The series stands where the axis was; its numbers go to the free side.
        axes.yaxis.set_label_position("right")
        axes.yaxis.tick_right()
    return axes
