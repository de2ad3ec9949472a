"""The operators on plans, and the shapes of what they return, for torch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from warpalign._core.library import check_devices, empty_unless
from warpalign._transport.settings import Inputs
from warpalign._transport.storage import rounding


def _checked(tensors: tuple[Tensor | None, ...], **others: Tensor | None) -> Inputs:
    given = Inputs(*tensors)
    check_devices("x" if given.cost is None else "cost", **given._asdict(), **others)
    return given


@torch.library.register_fake("warpalign::transport_apply")  # type: ignore[untyped-decorator]
def _(*arguments: Any, **settings: object) -> Tensor:
    *tensors, v, transposed = arguments
    given = _checked(tuple(tensors), v=v)
    first, (n, m) = given.first, given.sizes
    return first.new_empty(first.shape[0], m if transposed else n, v.shape[2])


@torch.library.register_fake("warpalign::transport_gradient")  # type: ignore[untyped-decorator]
def _(*arguments: Any, **settings: object) -> tuple[Tensor, ...]:
    *tensors, w, u, v, needs_x, needs_y, needs_cost = arguments
    given = _checked(tuple(tensors), w=w, u=u, v=v)
    first, (n, m) = given.first, given.sizes
    batch, dim = first.shape[0], 0 if given.x is None else given.x.shape[2]
    return (
        first.new_empty(batch, n),
        first.new_empty(batch, m),
        empty_unless(needs_x, first, batch, n, dim),
        empty_unless(needs_y, first, batch, m, dim),
        empty_unless(needs_cost, first, batch, n, m),
        first.new_empty(batch, n),
        first.new_empty(batch, m),
        first.new_empty(batch),
    )


@torch.library.register_fake("warpalign::transport_topk")  # type: ignore[untyped-decorator]
def _(*arguments: Any, **settings: object) -> tuple[Tensor, Tensor]:
    *tensors, count, transposed = arguments
    given = _checked(tuple(tensors))
    first, (n, m) = given.first, given.sizes
    shape = (first.shape[0], m if transposed else n, count)
    return first.new_empty(shape), first.new_empty(shape, dtype=torch.int32)


@torch.library.register_fake("warpalign::transport_sample")  # type: ignore[untyped-decorator]
def _(*arguments: Any, **settings: object) -> Tensor:
    *tensors, count, _ = arguments
    first = _checked(tuple(tensors)).first
    return first.new_empty(first.shape[0], count, 2, dtype=torch.int32)


@torch.library.register_fake("warpalign::transport_dense")  # type: ignore[untyped-decorator]
def _(*tensors: Any, **settings: object) -> Tensor:
    given = _checked(tensors)
    return given.first.new_empty(given.first.shape[0], *given.sizes)


product = rounding(torch.ops.warpalign.transport_apply.default)
gradient = rounding(torch.ops.warpalign.transport_gradient.default)
topk = rounding(torch.ops.warpalign.transport_topk.default)
sample = rounding(torch.ops.warpalign.transport_sample.default)
dense = rounding(torch.ops.warpalign.transport_dense.default)
