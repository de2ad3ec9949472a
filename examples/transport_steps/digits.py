"""Domain adaptation: upright digits teach a classifier to read turned ones (Courty et al., TPAMI 2017)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from warpalign import SinkhornTransport

from .data import Domains

EPSILON = 0.1  # as a share of the mean cost
Array = NDArray[np.float32]


class Adapted(NamedTuple):
    accuracies: dict[str, float]
    """Accuracy of a nearest-neighbour classifier on the second domain, keyed by its training images."""
    moved: Array
    """(n, 64): source images on their way to the second domain, semi-relaxed."""


def adapt(domains: Domains, device: torch.device) -> Adapted:
    """Accuracies without adaptation, with a balanced plan, and with a semi-relaxed one.

    The domains have their digits in other shares. A balanced plan must then send some digits to others. With rho_a = 0 every
    target image is reached, and how much each source image gives is free.
    """
    source, target = domains.source.numpy(), domains.target.numpy()
    accuracies = {"not adapted": accuracy(domains.source, domains)}
    moved = source
    for name, rho_a in (("balanced", None), ("semi-relaxed", 0.0)):
        model = SinkhornTransport(
            EPSILON, cost_normalization="mean", rho_a=rho_a, out_of_sample="nearest", tol=1e-3, device=device
        )
        moved = model.fit_transform(source, Xt=target)
        accuracies[name] = accuracy(torch.from_numpy(moved), domains)
    return Adapted(accuracies, moved)


def accuracy(train: Tensor, domains: Domains) -> float:
    """Accuracy of the nearest neighbour among source images, moved or not."""
    nearest = torch.cdist(domains.target.double(), train.double()).argmin(1)
    return float((domains.source_digit[nearest] == domains.target_digit).double().mean())
