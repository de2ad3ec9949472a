"""Pairwise soft-DTW in blocks, nearest-neighbour classification with it, and the search for a motif."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from tqdm import tqdm

import warpalign


def cdist(x: Tensor, y: Tensor, gamma: float, block: int = 512, label: str = "") -> Tensor:
    """Soft-DTW of every x (n, N, D) against every y (m, M, D): (n, m), at most `block` pairs at once."""
    pairs = torch.cartesian_prod(torch.arange(len(x)), torch.arange(len(y))).to(x.device)
    return soft_dtw_of_pairs(x, y, pairs, gamma, block, label).view(len(x), len(y))


@torch.no_grad()
def soft_dtw_of_pairs(x: Tensor, y: Tensor, pairs: Tensor, gamma: float, block: int, label: str) -> Tensor:
    """Soft-DTW of x[i] against y[j] for every row (i, j) of pairs (count, 2): (count,)."""
    values = []
    with tqdm(total=len(pairs), desc=label, unit="pair", delay=1.0, leave=False, disable=None) as progress:
        for left, right in (part.unbind(1) for part in pairs.split(block)):
            values.append(warpalign.soft_dtw(x[left], y[right], gamma=gamma))
            progress.update(len(left))
    return torch.cat(values)


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
    """The two most similar windows, by soft-DTW divergence, whose indices differ by at least `apart`."""
    pairs = torch.triu_indices(len(pieces), len(pieces), offset=apart, device=pieces.device).T
    own = self_values(pieces, gamma)
    values = soft_dtw_of_pairs(pieces, pieces, pairs, gamma, 512, "motif search") - own[pairs].mean(1)
    first, second = pairs[values.argmin()].tolist()
    return first, second
