"""Data that scikit-learn and networkx ship: nothing is downloaded.

* Breast Cancer Wisconsin (Diagnostic), UCI: 569 samples; 10 means of measured numbers and their 10 worst values are two views of each.
* Wine, UCI: 178 samples; the 13 measured numbers in two halves.
* Zachary's karate club (34 members, who later split in two) and the co-appearances in Les Misérables (77 characters).
"""

from __future__ import annotations

from importlib import import_module
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class Views(NamedTuple):
    """Two views of the same samples, the second one in another order."""

    name: str
    first: Tensor
    """(n, d) standardised, float32"""
    second: Tensor
    """(n, e)"""
    order: Tensor
    """(n,): second[j] shows sample order[j]."""
    label: Tensor
    """(n,) of the first view's samples"""


class Network(NamedTuple):
    name: str
    adjacency: Tensor
    """(n, n) of 0 and 1, float32"""
    faction: Tensor | None
    """(n,) of 0 and 1, of the karate club"""


class Curve(NamedTuple):
    """A spiral in the plane and a Swiss roll in space, with n and m points along the same curve."""

    spiral: Tensor
    roll: Tensor


def load_views(seed: int, count: int | None) -> list[Views]:
    """At most `count` samples of each data set."""
    from sklearn import datasets

    cancer, wine = datasets.load_breast_cancer(), datasets.load_wine()
    return [
        _views("breast cancer", cancer.data[:, :10], cancer.data[:, 20:], cancer.target, seed, count),
        _views("wine", wine.data[:, :7], wine.data[:, 7:], wine.target, seed, count),
    ]


def load_networks() -> list[Network]:
    networkx = import_module("networkx")  # torch needs it, too
    club, novel = networkx.karate_club_graph(), networkx.les_miserables_graph()
    factions = torch.tensor([int(club.nodes[node]["club"] == "Officer") for node in club])
    return [
        Network("karate club", _adjacency(networkx.to_numpy_array(club, weight=None)), factions),
        Network("Les Misérables", _adjacency(networkx.to_numpy_array(novel, weight=None)), None),
    ]


def load_curve(n: int, m: int) -> Curve:
    generator = np.random.default_rng(0)
    height = 0.5 * generator.uniform(size=m)
    first, second = _spiral(n, 0), _spiral(m, 1)
    roll = np.stack([second[:, 0], height, second[:, 1]], 1)
    return Curve(torch.from_numpy(first).float(), torch.from_numpy(roll).float())


def _spiral(n: int, seed: int) -> np.ndarray:
    radius, angle = np.linspace(0.3, 1, n), np.linspace(0, 9, n)
    noise = 0.05 * np.random.default_rng(seed).normal(size=(2, n))
    return np.stack([(radius + noise[0]) * np.cos(angle), (radius + noise[1]) * np.sin(angle)], 1)


def _views(
    name: str, first: np.ndarray, second: np.ndarray, label: np.ndarray, seed: int, count: int | None
) -> Views:
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(len(first), generator=generator)[:count].numpy()
    first, second, label = first[chosen], second[chosen], label[chosen]
    order = torch.randperm(len(first), generator=generator)
    parts = [torch.from_numpy((x - x.mean(0)) / x.std(0)).float() for x in (first, second)]
    return Views(name, parts[0], parts[1][order], order, torch.from_numpy(label))


def _adjacency(array: np.ndarray) -> Tensor:
    return torch.from_numpy((array > 0).astype(np.float32))
