"""A PackedSequence as the operator takes it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from warpalign._core.lengths import on_device
from warpalign._core.torch_internals import padding_breaks_graphs


class Rows(NamedTuple):
    """The sequences, longest first."""

    x: Tensor
    """(T, B, I), or packed rows (N, I)."""
    batch: int
    row_starts: Tensor | None
    """(T + 1,), int32: which rows of packed ones are a step's."""
    lengths: Tensor | None
    """(B,), int32, of padded rows."""
    places: Tensor | None
    """(N,): t B + b of each packed row, where x is padded."""


def rows_of(packed: PackedSequence, x: Tensor) -> Rows:
    """x: the data of the PackedSequence, (N, I).

    batch_sizes are in the host's memory. Where all sequences have the same length, packed rows are a batch as they are.
    A GPU sweeps padded sequences: packed rows leave it with a launch for each step at many sizes, and padding takes the
    time of a copy.
    """
    padding_breaks_graphs()
    sizes = packed.batch_sizes
    steps, batch = sizes.numel(), int(sizes[0])
    if int(sizes.sum()) != x.shape[0]:
        raise ValueError(
            f"input: expected the {int(sizes.sum())} rows that batch_sizes say, got data of shape {tuple(x.shape)}"
        )
    if bool((sizes == batch).all()):
        return Rows(x.unflatten(0, (steps, batch)), batch, None, None, None)
    if not _is_padded(x):
        starts = torch.nn.functional.pad(sizes.cumsum(0), (1, 0)).to(x.device, torch.int32)
        return Rows(x, batch, starts, None, None)
    lengths = on_device(lengths_of(sizes), x.device)
    places = places_of(lengths, steps, x.shape[0])
    padded = x.new_zeros(steps * batch, x.shape[1]).index_copy_(0, places, x)
    return Rows(padded.view(steps, batch, -1), batch, None, lengths, places)


def _is_padded(x: Tensor) -> bool:
    return x.is_cuda


def lengths_of(batch_sizes: Tensor) -> Tensor:
    """(B,) in descending order, from how many sequences each step has."""
    # How many sequences each step is the last one of.
    ends = batch_sizes - torch.nn.functional.pad(batch_sizes[1:], (0, 1))
    return torch.arange(batch_sizes.numel(), 0, -1).repeat_interleave(ends.flip(0))


def places_of(lengths: Tensor, steps: int, rows: int) -> Tensor:
    """t B + b of each of the packed rows (t, b), made on the device of the lengths, whose values nobody waits for."""
    t = torch.arange(steps + 1, device=lengths.device)
    starts = torch.minimum(lengths[:, None], t).sum(0)
    row = torch.arange(rows, device=lengths.device)
    step = torch.searchsorted(starts, row, right=True) - 1
    return step * lengths.numel() + row - starts[step]


def packed_again(y: Tensor, places: Tensor, axis: int = 0) -> Tensor:
    """Rows (N, ...) of results whose axes `axis` and the next one are (T, B)."""
    return y.flatten(axis, axis + 1).index_select(axis, places)
