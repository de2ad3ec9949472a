"""CAIMAN-ASR: ``rnnt_ext.transducer.loss.TransducerLoss``, apex's with penalties, and ``rnnt_ext.custom_lstm``'s CustomLSTM.

What differs in the loss is what differs from :mod:`warpalign.compat.apex`; lengths are not read back from a GPU.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from warpalign.compat.apex import _loss
from warpalign.recurrent import LSTM
from warpalign.transducer import TransducerPenalties


class TransducerLoss(nn.Module):
    """(B,) RNN-T losses with penalties, float32 for half types.

    Args:
        packed_input: whether logits are packed: (N, V), utterance after utterance, without padding.
    """

    def __init__(self, packed_input: bool = False) -> None:
        super().__init__()
        self.packed_input = packed_input

    def forward(
        self,
        x: Tensor,
        label: Tensor,
        f_len: Tensor,
        y_len: Tensor,
        blank_idx: int,
        eos_idx: int | None = None,
        star_idx: int | None = None,
        batch_offset: Tensor | None = None,
        max_f_len: int | None = None,
        debug_list: list[Any] | None = None,
        delay_penalty: float = 0.0,
        eos_penalty: float = 0.0,
        star_penalty: float = 1.0,
    ) -> Tensor:
        """(B,) losses.

        Args:
            x: (B, T, U+1, V) logits, or packed (N, V); float64, float32, float16 or bfloat16.
            label: (B, U) int labels; padding is ignored.
            f_len: (B,) true numbers of frames T_b, 1 to T, on any device; integers.
            y_len: (B,) true numbers of labels U_b, 0 to U; integers.
            blank_idx: the column of the blank.
            eos_idx: the label of the end of a sentence, which has eos_penalty besides delay_penalty; None, or a number
                below 0: none.
            star_idx: a wildcard label: its arc has no score, and the blanks after it have the probability star_penalty;
                None, or a number below 0: none.
            batch_offset: (B,) cumulative sums of f_len · (y_len + 1), with packed_input; asked for as the original
                does, and computed anew.
            max_f_len: the largest f_len, with packed_input; asked for as the original does.
            debug_list: None: the original's alpha and beta do not exist here.
            delay_penalty: a label at frame t gets delay_penalty · ((T−1)/2 − t) added to its weight.
            eos_penalty: the same for the label eos_idx, in addition.
            star_penalty: the probability of the blanks after star_idx, > 0.
        """
        arguments = (x, label, f_len, y_len, blank_idx, batch_offset, max_f_len, debug_list)
        eos, star = (None if index is None or index < 0 else index for index in (eos_idx, star_idx))
        if eos == blank_idx:
            raise ValueError(f"eos_idx: expected another column than blank_idx = {blank_idx}, got {eos}")
        return _loss(
            self.packed_input,
            *arguments,
            penalties=TransducerPenalties(
                delay_penalty=delay_penalty,
                eos_id=eos,
                eos_penalty=eos_penalty,
                star_id=star,
                star_penalty=star_penalty,
            ),
        )


class CustomLSTM(LSTM):
    """``CustomLSTM`` of CAIMAN-ASR: torch.nn.LSTM with hard activations and dropout on the recurrent weights.

    Checkpoints are torch.nn.LSTM's. What differs: gradients flow to the initial states and through the final ones, and
    ``quantize=True`` is refused.

    Args:
        input_size: the number of features I.
        hidden_size: the number of units H.
        num_layers: the number of layers L.
        dropout: the probability of dropout between layers, in training.
        hard: whether gates are hard sigmoids and the cell's activation a hard tanh.
        quantize: False: the original's quantized products do not exist here.
        rw_dropout: the probability of dropout of the recurrent weights, in training.
        dtype: of the parameters; None: torch's default.
        device: of the parameters; None: torch's default.
    """

    _unrecorded_is_soft = False  # the original's checkpoints do not say which activation they belong to

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        dropout: float = 0.0,
        hard: bool = False,
        quantize: bool = False,
        rw_dropout: float = 0.0,
        dtype: torch.dtype | None = None,
        device: Any = None,
    ) -> None:
        if quantize:
            raise NotImplementedError(
                "quantize: expected False, as there are no quantized products here, got True"
            )
        super().__init__(
            input_size,
            hidden_size,
            num_layers,
            dropout=dropout,
            device=device,
            dtype=dtype,
            activation="hard" if hard else "soft",
            rw_dropout=rw_dropout,
            return_all_states=True,
        )

    def forward(  # type: ignore[override]
        self, x: Tensor, init_states: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor], tuple[Tensor, Tensor] | None]:
        """(y, (h, c), (h_all, c_all)): y (T, B, H), states (L, B, H), and in training the states of all steps (L, T, B, H); in evaluation None.

        Args:
            x: (T, B, I) input.
            init_states: two states (L, B, H); None: zeros.
        """
        y, states, all_states = super().forward(x, init_states)
        return y, states, all_states if self.training else None
