"""Products with matrices of intra-domain distances on the matrix units of a GPU, by factors of binary16.

They have the digits of TF32, whose products take twice the time of the units. Powers of two keep binary16 in range: sums of
a plan's columns reach 2^15, and distances 1. Entries of the plan 2^-38 times smaller than the largest sum still count.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

_LEAST_ENTRIES = 1 << 20  # A plan has so many at least: smaller problems spend their time elsewhere.
_LEAST_ENTRIES_OF_PARTS = 1 << 23  # the same of three products, which take longer
_ALIGNED = 8  # extents of factors are multiples, as matrix units want them
_PLAN_SIZE = 2.0**15
_PART = 2.0**11  # what rounding to binary16 leaves is stored by so much larger
_SUMMED = 256  # products that the units add up: they cut sums off, float32 additions of such sums round


class Parts(NamedTuple):
    """A table (B, ...) as the sum of two of binary16, of which the second is divided by _PART."""

    large: Tensor
    rest: Tensor | None
    """None: zeros."""

    @property
    def mT(self) -> Parts:
        return Parts(self.large.mT, None if self.rest is None else self.rest.mT)


class Factors(NamedTuple):
    """Distances as factors of binary16."""

    x: Parts
    """(B, N, N), padded"""
    y: Parts
    """(B, M, M), padded"""
    unit: Tensor
    """(B,): what a product with both is multiplied by."""

    def add_product(
        self, to: Tensor, plan: Tensor, factor: float, transposed: bool = False, columns: Tensor | None = None
    ) -> Tensor:
        """`to` (B, N, M) plus factor cx plan cyᵀ, or factor cxᵀ plan cy, in place. plan >= 0; columns: its sums (B, M)."""
        n, m = plan.shape[1:]
        size = _PLAN_SIZE / _power_above((plan.sum(1) if columns is None else columns).amax(1))
        narrow = _parts(plan, size, self.x.rest is not None)
        x, y = (self.x.mT, self.y) if transposed else (self.x, self.y.mT)
        if x.rest is None:
            found = _product(Parts(x.large @ narrow.large, None), y)
        else:
            found = _product(_parts(_product(x, narrow), None, True), y)
        return to.addcmul_(found[:, :n, :m], (self.unit / size)[:, None, None], value=factor)


def factors_of(cx: Tensor, cy: Tensor, precise: bool = False) -> Factors | None:
    """The distances' factors where the units make products of them faster than torch does of float32, else None.

    Args:
        precise: two parts of each number, for the digits of float32.
    """
    least = _LEAST_ENTRIES_OF_PARTS if precise else _LEAST_ENTRIES
    if not cx.is_cuda or cx.dtype != torch.float32 or cx.shape[1] * cy.shape[1] < least:
        return None
    return narrowed(cx, cy, precise)


def narrowed(cx: Tensor, cy: Tensor, precise: bool = False) -> Factors:
    (x, unit_x), (y, unit_y) = _narrowed(cx, precise), _narrowed(cy, precise)
    return Factors(x, y, unit_x * unit_y)


def _narrowed(table: Tensor, precise: bool) -> tuple[Parts, Tensor]:
    """A factor of (B, N, N), and the power of two (B,) that its largest entry stays below."""
    shared = table.shape[0] > 1 and table.stride(0) == 0  # one table for all problems
    some = table[:1] if shared else table
    unit = _power_above(torch.maximum(some.amax((1, 2)), -some.amin((1, 2))))
    parts = _parts(some, 1 / unit, precise)
    wide = (None if t is None else t.expand(table.shape[0], -1, -1) for t in parts)
    return Parts(*wide), unit  # type: ignore[arg-type]


def _parts(table: Tensor, size: Tensor | None, precise: bool) -> Parts:
    """(B, N, M) times size (B,), a power of two, with zeros behind the last rows and columns."""
    batch, n, m = table.shape
    shape = (batch, n + -n % _ALIGNED, m + -m % _ALIGNED)
    found = [torch.empty(shape, dtype=torch.float16, device=table.device) for _ in range(2 if precise else 1)]
    for part in found:
        part[:, n:], part[:, :, m:] = 0, 0
    if size is not None and precise:
        table = table * size[:, None, None]
    large = found[0][:, :n, :m]
    if size is not None and not precise:
        torch.mul(table, size[:, None, None], out=large)
        return Parts(found[0], None)
    large.copy_(table)
    found[1][:, :n, :m] = torch.sub(table, large).mul_(_PART)
    return Parts(found[0], found[1])


def _power_above(size: Tensor) -> Tensor:
    """(B,): powers of two that are not below the sizes."""
    return size.clamp(min=torch.finfo(size.dtype).tiny * 2.0**30).log2().ceil().exp2()


def _product(one: Parts, other: Parts) -> Tensor:
    """(B, N, M) float32 of binary16 factors."""
    if one.rest is None or other.rest is None:
        return _sum(None, one.large, other.large)
    found = _sum(_sum(None, one.large, other.rest), one.rest, other.large).div_(_PART)
    for begin in range(0, one.large.shape[2], _SUMMED):
        end = min(begin + _SUMMED, one.large.shape[2])
        found = _sum(found, one.large[:, :, begin:end], other.large[:, begin:end])
    return found


def _sum(to: Tensor | None, one: Tensor, other: Tensor) -> Tensor:
    """`to`, which it may write to, plus the product in float32."""
    if not one.is_cuda:
        found = one.float() @ other.float()
        return found if to is None else to.add_(found)
    if to is None:
        return torch.bmm(one, other, out_dtype=torch.float32)
    return torch.baddbmm(to, one, other, out_dtype=torch.float32, out=to)
