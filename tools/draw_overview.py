"""Draws docs/images/overview.png, the picture of the README, with warpalign itself.

Usage: draw_overview.py [FILE]
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402  (the backend is chosen first)
import torch  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402
from torch import Tensor  # noqa: E402

import warpalign  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
FIRST, SECOND, LINK = "#0072B2", "#D55E00", "#999999"


def lines(axis: Axes, first: Tensor, second: Tensor, pairs: Tensor) -> None:
    """A line between the points of each pair, given as (K, 2) indices."""
    for i, j in pairs.tolist():
        axis.plot(*torch.stack([first[i], second[j]]).T, color=LINK, linewidth=0.6, zorder=0)


def series(axis: Axes) -> None:
    """Two curves, and which steps hard DTW matches."""
    time = torch.linspace(0, 6, 60)
    x, y = time.sin(), (time - 0.9 * (time / 6).sin()).sin()
    path, _ = warpalign.dtw_path(x[:, None], y[:, None])
    upper, lower = torch.stack([time, x + 2.6], 1), torch.stack([time, y], 1)
    axis.plot(*upper.T, color=FIRST)
    axis.plot(*lower.T, color=SECOND)
    lines(axis, upper, lower, path[::3])
    axis.set_title("time series")


def labels(axis: Axes) -> None:
    """How probable each label is at each frame, given all alignments of random logits with one clear path."""
    frames, count = 40, 6
    logits = torch.randn(1, frames, count + 1, 8)
    for u in range(count):
        logits[0, 6 * u + 4 : 6 * u + 7, u, u] += 4
    logits[..., 7] += 1.5
    found = warpalign.transducer_align(logits, torch.arange(count)[None], blank=7, posteriors=True)
    assert found.posteriors is not None
    axis.imshow(found.posteriors.label[0].T, origin="lower", aspect="auto", cmap="Blues")
    axis.plot(found.frames[0], range(count), "o", color=SECOND, markersize=4)
    axis.set_title("labels and frames")


def sets(axis: Axes) -> None:
    """Two point sets, and each point's partner in the plan."""
    x = torch.randn(40, 2) * 0.5
    angle = torch.rand(50) * 6.28
    y = torch.stack([angle.cos(), angle.sin()], 1) * 1.2 + torch.tensor([2.8, 0.3])
    plan = warpalign.sinkhorn(x, y, epsilon=0.05, max_iter=3000).plan
    lines(axis, x, y, torch.stack([torch.arange(40), plan.argmax()], 1))
    axis.scatter(x[:, 0], x[:, 1], s=12, color=FIRST)
    axis.scatter(y[:, 0], y[:, 1], s=12, color=SECOND)
    axis.set_title("point sets")


def graphs(axis: Axes) -> None:
    """A tree of 15 nodes and a turned copy with its nodes in another order, matched by distances alone."""
    nodes = torch.tensor([[1.6 * (k + 0.5) / 2**d - 0.8, -0.4 * d] for d in range(4) for k in range(2**d)])
    nodes = nodes + 0.03 * torch.randn(len(nodes), 2)
    edges = [((k - 1) // 2, k) for k in range(1, len(nodes))]
    order = torch.randperm(len(nodes))
    turned = (nodes @ torch.tensor([[0.6, 0.8], [-0.8, 0.6]]))[order] + torch.tensor([2.8, -0.2])
    place = torch.argsort(order)
    distances = torch.cdist(nodes, nodes), torch.cdist(turned, turned)
    plan = warpalign.gromov_wasserstein(distances=distances, epsilon=0.002).plan
    for points, color, links in (
        (nodes, FIRST, edges),
        (turned, SECOND, [(place[i], place[j]) for i, j in edges]),
    ):
        for i, j in links:
            axis.plot(*points[[int(i), int(j)]].T, color=color, linewidth=1.2)
        axis.scatter(points[:, 0], points[:, 1], s=14, color=color, zorder=2)
    lines(axis, nodes, turned, torch.stack([torch.arange(len(nodes)), plan.argmax()], 1))
    axis.set_title("graphs")


def draw(file: Path) -> None:
    torch.manual_seed(4)
    figure, axes = plt.subplots(1, 4, figsize=(11, 2.4), constrained_layout=True)
    for axis, panel in zip(axes, (series, labels, sets, graphs), strict=True):
        panel(axis)
        axis.set(xticks=[], yticks=[])
        axis.spines[:].set_visible(False)
    figure.savefig(file, dpi=110)


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "images" / "overview.png")
