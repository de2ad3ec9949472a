"""Series end to end in one tensor, without padding: torch's jagged nested tensors, read where they are.

Only what the core does not take packed is padded: masks, the cosine, the caller's costs, transforms of torch.func and torch.compile.
"""

from __future__ import annotations

from typing import Any, NamedTuple, get_args

import torch
from torch import Tensor

from warpalign._core import library
from warpalign._core.costs import Cost
from warpalign._core.series import is_half, widened
from warpalign._core.torch_internals import apply_unbound, lengths_of_jagged
from warpalign._core.transforms import is_traced, may_write_in_place, needs_gradient, needs_graph
from warpalign._soft_dtw import autograd, ops
from warpalign._soft_dtw.checks import gamma_of_pairs, naming_the_band
from warpalign._soft_dtw.inputs import Pairs
from warpalign._soft_dtw.settings import Settings, as_keywords

_COSINE = get_args(Cost).index("cosine")


class Side(NamedTuple):
    """The series of one side of the pairs."""

    values: Tensor
    """(steps, D), in which every series' steps follow the series before."""
    offsets: Tensor
    """(B,) int64: each series' first step."""
    lengths: Tensor
    """(B,) int32: each series' steps, at least 1."""
    longest: int

    def padded(self) -> tuple[Tensor, Tensor]:
        """(B, longest, D) and the lengths; what stands after a series' end is not to be used."""
        steps = torch.arange(self.longest, device=self.values.device)
        own = torch.minimum(steps, self.lengths[:, None] - 1) + self.offsets[:, None]
        rows = self.values.index_select(0, own.flatten())
        return rows.view(len(self.offsets), self.longest, -1), self.lengths

    def pair_of_steps(self) -> Tensor:
        """(steps,): which pair a step belongs to."""
        steps = torch.arange(len(self.values), device=self.values.device)
        return torch.bucketize(steps, self.offsets[1:].contiguous(), right=True)


class PackedProblem(NamedTuple):
    """A batch of pairs of packed series, ready to be aligned."""

    x: Side
    y: Side
    gamma: float | Tensor
    settings: Settings
    unbatched: bool = False

    def value(self) -> Tensor:
        """(B,)"""
        gammas = self.gamma if isinstance(self.gamma, Tensor) else None
        x, y = self.x.values, self.y.values
        value: Tensor
        with naming_the_band(self.settings):
            if needs_gradient(x, y, gammas):
                value = apply_unbound(_Packed, x, y, gammas, self)
            else:
                value = _run(self, (False, False, False))[0]
        return value

    def divergence(self) -> Tensor:
        """s(x, y) - (s(x, x) + s(y, y)) / 2."""
        of_x, of_y = self._replace(y=self.x).value(), self._replace(x=self.y).value()
        return self.value() - (of_x + of_y) / 2

    def padded_value(self, x: Tensor, y: Tensor, gammas: Tensor | None) -> Tensor:
        """The value by padded series, whose gradient can be differentiated."""
        first, second = self.x._replace(values=widened(x)), self.y._replace(values=widened(y))
        (x, n), (y, m) = first.padded(), second.padded()
        gamma = self.settings.gamma if gammas is None else gammas
        return autograd.series(Pairs(x, y, n, m), gamma, self.settings.cost_kind, self.settings)


def _run(of: PackedProblem, needs: tuple[bool, bool, bool]) -> tuple[Tensor, ...]:
    """(value, grad_x, grad_y, grad_gamma), gradients as (1, steps, D)."""
    needs_x, needs_y, needs_gamma = needs
    gamma, keywords = as_keywords(of.settings)
    if isinstance(of.gamma, Tensor):
        keywords |= {"gammas": of.gamma, "needs_grad_gamma": needs_gamma}
    x, y = of.x, of.y
    sides = (x.values[None], y.values[None], x.offsets, y.offsets, x.lengths, y.lengths)
    result: tuple[Tensor, ...] = ops.packed(*sides, x.longest, y.longest, gamma, needs_x, needs_y, **keywords)
    return result


