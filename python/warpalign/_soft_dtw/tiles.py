"""Tiles of a table of all pairs: sorted series, cut so that a tile's pairs are of similar lengths."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from warpalign._core.series import Taken
from warpalign._soft_dtw.settings import pairs_at_once


class Tile(NamedTuple):
    """Rows and columns of the result, as places in the orders by length."""

    rows: slice
    columns: slice
    is_triangle: bool  # on the diagonal of a symmetric result, where only one half is computed
    work: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows.stop - self.rows.start, self.columns.stop - self.columns.start

    @property
    def pairs(self) -> int:
        height, width = self.shape
        return height * (height + 1) // 2 if self.is_triangle else height * width


class Side(NamedTuple):
    """One set of series on one device, the longest first."""

    values: Tensor
    """(n, N, D)"""
    lengths: Tensor | None
    """(n,), on the device; None: all are N long."""
    mask: Tensor | None
    """(n, N), on the device; None: no time step is missing."""
    longest: list[int]
    """(n,): the length of each, on the host."""

    def part(self, places: slice) -> Taken:
        """Some of the series, no longer than the longest of them."""
        longest = self.longest[places.start]
        return Taken(
            self.values[places, :longest],
            None if self.lengths is None else self.lengths[places],
            None if self.mask is None else self.mask[places, :longest],
        )


def pairs_of(tile: Tile, left: Side, right: Side) -> tuple[Taken, Taken]:
    """x and y of a tile's pairs, row by row of the tile."""
    height, width = tile.shape
    if tile.is_triangle:
        indices = torch.triu_indices(height, width, device=left.values.device)
        part = left.part(tile.rows)
        x, y = (Taken(*(None if t is None else t[index] for t in part)) for index in indices)  # type: ignore[arg-type]
        return x, y
    rows, columns = left.part(tile.rows), right.part(tile.columns)
    return (
        Taken(*(None if t is None else t.repeat_interleave(width, 0) for t in rows)),  # type: ignore[arg-type]
        Taken(*(None if t is None else t.repeat(height, *(1,) * (t.dim() - 1)) for t in columns)),  # type: ignore[arg-type]
    )


def default_block_size(x: Tensor, y_size: int, *, needs_grad: bool) -> int:
    """Pairs of series like those of x (n, N, D) with series of y_size time steps that are computed at once."""
    _, x_size, features = x.shape
    return pairs_at_once(x_size, y_size, features * (2 if needs_grad else 1), x.element_size())


def tiles_of(x_lengths: Tensor, y_lengths: Tensor | None, block_size: int) -> list[Tile]:
    """Tiles of sorted series, as square as the result allows: neighbours in the order are of similar length."""
    n = len(x_lengths)
    m = n if y_lengths is None else len(y_lengths)
    height = min(n, math.isqrt(block_size))
    width = height if y_lengths is None else min(m, block_size // max(1, height))
    if y_lengths is not None:
        height = min(n, block_size // max(1, width))
    # Sums of the lengths before each place, so that a tile's work is a product of two differences.
    x_sums = [0, *x_lengths.cumsum(0).tolist()]
    y_sums = x_sums if y_lengths is None else [0, *y_lengths.cumsum(0).tolist()]
    tiles = []
    for i in range(0, n, max(1, height)):
        for j in range(i if y_lengths is None else 0, m, max(1, width)):
            rows, columns = slice(i, min(n, i + height)), slice(j, min(m, j + width))
            work = (x_sums[rows.stop] - x_sums[i]) * (y_sums[columns.stop] - y_sums[j])
            is_triangle = y_lengths is None and i == j
            tiles.append(Tile(rows, columns, is_triangle, work // 2 if is_triangle else work))
    return tiles


def shared_out(tiles: list[Tile], workers: int) -> list[list[Tile]]:
    """The largest tile first, each to the worker that has least."""
    shares: list[list[Tile]] = [[] for _ in range(workers)]
    loads = [0] * workers
    for tile in sorted(tiles, key=lambda tile: -tile.work):
        worker = loads.index(min(loads))
        shares[worker].append(tile)
        loads[worker] += tile.work
    return shares
