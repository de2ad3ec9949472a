"""The demo's figures: one function each, which writes one PNG file. One colour per class everywhere."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import torch
from torch import Tensor

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402  (the backend is chosen first)
from matplotlib.colors import LinearSegmentedColormap, PowerNorm  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402

from .barycenter import Barycenter  # noqa: E402
from .forecast import Forecaster  # noqa: E402
from .pairwise import Classification  # noqa: E402

CLASS_COLOR = {1: "#0072B2", 2: "#D55E00", 3: "#009E73", 4: "#CC79A7"}  # safe for colour-blind readers
INK, MUTED, FIRST, SECOND = "#222222", "#9AA0A6", "#0072B2", "#D55E00"
HEAT = LinearSegmentedColormap.from_list("heat", ["#FFFFFF", "#CFE3F2", "#5AA2D0", "#0B4F8A", "#06264A"])

plt.rcParams.update(
    {
        "figure.dpi": 150,
        "savefig.bbox": "tight",
        "figure.constrained_layout.use": True,
        "font.size": 10,
        "axes.titlesize": 11,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": "#666666",
        "axes.labelcolor": INK,
        "legend.frameon": False,
        "lines.linewidth": 1.8,
    }
)


def _save(figure: Figure, path: Path) -> None:
    figure.savefig(path)
    plt.close(figure)


def plot_pairwise(
    result: Classification, train_class: Tensor, test_class: Tensor, gamma: float, path: Path
) -> None:
    """All distances, test against training series sorted by class, and the means per pair of classes."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.4), width_ratios=(1.25, 1))
    norm = PowerNorm(0.5, vmin=0.0, vmax=result.distances.max().item())  # shows the small distances too
    image = left.imshow(result.distances, cmap=HEAT, norm=norm, aspect="auto", interpolation="nearest")
    figure.colorbar(image, ax=left, label="soft-DTW divergence", shrink=0.9)
    for axis, labels in ((left.xaxis, train_class), (left.yaxis, test_class)):
        classes = labels.unique().tolist()
        axis.set_ticks([(labels == c).nonzero().double().mean().item() for c in classes], classes)
    for edge in (train_class.diff() != 0).nonzero().flatten().tolist():
        left.axvline(edge + 0.5, color="white", linewidth=1)
    for edge in (test_class.diff() != 0).nonzero().flatten().tolist():
        left.axhline(edge + 0.5, color="white", linewidth=1)
    left.set(title=f"{result.distances.numel()} pairs of Trace series, gamma = {gamma:g}")
    left.set(xlabel="training series, by class", ylabel="test series, by class")

    classes = train_class.unique().tolist()
    right.imshow(result.class_means, cmap=HEAT, norm=norm)
    middle = result.distances.max().item() / 4
    for row, values in enumerate(result.class_means.tolist()):
        for column, value in enumerate(values):
            color = "white" if value > middle else INK
            right.text(column, row, f"{value:.1f}", ha="center", va="center", color=color)
    right.set(
        title="Mean between classes", xlabel="class of the training series", ylabel="class of the test series"
    )
    right.set_xticks(range(len(classes)), classes)
    right.set_yticks(range(len(classes)), classes)
    _save(figure, path)


