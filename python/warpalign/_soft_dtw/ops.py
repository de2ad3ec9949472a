"""Soft-DTW's operators, and the shapes of what they return, for torch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from warpalign._core.library import check_devices, empty_unless
from warpalign._soft_dtw.inputs import Costs, Pairs
from warpalign._soft_dtw.settings import Settings, as_keywords


@torch.library.register_fake("warpalign::soft_dtw")  # type: ignore[untyped-decorator]
def _of_series(
    x: Tensor,
    y: Tensor,
    x_lengths: Tensor | None,
    y_lengths: Tensor | None,
    gamma: float,
    needs_grad_x: bool,
    needs_grad_y: bool,
    gammas: Tensor | None = None,
    needs_grad_gamma: bool = False,
    x_mask: Tensor | None = None,
    y_mask: Tensor | None = None,
    **settings: object,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    lengths = {"x_lengths": x_lengths, "y_lengths": y_lengths}
    check_devices("x", x=x, y=y, **lengths, gammas=gammas, x_mask=x_mask, y_mask=y_mask)
    like = _result_like(x)
    return (
        like.new_empty(x.shape[0]),
        empty_unless(needs_grad_x, like, *x.shape),
        empty_unless(needs_grad_y, like, *y.shape),
        empty_unless(needs_grad_gamma, like, x.shape[0]),
    )


@torch.library.register_fake("warpalign::soft_dtw_packed")  # type: ignore[untyped-decorator]
def _(
    x: Tensor,
    y: Tensor,
    x_offsets: Tensor,
    y_offsets: Tensor,
    x_lengths: Tensor,
    y_lengths: Tensor,
    n: int,
    m: int,
    gamma: float,
    needs_grad_x: bool,
    needs_grad_y: bool,
    gammas: Tensor | None = None,
    needs_grad_gamma: bool = False,
    **settings: object,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    ragged = {"x_offsets": x_offsets, "y_offsets": y_offsets, "x_lengths": x_lengths, "y_lengths": y_lengths}
    check_devices("x", x=x, y=y, **ragged, gammas=gammas)
    like, batch = _result_like(x), x_offsets.shape[0]
    return (
        like.new_empty(batch),
        empty_unless(needs_grad_x, like, *x.shape),
        empty_unless(needs_grad_y, like, *y.shape),
        empty_unless(needs_grad_gamma, like, batch),
    )


def _result_like(x: Tensor) -> Tensor:
    """A tensor with the dtype of what is made from x: float32 for half types."""
    return x if x.dtype in (torch.float32, torch.float64) else x.new_empty(0, dtype=torch.float32)


@torch.library.register_fake("warpalign::soft_dtw_alignment")  # type: ignore[untyped-decorator]
def _(x: Tensor, y: Tensor, *rest: Any, **options: Any) -> tuple[Tensor, ...]:
    alignment = _result_like(x).new_empty(x.shape[0], x.shape[1], y.shape[1])
    return *_of_series(x, y, *rest, **options), alignment


@torch.library.register_fake("warpalign::soft_dtw_subsequence")  # type: ignore[untyped-decorator]
def _(
    x: Tensor,
    y: Tensor,
    x_lengths: Tensor | None,
    y_lengths: Tensor | None,
    gamma: float,
    needs_grad_x: bool,
    needs_grad_y: bool,
    step_penalty: float = 0.0,
    cost_kind: int = 0,
    needs_alignment: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    check_devices("x", x=x, y=y, x_lengths=x_lengths, y_lengths=y_lengths)
    batch, n, _ = x.shape
    like = _result_like(x)
    return (
        like.new_empty(batch),
        empty_unless(needs_grad_x, like, *x.shape),
        empty_unless(needs_grad_y, like, *y.shape),
        empty_unless(needs_alignment, like, batch, n, y.shape[1]),
        like.new_empty(batch, y.shape[1]),
    )


@torch.library.register_fake("warpalign::soft_dtw_cost")  # type: ignore[untyped-decorator]
def _(
    cost: Tensor,
    x_lengths: Tensor | None,
    y_lengths: Tensor | None,
    gamma: float,
    needs_grad: bool,
    gammas: Tensor | None = None,
    needs_grad_gamma: bool = False,
    **settings: object,
) -> tuple[Tensor, Tensor, Tensor]:
    check_devices("cost", cost=cost, x_lengths=x_lengths, y_lengths=y_lengths, gammas=gammas)
    return (
        cost.new_empty(cost.shape[0]),
        empty_unless(needs_grad, cost, *cost.shape),
        empty_unless(needs_grad_gamma, cost, cost.shape[0]),
    )


@torch.library.register_fake("warpalign::soft_dtw_jvp")  # type: ignore[untyped-decorator]
def _(
    x: Tensor,
    y: Tensor,
    x_tangent: Tensor | None,
    y_tangent: Tensor | None,
    x_lengths: Tensor | None,
    y_lengths: Tensor | None,
    gamma: float,
    needs_grad_x: bool,
    needs_grad_y: bool,
    gammas: Tensor | None = None,
    x_mask: Tensor | None = None,
    y_mask: Tensor | None = None,
    **settings: object,
) -> tuple[Tensor, Tensor, Tensor]:
    tangents = {"x_tangent": x_tangent, "y_tangent": y_tangent}
    lengths = {"x_lengths": x_lengths, "y_lengths": y_lengths}
    check_devices("x", x=x, y=y, **tangents, **lengths, gammas=gammas, x_mask=x_mask, y_mask=y_mask)
    return (
        x.new_empty(x.shape[0]),
        empty_unless(needs_grad_x, x, *x.shape),
        empty_unless(needs_grad_y, y, *y.shape),
    )


@torch.library.register_fake("warpalign::soft_dtw_cost_jvp")  # type: ignore[untyped-decorator]
def _(
    cost: Tensor,
    cost_tangent: Tensor,
    x_lengths: Tensor | None,
    y_lengths: Tensor | None,
    gamma: float,
    needs_grad: bool,
    gammas: Tensor | None = None,
    **settings: object,
) -> tuple[Tensor, Tensor]:
    lengths = {"x_lengths": x_lengths, "y_lengths": y_lengths}
    check_devices("cost", cost=cost, cost_tangent=cost_tangent, **lengths, gammas=gammas)
    return cost.new_empty(cost.shape[0]), empty_unless(needs_grad, cost, *cost.shape)


@torch.library.register_fake("warpalign::soft_dtw_sample")  # type: ignore[untyped-decorator]
def _(
    x: Tensor,
    y: Tensor,
    x_lengths: Tensor | None,
    y_lengths: Tensor | None,
    gamma: float,
    count: int,
    seed: int,
    gammas: Tensor | None = None,
    x_mask: Tensor | None = None,
    y_mask: Tensor | None = None,
    **settings: object,
) -> tuple[Tensor, Tensor]:
    lengths = {"x_lengths": x_lengths, "y_lengths": y_lengths}
    check_devices("x", x=x, y=y, **lengths, gammas=gammas, x_mask=x_mask, y_mask=y_mask)
    return _paths_like(x, count, x.shape[1] + y.shape[1] - 1)


@torch.library.register_fake("warpalign::soft_dtw_cost_sample")  # type: ignore[untyped-decorator]
def _(
    cost: Tensor,
    x_lengths: Tensor | None,
    y_lengths: Tensor | None,
    gamma: float,
    count: int,
    seed: int,
    gammas: Tensor | None = None,
    **settings: object,
) -> tuple[Tensor, Tensor]:
    check_devices("cost", cost=cost, x_lengths=x_lengths, y_lengths=y_lengths, gammas=gammas)
    return _paths_like(cost, count, cost.shape[1] + cost.shape[2] - 1)


def _paths_like(first: Tensor, count: int, cells: int) -> tuple[Tensor, Tensor]:
    batch = first.shape[0]
    paths = first.new_empty(batch, count, cells, 2, dtype=torch.int64)
    return paths, first.new_empty(batch, count, dtype=torch.int64)


series = torch.ops.warpalign.soft_dtw.default
packed = torch.ops.warpalign.soft_dtw_packed.default
alignment = torch.ops.warpalign.soft_dtw_alignment.default
cost_matrix = torch.ops.warpalign.soft_dtw_cost.default
subsequences = torch.ops.warpalign.soft_dtw_subsequence.default
series_jvp = torch.ops.warpalign.soft_dtw_jvp.default
cost_matrix_jvp = torch.ops.warpalign.soft_dtw_cost_jvp.default
_series_sample = torch.ops.warpalign.soft_dtw_sample.default
_cost_sample = torch.ops.warpalign.soft_dtw_cost_sample.default


def draw_from_series(of: Pairs, settings: Settings, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Cells and lengths of `count` paths of every pair."""
    gamma, keywords = as_keywords(settings)
    keywords |= {"gammas": of.gammas, "x_mask": of.x_mask, "y_mask": of.y_mask}
    found: tuple[Tensor, Tensor] = _series_sample(
        of.x, of.y, of.x_lengths, of.y_lengths, gamma, count, seed, **keywords
    )
    return found


def draw_from_costs(of: Costs, settings: Settings, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """The same for cost matrices."""
    gamma, keywords = as_keywords(settings)
    keywords |= {"gammas": of.gammas}
    found: tuple[Tensor, Tensor] = _cost_sample(
        of.cost, of.x_lengths, of.y_lengths, gamma, count, seed, **keywords
    )
    return found
