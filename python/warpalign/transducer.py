"""Transducers (RNN-T, multi-blank, TDT): losses, fused joint network, alignment, greedy and beam decoding."""

from warpalign._core.hypotheses import Hypotheses, Predictor
from warpalign._recurrent.predictor import LSTMPredictor
from warpalign._transducer.align import TransducerAlignment, TransducerPosteriors, transducer_align
from warpalign._transducer.align_joint import transducer_align_from_joint
from warpalign._transducer.beam import transducer_beam_decode
from warpalign._transducer.functional import tdt_loss, transducer_loss
from warpalign._transducer.greedy import transducer_greedy_decode
from warpalign._transducer.joint import TransducerJointLoss, transducer_loss_from_joint
from warpalign._transducer.joint_weights import JointFunction, JointWeights
from warpalign._transducer.modules import TDTLoss, TransducerLoss
from warpalign._transducer.penalties import TransducerPenalties
from warpalign._transducer.pruned import PrunedTransducerLoss, transducer_loss_pruned

__all__ = [
    "Hypotheses",
    "JointFunction",
    "JointWeights",
    "LSTMPredictor",
    "Predictor",
    "PrunedTransducerLoss",
    "TDTLoss",
    "TransducerAlignment",
    "TransducerJointLoss",
    "TransducerLoss",
    "TransducerPenalties",
    "TransducerPosteriors",
    "tdt_loss",
    "transducer_align",
    "transducer_align_from_joint",
    "transducer_beam_decode",
    "transducer_greedy_decode",
    "transducer_loss",
    "transducer_loss_from_joint",
    "transducer_loss_pruned",
]