def plot_barycenters(
    series: Tensor, labels: Tensor, centers: dict[int, Barycenter], gamma: float, path: Path
) -> None:
    """Every class: its series, their Euclidean mean and their soft-DTW barycenter."""
    columns = 2 if len(centers) > 1 else 1
    rows = -(-len(centers) // columns)
    size = (5.2 * columns, 2.9 * rows)
    figure, axes = plt.subplots(rows, columns, figsize=size, sharex=True, squeeze=False)
    for panel, (label, center) in zip(axes.flat, centers.items(), strict=False):
        members = series[labels == label].squeeze(-1).cpu()
        panel.plot(members.T, color=CLASS_COLOR[label], linewidth=0.6, alpha=0.25)
        panel.plot(center.mean.cpu(), color=INK, linestyle=(0, (4, 2)), linewidth=1.4, label="Euclidean mean")
        panel.plot(center.series.cpu(), color=CLASS_COLOR[label], linewidth=2.4, label="soft-DTW barycenter")
        panel.set_title(f"Class {label}: {len(members)} series")
    for panel in axes[-1]:
        panel.set_xlabel("time (samples)")
    for panel in axes[:, 0]:
        panel.set_ylabel("z-score")
    axes[0, 0].legend(loc="best", fontsize=9)
    figure.suptitle(f"Class barycenters of Trace, gamma = {gamma:g}", x=0.01, ha="left", fontweight="bold")
    _save(figure, path)


def plot_alignment(
    x: Tensor,
    y: Tensor,
    alignment: Tensor,
    *,
    rate_hz: float | None,
    names: tuple[str, str],
    title: str,
    path: Path,
) -> None:
    """Expected alignment (N, M) as a heat map with x (N, D) on the left margin and y (M, D) on top."""
    unit, scale = ("time (samples)", 1.0) if rate_hz is None else ("time (s)", 1.0 / rate_hz)
    figure = plt.figure(figsize=(6.4, 5.8))
    top, left, main = figure.subplot_mosaic(
        [[".", "top"], ["left", "main"]], width_ratios=(1, 3.4), height_ratios=(1, 3.4)
    ).values()
    n, m = alignment.shape
    extent = (-0.5 * scale, (m - 0.5) * scale, (n - 0.5) * scale, -0.5 * scale)
    image = main.imshow(
        alignment.cpu().clamp(0, 1).sqrt(), cmap=HEAT, aspect="auto", extent=extent, vmin=0, vmax=1
    )
    bar = figure.colorbar(image, ax=main, label="expected alignment E", shrink=0.9)
    bar.set_ticks([value**0.5 for value in (0, 0.05, 0.25, 0.5, 1)], labels=["0", "0.05", "0.25", "0.5", "1"])
    main.set(xlabel=f"{names[1]}: {unit}", yticks=[])
    colors_y = [SECOND] if y.shape[1] == 1 else list(CLASS_COLOR.values())
    colors_x = [FIRST] if x.shape[1] == 1 else list(CLASS_COLOR.values())
    offset = 0.0 if x.shape[1] == 1 else 4.0  # channels stand side by side
    for d in range(x.shape[1]):
        top.plot(torch.arange(m) * scale, y[:, d].cpu() + offset * d, color=colors_y[d % 4], linewidth=1.3)
        left.plot(x[:, d].cpu() + offset * d, torch.arange(n) * scale, color=colors_x[d % 4], linewidth=1.3)
    top.set(xlim=main.get_xlim(), xticks=[], yticks=[], title=title)
    left.set(ylim=main.get_ylim(), xticks=[], ylabel=f"{names[0]}: {unit}")
    left.invert_xaxis()
    for panel in (top, left):
        panel.spines[["bottom", "left", "top", "right"]].set_visible(False)
    _save(figure, path)


def plot_forecast(
    test: Tensor, labels: Tensor, twins: tuple[Forecaster, Forecaster], seen: int, path: Path
) -> None:
    """For every class one held-out series and what the two twins predict for its last part."""
    classes = labels.unique().tolist()
    columns = 2
    rows = -(-len(classes) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(10.4, 2.9 * rows), sharex=True, squeeze=False)
    length = test.shape[1]
    future = torch.arange(seen, length)
    for panel, label in zip(axes.flat, classes, strict=False):
        index = int((labels == label).nonzero()[0])
        truth = test[index, :, 0].cpu()
        panel.axvspan(0, seen, color="#F1F3F4", linewidth=0)
        panel.plot(truth, color=INK, linewidth=1.2, label="held-out series")
        for twin, color in zip(twins, (MUTED, CLASS_COLOR[label]), strict=True):
            style = "--" if color == MUTED else "-"
            panel.plot(
                future,
                twin.predictions[index, :, 0],
                color=color,
                linestyle=style,
                label=f"trained with {twin.name}",
            )
        panel.set_title(f"Class {label}")
    for panel in axes[-1]:
        panel.set_xlabel("time (samples); grey: what the forecaster sees")
    for panel in axes[:, 0]:
        panel.set_ylabel("z-score")
    axes[0, 0].legend(loc="best", fontsize=9)
    figure.suptitle("Forecasts of held-out Trace series", x=0.01, ha="left", fontweight="bold")
    _save(figure, path)
