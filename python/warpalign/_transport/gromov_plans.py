"""What sampled Gromov-Wasserstein transport draws anchors from: sets of points, and plans that are not stored."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from warpalign._transport import anchor_ops, plan_ops
from warpalign._transport.costs import positive
from warpalign._transport.settings import Inputs, Settings, as_keywords

_FIRST_ROWS = 500  # points whose distances give a set's extent
_ROWS_AT_ONCE = 80
_EXTENT_ENTRIES = 1 << 20  # distances that are made at once for a small set's extent
MEDIUM = 2  # the place in `Precision`


class Extent(NamedTuple):
    """How large the distances of a set are."""

    largest: Tensor
    """0-d"""
    mean: Tensor
    """0-d"""
    squares: Tensor
    """(N,): the mean squared distance to each point."""


class PointSet(NamedTuple):
    """One set, whose intra-domain distances are computed when they are needed."""

    distances: Callable[[Tensor], Tensor]
    """(S,) places -> (N, S): from them to all points"""
    between: Callable[[Tensor, Tensor], Tensor]
    """(S,) and (T,) places -> (S, T): the distances between them"""
    size: int
    like: Tensor
    """A tensor with the dtype and device of the distances."""
    points: Tensor | None = None
    """(N, D), contiguous, where a kernel makes distances of them; they have `kernel` as its number."""
    kernel: int = 0

    def coordinates(self, places: Tensor, unit: Tensor) -> Tensor:
        """(N, S): distances to the places in the unit (1,), less 1/2, rounded to binary16."""
        assert self.points is not None
        found: Tensor = anchor_ops.coordinates(self.points, places, unit, self.kernel)
        return found

    def apart(self, places: Tensor, others: Tensor, unit: Tensor) -> Tensor:
        """(S, T): the distances between (S,) and (T,) places in the unit (1,), up to rounding to 11 bits."""
        if self.points is None:
            return self.between(places, others).div_(unit)
        points = self.points[torch.cat([places, others])]
        anchors = torch.arange(places.numel(), points.shape[0], device=points.device)
        found: Tensor = anchor_ops.coordinates(points, anchors, unit, self.kernel)
        return found[: places.numel()].add_(0.5)

    def extent(self, generator: torch.Generator) -> Extent:
        """By at most 500 points, drawn without repetition."""
        places = torch.randperm(self.size, generator=generator)[:_FIRST_ROWS].to(self.like.device)
        squares = self.like.new_zeros(self.size)
        largest: list[Tensor] = []
        total = torch.zeros((), dtype=torch.float64, device=self.like.device)
        # A metric's distances are at most twice the largest one from any point; squared distances at most four times.
        most = positive(4 * self.distances(places[:1]).amax()).reshape(1)
        for some in places.split(max(_ROWS_AT_ONCE, _EXTENT_ENTRIES // self.size)):
            if self.points is None:
                part = self.distances(some)
            else:
                part = (self.coordinates(some, most) + 0.5) * most
            largest.append(part.amax())
            total += part.sum(dtype=torch.float64)
            squares += part.square().sum(1)
        count = places.numel()
        mean = (total / (count * self.size)).to(squares.dtype)
        return Extent(torch.stack(largest).amax(), mean, squares / count)


class Gibbs(NamedTuple):
    """A plan: its problem with the potentials, which ended with an update of the rows, and the problem's settings."""

    of: Inputs
    settings: Settings

    def mass(self) -> float | Tensor:
        """The plan's total mass, as the last updates of the potentials leave it."""
        s, of = self.settings, self.of
        if s.mass > 0:
            return s.mass
        if s.rho_a > 0:
            return 1.0 if of.a is None and math.isinf(s.rho_a) else self.row_sums().sum()
        # Row potentials are 0, and have been when the columns were updated.
        return 1.0 if of.b is None and math.isinf(s.rho_b) else self._updated(of.b, of.g0, s.rho_b, 1).sum()

    def row_sums(self) -> Tensor:
        """(N,)"""
        s, of = self.settings, self.of
        if s.mass > 0 or s.rho_a == 0:
            ones = of.first.new_ones(1, of.sizes[1], 1)
            sums: Tensor = plan_ops.product(*of, ones, False, **as_keywords(s._replace(mass=0.0)))
            return sums.reshape(-1)
        return self._updated(of.a, of.f0, s.rho_a, 0)

    def _updated(self, weights: Tensor | None, potential: Tensor | None, rho: float, side: int) -> Tensor:
        """The sums that an update leaves behind: weight exp(−potential / rho)."""
        assert potential is not None
        given = potential.new_full((), 1 / self.of.sizes[side]) if weights is None else weights[0]
        return (given if math.isinf(rho) else given * (-potential[0] / rho).exp()).expand(self.of.sizes[side])

    def shares(self, rows: Tensor) -> Tensor:
        """(S, M): the plan's rows at these places, each divided by its sum."""
        of, s = self.of, self.settings
        assert of.g0 is not None
        if of.cost is not None:
            cost = of.cost[0, rows]
        else:
            assert of.x is not None and of.y is not None
            cost = of.y[0].square().sum(1) - 2 * (of.x[0, rows] @ of.y[0].T)
        logits = (of.g0 - s.cost_scale * cost) / s.epsilon
        if of.b is not None:
            logits += of.b.log()
        return logits.softmax(1)

    @property
    def is_rounded(self) -> bool:
        """Whether kernels for points of few coordinates work on it."""
        return self.settings.precision == MEDIUM and self.of.x is not None

    def columns(self, rows: Tensor, seed: int) -> Tensor:
        """(S,) int64: one for each row, drawn by the plan's entries there, where is_rounded."""
        (x, y, g, *rest), b = self.drawn_from(), self.of.b
        found: Tensor = anchor_ops.columns(x, y, g, None if b is None else b[0], rows, *rest, seed)
        return found

    def drawn_from(self) -> tuple[Tensor, Tensor, Tensor, float, float]:
        """What columns are drawn by, where is_rounded: x, y, g, the factor of costs, and epsilon."""
        of, s = self.of, self.settings
        assert of.x is not None and of.y is not None and of.g0 is not None
        return of.x[0], of.y[0], of.g0[0], s.cost_scale, s.epsilon

    def pairs(self, count: int, generator: torch.Generator, *, spread: bool = False) -> Tensor:
        """(count, 2) int64: pairs, drawn by their mass; independent ones, or spread over the rows.

        A plan without mass, of NaN for instance, has no pairs: any ones are drawn.
        """
        if self.is_rounded:
            rows, seed = rows_by_sums(self.row_sums(), count, generator, spread), drawn_seed(generator)
            return torch.stack([rows, self.columns(rows, seed)], 1)
        return _drawn(self.row_sums(), self.shares, count, generator, spread)


