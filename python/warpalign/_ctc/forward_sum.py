"""The forward-sum loss: CTC over a text's own positions."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from warpalign._core.checks import naming_arguments, shape_of
from warpalign._core.labels import check_reduction
from warpalign._core.reduction import BatchLengths, BatchReduction, reduced
from warpalign._core.series import Lengths
from warpalign._ctc import autograd
from warpalign._ctc.autograd import Inputs
from warpalign._ctc.checks import check_floats, check_lengths
from warpalign._ctc.settings import Settings, check_blank_logprob


def forward_sum_loss(
    attention_logprob: Tensor,
    text_lengths: Lengths | None = None,
    frame_lengths: Lengths | None = None,
    blank_logprob: float = -1.0,
    *,
    reduction: BatchReduction = "mean_target",
) -> Tensor:
    """Forward-sum loss of an aligner: −log of the sum over all monotonic alignments of a text's positions to frames.

    It is the CTC loss of the labels 1 .. S_b, the text's positions, from the logits of each frame's attention with a column
    of ``blank_logprob`` for blank in front, which are normalised over the true positions. An item without any path has the
    loss 0.

    Source: Badlani et al., "One TTS alignment to rule them all", ICASSP 2022, as NeMo computes it.

    Args:
        attention_logprob: (B, T, S) or (B, 1, T, S): logarithm of the attention that frame t pays to position s, which need not
            be normalised; float64, float32, float16 or bfloat16.
        text_lengths: (B,) true numbers of positions S_b, 0 to S: integers, as a tensor on the attention's device, a list, a
            tuple or an array. None: all S.
        frame_lengths: (B,) true numbers of frames T_b, 0 to T. None: all T.
        blank_logprob: the logit of blank at every frame. It controls how much attention positions get before others begin.
        reduction: as in :func:`ctc_loss`. "mean_target", NeMo's: mean over the batch of loss / max(S_b, 1).

    Returns:
        0-d, or (B,) with "none"; float64 for float64 attention, else float32.

    Raises:
        TypeError, ValueError: an argument is invalid.
        NotImplementedError: for second derivatives.

    Examples:
        >>> attention = torch.randn(2, 60, 20, requires_grad=True)
        >>> forward_sum_loss(attention, [20, 15], [60, 50]).backward()
    """
    if (
        isinstance(attention_logprob, Tensor)
        and attention_logprob.dim() == 4
        and attention_logprob.shape[1] == 1
    ):
        attention_logprob = attention_logprob.squeeze(1)
    table = check_floats(attention_logprob, "attention_logprob", "T, S")
    if table.dim() != 3:
        raise ValueError(
            f"attention_logprob: expected (B, T, S) or (B, 1, T, S), got shape {shape_of(attention_logprob)}"
        )
    blank = check_blank_logprob(blank_logprob)
    reduction = check_reduction(reduction)
    batch, frames, positions = table.shape
    whose = {"whose": "the attention", "unit": "item"}
    texts = check_lengths(text_lengths, "text_lengths", table.device, batch, positions, "S", **whose)  # type: ignore[arg-type]
    lengths = check_lengths(frame_lengths, "frame_lengths", table.device, batch, frames, "T", **whose)  # type: ignore[arg-type]
    logits = F.pad(table, (1, 0), value=blank)
    index = torch.arange(1, positions + 1, device=table.device, dtype=torch.int32)
    if texts is not None:
        beyond = index > texts[:, None]
        logits = logits.masked_fill(F.pad(beyond, (1, 0))[:, None], -math.inf)
    targets = index.expand(batch, -1)
    with naming_arguments():
        losses = autograd.losses(
            Inputs(logits, targets, lengths, texts, None), Settings(zero_infinity=True), False
        )
    return reduced(losses, BatchLengths(lengths, frames, texts, positions), reduction, False)
