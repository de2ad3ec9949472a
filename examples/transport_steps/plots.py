"""The figures: one function each, which writes one PNG file."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import torch
from torch import Tensor

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402  (the backend is chosen first)
from matplotlib.figure import Figure  # noqa: E402

from .colour import Recoloured  # noqa: E402
from .data import Domains  # noqa: E402
from .digits import Adapted  # noqa: E402
from .flow import Frames  # noqa: E402

FIRST, MUTED = "#0072B2", "#9AA0A6"


def plot_colours(source: Tensor, target: Tensor, recoloured: list[Recoloured], path: Path) -> None:
    """Both photographs, and the first one in the second one's colours."""
    pictures = [("from", source), ("colours of", target), *((one.name, one.image) for one in recoloured)]
    figure, axes = plt.subplots(2, 2, figsize=(8, 5.6), layout="constrained")
    for axis, (name, picture) in zip(axes.flat, pictures, strict=True):
        axis.imshow(picture.numpy())
        axis.set_title(name)
        axis.set_axis_off()
    _save(figure, path)


def plot_digits(domains: Domains, found: Adapted, path: Path) -> None:
    """Some source images, where they go, images of the target, and accuracies."""
    figure = plt.figure(figsize=(9, 3.6), layout="constrained")
    grid = figure.add_gridspec(1, 2, width_ratios=(1.2, 1))
    left, right = figure.add_subfigure(grid[0]), figure.add_subfigure(grid[1])
    axes = left.subplots(3, 8)
    chosen = [int((domains.source_digit == digit).nonzero()[0]) for digit in range(1, 9)]
    others = [int((domains.target_digit == digit).nonzero()[0]) for digit in range(1, 9)]
    images = torch.stack(
        [domains.source[chosen], torch.from_numpy(found.moved)[chosen], domains.target[others]]
    )
    for line, name, row in zip(axes, ("source", "moved", "target"), images, strict=True):
        for axis, image in zip(line, row, strict=True):
            axis.imshow(image.reshape(8, 8), cmap="gray_r", vmin=0, vmax=1)
            axis.set(xticks=[], yticks=[])
        line[0].set_ylabel(name)
    axis = right.subplots()
    names = list(found.accuracies)
    axis.barh(names, [found.accuracies[name] for name in names], color=[MUTED, *[FIRST] * (len(names) - 1)])
    axis.invert_yaxis()
    axis.set(xlim=(0, 1), xlabel="accuracy on the target")
    _save(figure, path)


def plot_flow(frames: Frames, path: Path) -> None:
    """The points on their way, over the target."""
    figure, axes = plt.subplots(
        1, len(frames.points), figsize=(2 * len(frames.points), 2.4), layout="constrained"
    )
    for index, (axis, points) in enumerate(zip(axes, frames.points, strict=True)):
        axis.scatter(frames.target[:, 0], frames.target[:, 1], s=2, color=MUTED)
        axis.scatter(points[:, 0], points[:, 1], s=2, color=FIRST)
        axis.set(xlim=(0, 1), ylim=(0, 1), xticks=[], yticks=[], aspect="equal")
        axis.set_title("start" if index == 0 else f"{frames.divergences[index]:.1e}")
    _save(figure, path)


def _save(figure: Figure, path: Path) -> None:
    figure.savefig(path, dpi=120)
    plt.close(figure)
