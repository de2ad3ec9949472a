"""Fewer iterations to a fixed point."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from warpalign._core.replay import Replayed, can_capture

_MEMORY = 10  # differences of steps that are mixed
_REGULARISATION = 1e-14
_FARTHEST = 20  # times the path's own length: mixing leads no farther


class _System:
    """The system of a few unknowns that says how images are mixed, on the CPU."""

    moved: float
    """The largest difference between the last point and its image."""

    def __init__(self) -> None:
        self._places = 0  # how many differences there have been
        self._products = torch.zeros(_MEMORY, _MEMORY, dtype=torch.float64)

    @property
    def place(self) -> int:
        """That of the next difference."""
        return self._places % _MEMORY

    def weights(self, numbers: Tensor, length: int, eps: float) -> tuple[Tensor | None, float]:
        """The weights of the differences so far, and the path's length.

        Args:
            numbers: products of the changes of moves with the newest of them and with the move; the largest entries of the move, of
                the image, and of the path.
            length: of a point; eps: of its dtype.
        """
        place = self.place
        self._places += 1
        of_turns, of_move = numbers[: 2 * _MEMORY].view(_MEMORY, 2).unbind(1)
        self._products[place] = self._products[:, place] = of_turns
        self.moved, largest, path = numbers[2 * _MEMORY :].tolist()
        # Moves that differ by rounding alone, as those of potentials that grow without end do, have no limit to be found.
        rounding = length * (eps * largest) ** 2
        least = float(self._products.diagonal().sum()) * _REGULARISATION + rounding
        count = min(self._places, _MEMORY)
        system = self._products[:count, :count].clone()
        system.diagonal().add_(least)
        weights, failed = torch.linalg.solve_ex(system, of_move[:count])
        return (None if int(failed) or not math.isfinite(float(weights.sum())) else weights), path


class Mixing:
    """Anderson's mixing: the next point is the mean of the last images, with weights of sum 1, that would move least.

    Products of long vectors are made on their device. The system of a few unknowns is solved on the CPU, which reads its
    numbers once for each point.

    Sources: Anderson, "Iterative procedures for nonlinear integral equations", J. ACM 1965; Walker & Ni, "Anderson
    acceleration for fixed-point iterations", SIAM J. Numer. Anal. 2011.
    """

    moved: float
    """The largest difference between the last point and its image."""

    def __init__(self) -> None:
        self._images: list[Tensor] = []
        self._move: Tensor | None = None
        self._system = _System()

    def next(self, point: Tensor, image: Tensor) -> Tensor:
        """(1, N): where to go on, behind a point (1, N) and its image."""
        move = image - point
        self._images = [*self._images, image][-_MEMORY - 1 :]
        if self._move is None:
            self._changes = image.new_zeros(_MEMORY, image.shape[1], dtype=torch.float64)
            self._turns = torch.zeros_like(self._changes)
            self._move, self.moved = move, float(move.abs().amax())
            return image
        place = self._system.place
        torch.sub(image, self._images[-2], out=self._changes[place : place + 1])
        torch.sub(move, self._move, out=self._turns[place : place + 1])
        self._move = move
        numbers = _numbers(self._turns, self._turns[place : place + 1], move, image, self._images[0]).cpu()
        weights, path = self._system.weights(numbers, move.shape[1], torch.finfo(image.dtype).eps)
        self.moved = self._system.moved
        if weights is None:
            return image
        change = (weights.to(image.device) @ self._changes[: len(weights)])[None].to(image.dtype)
        near = torch.linalg.vector_norm(change, torch.inf) <= _FARTHEST * path
        return torch.where(near, image - change, image)


def _numbers(turns: Tensor, turn: Tensor, move: Tensor, image: Tensor, oldest: Tensor) -> Tensor:
    """What _System.weights() reads."""
    products = (turns[:, None] * torch.cat([turn, move])).sum(2)
    sizes = torch.cat([move, image, image - oldest]).abs().amax(1)
    return torch.cat([products.view(-1), sizes])


class _Round(NamedTuple):
    """What a round of MixedRounds begins with. Each tensor stays where it is."""

    given: Tensor
    """(_MEMORY + 4,) float64, which the CPU writes before a round: the weights of the differences, the largest change by mixing, and three
    places: of the newest difference in `changes`, and of the newest and of the oldest image in `images`."""
    image: Tensor
    """(1, N)"""
    move: Tensor
    """(1, N): from the point before to its image."""
    changes: Tensor
    """(_MEMORY, N) float64: differences of images,"""
    turns: Tensor
    """and of moves."""
    images: Tensor
    """(_MEMORY + 1, N)"""
    results: tuple[Tensor, ...]
    """What else the map has found."""


Map = Callable[[Tensor], tuple[Tensor, tuple[Tensor, ...]]]
"""From a point (1, N) to its image, and to what else is to be kept of it."""


class MixedRounds:
    """Rounds of a map and Mixing on a GPU, replayed from a CUDA graph but for the first one.

    The CPU reads 23 numbers after each round and writes 14 before the next one.
    """

    moved: float
    """The largest difference between the last point and its image."""

    def __init__(self, point: Tensor) -> None:
        n, dtype = point.shape[1], torch.float64
        self._place = _Round(
            given=point.new_zeros(_MEMORY + 4, dtype=dtype),
            image=point,
            move=torch.zeros_like(point),
            changes=point.new_zeros(_MEMORY, n, dtype=dtype),
            turns=point.new_zeros(_MEMORY, n, dtype=dtype),
            images=point.new_zeros(_MEMORY + 1, n),
            results=(),
        )
        self._eps = torch.finfo(point.dtype).eps
        self._system = _System()
        self._rounds = 0
        self._weights: Tensor | None = None
        self._path = 0.0
        self._graph: Replayed | None = None

    @property
    def found(self) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The last image, and what else the map has found."""
        return self._place.image, self._place.results

    def next(self, of: Map, replays: bool) -> None:
        """A round. replays: whether its map is that of the round before, and may be captured."""
        self._give()
        if replays and self._rounds > 0 and can_capture(self._place.image.device):
            if self._graph is None or not self._graph.is_last:
                self._graph = Replayed(lambda place: _round(of, place), self._place, self._place.image.device)
                self._place = self._graph.state
            numbers = self._graph()
        else:
            self._place, numbers = _round(of, self._place)
        self._read(numbers.cpu())
        self._rounds += 1

    def _give(self) -> None:
        # The first image has no difference: its place is written to again.
        place, newest = self._system.place, self._rounds % (_MEMORY + 1)
        oldest = max(self._rounds - _MEMORY, 0) % (_MEMORY + 1)
        weights = [] if self._weights is None else self._weights.tolist()
        weights += [0.0] * (_MEMORY - len(weights))
        of_round = [*weights, _FARTHEST * self._path, place, newest, oldest]
        self._place.given.copy_(torch.tensor(of_round, dtype=torch.float64))

    def _read(self, numbers: Tensor) -> None:
        if self._rounds == 0:
            self.moved = float(numbers[2 * _MEMORY])
            return
        self._weights, self._path = self._system.weights(numbers, self._place.image.shape[1], self._eps)
        self.moved = self._system.moved


def _round(of: Map, place: _Round) -> tuple[_Round, Tensor]:
    """The next point, its image, and what _System.weights() reads."""
    weights, farthest, places = place.given[:_MEMORY], place.given[_MEMORY], place.given[_MEMORY + 1 :].long()
    change = (weights @ place.changes)[None].to(place.image.dtype)
    near = torch.linalg.vector_norm(change, torch.inf) <= farthest
    point = torch.where(near, place.image - change, place.image)
    image, results = of(point)
    move = image - point
    turn = (move - place.move).double()
    of_difference, newest, oldest = places.split(1)
    place.changes.index_copy_(0, of_difference, (image - place.image).double())
    place.turns.index_copy_(0, of_difference, turn)
    place.images.index_copy_(0, newest, image)
    numbers = _numbers(place.turns, turn, move, image, place.images.index_select(0, oldest))
    return place._replace(image=image, move=move, results=results), numbers
