"""Fewer iterations to a fixed point."""

from __future__ import annotations

import torch
from torch import Tensor

_MEMORY = 10  # differences of steps that are mixed
_REGULARISATION = 1e-14
_FARTHEST = 20  # times the path's own length: mixing leads no farther


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
        self._places = 0  # how many differences there have been
        self._products = torch.zeros(_MEMORY, _MEMORY, dtype=torch.float64)

    def next(self, point: Tensor, image: Tensor) -> Tensor:
        """(1, N): where to go on, behind a point (1, N) and its image."""
        move = image - point
        self._images = [*self._images, image][-_MEMORY - 1 :]
        if self._move is None:
            self._changes = image.new_zeros(_MEMORY, image.shape[1], dtype=torch.float64)
            self._turns = torch.zeros_like(self._changes)
            self._move, self.moved = move, float(move.abs().amax())
            return image
        place = self._places % _MEMORY
        torch.sub(image, self._images[-2], out=self._changes[place : place + 1])
        torch.sub(move, self._move, out=self._turns[place : place + 1])
        self._move, self._places = move, self._places + 1
        pair = torch.cat([self._turns[place : place + 1], move])
        sizes = torch.cat([move, image, image - self._images[0]]).abs().amax(1)
        products = (self._turns[:, None] * pair).sum(2)
        numbers = torch.cat([products.view(-1), sizes]).cpu()
        of_turns, of_move = numbers[: 2 * _MEMORY].view(_MEMORY, 2).unbind(1)
        self._products[place] = self._products[:, place] = of_turns
        self.moved, largest, path = numbers[2 * _MEMORY :].tolist()
        # Moves that differ by rounding alone, as those of potentials that grow without end do, have no limit to be found.
        rounding = move.shape[1] * (torch.finfo(image.dtype).eps * largest) ** 2
        least = float(self._products.diagonal().sum()) * _REGULARISATION + rounding
        count = min(self._places, _MEMORY)
        system = self._products[:count, :count] + least * torch.eye(count, dtype=torch.float64)
        weights, failed = torch.linalg.solve_ex(system, of_move[:count])
        if bool(failed) or not bool(weights.isfinite().all()):
            return image
        change = (weights.to(image.device) @ self._changes[:count])[None].to(image.dtype)
        near = torch.linalg.vector_norm(change, torch.inf) <= _FARTHEST * path
        return torch.where(near, image - change, image)
