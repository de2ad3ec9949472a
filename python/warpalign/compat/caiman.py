"""``rnnt_ext.transducer.loss.TransducerLoss`` of CAIMAN-ASR: apex's, with a delay penalty.

What differs is what differs from :mod:`warpalign.compat.apex`; lengths are not read back from a GPU.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from warpalign.compat.apex import _loss


class TransducerLoss(nn.Module):
    """(B,) RNN-T losses."""

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
        batch_offset: Tensor | None = None,
        max_f_len: int | None = None,
        debug_list: list[Any] | None = None,
        delay_penalty: float = 0.0,
    ) -> Tensor:
        """x (B, T, U+1, V), or packed (N, V); label (B, U)."""
        arguments = (x, label, f_len, y_len, blank_idx, batch_offset, max_f_len, debug_list)
        return _loss(self.packed_input, *arguments, delay_penalty=delay_penalty)
