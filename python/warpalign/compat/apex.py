"""``apex.contrib.transducer``: TransducerLoss and TransducerJoint.

What differs: gradients of negative upstream factors are right; losses are float32; padding may hold anything; alpha and beta
(``debug_list``) do not exist here.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from warpalign.transducer import TransducerPenalties, transducer_loss


class TransducerLoss(nn.Module):
    """(B,) RNN-T losses, float32 for half types.

    Args:
        fuse_softmax_backward: has no effect.
        opt: has no effect.
        packed_input: whether logits are packed: (N, V), utterance after utterance, without padding.
    """

    def __init__(self, fuse_softmax_backward: bool = True, opt: int = 1, packed_input: bool = False) -> None:
        super().__init__()
        self.fuse_softmax_backward = fuse_softmax_backward
        self.opt = opt
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
    ) -> Tensor:
        """(B,) losses.

        Args:
            x: (B, T, U+1, V) logits, or packed (N, V); float64, float32, float16 or bfloat16.
            label: (B, U) int labels; padding is ignored.
            f_len: (B,) true numbers of frames T_b, 1 to T, on any device; integers.
            y_len: (B,) true numbers of labels U_b, 0 to U; integers.
            blank_idx: the column of the blank.
            batch_offset: (B,) cumulative sums of f_len · (y_len + 1), with packed_input; asked for as the original
                does, and computed anew.
            max_f_len: the largest f_len, with packed_input; asked for as the original does.
            debug_list: None: the original's alpha and beta do not exist here.
        """
        return _loss(
            self.packed_input, x, label, f_len, y_len, blank_idx, batch_offset, max_f_len, debug_list
        )


def _loss(
    packed: bool,
    x: Tensor,
    label: Tensor,
    f_len: Tensor,
    y_len: Tensor,
    blank_idx: int,
    batch_offset: Tensor | None,
    max_f_len: int | None,
    debug_list: list[Any] | None,
    penalties: TransducerPenalties | None = None,
) -> Tensor:
    """penalties: for drop-ins that have them."""
    if packed and (batch_offset is None or max_f_len is None):
        raise ValueError("Please specify batch_offset and max_f_len when packing is enabled")
    if debug_list is not None:
        raise NotImplementedError(
            "debug_list: expected None, as there is no alpha and no beta here, got a list"
        )
    return transducer_loss(
        x,
        label if packed else label[:, : x.shape[2] - 1],
        f_len,
        y_len,
        blank=blank_idx,
        packed=packed,
        reduction="none",
        penalties=penalties,
    )


def _wide(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


class TransducerJoint(nn.Module):
    """The hidden layer f (B, T, H) + g (B, U+1, H) of a joint network, with ReLU and dropout if asked for.

    Gradients are summed in float32 for half types, too.

    Args:
        pack_output: whether the result is packed, (packed_batch, H), in place of (B, T, U+1, H) whose padding is −1
            with gradient 0.
        relu: whether a ReLU follows the sum.
        dropout: whether dropout follows, in training.
        opt: has no effect.
        fwd_tile_size: has no effect.
        dropout_prob: the probability of an element to become 0, in [0, 1].
        probe_mask: whether the mask of ReLU and dropout is appended to ``mask_probe`` in each call.
    """

    def __init__(
        self,
        pack_output: bool = False,
        relu: bool = False,
        dropout: bool = False,
        opt: int = 1,
        fwd_tile_size: int = 4,
        dropout_prob: float = 0,
        probe_mask: bool = False,
    ) -> None:
        super().__init__()
        self.pack_output = pack_output
        self.relu = relu
        self.dropout = dropout
        self.dropout_prob = dropout_prob
        self.mask_probe: list[Tensor] | None = [] if (relu or dropout) and probe_mask else None

    def forward(
        self,
        f: Tensor,
        g: Tensor,
        f_len: Tensor,
        g_len: Tensor,
        batch_offset: Tensor | None = None,
        packed_batch: int = 0,
    ) -> Tensor:
        """(B, T, U+1, H), or with ``pack_output`` (packed_batch, H), of the dtype of f.

        Args:
            f: (B, T, H) encoder outputs.
            g: (B, U+1, H) predictor outputs.
            f_len: (B,) true numbers of frames.
            g_len: (B,) true numbers of states, U_b + 1.
            batch_offset: (B,) the cumulative sum of f_len · g_len, with ``pack_output``.
            packed_batch: the last of batch_offset, with ``pack_output``.
        """
        if self.pack_output:
            if batch_offset is None or packed_batch == 0:
                raise ValueError("Please specify batch_offset and packed_batch when packing is enabled")
            row = torch.arange(packed_batch, device=f.device)
            utterance = torch.searchsorted(batch_offset, row, right=True)
            states = g_len.long()[utterance]
            within = row - (batch_offset - f_len * g_len)[utterance]
            # Autograd adds the rows' gradients in the dtype that was indexed: each addition in a half type rounds.
            h = _wide(f)[utterance, within // states] + _wide(g)[utterance, within % states]
            return self._activated(h.to(f.dtype))
        h = self._activated(f[:, :, None] + g[:, None])
        is_frame = torch.arange(f.shape[1], device=f.device) < f_len[:, None]
        is_state = torch.arange(g.shape[1], device=f.device) < g_len[:, None]
        return h.masked_fill_(~(is_frame[:, :, None] & is_state[:, None])[..., None], -1)

    def _activated(self, h: Tensor) -> Tensor:
        """With ReLU and dropout."""
        if not (self.relu or self.dropout):
            return h
        mask = h > 0 if self.relu else torch.ones_like(h, dtype=torch.bool)
        scale = 1.0
        if self.dropout and self.training and self.dropout_prob > 0:
            mask = mask & (torch.rand_like(h, dtype=torch.float32) >= self.dropout_prob)
            scale = 1 / (1 - self.dropout_prob) if self.dropout_prob < 1 else 1.0
        if self.mask_probe is not None:
            self.mask_probe.append(mask)
        return h * mask * scale
