"""Data that scikit-learn ships: nothing is downloaded.

* china.jpg and flower.jpg: two photographs of 427 x 640 pixels (CC BY, see scikit-learn's description of them).
* The digits of the UCI data set "Optical Recognition of Handwritten Digits" (test part): 1797 images of 8 x 8 pixels.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

TURN_DEGREES = 25.0
RARE = (7, 8, 9)  # classes of which the second domain has a fifth


class Domains(NamedTuple):
    """Images (n, 64) in [0, 1], float32, and their digits (n,)."""

    source: Tensor
    source_digit: Tensor
    target: Tensor
    target_digit: Tensor


def load_photograph(name: str, shrink: int) -> Tensor:
    """(rows, columns, 3) in [0, 1], every `shrink`-th row and column."""
    from sklearn.datasets import load_sample_image

    pixels = np.array(load_sample_image(name)[::shrink, ::shrink])
    return torch.from_numpy(pixels).float() / 255


def load_digits(count: int | None, seed: int) -> Domains:
    """Upright digits, and other ones that are turned, with some classes thinned: at most `count` of each."""
    images, labels = _digits()
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(images), generator=generator)
    first, second = order[: len(order) // 2], order[len(order) // 2 :]
    rare = torch.isin(labels[second], torch.tensor(RARE))
    kept = ~rare | (torch.rand(len(second), generator=generator) < 0.2)
    first, second = first[:count], second[kept][:count]
    return Domains(images[first].flatten(1), labels[first], turned(images[second]).flatten(1), labels[second])


def turned(images: Tensor) -> Tensor:
    """Images (n, 8, 8), turned about their centres."""
    angle = math.radians(TURN_DEGREES)
    rows = [[math.cos(angle), -math.sin(angle), 0.0], [math.sin(angle), math.cos(angle), 0.0]]
    grid = functional.affine_grid(
        torch.tensor([rows]).expand(len(images), 2, 3), [len(images), 1, 8, 8], align_corners=False
    )
    return functional.grid_sample(images[:, None], grid, align_corners=False)[:, 0]


def digit_points(digit: int, count: int) -> Tensor:
    """(count, 2) points in the unit square, spread like the ink of the data set's first image of a digit."""
    images, labels = _digits()
    image = images[labels == digit][0].T.flip(1)  # columns from left to right, rows from the bottom up
    generator = torch.Generator().manual_seed(digit)
    cells = torch.multinomial(image.flatten(), count, replacement=True, generator=generator)
    corner = torch.stack([cells // 8, cells % 8], 1)
    return (corner + torch.rand(count, 2, generator=generator)) / 8


def _digits() -> tuple[Tensor, Tensor]:
    from sklearn import datasets

    found = datasets.load_digits()
    return torch.from_numpy(found.images).float() / 16, torch.from_numpy(found.target)
