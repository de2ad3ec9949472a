"""What decoders of CTC and of transducers share: n-grams, boosted phrases, edit distances, minimum word error rate training."""

from warpalign._decoding.combined import LanguageModelSum
from warpalign._decoding.errors import edit_distance, mwer_loss
from warpalign._decoding.ngram import NGramLanguageModel
from warpalign._decoding.phrases import PhraseBoost

__all__ = [
    "LanguageModelSum",
    "NGramLanguageModel",
    "PhraseBoost",
    "edit_distance",
    "mwer_loss",
]
