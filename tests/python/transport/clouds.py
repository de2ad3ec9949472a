"""Clouds of points on spirals, on which Gromov-Wasserstein transport is tested."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from tests.python.helpers import Array


def _spiral(n: int, rng: np.random.Generator) -> tuple[Array, Array]:
    radius, angle = np.linspace(0.3, 1, n), np.linspace(0, 9, n)
    noise = rng.normal(size=(2, n)) * 0.05
    return (radius + noise[0]) * np.cos(angle), (radius + noise[1]) * np.sin(angle)


def spiral(n: int, seed: int) -> Tensor:
    """(n, 2) float32 along a spiral, in the order of the angle."""
    return torch.from_numpy(np.stack(_spiral(n, np.random.default_rng(seed)), 1).astype(np.float32))


def swiss_roll(n: int, seed: int) -> Tensor:
    """(n, 3) float32: the spiral with a height."""
    rng = np.random.default_rng(seed)
    x, y = _spiral(n, rng)
    return torch.from_numpy(np.stack([x, rng.uniform(size=n), y], 1).astype(np.float32))


def clusters(count: int, points: int, dim: int) -> Tensor:
    """(count · points, dim) float32 in clusters far from each other."""
    rng = np.random.default_rng(3)
    parts = [0.3 * rng.normal(size=(points, dim)) + 3 * rng.normal(size=dim) for _ in range(count)]
    return torch.from_numpy(np.concatenate(parts).astype(np.float32))
