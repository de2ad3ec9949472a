"""The figures: one function each, which writes one PNG file."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402  (the backend is chosen first)
from matplotlib.figure import Figure  # noqa: E402

from .graphs import Factions, Recovered  # noqa: E402
from .modalities import Matched  # noqa: E402
from .scaling import Row  # noqa: E402

COLORS = ("#0072B2", "#D55E00", "#009E73")


def plot_modalities(found: list[Matched], path: Path) -> None:
    """Both views of each data set in one plane, by their labels."""
    figure, axes = plt.subplots(1, len(found), figsize=(4.5 * len(found), 4), layout="constrained")
    for axis, one in zip(axes, found, strict=True):
        labels = {"first": one.of.label, "second": one.of.label[one.of.order]}
        for name, marker in (("first", "o"), ("second", "+")):
            for label in labels[name].unique().tolist():
                points = one.embedding[name][labels[name] == label]
                axis.scatter(
                    points[:, 0], points[:, 1], s=14, marker=marker, color=COLORS[label], alpha=0.6,
                    linewidths=0.8, label=f"{name} view, class {label}",
                )  # fmt: skip
        axis.set_title(one.of.name)
        axis.set(xticks=[], yticks=[])
        axis.legend(fontsize=7)
    _save(figure, path)


def plot_graphs(recovered: list[Recovered], factions: Factions, path: Path) -> None:
    """What rewired copies keep, and the karate club in the colours of the factions that were found."""
    networkx = import_module("networkx")
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
    for one, color in zip(recovered, COLORS, strict=False):
        left.plot(one.noise, one.kept, marker="o", color=color, label=f"{one.of.name}, edges")
        left.plot(one.noise, one.nodes, marker="o", color=color, linestyle=":", label=f"{one.of.name}, nodes")
    left.set(xlabel="share of edges that were rewired", ylabel="share that was found again", ylim=(0, 1.05))
    left.legend(fontsize=8)
    club = networkx.karate_club_graph()
    networkx.draw_networkx(
        club, networkx.spring_layout(club, seed=1), ax=right, node_size=160, font_size=7, width=0.5,
        node_color=[COLORS[int(side)] for side in factions.found], font_color="white",
    )  # fmt: skip
    right.set_title(f"factions: {factions.agreement:.0%} as they were")
    right.set_axis_off()
    _save(figure, path)


def plot_scaling(rows: list[Row], path: Path) -> None:
    """Time, memory and the signed correlation by the number of points."""
    figure, axes = plt.subplots(1, 3, figsize=(10, 3.2), layout="constrained")
    names = sorted({row.name for row in rows})
    for name, color in zip(names, COLORS, strict=False):
        mine = [row for row in rows if row.name == name]
        sizes = [row.n for row in mine]
        for axis, values in zip(
            axes,
            ([r.seconds for r in mine], [r.mebibytes for r in mine], [r.correlation for r in mine]),
            strict=True,
        ):
            axis.plot(sizes, values, marker="o", color=color, label=name)
    for axis, title in zip(axes, ("seconds", "MiB above the start", "signed correlation"), strict=True):
        axis.set(xscale="log", xlabel="points of the spiral", title=title)
    axes[0].set_yscale("log")
    axes[1].set_yscale("symlog")
    axes[2].set_ylim(-1.05, 1.05)
    axes[0].legend()
    _save(figure, path)


def _save(figure: Figure, path: Path) -> None:
    figure.savefig(path, dpi=120)
    plt.close(figure)