class _Packed(torch.autograd.Function):
    """The values of packed series; as those of autograd.series() where nothing is traced."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, gammas: Tensor | None, of: PackedProblem) -> Tensor:
        ctx.wanted = ctx.needs_input_grad[:3]
        value, *ctx.gradients = _run(of, ctx.wanted)
        ctx.of = of._replace(x=of.x._replace(values=x.detach()), y=of.y._replace(values=y.detach()))
        ctx.save_for_backward(x, y, gammas)
        return value

    @staticmethod
    def backward(ctx: Any, grad_value: Tensor) -> tuple[Tensor | None, ...]:
        gradients, ctx.gradients = ctx.gradients, None
        if needs_graph():
            given = ctx.saved_tensors
            value = ctx.of.padded_value(*given)
            inputs = [t for t, want in zip(given, ctx.wanted, strict=True) if want]
            found = iter(torch.autograd.grad(value, inputs, grad_value, create_graph=True))
            return *(next(found) if want else None for want in ctx.wanted), None
        if gradients is None:  # a second backward through the same graph
            _, *gradients = _run(ctx.of, ctx.wanted)
        grad_x, grad_y, grad_gammas = gradients
        of_x, of_y = (
            _scaled(gradient.squeeze(0), grad_value, side) if want else None
            for gradient, side, want in zip(
                (grad_x, grad_y), (ctx.of.x, ctx.of.y), ctx.wanted[:2], strict=True
            )
        )
        return of_x, of_y, grad_value * grad_gammas if ctx.wanted[2] else None, None


def _scaled(gradient: Tensor, grad_value: Tensor, side: Side) -> Tensor:
    """gradient (steps, D) times each pair's factor, in the series' dtype; where it is, if nobody else has it."""
    factor = _of_steps(grad_value, side)
    product = gradient.mul_(factor) if may_write_in_place(grad_value) else gradient * factor
    return product.to(side.values.dtype)


def _of_steps(factor: Tensor, side: Side) -> Tensor:
    """(steps, 1), or (1, 1) where all pairs have one factor, as those of a reduction have."""
    if factor.stride() == (0,):
        return factor[:1, None]
    return factor[side.pair_of_steps(), None]


def packed_problem(
    x: object, y: object, gamma: float | Tensor, cost: object, settings: Settings
) -> PackedProblem | None:
    """The problem of two sides, jagged nested tensors or one of them dense; None: others, which are padded."""
    if not (isinstance(x, Tensor) and isinstance(y, Tensor) and (x.is_nested or y.is_nested)):
        return None
    if is_traced() or not isinstance(cost, int) or cost == _COSINE:
        return None
    first, second = _side(x), _side(y)
    if first is None or second is None or not _fit(first, second):
        return None
    if is_half(first.values) and not (first.values.is_cuda and not isinstance(gamma, Tensor)):
        first, second = (side._replace(values=widened(side.values)) for side in (first, second))
    gamma = gamma_of_pairs(gamma, first.values.new_empty(len(first.offsets), 0))
    number = 1.0 if isinstance(gamma, Tensor) else gamma
    return PackedProblem(first, second, gamma, settings._replace(gamma=number, cost_kind=cost))


def _side(series: Tensor) -> Side | None:
    if series.dim() != 3 or not series.dtype.is_floating_point:
        return None
    if series.is_nested:
        of: Any = series  # types know no nested tensors
        # The ragged axis is the second one, and no steps are left out between two series.
        if of.layout != torch.jagged or of.lengths() is not None or not isinstance(of.shape[2], int):
            return None
        shortest, longest = lengths_of_jagged(of)
        if shortest < 1:
            return None
        offsets = of.offsets()
        return Side(of.values(), offsets[:-1].contiguous(), offsets.diff().to(torch.int32), longest)
    if series.layout != torch.strided:
        return None
    batch, steps, features = series.shape
    offsets = torch.arange(batch, device=series.device) * steps
    lengths = torch.full((batch,), steps, dtype=torch.int32, device=series.device)
    return Side(series.reshape(batch * steps, features), offsets, lengths, steps)


def _fit(x: Side, y: Side) -> bool:
    return (
        x.values.dtype == y.values.dtype
        and x.values.device == y.values.device
        and x.values.shape[1:] == y.values.shape[1:] != (0,)
        and len(x.offsets) == len(y.offsets) > 0
        and min(len(x.values), len(y.values), x.longest, y.longest) > 0
        and (library.has_cuda or not x.values.is_cuda)
    )
