"""Products with matrices of inner distances on the matrix units of a GPU, by factors of binary16.

They have the digits of TF32, whose products take twice the time of the units. Powers of two keep binary16 in range: sums of
a plan's columns reach 2^15, and distances 1. Entries of the plan 2^-38 times smaller than the largest sum still count.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

_LEAST_ENTRIES = 1 << 20  # A plan has so many at least: smaller problems spend their time elsewhere.
_ALIGNED = 8  # extents of factors are multiples, as matrix units want them
_PLAN_SIZE = 2.0**15


class Factors(NamedTuple):
    """Distances as factors of binary16."""

    x: Tensor
    """(B, N, N), padded"""
    y: Tensor
    """(B, M, M), padded"""
    unit: Tensor
    """(B,): what a product with both is multiplied by."""

    def add_product(self, to: Tensor, plan: Tensor, factor: float, transposed: bool = False) -> Tensor:
        """`to` (B, N, M) plus factor cx plan cyᵀ, or factor cxᵀ plan cy, in place. plan >= 0."""
        n, m = plan.shape[1:]
        size = _PLAN_SIZE / _power_above(plan.sum(1).amax(1))
        narrow = _aligned((plan * size[:, None, None]).half())
        inner = (self.x.mT if transposed else self.x) @ narrow
        found = _product(inner, self.y if transposed else self.y.mT)
        return to.addcmul_(found[:, :n, :m], (self.unit / size)[:, None, None], value=factor)


def factors_of(cx: Tensor, cy: Tensor) -> Factors | None:
    """The distances' factors where the units make products of them faster than torch does of float32, else None."""
    if not cx.is_cuda or cx.dtype != torch.float32 or cx.shape[1] * cy.shape[1] < _LEAST_ENTRIES:
        return None
    return narrowed(cx, cy)


def narrowed(cx: Tensor, cy: Tensor) -> Factors:
    (x, unit_x), (y, unit_y) = _narrowed(cx), _narrowed(cy)
    return Factors(x, y, unit_x * unit_y)


def _narrowed(table: Tensor) -> tuple[Tensor, Tensor]:
    """A factor of (B, N, N), and the power of two (B,) that its largest entry stays below."""
    shared = table.shape[0] > 1 and table.stride(0) == 0  # one table for all problems
    some = table[:1] if shared else table
    unit = _power_above(torch.maximum(some.amax((1, 2)), -some.amin((1, 2))))
    factor = _aligned((some / unit[:, None, None]).half())
    return factor.expand(table.shape[0], -1, -1), unit


def _power_above(size: Tensor) -> Tensor:
    """(B,): powers of two that are not below the sizes."""
    return size.clamp(min=torch.finfo(size.dtype).tiny * 2.0**30).log2().ceil().exp2()


def _aligned(table: Tensor) -> Tensor:
    """With zeros behind the last rows and columns."""
    rows, columns = (-extent % _ALIGNED for extent in table.shape[1:])
    return pad(table, (0, columns, 0, rows)) if rows + columns > 0 else table


def _product(one: Tensor, other: Tensor) -> Tensor:
    """(B, N, M) float32 of binary16 factors."""
    if not one.is_cuda:
        return one.float() @ other.float()
    return torch.bmm(one, other, out_dtype=torch.float32)
