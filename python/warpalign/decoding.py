"""Decoding with transducers: searches, and what they take and return."""

from warpalign._transducer.beam import transducer_beam_decode
from warpalign._transducer.decode_model import JointWeights, Predictor, TransducerHypotheses
from warpalign._transducer.greedy import transducer_greedy_decode

__all__ = [
    "JointWeights",
    "Predictor",
    "TransducerHypotheses",
    "transducer_beam_decode",
    "transducer_greedy_decode",
]
