"""Soft-DTW of arrays: settings and meanings are those of warpalign.soft_dtw()."""

from __future__ import annotations

from typing import Any, NamedTuple

from jax import Array

from warpalign._core.scalars import (
    Cost,
    Precision,
    Reduction,
    check_flag,
    check_reduction,
    precision_number,
)
from warpalign._soft_dtw.settings import Band, settings_of
from warpalign.jax._arrays import check_lengths, check_table, widened
from warpalign.jax._derivatives import solved
from warpalign.jax._reduction import reduced_values
from warpalign.jax._soft_dtw_pairs import (
    COST_MATRICES,
    PAIRS,
    PAIRS_WITH_ALIGNMENT,
    Costs,
    check_gamma,
    problem,
)


class SoftDTWAlignment(NamedTuple):
    """Result of :func:`soft_dtw_alignment`."""

    value: Array
    """(B,) soft-DTW values; 0-d for unbatched input."""
    alignment: Array
    """(B, N, M) expected alignments; (N, M) for unbatched input."""


def soft_dtw(
    x: Array,
    y: Array,
    *,
    gamma: float | Array = 1.0,
    cost: Cost = "sqeuclidean",
    x_lengths: Any = None,
    y_lengths: Any = None,
    bandwidth: int | None = None,
    band: Band = "sakoe_chiba",
    max_slope: float | None = None,
    step_penalty: float = 0.0,
    x_mask: Array | None = None,
    y_mask: Array | None = None,
    normalize: bool = False,
    reduction: Reduction = "none",
    precision: Precision = "highest",
    batch_invariant: bool = False,
) -> Array:
    """Soft-DTW between pairs of time series, twice differentiable in both; :func:`warpalign.soft_dtw` for arrays of JAX.

    Args:
        x: (B, N, D) series of N time steps with D features, or (N, D) for a single one; float64, float32, float16 or bfloat16.
            A batch of 1 is paired with every element of the other batch.
        y: (B, M, D) or (M, D), of the same dtype. M may differ from N.
        gamma: smoothing, in units of the cost; finite and >= 0, or an array () or (B,) of numbers > 0, which receives a gradient
            too. 0 is hard DTW.
        cost: C[i, j]: "sqeuclidean", "euclidean", "l1", "cosine" or "huber". :func:`soft_dtw_cost` takes all others.
        x_lengths: (B,) integers: true lengths within x, from 1 to N. Padding is ignored, and its gradient is 0. Values of
            lists and NumPy arrays are checked when the function is traced, those of arrays on a CPU when it runs; on a GPU they are
            clamped into the range. None: all N.
        y_lengths: (B,) true lengths within y, from 1 to M. None: all M.
        bandwidth: radius r >= 0, in time steps, of a band around the diagonal to which paths are restricted. None: no band.
        band: the kind of band: "sakoe_chiba", "abs", "slanted" or "itakura", as in :func:`warpalign.soft_dtw`.
        max_slope: the largest slope, >= 1, of band="itakura", which has no bandwidth. None: 2.
        step_penalty: finite and >= 0, in units of the cost: added for every step that is not diagonal.
        x_mask: (B, N) bools, True where a time step is missing: its cost to every other step is 0. None: no step is missing.
        y_mask: (B, M) bools for y.
        normalize: the soft-DTW divergence s(x, y) - (s(x, x) + s(y, y)) / 2 instead of s(x, y).
        reduction: "none" for one value per pair, or their "mean" or "sum".
        precision: how a GPU may multiply float32: "highest", "high" or "medium", as in :func:`warpalign.soft_dtw`.
        batch_invariant: whether a pair's results are bitwise identical whatever else is in the batch.

    Returns:
        (B,) values; 0-d for unbatched input or with a reduction. float64 for float64 input, else float32.

    Raises:
        TypeError, ValueError: an argument is invalid; the message names it, what was expected and what came.
        NotImplementedError: for third derivatives, and second ones by gamma or with gamma = 0.

    Examples:
        >>> import jax.numpy as jnp
        >>> x, y = jnp.ones((8, 100, 3)), jnp.zeros((8, 120, 3))
        >>> import jax
        >>> jax.grad(lambda x: soft_dtw(x, y, gamma=0.1).mean())(x).shape
        (8, 100, 3)
    """
    reduction = check_reduction(reduction)
    settings = settings_of(
        bandwidth, band, max_slope, step_penalty, precision_number(precision), batch_invariant
    )
    of, settings, unbatched = problem(x, y, gamma, cost, x_lengths, y_lengths, x_mask, y_mask, settings)
    value = solved(PAIRS, settings, (), of).value
    if check_flag(normalize, "normalize"):
        with_x = of._replace(y=of.x, y_lengths=of.x_lengths, y_mask=of.x_mask)
        with_y = of._replace(x=of.y, x_lengths=of.y_lengths, x_mask=of.y_mask)
        of_x, of_y = (solved(PAIRS, settings, (), one).value for one in (with_x, with_y))
        value = value - (of_x + of_y) / 2
    return reduced_values(value, reduction, unbatched)


