"""The tensors of a call of soft-DTW, by name."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Pairs(NamedTuple):
    """A call on series; all tensors but x and y are contiguous."""

    x: Tensor
    """(B, N, D) float64 or float32, any strides. On CUDA autograd.series() takes half types, too."""
    y: Tensor
    """(B, M, D)"""
    x_lengths: Tensor | None = None
    """(B,) int32"""
    y_lengths: Tensor | None = None
    x_mask: Tensor | None = None
    """(B, N) bool, True where a step is missing."""
    y_mask: Tensor | None = None
    gammas: Tensor | None = None
    """(B,) in the dtype of x, in the place of Settings.gamma."""


class Costs(NamedTuple):
    """A call on cost matrices; all tensors but the costs are contiguous."""

    cost: Tensor
    """(B, N, M) float64 or float32, any strides."""
    x_lengths: Tensor | None = None
    """(B,) int32"""
    y_lengths: Tensor | None = None
    gammas: Tensor | None = None
    """(B,) in the dtype of the costs, in the place of Settings.gamma."""
