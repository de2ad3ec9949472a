"""Fewer iterations to a fixed point."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from warpalign._core.replay import Replayed, can_capture

_MEMORY = 10  # differences of steps that are mixed
_REGULARISATION = 1e-14
_FARTHEST = 20  # times the path's own length: mixing leads no farther

Map = Callable[[Tensor], tuple[Tensor, tuple[Tensor, ...]]]
"""From a point (1, N) to its image, and to what else is to be kept of it."""


class _Path(NamedTuple):
    """What a round begins with."""

    point: Tensor
    """(1, N): what is mapped."""
    image: Tensor
    """(1, N): that of the point before,"""
    move: Tensor
    """(1, N): and its difference to that point."""
    changes: Tensor
    """(_MEMORY, N) float64: differences of images, the newest in the place of the oldest,"""
    turns: Tensor
    """and of moves, of which"""
    products: Tensor
    """(_MEMORY, _MEMORY) are the products."""
    images: Tensor
    """(_MEMORY + 1, N): the newest in the place of the oldest."""
    rounds: Tensor
    """(1,) int64: how many there have been."""
    results: tuple[Tensor, ...]
    """What else the map has found."""


class Mixing:
    """Anderson's mixing: the next point is the mean of the last images, with weights of sum 1, that would move least.

    The host reads one number in each round. On a GPU rounds can be replayed from a CUDA graph.

    Sources: Anderson, "Iterative procedures for nonlinear integral equations", J. ACM 1965; Walker & Ni, "Anderson
    acceleration for fixed-point iterations", SIAM J. Numer. Anal. 2011.

    Args:
        point: (1, N), the first one.
        mixes: False: the next point is the last image.
    """

    moved: float
    """The largest difference between the last point and its image."""

    def __init__(self, point: Tensor, mixes: bool = True) -> None:
        n, dtype = point.shape[1], torch.float64
        self._path = _Path(
            point=point,
            image=point,
            move=torch.zeros_like(point),
            changes=point.new_zeros(_MEMORY, n, dtype=dtype),
            turns=point.new_zeros(_MEMORY, n, dtype=dtype),
            products=point.new_zeros(_MEMORY, _MEMORY, dtype=dtype),
            images=point.new_zeros(_MEMORY + 1, n),
            rounds=torch.zeros(1, dtype=torch.int64, device=point.device),
            results=(),
        )
        self._mixes = mixes
        self._launched = False
        self._graph: Replayed | None = None

    @property
    def found(self) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The last image, and what else the map has found."""
        return self._path.image, self._path.results

    def next(self, of: Map, replays: bool = False) -> None:
        """A round. replays: whether its map is that of the round before, and may be captured."""
        run = partial(_round, of, self._mixes)
        if replays and self._launched and can_capture(self._path.point.device):
            if self._graph is None or not self._graph.is_last:
                self._graph = Replayed(run, self._path, self._path.point.device)
                self._path = self._graph.state
            moved = self._graph()
        else:
            self._path, moved = run(self._path)
            self._launched, self._graph = True, None  # a graph would go on from where it was
        self.moved = float(moved)


def _round(of: Map, mixes: bool, path: _Path) -> tuple[_Path, Tensor]:
    """What the next round begins with, and the largest entry of the move."""
    image, results = of(path.point)
    move = image - path.point
    point = _mixed(path, image, move) if mixes else image
    return path._replace(point=point, image=image, move=move, results=results), move.abs().amax()


def _mixed(path: _Path, image: Tensor, move: Tensor) -> Tensor:
    """The next point. Notes the image and the move."""
    before = path.rounds.clone()
    path.rounds.add_(1)
    path.images.index_copy_(0, before % (_MEMORY + 1), image)
    oldest = path.images.index_select(0, (before - _MEMORY).clamp(min=0) % (_MEMORY + 1))
    # The first image has no difference: its place is written to again before it is looked at.
    place = (before - 1) % _MEMORY
    turn = (move - path.move).double()
    path.changes.index_copy_(0, place, (image - path.image).double())
    path.turns.index_copy_(0, place, turn)
    of_turns = (path.turns * turn).sum(1)
    path.products.index_copy_(0, place, of_turns[None]).index_copy_(1, place, of_turns[:, None])

    exists = torch.arange(_MEMORY, device=image.device) < before
    system = path.products * (exists & exists[:, None])
    # Moves that differ by rounding alone, as those of potentials that grow without end do, have no limit to be found.
    rounding = image.shape[1] * (torch.finfo(image.dtype).eps * image.abs().amax().double()).square()
    least = _REGULARISATION * system.diagonal().sum() + rounding
    system.diagonal().copy_(system.diagonal() + torch.where(exists, least, 1.0))
    factor, failed = torch.linalg.cholesky_ex(system)
    of_move = (path.turns * move).sum(1) * exists
    weights = torch.cholesky_solve(of_move[:, None], factor)[:, 0]
    change = (weights @ path.changes)[None].to(image.dtype)
    path_length = torch.linalg.vector_norm(image - oldest, torch.inf)
    near = torch.linalg.vector_norm(change, torch.inf) <= _FARTHEST * path_length
    return torch.where(near & (failed == 0), image - change, image)
