"""The LSTM with soft and hard activations: a drop-in for torch.nn.LSTM with zoneout, layer norm, weight dropout and more."""

from warpalign._recurrent.conversion import replace_lstm, restore_lstm
from warpalign._recurrent.functional import LSTMResult, lstm
from warpalign._recurrent.modules import LSTM, HardLSTM, LSTMCell
from warpalign._recurrent.onnx import onnx_translations
from warpalign._recurrent.settings import LSTMWeights
from warpalign._recurrent.stream import LSTMStream

__all__ = [
    "LSTM",
    "HardLSTM",
    "LSTMCell",
    "LSTMResult",
    "LSTMStream",
    "LSTMWeights",
    "lstm",
    "onnx_translations",
    "replace_lstm",
    "restore_lstm",
]
