"""When the steps of sampled Gromov-Wasserstein transport end."""

from __future__ import annotations

import math

import torch
from torch import Tensor

_BETTER = 5e-3  # the share by which the mean cost must fall to count
_STEPS_AHEAD = 4  # steps that a GPU may be ahead of the CPU, which reads their costs once they have arrived


class Patience:
    """Whether costs have stopped falling. On a GPU a cost is looked at four steps later.

    Anchors are drawn, so costs of a descent at rest differ by some per cent. The newest costs are compared with as many
    before them, by their means and the means' standard error.
    """

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._costs: list[float] = []
        self._waiting: list[tuple[Tensor, torch.cuda.Event | None]] = []

    def add(self, cost: Tensor) -> None:
        event = None
        if cost.is_cuda:
            cost = torch.empty((), dtype=cost.dtype, pin_memory=True).copy_(cost, non_blocking=True)
            event = torch.cuda.Event()
            event.record()
        self._waiting.append((cost, event))
        while len(self._waiting) > (_STEPS_AHEAD if event is not None else 0):
            seen, ready = self._waiting.pop(0)
            if ready is not None:
                ready.synchronize()
            self._costs.append(float(seen))

    def is_finite(self) -> bool:
        """Of the costs that have been looked at."""
        return all(map(math.isfinite, self._costs))

    def is_over(self) -> bool:
        steps = self._steps
        if len(self._costs) < 2 * steps:
            return False
        halves = self._costs[-2 * steps : -steps], self._costs[-steps:]
        before, newest = (sum(costs) / steps for costs in halves)
        squares = sum(
            (cost - mean) * (cost - mean)
            for costs, mean in zip(halves, (before, newest), strict=True)
            for cost in costs
        )
        error = math.sqrt(squares / steps / max(steps - 1, 1))
        # A cost of NaN ends the steps, too.
        return not before - newest > max(error, _BETTER * before)
