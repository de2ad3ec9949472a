"""k-means on some of the points, as a start of low-rank transport."""

from __future__ import annotations

import torch
from torch import Tensor

_POINTS_PER_CLUSTER = 64
_ROUNDS = 15


@torch.no_grad()
def cluster_centers(points: Tensor, weights: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """(B, count, D) centres of k-means with k-means++ seeds; no host waits for the device.

    Sources: Arthur & Vassilvitskii, "k-means++", SODA 2007; Lloyd, IEEE Trans. Inf. Theory 1982.

    Args:
        points: (B, N, D). Beyond 64 points a cluster, so many are drawn, by their weights.
        weights: (B, N)
        generator: on the CPU.
    """
    size = _POINTS_PER_CLUSTER * count
    if points.shape[1] > size:
        places = _draw(weights, size, generator)
        points = points.gather(1, places[:, :, None].expand(-1, -1, points.shape[2]))
        weights = torch.ones_like(points[:, :, 0])
    centers = _seeds(points, weights, count, generator)
    for _ in range(_ROUNDS):
        members = assigned(points, centers)
        ones = torch.nn.functional.one_hot(members, count).to(points) * weights[:, :, None]
        masses = ones.sum(1)[:, :, None]
        centers = torch.where(masses > 0, (ones.mT @ points) / masses.where(masses > 0, 1.0), centers)
    return centers


def assigned(points: Tensor, centers: Tensor) -> Tensor:
    """(B, N) int64: the centre nearest to each point."""
    return (centers.square().sum(-1)[:, None, :] - 2 * points @ centers.mT).argmin(-1)


def _seeds(points: Tensor, weights: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """(B, count, D): points drawn one after the other, by weight and squared distance from those before."""
    chosen: list[Tensor] = []
    chances = weights
    distance: Tensor | None = None
    for _ in range(count):
        place = _draw(chances, 1, generator)
        seed = points.gather(1, place[:, :, None].expand(-1, -1, points.shape[2]))
        chosen.append(seed)
        apart = (points - seed).square().sum(-1)
        distance = apart if distance is None else torch.minimum(distance, apart)
        chances = weights * distance
        # Where every point with weight is a seed already.
        chances = chances.where(chances.sum(-1, keepdim=True) > 0, weights)
    return torch.cat(chosen, 1)


def _draw(chances: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """(B, count) int64 places, by chances (B, N)."""
    draws = torch.rand(chances.shape[0], count, generator=generator, dtype=torch.float64)
    sums = chances.double().cumsum(-1)
    found = torch.searchsorted(sums, draws.to(sums.device) * sums[:, -1:], right=True)
    return found.clamp(max=chances.shape[1] - 1)
