"""Plots of result files: bars of times side by side, and points of ratios. White ground, so that they can be read in a dark page, too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402  (the backend is chosen first)
from matplotlib.axes import Axes  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402

from benchmarks.harness.tables import number  # noqa: E402

COLORS = ("#0072B2", "#D55E00", "#CC79A7", "#009E73", "#E69F00")
"""Of Okabe and Ito, which colour-blind readers can tell apart; warpalign has the first one."""


def _save(figure: Figure, path: Path, title: str) -> Path:
    """With a title and, below the axes, the legend."""
    handles, names = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(names), frameon=False, fontsize=9)
    figure.suptitle(title, x=0.01, ha="left", fontsize=10, color="#555555")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, facecolor="white")
    plt.close(figure)
    return path


def _plain(axis: Axes) -> None:
    axis.grid(True, axis="x", which="major", color="#E3E5E8", linewidth=0.8)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
    axis.xaxis.set_major_formatter("{x:g}")


def bars(
    path: Path, problems: Sequence[str], times: Mapping[str, Sequence[float | None]], title: str, unit: str
) -> Path:
    """One group of horizontal bars per problem, one bar per package, on a logarithmic axis. None: not measured."""
    height = 0.8 / len(times)
    figure, axis = plt.subplots(
        figsize=(8, 1.2 + (0.14 * len(times) + 0.12) * len(problems)), layout="constrained"
    )
    for k, (name, values) in enumerate(times.items()):
        known = [(place, value) for place, value in enumerate(values) if value]
        places = [place + (k - (len(times) - 1) / 2) * height for place, _ in known]
        found = axis.barh(places, [value for _, value in known], height, color=COLORS[k], label=name)
        axis.bar_label(found, [number(value) for _, value in known], padding=2, fontsize=7)
    axis.set(xscale="log", xlabel=unit)
    axis.set_yticks(range(len(problems)), problems, fontsize=8)
    axis.invert_yaxis()
    axis.margins(x=0.12, y=0.02)
    _plain(axis)
    return _save(figure, path, title)


def ratios(
    path: Path,
    points: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    title: str,
    labels: tuple[str, str],
) -> Path:
    """Ratios of times against a size, one colour per group, on logarithmic axes; the line at 1 is a draw."""
    figure, axis = plt.subplots(figsize=(8, 3.4), layout="constrained")
    for k, (name, (sizes, values)) in enumerate(points.items()):
        axis.plot(sizes, values, "o", markersize=4, alpha=0.6, color=COLORS[k], label=name)
    axis.axhline(1, color="black", linewidth=0.8)
    axis.set(xscale="log", yscale="log", xlabel=labels[0], ylabel=labels[1])
    low, high = (pick(value for _, values in points.values() for value in values) for pick in (min, max))
    ticks = [tick for tick in (0.5, 0.7, 1, 1.5, 2, 3, 5, 7, 10, 20) if low / 1.3 < tick < high * 1.3]
    axis.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.minorticks_off()
    _plain(axis)
    return _save(figure, path, title)
