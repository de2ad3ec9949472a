"""A point cloud flows into another: gradient descent on the Sinkhorn divergence (Feydy et al., AISTATS 2019)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from warpalign.transport import SinkhornDivergence

EPSILON = 0.002  # of squared distances in the unit square
RATE = 0.2  # the share of its way that a point goes in a step


class Frames(NamedTuple):
    points: list[Tensor]
    """(n, 2) on the CPU, the start first."""
    target: Tensor
    divergences: list[float]


def flow(start: Tensor, target: Tensor, frames: int, steps: int, device: torch.device) -> Frames:
    """The start and what it has become after each `steps` steps."""
    loss = SinkhornDivergence(EPSILON, annealing=0.5, max_iter=200)
    points, goal = start.to(device, copy=True).requires_grad_(), target.to(device)
    shown, divergences = [start], [loss(points, goal).item()]
    for _ in range(frames - 1):
        for _ in range(steps):
            (gradient,) = torch.autograd.grad(loss(points, goal), points)
            with torch.no_grad():
                points -= (
                    RATE / 2 * len(points) * gradient
                )  # a point's weight is 1 / n, and d|x - y|² is 2 (x - y)
        shown.append(points.detach().cpu().clone())
        divergences.append(loss(points, goal).item())
    return Frames(shown, target, divergences)
