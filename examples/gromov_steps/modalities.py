"""Two views of the same samples without a common feature: matched by inner distances and a few known pairs."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from warpalign.transport import gromov_wasserstein, joint_embedding

from .data import Views

KNOWN = 0.1
WEIGHT = 0.5  # weight of the costs that the known pairs give
EPSILON = 2e-3


class Matched(NamedTuple):
    of: Views
    closer: dict[str, float]
    """Share of samples that are closer to a sample's image than its true match; 0 is perfect, 0.5 is chance."""
    accuracy: float
    """Share of labels that are right after the plan has carried them from the first view to the second."""
    embedding: dict[str, Tensor]
    """(n, 2) of both views"""


def match(of: Views, device: torch.device, seed: int) -> Matched:
    x, y, order = of.first.to(device), of.second.to(device), of.order.to(device)
    tables = [torch.cdist(z, z) for z in (x, y)]
    cx, cy = (table / table.max() for table in tables)
    generator = torch.Generator().manual_seed(seed)
    known = torch.randperm(len(x), generator=generator)[: int(KNOWN * len(x))].to(device)
    # Points that match are as far from both ends of a known pair.
    cost = torch.cdist(cx[:, order[known]], cy[:, known]).square() / len(known)
    closer = {}
    for name, weight in (("no pairs known", 0.0), (f"{KNOWN:.0%} of the pairs known", WEIGHT)):
        result = gromov_wasserstein(
            distances=(cx, cy),
            feature_cost=cost,
            feature_weight=weight,
            epsilon=EPSILON,
            cost_normalization=None,
        )
        closer[name] = _closer(result.plan.barycentric_map(y), y, order)
    plan = result.plan
    shares = plan.transfer_labels(of.label.to(device))
    accuracy = float((shares.argmax(1) == of.label.to(device)[order]).float().mean())
    embedding = joint_embedding({"first": x, "second": y}, {"second": plan}, anchor="first", dim=2)
    return Matched(of, closer, accuracy, {name: z.cpu() for name, z in embedding.items()})


def _closer(images: Tensor, y: Tensor, order: Tensor) -> float:
    """images[i] is where the first view's sample i went; y[j] shows sample order[j]."""
    distances = torch.cdist(images[order], y)
    own = distances.diagonal()[:, None]
    return float((distances < own).float().mean())
