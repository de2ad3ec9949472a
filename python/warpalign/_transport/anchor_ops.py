"""The operators on anchors, which CUDA alone has, and the shapes of what they return, for torch."""

from __future__ import annotations

import torch
from torch import Tensor

from warpalign._core.library import check_devices

DISTANCES = ("landmark", "euclidean", "sqeuclidean")
"""Geometries by the operator's numbers."""


@torch.library.register_fake("warpalign::anchor_columns")  # type: ignore[untyped-decorator]
def _(
    x: Tensor,
    y: Tensor,
    g: Tensor,
    b: Tensor | None,
    rows: Tensor,
    cost_scale: float,
    epsilon: float,
    seed: int,
) -> Tensor:
    check_devices("x", x=x, y=y, g=g, b=b, rows=rows)
    return rows.new_empty(rows.shape[0])


@torch.library.register_fake("warpalign::anchor_coordinates")  # type: ignore[untyped-decorator]
def _(x: Tensor, anchors: Tensor, unit: Tensor, distance: int) -> Tensor:
    check_devices("x", x=x, anchors=anchors, unit=unit)
    return x.new_empty(x.shape[0], anchors.shape[0])


columns = torch.ops.warpalign.anchor_columns.default
coordinates = torch.ops.warpalign.anchor_coordinates.default
