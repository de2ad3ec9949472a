"""The plot of the recogniser's study."""

from __future__ import annotations

from pathlib import Path
from statistics import mean

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402  (the backend is chosen first)
from matplotlib.axes import Axes  # noqa: E402

from benchmarks.harness.plots import COLORS  # noqa: E402
from benchmarks.harness.results import Row  # noqa: E402
from benchmarks.transducer.recogniser.tables import MAIN  # noqa: E402

Found = dict[tuple[str, str], list[Row]]


def _points(axis: Axes, found: Found, key: str, label: str) -> None:
    """Each seed a point, the mean a line, soft and hard side by side."""
    for k, activation in enumerate(("soft", "hard")):
        for place, family in enumerate(MAIN):
            values = [row[key] for row in found.get((family, activation), []) if row.get(key) is not None]
            if not values:
                continue
            height = place + 0.3 * (k - 0.5)
            axis.plot(values, [height] * len(values), "o", color=COLORS[k], markersize=5, alpha=0.7)
            axis.plot([mean(values)] * 2, [height - 0.14, height + 0.14], color=COLORS[k], linewidth=2)
    axis.set_yticks(range(len(MAIN)), MAIN, fontsize=9)
    axis.set(xlabel=label, ylim=(len(MAIN) - 0.5, -0.5))
    axis.set_xlim(left=0)
    axis.grid(True, axis="x", color="#E3E5E8", linewidth=0.8)
    axis.spines[["top", "right"]].set_visible(False)


def errors(path: Path, found: Found) -> Path:
    """Letter errors of other voices and in noise, and nodes visited, by family and gates."""
    figure, axes = plt.subplots(1, 3, figsize=(10, 3.2), sharey=True, layout="constrained")
    for axis, key, label in zip(
        axes,
        ("letters_other_voices", "letters_more_noise", "visited"),
        ("letter errors, other voices, %", "letter errors, more noise, %", "nodes visited, %"),
        strict=True,
    ):
        _points(axis, found, key, label)
    for k, name in enumerate(("soft gates", "hard gates")):
        axes[0].plot([], [], "o", color=COLORS[k], label=name)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, facecolor="white")
    plt.close(figure)
    return path
