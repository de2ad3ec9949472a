"""Products with matrices of intra-domain distances on the matrix units of a GPU, by factors of binary16.

They have the digits of TF32, whose products take twice the time of the units. Powers of two keep binary16 in range: sums of
a plan's columns reach 2^15, and distances 1. Entries of the plan 2^-38 times smaller than the largest sum still count.

The distances' means are subtracted: what they add to d E / d T depends on the row or the column alone, and goes into the sums
that it has for them anyway. Matrix units truncate sums, with an error relative to the sum, and sums of distances less their mean stay small.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

_LEAST_ENTRIES = 1 << 20  # A plan has so many at least: smaller problems spend their time elsewhere.
_LEAST_ENTRIES_OF_PARTS = 1 << 21  # the same of three products, which take longer
_ALIGNED = 8  # extents of factors are multiples, as matrix units want them
_PLAN_SIZE = 2.0**15
_PART = 2.0**11  # what rounding to binary16 leaves is stored by so much larger
_BESIDE, _ABOVE = 2, 1  # the axes along which two parts lie in one table
_SUMMED = 1024  # products that the units add up: they cut sums off, float32 additions of such sums round


class Parts(NamedTuple):
    """A table (B, ...) as the sum of two of binary16, of which the second is divided by _PART."""

    large: Tensor
    rest: Tensor | None
    """None: zeros."""
    both: Tensor | None = None
    """One table of both, as a factor of the two products of a large part with a rest: as the first factor rest beside large, as the
    second large above rest. None: it is the other factor's form, or there is no rest."""

    @property
    def mT(self) -> Parts:
        """large and rest alone."""
        return Parts(self.large.mT, None if self.rest is None else self.rest.mT)


class Factors(NamedTuple):
    """Distances as factors of binary16, less their means."""

    x: Parts
    """(B, N, N), padded"""
    y: Parts
    """(B, M, M), padded and transposed"""
    unit: Tensor
    """(B,): what a product with both is multiplied by."""
    means: tuple[Tensor, Tensor]
    """(B, 1, 1): of cx and of cy."""

    def add_product(
        self, to: Tensor, plan: Tensor, factor: float, transposed: bool = False, columns: Tensor | None = None
    ) -> Tensor:
        """`to` (B, N, M) plus factor cx plan cyᵀ, or factor cxᵀ plan cy, in place, of distances less their means.

        plan >= 0; columns: its sums (B, M).
        """
        n, m = plan.shape[1:]
        size = _PLAN_SIZE / _power_above((plan.sum(1) if columns is None else columns).amax(1))
        precise = self.x.rest is not None
        narrow = _parts(plan, size, _ABOVE if precise else None)
        x, y = (self.x.mT, self.y.mT) if transposed else (self.x, self.y)
        if precise:
            found = _precise_product(_parts_of_product(_precise_product(x, narrow)), y)
            factor /= _PART
        else:
            found = _sum(None, x.large @ narrow.large, y.large)
        return to.addcmul_(found[:, :n, :m], (self.unit / size)[:, None, None], value=factor)

    def squares(self, cx: Tensor, cy: Tensor) -> tuple[Tensor, Tensor]:
        """(B, N, N) and (B, M, M): in the place of cx² and cy² in the sums of rows and columns of d E / d T.

        With cx = x + p and cy = y + q, where p and q are the means, and d = p − q, it is

            2 (cx² r)ᵢ + 2 (cy² c)ⱼ − 4 (cx T cyᵀ)ᵢⱼ = 2 ((x² + 2 d x) r)ᵢ + 2 ((y² − 2 d y + d²) c)ⱼ − 4 (x T yᵀ)ᵢⱼ

        with r and c, the sums of T. No term is large where distances differ little from their mean.
        """
        p, q = self.means
        x, y, d = cx - p, cy - q, p - q
        return x * (x + 2 * d), y * (y - 2 * d) + d * d


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
    (x, unit_x, mean_x), (y, unit_y, mean_y) = _narrowed(cx, precise), _narrowed(cy, precise, transposes=True)
    return Factors(x, y, unit_x * unit_y, (mean_x, mean_y))


