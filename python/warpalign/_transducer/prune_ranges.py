"""Which states of each frame a pruned transducer loss keeps.

The band of frame t is the s neighbouring states with the most probable paths: the posteriors of the blanks out of them, less
that of the label that leads into the first of them. Then its first state is made to rise from 0 to the last states, by
fewer than s states a frame, so that a path can follow.

Source: Kuang et al., "Pruned RNN-T for fast, memory-efficient ASR training", arXiv 2206.13236, section 3.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from warpalign._core.transforms import Dim, apply, of_each
from warpalign._transducer import ops


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
    # From its last frame on, an utterance keeps its last states. All that follows has the last frame first.
    first = sums.argmax(-1).flip(-1)
    frame = torch.arange(frames - 1, -1, -1, device=first.device)
    if isinstance(lengths, Tensor):
        lengths = lengths.to(first.device)[:, None]
    last: Tensor | int
    if isinstance(counts, Tensor):
        last = (counts.to(first)[:, None] - width + 1).clamp(min=0)
    else:
        last = max(counts - width + 1, 0)
    # The largest numbers that nowhere exceed the states and nowhere fall.
    first = torch.where(frame < lengths - 1, first, last).cummin(-1).values
    # first[t+1] - first[t] <= steepest where first - steepest t nowhere rises.
    slope = steepest * frame
    return (slope - (slope - first).cummin(-1).values.clamp(min=0)).flip(-1)


class _Band(torch.autograd.Function):
    """first_states() by the core, int32: of one kind of blank, with all posteriors in a tensor."""

    @staticmethod
    def forward(by_arc: Tensor, lengths: Tensor | None, counts: Tensor | None, width: int) -> tuple[Tensor]:
        return (ops.band(by_arc.float(), lengths, counts, width),)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(*output)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return (None,) * 4

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Dim, ...], *arguments: Any) -> Any:
        return of_each(_Band, info.batch_size, in_dims, arguments)


def band(by_arc: Tensor, lengths: Tensor | None, counts: Tensor | None, width: int) -> Tensor:
    """(B, T), int32: the first state of each frame's band, which rises by less than `width` states a frame.

    by_arc: (B, T, U+1, 2): posteriors of the blank and of the label out of each node, with the other sign.
    """
    (first,) = apply(_Band, by_arc, lengths, counts, width)
    result: Tensor = first
    return result