class Start(NamedTuple):
    """A plan to start from, which is no Gibbs kernel of this descent."""

    drawn: Callable[[int, torch.Generator], Tensor]
    """(count, generator) -> (count, 2) int64 pairs"""
    total: Callable[[], Tensor]

    def mass(self) -> Tensor:
        return self.total()

    def pairs(self, count: int, generator: torch.Generator, *, spread: bool = False) -> Tensor:
        return self.drawn(count, generator).clamp(min=0)


def pairs_of_table(table: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """(count, 2) int64: independent pairs (i, j), drawn with probability table[i, j] / sum."""
    return _drawn(table.sum(1, dtype=torch.float64), lambda rows: table[rows], count, generator, False)


def pairs_of_product(a: Tensor, b: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """(count, 2) int64: pairs of independent rows and columns, drawn by weights (N,) and (M,)."""
    return torch.stack([rows_by_sums(weights, count, generator, False) for weights in (a, b)], 1)


def _drawn(
    sums: Tensor,
    shares: Callable[[Tensor], Tensor],
    count: int,
    generator: torch.Generator,
    spread: bool,
) -> Tensor:
    """(count, 2) int64 pairs by inversion in float64, of random numbers from a CPU: the same ones on every device.

    Args:
        spread: one row from each of `count` equal parts of the mass, which lowers the variance (stratified sampling).
    """
    rows = rows_by_sums(sums, count, generator, spread)
    of_columns = torch.rand(count, 1, generator=generator, dtype=torch.float64).to(sums.device)
    columns: list[Tensor] = []
    for some, levels in zip(rows.split(_ROWS_AT_ONCE), of_columns.split(_ROWS_AT_ONCE), strict=True):
        along = torch.nan_to_num(shares(some)).cumsum(1, dtype=torch.float64)
        found = torch.searchsorted(along, levels * along[:, -1:], right=True)[:, 0]
        columns.append(found.clamp_(max=along.shape[1] - 1))
    return torch.stack([rows, torch.cat(columns)], 1)


def rows_by_sums(sums: Tensor, count: int, generator: torch.Generator, spread: bool) -> Tensor:
    """(count,) int64: rows, drawn by their sums."""
    levels = torch.rand(count, generator=generator, dtype=torch.float64)
    if spread:
        levels = (levels + torch.arange(count)) / count
    running = torch.nan_to_num(sums.double()).cumsum(0)
    rows = torch.searchsorted(running, levels.to(sums.device) * running[-1], right=True)
    return rows.clamp_(max=sums.shape[0] - 1)


def drawn_seed(generator: torch.Generator) -> int:
    return int(torch.randint(2**62, (), generator=generator))
