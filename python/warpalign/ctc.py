"""Connectionist temporal classification (CTC), decoding, forced alignment, and monotonic alignment."""

from warpalign._ctc.align import CTCAlignment, ctc_align, ctc_posteriors
from warpalign._ctc.decode import ctc_beam_decode, ctc_greedy_decode
from warpalign._ctc.forward_sum import forward_sum_loss
from warpalign._ctc.functional import ctc_loss
from warpalign._ctc.head import CTCHeadLoss, ctc_loss_from_encoder
from warpalign._ctc.modules import CTCLoss, ForwardSumLoss
from warpalign._ctc.monotonic import monotonic_alignment_search

__all__ = [
    "CTCAlignment",
    "CTCHeadLoss",
    "CTCLoss",
    "ForwardSumLoss",
    "ctc_align",
    "ctc_beam_decode",
    "ctc_greedy_decode",
    "ctc_loss",
    "ctc_loss_from_encoder",
    "ctc_posteriors",
    "forward_sum_loss",
    "monotonic_alignment_search",
]