def _narrowed(table: Tensor, precise: bool, transposes: bool = False) -> tuple[Parts, Tensor, Tensor]:
    """A factor of (B, N, N), the power of two (B,) that its largest entry stays below, and the mean (B, 1, 1) that it is without."""
    shared = table.shape[0] > 1 and table.stride(0) == 0  # one table for all problems
    some = table[:1] if shared else table
    mean = some.mean((1, 2), keepdim=True)
    some = some - mean
    unit = _power_above(torch.maximum(some.amax((1, 2)), -some.amin((1, 2))))
    parts = _parts(
        some.mT if transposes else some, 1 / unit, (_ABOVE if transposes else _BESIDE) if precise else None
    )
    wide = (None if t is None else t.expand(table.shape[0], -1, -1) for t in parts)
    return Parts(*wide), unit, mean  # type: ignore[arg-type]


def _parts(table: Tensor, size: Tensor, axis: int | None) -> Parts:
    """(B, N, M) times size (B,), a power of two, with zeros behind the last rows and columns. axis: None: one part."""
    n, m = table.shape[1:]
    found = _empty_parts(table, axis)
    large = found.large[:, :n, :m]
    if found.rest is None:
        torch.mul(table, size[:, None, None], out=large)
        return found
    _divide(table * (size * _PART)[:, None, None], large, found.rest[:, :n, :m])
    return found


def _parts_of_product(product: Tensor) -> Parts:
    """Of what _precise_product() has found."""
    found = _empty_parts(product, _BESIDE)
    assert found.rest is not None
    _divide(product, found.large, found.rest)
    return found


def _divide(table: Tensor, large: Tensor, rest: Tensor) -> None:
    """Writes the parts of a table over _PART."""
    torch.mul(table, 1 / _PART, out=large)
    torch.sub(table, large, alpha=_PART, out=rest)


def _empty_parts(table: Tensor, axis: int | None) -> Parts:
    """Parts for a table (B, N, M), zero behind its rows and columns. axis: the one along which two parts are one table."""
    batch, n, m = table.shape
    shape = [batch, n + -n % _ALIGNED, m + -m % _ALIGNED]
    places: list[Tensor]
    if axis is None:
        both = torch.empty(shape, dtype=torch.float16, device=table.device)
        places = [both]
    else:
        size = shape[axis]
        shape[axis] *= 2
        both = torch.empty(shape, dtype=torch.float16, device=table.device)
        places = list(both.split(size, axis))
    for part in places:
        part[:, n:], part[:, :, m:] = 0, 0
    if axis is None:
        return Parts(both, None)
    first, second = places
    return Parts(first, second, both) if axis == _ABOVE else Parts(second, first, both)


def _power_above(size: Tensor) -> Tensor:
    """(B,): powers of two that are not below the sizes."""
    return size.clamp(min=torch.finfo(size.dtype).tiny * 2.0**30).log2().ceil().exp2()


def _precise_product(one: Parts, other: Parts) -> Tensor:
    """(B, N, M) float32: the product of two tables in two parts, times _PART. The product of both rests is left out."""
    assert one.rest is not None and other.rest is not None
    if one.both is not None and other.both is not None:
        found = _sum(None, one.both, other.both)
    else:
        found = _sum(_sum(None, one.large, other.rest), one.rest, other.large)
    for begin in range(0, one.large.shape[2], _SUMMED):
        end = begin + _SUMMED
        found = _sum(found, one.large[:, :, begin:end], other.large[:, begin:end], _PART)
    return found


def _sum(to: Tensor | None, one: Tensor, other: Tensor, factor: float = 1.0) -> Tensor:
    """`to`, which it may write to, plus the factor times the product in float32; without `to` the product."""
    if not one.is_cuda:
        found = one.float() @ other.float()
        return found if to is None else to.add_(found, alpha=factor)
    if to is None:
        return torch.bmm(one, other, out_dtype=torch.float32)
    return torch.baddbmm(to, one, other, out_dtype=torch.float32, alpha=factor, out=to)
