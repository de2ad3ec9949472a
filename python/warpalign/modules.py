"""The modules of all operators, family by family."""

from warpalign._soft_dtw.modules import SoftDTW
from warpalign._transducer.joint import TransducerJointLoss
from warpalign._transducer.modules import TDTLoss, TransducerLoss

__all__ = ["SoftDTW", "TDTLoss", "TransducerJointLoss", "TransducerLoss"]
