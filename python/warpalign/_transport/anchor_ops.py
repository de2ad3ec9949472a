"""The operators on anchors, which CUDA alone has or a CPU alone, and the shapes of what they return, for torch."""

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


@torch.library.register_fake("warpalign::anchor_step")  # type: ignore[untyped-decorator]
def _(
    points_x: Tensor,
    points_y: Tensor,
    unit_x: Tensor,
    unit_y: Tensor,
    distance_x: int,
    distance_y: int,
    xs: list[Tensor],
    ys: list[Tensor],
    gs: list[Tensor],
    scales: list[float],
    epsilons: list[float],
    counts: list[int],
    seeds: list[int],
    rows: Tensor,
    a: Tensor | None,
    b: Tensor | None,
    f0: Tensor,
    g0: Tensor,
    cost_scale: float,
    epsilon: float,
    rho_a: float,
    rho_b: float,
    mass: float,
    iterations: int,
) -> tuple[Tensor, ...]:
    n, m, count = points_x.shape[0], points_y.shape[0], rows.shape[0]
    shapes = ((1, n, count), (1, m, count), (1,), (1, n), (1, m))
    return tuple(points_x.new_empty(shape) for shape in shapes)


@torch.library.register_fake("warpalign::largest_differences")  # type: ignore[untyped-decorator]
def _(x: Tensor, y: Tensor) -> Tensor:
    check_devices("x", x=x, y=y)
    return x.new_empty(x.shape[0], y.shape[0])


columns = torch.ops.warpalign.anchor_columns.default
coordinates = torch.ops.warpalign.anchor_coordinates.default
step = torch.ops.warpalign.anchor_step.default
differences = torch.ops.warpalign.largest_differences.default