def soft_dtw_alignment(
    x: Array,
    y: Array,
    *,
    gamma: float | Array = 1.0,
    cost: Cost = "sqeuclidean",
    x_lengths: Any = None,
    y_lengths: Any = None,
    bandwidth: int | None = None,
    band: Band = "sakoe_chiba",
    max_slope: float | None = None,
    step_penalty: float = 0.0,
    x_mask: Array | None = None,
    y_mask: Array | None = None,
    precision: Precision = "highest",
    batch_invariant: bool = False,
) -> SoftDTWAlignment:
    """Soft-DTW values together with the expected alignments E = d value / d C, which have no gradient.

    Args:
        x: (B, N, D) series of N time steps with D features, or (N, D) for a single one.
        y: (B, M, D) or (M, D), of the same dtype.
        gamma: smoothing, in units of the cost; finite and >= 0, or an array () or (B,) of numbers > 0.
        cost: "sqeuclidean", "euclidean", "l1", "cosine" or "huber".
        x_lengths: (B,) true lengths within x, from 1 to N. None: all N.
        y_lengths: (B,) true lengths within y, from 1 to M. None: all M.
        bandwidth: radius r >= 0, in time steps, of a band around the diagonal. None: no band.
        band: the kind of band: "sakoe_chiba", "abs", "slanted" or "itakura".
        max_slope: the largest slope, >= 1, of band="itakura". None: 2.
        step_penalty: finite and >= 0, in units of the cost: added for every step that is not diagonal.
        x_mask: (B, N) bools, True where a time step is missing. None: no step is missing.
        y_mask: (B, M) bools for y.
        precision: how a GPU may multiply float32: "highest", "high" or "medium".
        batch_invariant: whether a pair's results are bitwise identical whatever else is in the batch.

    Returns:
        SoftDTWAlignment(value (B,), alignment (B, N, M)), without the batch axis for unbatched input; float64 for float64
        input, else float32. Cells beyond a pair's true lengths are 0.

    Raises:
        TypeError, ValueError: as :func:`soft_dtw`.

    Examples:
        >>> import jax.numpy as jnp
        >>> x, y = jnp.ones((8, 100, 3)), jnp.zeros((8, 120, 3))
        >>> soft_dtw_alignment(x, y, gamma=0.1).alignment.shape
        (8, 100, 120)
    """
    settings = settings_of(
        bandwidth, band, max_slope, step_penalty, precision_number(precision), batch_invariant
    )
    of, settings, unbatched = problem(x, y, gamma, cost, x_lengths, y_lengths, x_mask, y_mask, settings)
    value, _, others = solved(PAIRS_WITH_ALIGNMENT, settings, (), of)
    alignment = others["alignment"]
    return SoftDTWAlignment(value[0], alignment[0]) if unbatched else SoftDTWAlignment(value, alignment)


def soft_dtw_cost(
    cost_matrix: Array,
    *,
    gamma: float | Array = 1.0,
    x_lengths: Any = None,
    y_lengths: Any = None,
    bandwidth: int | None = None,
    band: Band = "sakoe_chiba",
    max_slope: float | None = None,
    step_penalty: float = 0.0,
    reduction: Reduction = "none",
    batch_invariant: bool = False,
) -> Array:
    """Soft-DTW from the caller's own costs, twice differentiable in them; the gradient is the expected alignment.

    Args:
        cost_matrix: (B, N, M), or (N, M): cost of aligning time step i with j, of any sign. inf forbids a cell.
        gamma: smoothing, in units of the cost; finite and >= 0, or an array () or (B,) of numbers > 0. 0: hard DTW.
        x_lengths: (B,) true numbers of rows, from 1 to N. None: all N. Padding is ignored, and its gradient is 0.
        y_lengths: (B,) true numbers of columns, from 1 to M. None: all M.
        bandwidth: radius r >= 0, in time steps, of a band around the diagonal. None: no band.
        band: the kind of band: "sakoe_chiba", "abs", "slanted" or "itakura".
        max_slope: the largest slope, >= 1, of band="itakura". None: 2.
        step_penalty: finite and >= 0, in units of the cost: added for every step that is not diagonal.
        reduction: "none" (the default) for one value per pair, or their "mean" or "sum".
        batch_invariant: whether a pair's results are bitwise identical whatever else is in the batch.

    Returns:
        (B,) values, 0-d for unbatched input or with a reduction; float64 for float64 input, else float32.

    Raises:
        TypeError, ValueError: as :func:`soft_dtw`.

    Examples:
        >>> import jax.numpy as jnp
        >>> soft_dtw_cost(jnp.ones((8, 100, 120)), gamma=0.1).shape
        (8,)
    """
    reduction = check_reduction(reduction)
    settings = settings_of(bandwidth, band, max_slope, step_penalty, 0, batch_invariant)
    cost = check_table(cost_matrix, "cost_matrix", "N, M")
    unbatched = cost.ndim == 2
    cost = widened(cost[None] if unbatched else cost)
    batch, n, m = cost.shape
    number, gammas = check_gamma(gamma, batch, cost.dtype)
    of = Costs(
        cost,
        gammas,
        check_lengths(x_lengths, "x_lengths", batch, n, "N", least=1, unbatched=unbatched, unit="pair"),
        check_lengths(y_lengths, "y_lengths", batch, m, "M", least=1, unbatched=unbatched, unit="pair"),
    )
    value = solved(COST_MATRICES, settings._replace(gamma=number), (), of).value
    return reduced_values(value, reduction, unbatched)
