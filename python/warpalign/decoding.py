"""What decoders of CTC and of transducers share: edit distances, and minimum word error rate training."""

from warpalign._decoding.errors import edit_distance, mwer_loss

__all__ = ["edit_distance", "mwer_loss"]
