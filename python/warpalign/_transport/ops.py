"""Transport's operators, and the shapes of what they return, for torch."""

from __future__ import annotations

import torch
from torch import Tensor

from warpalign._core.library import check_devices, empty_unless
from warpalign._transport.settings import Inputs
from warpalign._transport.storage import rounding, storing


@torch.library.register_fake("warpalign::sinkhorn")  # type: ignore[untyped-decorator]
def _(
    x: Tensor | None,
    y: Tensor | None,
    cost: Tensor | None,
    a: Tensor | None,
    b: Tensor | None,
    epsilons: Tensor | None,
    x_lengths: Tensor | None,
    y_lengths: Tensor | None,
    f0: Tensor | None,
    g0: Tensor | None,
    needs_grad_x: bool,
    needs_grad_y: bool,
    needs_grad_cost: bool,
    **settings: object,
) -> tuple[Tensor, ...]:
    given = Inputs(x, y, cost, a, b, epsilons, x_lengths, y_lengths, f0, g0)
    first = given.first
    check_devices("x" if cost is None else "cost", **given._asdict())
    batch, (n, m) = first.shape[0], given.sizes
    dim = 0 if x is None else x.shape[2]
    of_problems = [first.new_empty(batch) for _ in range(4)]
    value, linear, shift, error = of_problems
    return (
        value,
        linear,
        first.new_empty(batch, n),
        first.new_empty(batch, m),
        shift,
        first.new_empty(batch, dtype=torch.int32),
        error,
        empty_unless(needs_grad_x, first, batch, n, dim),
        empty_unless(needs_grad_y, first, batch, m, dim),
        empty_unless(needs_grad_cost, first, batch, n, m),
        first.new_empty(batch, n),
        first.new_empty(batch, m),
        first.new_empty(batch),
    )


@torch.library.register_fake("warpalign::sinkhorn_potentials")  # type: ignore[untyped-decorator]
def _(
    x: Tensor | None,
    y: Tensor | None,
    cost: Tensor | None,
    a: Tensor | None,
    b: Tensor | None,
    epsilons: Tensor | None,
    x_lengths: Tensor | None,
    y_lengths: Tensor | None,
    f0: Tensor | None,
    g0: Tensor | None,
    **settings: object,
) -> tuple[Tensor, ...]:
    given = Inputs(x, y, cost, a, b, epsilons, x_lengths, y_lengths, f0, g0)
    first = given.first
    check_devices("x" if cost is None else "cost", **given._asdict())
    batch, (n, m) = first.shape[0], given.sizes
    return (
        first.new_empty(batch),
        first.new_empty(batch),
        first.new_empty(batch, n),
        first.new_empty(batch, m),
    )


@torch.library.register_fake("warpalign::sinkhorn_jvp")  # type: ignore[untyped-decorator]
def _(
    x: Tensor | None,
    y: Tensor | None,
    cost: Tensor | None,
    a: Tensor | None,
    b: Tensor | None,
    epsilons: Tensor | None,
    x_lengths: Tensor | None,
    y_lengths: Tensor | None,
    f0: Tensor | None,
    g0: Tensor | None,
    shift0: Tensor | None,
    x_tangent: Tensor | None,
    y_tangent: Tensor | None,
    cost_tangent: Tensor | None,
    a_tangent: Tensor | None,
    b_tangent: Tensor | None,
    epsilon_tangent: Tensor | None,
    log_scale_tangent: Tensor | None,
    f_tangent: Tensor | None,
    g_tangent: Tensor | None,
    needs_grad_x: bool,
    needs_grad_y: bool,
    needs_grad_cost: bool,
    **settings: object,
) -> tuple[Tensor, ...]:
    given = Inputs(x, y, cost, a, b, epsilons, x_lengths, y_lengths, f0, g0)
    first = given.first
    check_devices(
        "x" if cost is None else "cost",
        **given._asdict(),
        shift0=shift0,
        x_tangent=x_tangent,
        y_tangent=y_tangent,
        cost_tangent=cost_tangent,
        a_tangent=a_tangent,
        b_tangent=b_tangent,
        epsilon_tangent=epsilon_tangent,
        log_scale_tangent=log_scale_tangent,
        f_tangent=f_tangent,
        g_tangent=g_tangent,
    )
    batch, (n, m) = first.shape[0], given.sizes
    dim = 0 if x is None else x.shape[2]
    return (
        first.new_empty(batch),
        first.new_empty(batch),
        first.new_empty(batch, n),
        first.new_empty(batch, m),
        empty_unless(needs_grad_x, first, batch, n, dim),
        empty_unless(needs_grad_y, first, batch, m, dim),
        empty_unless(needs_grad_cost, first, batch, n, m),
        first.new_empty(batch, n),
        first.new_empty(batch, m),
        first.new_empty(batch),
    )


sinkhorn = storing(rounding(torch.ops.warpalign.sinkhorn.default))
sinkhorn_potentials = rounding(torch.ops.warpalign.sinkhorn_potentials.default)
sinkhorn_jvp = rounding(torch.ops.warpalign.sinkhorn_jvp.default)
