"""Costs of pairs as a table, and how large they are, found block by block without storing the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

import torch
from torch import Tensor

from warpalign._core.costs import COSTS, CostFunction, check_costs
from warpalign._core.transforms import no_autocast
from warpalign._transport.settings import DistanceNormalization as DistanceNormalization

CostNormalization = Literal["max", "mean"]
"""Costs are divided by the largest or the mean of their problem."""
# Costs that are so many times larger where the points are: by this power of the factor.
DEGREES = {"sqeuclidean": 2, "euclidean": 1, "l1": 1}
_MOST_ENTRIES = 1 << 22  # a block of rows has no more


@no_autocast()
def pair_costs(kind: int | CostFunction, x: Tensor, y: Tensor) -> Tensor:
    """(B, N, M) costs of points (B, N, D) and (B, M, D), by the number of a cost or the caller's function."""
    if not isinstance(kind, int):
        return check_costs(kind(x, y), x, y)
    name = COSTS[kind]
    if name == "cosine":
        x, y = (z / z.norm(dim=-1, keepdim=True).clamp_min(torch.finfo(z.dtype).tiny) for z in (x, y))
        return 1 - x @ y.mT
    if name == "huber":
        size = (x[:, :, None] - y[:, None]).abs()
        inner = size.clamp(max=1)
        return (inner * (size - inner / 2)).sum(-1)
    distance = torch.cdist(x, y, p=1.0 if name == "l1" else 2.0, compute_mode="donot_use_mm_for_euclid_dist")
    return distance.square() if name == "sqeuclidean" else distance


@no_autocast()
@torch.no_grad()
def stored_costs(kind: int, x: Tensor, y: Tensor) -> Tensor:
    """(B, N, M) costs of points in one tensor, made a block of rows at a time.

    Of float32 points, "sqeuclidean", "euclidean" and "cosine" come from products in float64 and are rounded once. For the first two,
    points are taken relative to their median, so that the digits of a common offset are not lost.
    """
    name, (batch, n, dim) = COSTS[kind], x.shape
    costs = x.new_empty(batch, n, y.shape[1])
    if x.dtype == torch.float32 and name in ("sqeuclidean", "euclidean", "cosine"):
        x, y = x.double(), y.double()
        if name != "cosine":
            origin = y.nanmedian(1, keepdim=True).values.nan_to_num(0.0, 0.0, 0.0)
            (x, x_squares), (y, y_squares) = (_squares(z - origin) for z in (x, y))
            for rows in row_blocks(batch, n, y.shape[1]):
                of_pairs = torch.baddbmm(y_squares.mT, x[:, rows], y.mT, alpha=-2)
                of_pairs.add_(x_squares[:, rows]).clamp_(min=0)
                costs[:, rows] = of_pairs if name == "sqeuclidean" else of_pairs.sqrt_()
            return costs
    width = dim if name == "huber" else 1  # which makes differences of all features
    for rows in row_blocks(batch, n, y.shape[1] * width):
        costs[:, rows] = pair_costs(kind, x[:, rows], y)
    return costs


def _squares(points: Tensor) -> tuple[Tensor, Tensor]:
    """Points (B, N, D) and their squared lengths (B, N, 1). Points that are not finite become 0, and their lengths infinite or NaN."""
    largest = points.abs().amax(-1, keepdim=True)
    points = points.masked_fill(~largest.isfinite(), 0.0)
    return points, points.square().sum(-1, keepdim=True) + largest.masked_fill(largest.isfinite(), 0.0)


def size_of_costs(
    normalization: CostNormalization,
    block: Callable[[slice], Tensor],
    sizes: tuple[int, int, int],
    lengths: tuple[Tensor | None, Tensor | None],
) -> Tensor:
    """(B,): the largest or the mean finite cost of every problem, 1 where that is 0. No gradient.

    Args:
        block: gives the costs (B, rows, M) of some rows.
        sizes: (B, N, M)
        lengths: padding is ignored.
    """
    largest, mean = largest_and_mean(block, sizes, lengths)
    return positive(largest if normalization == "max" else mean)


@torch.no_grad()
def largest_and_mean(
    block: Callable[[slice], Tensor],
    sizes: tuple[int, int, int],
    lengths: tuple[Tensor | None, Tensor | None],
) -> tuple[Tensor, Tensor]:
    """(B,) and (B,): the largest and the mean finite cost of every problem, by the arguments of size_of_costs()."""
    largest: list[Tensor] = []
    sums: list[Tensor] = []
    counts: list[Tensor] = []
    for rows in row_blocks(*sizes):
        cost = block(rows).detach()
        counted = cost.isfinite() & _existing(rows, cost, lengths)
        largest.append(cost.masked_fill(~counted, 0.0).amax((1, 2)))
        sums.append(cost.masked_fill(~counted, 0.0).sum((1, 2), dtype=torch.float64))
        counts.append(counted.sum((1, 2)))
    mean = torch.stack(sums).sum(0) / torch.stack(counts).sum(0).clamp(min=1)
    return torch.stack(largest).amax(0), mean.to(largest[0].dtype)


def positive(size: Tensor) -> Tensor:
    """Divisors of costs: 1 in place of 0, where all costs are 0."""
    return size.where(size > 0, 1.0)


def sizes_of_sides(
    normalization: DistanceNormalization | None, largest: tuple[Tensor, Tensor], mean: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor]:
    """What both sides' distances are divided by, from the largest and the mean distance of each side, all of one shape."""
    if normalization is None:
        return torch.ones_like(largest[0]), torch.ones_like(largest[1])
    if normalization == "common":
        both = positive(torch.maximum(*largest))
        return both, both
    of_x, of_y = largest if normalization == "max" else mean
    return positive(of_x), positive(of_y)


def row_blocks(batch: int, n: int, m: int) -> Iterator[slice]:
    """The rows of (batch, n, m) tables, in blocks that memory has room for."""
    step = max(_MOST_ENTRIES // max(batch * m, 1), 1)
    for first in range(0, n, step):
        yield slice(first, min(first + step, n))


def _existing(rows: slice, cost: Tensor, lengths: tuple[Tensor | None, Tensor | None]) -> Tensor:
    n, m = lengths
    exists = torch.ones((), dtype=torch.bool, device=cost.device)
    if n is not None:
        places = torch.arange(rows.start, rows.stop, device=cost.device)
        exists = exists & (places < n[:, None])[:, :, None]
    if m is not None:
        exists = exists & (torch.arange(cost.shape[2], device=cost.device) < m[:, None])[:, None, :]
    return exists
