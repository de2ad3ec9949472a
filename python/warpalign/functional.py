"""The alignment functions of all operators, family by family."""

from warpalign._soft_dtw.functional import (
    SoftDTWAlignment,
    dtw,
    soft_dtw,
    soft_dtw_alignment,
    soft_dtw_cost,
)
from warpalign._soft_dtw.paths import DTWPath, SoftDTWSubsequence, dtw_path, soft_dtw_subsequence
from warpalign._transducer.align import TransducerAlignment, TransducerPosteriors, transducer_align
from warpalign._transducer.functional import tdt_loss, transducer_loss
from warpalign._transducer.joint import transducer_loss_from_joint

__all__ = [
    "DTWPath",
    "SoftDTWAlignment",
    "SoftDTWSubsequence",
    "TransducerAlignment",
    "TransducerPosteriors",
    "dtw",
    "dtw_path",
    "soft_dtw",
    "soft_dtw_alignment",
    "soft_dtw_cost",
    "soft_dtw_subsequence",
    "tdt_loss",
    "transducer_align",
    "transducer_loss",
    "transducer_loss_from_joint",
]
