"""Which states of each frame a pruned transducer loss keeps.

The band of frame t is the s neighbouring states with the most probable paths: the posteriors of the blanks out of them, less
that of the label that leads into the first of them. Then its first state is made to rise from 0 to the last states, by
fewer than s states a frame, so that a path can follow.

Source: Kuang et al., "Pruned RNN-T for fast, memory-efficient ASR training", arXiv 2206.13236, section 3.
"""

from __future__ import annotations

import torch
from torch import Tensor


def _rising(first: Tensor) -> Tensor:
    """The largest numbers that nowhere fall along the last axis and nowhere exceed `first`."""
    return first.flip(-1).cummin(-1).values.flip(-1)


def first_states(
    of_blanks: Tensor,
    of_labels: Tensor,
    lengths: Tensor | int,
    counts: Tensor | int,
    width: int,
    steepest: int,
) -> Tensor:
    """(B, T), int64: the first state of each frame's band.

    Args:
        of_blanks: (B, T, U+1): posteriors of the blanks out of each node.
        of_labels: (B, T, U): posteriors of the labels.
        lengths: (B,) true numbers of frames, or one for all.
        counts: (B,) true numbers of labels, or one for all.
        width: s, the states of a frame that are kept, 1 to U + 1.
        steepest: the most states by which the band may rise from one frame to the next.
    """
    batch, frames, states = of_blanks.shape
    rows = of_blanks.reshape(-1, 1, 1, states)
    pooled = torch.nn.functional.avg_pool2d(rows, (1, width), stride=1, divisor_override=1)
    sums = pooled.view(batch, frames, states - width + 1)
    sums[..., 1:] -= of_labels[..., : states - width]
    first = sums.argmax(-1)
    frame = torch.arange(frames, device=first.device)
    if isinstance(lengths, Tensor):
        lengths = lengths.to(first.device)[:, None]
    # From its last frame on, an utterance keeps its last states.
    if isinstance(counts, Tensor):
        last = (counts.to(first)[:, None] - width + 1).clamp(min=0)
    else:
        last = first.new_full((batch, 1), max(counts - width + 1, 0))
    first = _rising(torch.where(frame < lengths - 1, first, last))
    # first[t+1] - first[t] <= steepest where first - steepest t nowhere rises.
    slope = steepest * frame
    return slope - _rising(slope - first).clamp(min=0)
