"""Fewer iterations to a fixed point."""

from __future__ import annotations

import torch
from torch import Tensor

_MEMORY = 10  # differences of steps that are mixed
_REGULARISATION = 1e-14
_FARTHEST = 20  # times the path's own length: mixing leads no farther


class Mixing:
    """Anderson's mixing: the next point is the mean of the last images, with weights of sum 1, that would move least.

    Sources: Anderson, "Iterative procedures for nonlinear integral equations", J. ACM 1965; Walker & Ni, "Anderson
    acceleration for fixed-point iterations", SIAM J. Numer. Anal. 2011.
    """

    def __init__(self) -> None:
        self._images: list[Tensor] = []
        self._moves: list[Tensor] = []

    def next(self, point: Tensor, image: Tensor) -> Tensor:
        """(1, N): where to go on, behind a point (1, N) and its image. A device is not waited for."""
        self._images = [*self._images, image][-_MEMORY - 1 :]
        self._moves = [*self._moves, image - point][-_MEMORY - 1 :]
        if len(self._moves) == 1:
            return image
        images, moves = torch.cat(self._images).double(), torch.cat(self._moves).double()
        turns = moves.diff(dim=0)
        products = turns @ turns.T
        # Moves that differ by rounding alone, as those of potentials that grow without end do, have no limit to be found.
        rounding = moves.shape[1] * (torch.finfo(image.dtype).eps * images.abs().amax()).square()
        least = products.diagonal().sum() * _REGULARISATION + rounding
        products = products + least * torch.eye(len(turns)).to(products)
        weights, _ = torch.linalg.solve_ex(products, turns @ moves[-1])
        change = weights @ images.diff(dim=0)
        far = change.abs().amax() > _FARTHEST * (images[-1] - images[0]).abs().amax()
        found = (images[-1] - change)[None].to(image.dtype)
        return torch.where(found.isfinite() & ~far, found, image)
