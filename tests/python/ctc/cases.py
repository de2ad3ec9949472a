"""Problems that the tests of CTC share."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class Problem(NamedTuple):
    logits: Tensor
    """(B, T, C), float64."""
    targets: Tensor
    """(B, U), int64."""
    logit_lengths: Tensor
    target_lengths: Tensor


def problem(batch: int, frames: int, classes: int, labels: int, seed: int, blank: int = 0) -> Problem:
    """Random logits; labels of which some are equal to their neighbours; ragged lengths, the first ones full."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(batch, frames, classes, generator=generator, dtype=torch.float64)
    targets = torch.randint(0, classes - 1, (batch, labels), generator=generator)
    targets = targets + (targets >= blank)
    if labels > 1:
        targets[:, 1] = targets[:, 0]
    logit_lengths = torch.randint(frames // 2, frames + 1, (batch,), generator=generator)
    target_lengths = torch.randint(0, labels + 1, (batch,), generator=generator)
    logit_lengths[0], target_lengths[0] = frames, labels
    return Problem(logits, targets, logit_lengths, target_lengths)


def torch_losses(given: Problem, blank: int = 0, zero_infinity: bool = False) -> Tensor:
    """(B,) losses by torch, in float64."""
    return F.ctc_loss(
        F.log_softmax(given.logits, -1).transpose(0, 1),
        given.targets,
        given.logit_lengths,
        given.target_lengths,
        blank=blank,
        reduction="none",
        zero_infinity=zero_infinity,
    )


def all_paths(targets: list[int], frames: int, blank: int) -> list[list[int]]:
    """Every sequence of states, numbers in the extended labels, that a path may take."""
    extended = [blank]
    for label in targets:
        extended += [label, blank]
    paths = [[s] for s in range(min(2, len(extended)))] if frames else []
    for _ in range(frames - 1):
        longer = []
        for path in paths:
            s = path[-1]
            longer += [
                [*path, to]
                for to in range(s, min(s + 3, len(extended)))
                if to < s + 2 or (extended[to] != blank and extended[to] != extended[s])
            ]
        paths = longer
    return [path for path in paths if path[-1] >= len(extended) - 2]


def brute_force(
    weights: Tensor, targets: list[int], blank: int, star: int | None = None, best: bool = False
) -> Tensor:
    """−log of the sum over all paths, or minus the greatest weight. weights: (T, C) log-probabilities less priors."""
    others = [c for c in range(weights.shape[1]) if c != blank]
    totals = []
    for path in all_paths(targets, weights.shape[0], blank):
        total = weights.new_zeros(())
        for t, state in enumerate(path):
            label = blank if state % 2 == 0 else targets[state // 2]
            if label != star:
                total = total + weights[t, label]
            elif best:
                total = total + weights[t, others].max()
            else:
                total = total + weights[t, others].logsumexp(0)
        totals.append(total)
    if not totals:
        return weights.new_tensor(0.0 if not targets and weights.shape[0] == 0 else math.inf)
    stacked = torch.stack(totals)
    return -(stacked.max() if best else stacked.logsumexp(0))
