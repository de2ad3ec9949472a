"""``rnnt_loss`` and ``tdt_loss`` of Transformers 5 (``transformers.loss.loss_rnnt`` and ``loss_tdt``), as Parakeet uses them.

"mean" divides each loss by its number of labels, "mean_batch" does not, and "mean_volume" divides the sum of losses by the sum
of labels. What differs: a number of labels of 0 counts as 1, half types are not widened, and targets may stand in padding
with any value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from torch import Tensor

from warpalign import transducer

_REDUCTIONS: dict[str, Literal["mean_volume", "mean", "mean_target", "sum", "none"]] = {
    "mean_volume": "mean_volume",
    "mean_batch": "mean",
    "mean": "mean_target",
    "sum": "sum",
    "none": "none",
}


def _reduction(name: str) -> Literal["mean_volume", "mean", "mean_target", "sum", "none"]:
    if name not in _REDUCTIONS:
        raise ValueError(
            f'Invalid reduction mode "{name}". Expected one of {", ".join(map(repr, _REDUCTIONS))}.'
        )
    return _REDUCTIONS[name]


def rnnt_loss(
    logits: Tensor,
    targets: Tensor,
    logit_lengths: Tensor,
    target_lengths: Tensor,
    blank_token_id: int,
    reduction: str = "mean_volume",
) -> Tensor:
    """RNN-T loss of logits (B, T, U+1, V)."""
    device = logits.device
    return transducer.transducer_loss(
        logits,
        targets.to(device),
        logit_lengths.to(device),
        target_lengths.to(device),
        blank=blank_token_id,
        reduction=_reduction(reduction),
    )


def tdt_loss(
    token_logits: Tensor,
    duration_logits: Tensor,
    targets: Tensor,
    logit_lengths: Tensor,
    target_lengths: Tensor,
    blank_token_id: int,
    durations: Sequence[int],
    sigma: float = 0.0,
    reduction: str = "mean",
) -> Tensor:
    """TDT loss of logits (B, T, U+1, V) and (B, T, U+1, D)."""
    device = token_logits.device
    return transducer.tdt_loss(
        token_logits,
        duration_logits,
        targets.to(device),
        logit_lengths.to(device),
        target_lengths.to(device),
        durations=durations,
        blank=blank_token_id,
        sigma=sigma,
        reduction=_reduction(reduction),
    )
