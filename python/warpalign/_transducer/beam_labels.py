"""The labels of beam search's hypotheses, from the nodes that its steps have written."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Merge = Literal["sum", "max"]
# Columns of the operator's `hypothesis` and `nodes`.
FRAME, SYMBOLS, NODE, LENGTH = range(4)
PARENT, TOKEN, TOKEN_FRAME, DURATION = range(4)


def labels_of(hypothesis: Tensor, nodes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(B, 2K, L) tokens, frames and durations of all hypotheses, −1 after their ends.

    Args:
        hypothesis: (B, 2K, 4) int32, the operator's.
        nodes: (B, capacity, 4) int32: the labels of all hypotheses, each with the one before it.
    """
    lengths = hypothesis[..., LENGTH].long()
    longest = int(lengths.max()) if lengths.numel() else 0
    found = torch.full((3, *lengths.shape, longest), -1, dtype=torch.int64, device=lengths.device)
    node, nodes = hypothesis[..., NODE].long(), nodes.long()
    for place in range(longest - 1, -1, -1):  # from the last label back
        inside = place < lengths
        now = nodes.gather(1, node.clamp(min=0)[..., None].expand(-1, -1, 4))
        for k, column in enumerate((TOKEN, TOKEN_FRAME, DURATION)):
            found[k, ..., place] = torch.where(inside, now[..., column], -1)
        node = torch.where(inside, now[..., PARENT], node)
    return found[0], found[1], found[2]


def of_equal_labels(log_prob: Tensor, tokens: Tensor, merge: Merge) -> Tensor:
    """(B, 2K): hypotheses that differ only in how far they lead beyond the end count together, and the first of them stays.

    They come in order, the best first.
    """
    lives = log_prob > -torch.inf
    equal = (tokens[:, :, None] == tokens[:, None]).all(-1) & lives[:, :, None] & lives[:, None]
    together = torch.where(equal, log_prob[:, None], -torch.inf)
    total = together.logsumexp(-1) if merge == "sum" else together.amax(-1)
    alone = equal.sum(-1) == 1  # the same bits as in the state
    is_first = ~torch.tril(equal, -1).any(-1)
    return torch.where(is_first & lives, torch.where(alone, log_prob, total), -torch.inf)
