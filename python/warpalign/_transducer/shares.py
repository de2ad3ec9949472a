"""Factors of the sums over the labels of an additive joint network: softmax of encoder and predictor logits, multiplied in parts.

On a GPU the shares of bfloat16 logits are rounded to bfloat16, which has the range of float32, and products of them are
summed in float32.
"""

from __future__ import annotations

import torch
from torch import Tensor

_PART_BYTES = 32 * 2**20


def real_type(tensor: Tensor) -> torch.dtype:
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


def shares_of(logits: Tensor, lengths: Tensor | None, dtype: torch.dtype) -> Tensor:
    """softmax(logits) (B, rows, V), 0 in padding."""
    shares = logits.softmax(2, dtype=dtype)
    if lengths is not None:
        row = torch.arange(logits.shape[1], device=logits.device)
        shares.masked_fill_((row >= lengths[:, None])[..., None], 0.0)
    return shares


def factor_type(encoder: Tensor, predictor: Tensor) -> torch.dtype:
    """Of the shares that are multiplied."""
    if encoder.is_cuda and encoder.dtype == predictor.dtype == torch.bfloat16:
        return torch.bfloat16
    return torch.promote_types(real_type(encoder), real_type(predictor))


def factor_of(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """(B, rows, columns) as a factor. bfloat16 has columns of 0 up to a multiple of 8, as matrix units read them."""
    more = -tensor.shape[2] % 8 if dtype == torch.bfloat16 else 0
    factor = tensor.to(dtype)
    return torch.nn.functional.pad(factor, (0, more)) if more else factor


def states_factor(shares: Tensor, dtype: torch.dtype) -> Tensor:
    """The predictor's shares (B, U+1, V) as a factor; bfloat16 has as many rows as a factor of U + 1 columns has columns."""
    factor = factor_of(shares, dtype)
    more = -shares.shape[1] % 8 if dtype == torch.bfloat16 else 0
    return torch.nn.functional.pad(factor, (0, 0, 0, more)) if more else factor


def product(a: Tensor, b: Tensor) -> Tensor:
    """a @ b, of factors of one type; of bfloat16 in float32."""
    if a.dtype == torch.bfloat16:
        return torch.bmm(a, b, out_dtype=torch.float32)
    return torch.bmm(a, b)


def parts_of(logits: Tensor, element_size: int) -> list[slice]:
    """Utterances of which so many bytes for each of the logits (B, T, V) are in memory at the same time."""
    batch, frames, columns = logits.shape
    size = max(_PART_BYTES // max(frames * columns * element_size, 1), 1)
    return [slice(first, first + size) for first in range(0, batch, size)] or [slice(0, 0)]


def joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def cut(tensor: Tensor | None, part: slice) -> Tensor | None:
    return None if tensor is None else tensor[part]
