"""Entries of some rows and columns of a plan that is not stored."""

from __future__ import annotations

import torch
from torch import Tensor

from warpalign._core.checks import naming_arguments
from warpalign._transport import plan_autograd
from warpalign._transport.plan_checks import known_weights
from warpalign._transport.settings import Inputs, Settings


def part_of(of: Inputs, settings: Settings, rows: Tensor | None, columns: Tensor | None) -> Tensor:
    """(B, rows, columns) of the plan as it was solved; None: all of them."""
    f, g = of.f0, of.g0
    assert f is not None and g is not None
    x, y, cost = of.x, of.y, of.cost
    a, is_row = known_weights(of.a, of.x_lengths, f)
    b, is_column = known_weights(of.b, of.y_lengths, g)
    if rows is not None:
        x = None if x is None else x.index_select(1, rows)
        cost = None if cost is None else cost.index_select(1, rows)
        a, f, is_row = (t.index_select(1, rows) for t in (a, f, is_row))
    if columns is not None:
        y = None if y is None else y.index_select(1, columns)
        cost = None if cost is None else cost.index_select(2, columns)
        b, g, is_column = (t.index_select(1, columns) for t in (b, g, is_column))
    exists = is_row[:, :, None] & is_column[:, None, :]
    # Padding is ignored, NaN too.
    x = None if x is None else x.masked_fill(~is_row[:, :, None], 0.0)
    y = None if y is None else y.masked_fill(~is_column[:, :, None], 0.0)
    cost = None if cost is None else cost.masked_fill(~exists, torch.inf)
    # The core needs some weight on each side, which a part may not have.
    part = Inputs(x, y, cost, torch.ones_like(a), torch.ones_like(b), of.epsilons, None, None, f, g)
    with naming_arguments():
        plan = plan_autograd.dense(part, settings)
    if settings.reference == 0:
        plan = plan * a[:, :, None] * b[:, None, :]
    return plan.masked_fill(~exists, 0.0)
