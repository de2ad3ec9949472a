"""Pairwise soft-DTW in blocks, a nearest-neighbour classification with it, and the search for a repeated motif."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from tqdm import tqdm

import warpalign


@torch.no_grad()
def cdist(x: Tensor, y: Tensor, gamma: float, block: int = 512, label: str = "") -> Tensor:
    """Soft-DTW of every x (n, N, D) against every y (m, M, D): (n, m). At most `block` pairs exist at once."""
    pairs = torch.cartesian_prod(torch.arange(len(x)), torch.arange(len(y))).to(x.device)
    values = []
    with tqdm(total=len(pairs), desc=label, unit="pair", delay=1.0, leave=False) as progress:
        for left, right in (part.unbind(1) for part in pairs.split(block)):
            values.append(warpalign.soft_dtw(x[left], y[right], gamma=gamma))
            progress.update(len(left))
    return torch.cat(values).view(len(x), len(y))


def self_values(x: Tensor, gamma: float) -> Tensor:
    """Soft-DTW of every series with itself: (n,)."""
    with torch.no_grad():
        return warpalign.soft_dtw(x, x, gamma=gamma)


def divergence(x: Tensor, y: Tensor, gamma: float, label: str = "") -> Tensor:
    """s(x, y) - (s(x, x) + s(y, y)) / 2 for all pairs (n, m): non-negative, and zero for equal series."""
    return cdist(x, y, gamma, label=label) - (self_values(x, gamma)[:, None] + self_values(y, gamma)) / 2


@dataclass(frozen=True)
class Classification:
    distances: Tensor  # (tests, trains) on the CPU
    class_means: Tensor  # (classes, classes)
    accuracy: float  # of the nearest neighbour under soft-DTW
    euclidean_accuracy: float  # of the nearest neighbour under the Euclidean distance


def classify(
    train: Tensor, train_class: Tensor, test: Tensor, test_class: Tensor, gamma: float
) -> Classification:
    """Labels every test series with the class of its nearest training series."""
    distances = divergence(test, train, gamma, label="pairwise soft-DTW").cpu()
    euclidean = torch.cdist(test.flatten(1), train.flatten(1)).cpu()

    def accuracy(table: Tensor) -> float:
        return (train_class[table.argmin(1)] == test_class).double().mean().item()

    classes = train_class.unique().tolist()
    means = [[distances[test_class == a][:, train_class == b].mean() for b in classes] for a in classes]
    return Classification(distances, torch.tensor(means), accuracy(distances), accuracy(euclidean))


def closest_windows(pieces: Tensor, gamma: float, apart: int) -> tuple[int, int]:
    """The two most similar windows whose indices differ by at least `apart`."""
    table = divergence(pieces, pieces, gamma, label="motif search").cpu()
    index = torch.arange(len(table))
    table[(index[:, None] - index).abs() < apart] = float("inf")
    return divmod(int(table.argmin()), len(table))
