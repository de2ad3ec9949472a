"""Soft-DTW as functions of tensors.

All of them compute, for every pair of the batch,

    R[i, j] = C[i, j] + softmin_gamma(R[i-1, j], R[i, j-1], R[i-1, j-1]),     value = R[N-1, M-1],

with softmin_gamma(a, ...) = -gamma log(exp(-a / gamma) + ...): equation 2 of Cuturi & Blondel, "Soft-DTW: a
differentiable loss function for time-series", ICML 2017. The cost between time steps is C[i, j] = ||x[i] - y[j]||^2,
without a factor 1/2: packages that have that factor give value_half(gamma) = value(2 * gamma) / 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from warpalign import _autograd
from warpalign._checks import (
    Band,
    Reduction,
    check_available,
    check_band,
    check_gamma,
    check_lengths,
    check_pair,
    check_reduction,
    check_table,
)
from warpalign._ops import Settings


class SoftDTWAlignment(NamedTuple):
    """Result of :func:`soft_dtw_alignment`."""

    value: Tensor
    """(B,) soft-DTW values; 0-d for unbatched input."""
    alignment: Tensor
    """(B, N, M) expected alignments; (N, M) for unbatched input."""


def soft_dtw(
    x: Tensor,
    y: Tensor,
    *,
    gamma: float = 1.0,
    x_lengths: Tensor | None = None,
    y_lengths: Tensor | None = None,
    bandwidth: int | None = None,
    band: Band = "sakoe_chiba",
    max_slope: float | None = None,
    reduction: Reduction = "none",
) -> Tensor:
    """Soft-DTW between pairs of time series, differentiable in both.

    Args:
        x: (B, N, D) series of N time steps with D features, or (N, D) for a single one. dtype float64, float32, float16
            or bfloat16; any strides. A batch of 1 is paired with every element of the other batch.
        y: (B, M, D) or (M, D), of the same dtype and device. M may differ from N.
        gamma: smoothing, in units of the cost; finite and > 0. Towards 0 the value becomes that of hard DTW.
        x_lengths: (B,) integer tensor on the same device: true lengths within x, each from 1 to N. What lies behind
            influences nothing, and its gradient is exactly 0. On the CPU a length out of range raises; on a GPU nothing
            is read back, and lengths are clamped into the range.
        y_lengths: likewise for y.
        bandwidth: radius r >= 0 of a band around the diagonal; None: no band. Paths stay within the band, the other
            cells are not computed, and time falls with it. N and M are each pair's own lengths, indices run from 0:

            "sakoe_chiba": i - r <= j <= i + (M - N) + r where M >= N, and with i and j exchanged otherwise: |i - j| <= r
            for equal lengths. Always holds a path. The radius of tslearn, the window minus 1 of dtaidistance.

            "abs": |i - j| <= r whatever the lengths; holds a path only if r >= |N - M|.

            "slanted": |i (M-1) - j (N-1)| <= r max(N-1, M-1), around the diagonal of the rectangle; holds a path if
            r >= 1, or N = M.
        band: the kind of band; the fourth one, "itakura", has no bandwidth but max_slope.
        max_slope: of band="itakura", >= 1, by default 2: the parallelogram of slopes max_slope and 1 / max_slope (times
            M / N) from both ends, rounded as tslearn does; holds no path if it is too narrow for the lengths.
        reduction: "none" for one value per pair, or their "mean" or "sum".

    Returns:
        (B,) values; 0-d for unbatched input or with a reduction. float64 for float64 input, else float32: nothing is
        accumulated in less. Values can be negative, and soft_dtw(x, x) is not 0. A pair that contains NaN gives NaN for
        itself alone.

    Raises:
        TypeError: an argument is of the wrong type, dtype or layout.
        ValueError: shapes, devices, lengths or gamma do not fit, or the band of a pair holds no path (on a GPU with
            lengths such a pair gets inf, and gradient 0, instead). Messages name the argument, what was expected and
            what came.
        NotImplementedError: for bands on a GPU; on an attempt to differentiate twice. Under torch.compile, which has no double backward for
            any function, this cannot be relied on.

    Example:
        >>> x = torch.randn(8, 100, 3, requires_grad=True)
        >>> y = torch.randn(8, 120, 3)
        >>> soft_dtw(x, y, gamma=0.1).mean().backward()
        >>> x.grad.shape
        torch.Size([8, 100, 3])
    """
    reduction = check_reduction(reduction)
    settings = check_band(bandwidth, band, max_slope)
    value, _ = _series(x, y, gamma, x_lengths, y_lengths, settings, with_alignment=False)
    return _reduced(value, reduction)


def soft_dtw_alignment(
    x: Tensor,
    y: Tensor,
    *,
    gamma: float = 1.0,
    x_lengths: Tensor | None = None,
    y_lengths: Tensor | None = None,
    bandwidth: int | None = None,
    band: Band = "sakoe_chiba",
    max_slope: float | None = None,
) -> SoftDTWAlignment:
    """Soft-DTW values together with the expected alignments E = d value / d C.

    E[i, j] is the probability that a path of the Gibbs distribution over all alignments visits (i, j): algorithm 2 of
    Cuturi & Blondel 2017. E[0, 0] = E[N-1, M-1] = 1; every row and every column sums to at least 1.

    Args:
        x, y, gamma, x_lengths, y_lengths, bandwidth, band, max_slope: as in :func:`soft_dtw`.

    Returns:
        SoftDTWAlignment(value (B,), alignment (B, N, M)), without the batch axis for unbatched input; float64 for float64
        input, else float32. Cells beyond a pair's true lengths are 0. The value is differentiable, the alignment is not.

    Raises:
        TypeError, ValueError, NotImplementedError: as :func:`soft_dtw`.

    Example:
        >>> x = torch.randn(8, 100, 3)
        >>> y = torch.randn(8, 120, 3)
        >>> value, alignment = soft_dtw_alignment(x, y, gamma=0.1)
        >>> alignment.shape
        torch.Size([8, 100, 120])
    """
    settings = check_band(bandwidth, band, max_slope)
    return SoftDTWAlignment(*_series(x, y, gamma, x_lengths, y_lengths, settings, with_alignment=True))


def soft_dtw_cost(
    cost_matrix: Tensor,
    *,
    gamma: float = 1.0,
    n_lengths: Tensor | None = None,
    m_lengths: Tensor | None = None,
    bandwidth: int | None = None,
    band: Band = "sakoe_chiba",
    max_slope: float | None = None,
    reduction: Reduction = "none",
) -> Tensor:
    """Soft-DTW from the caller's own costs, differentiable in them; the gradient is the expected alignment.

    Args:
        cost_matrix: (B, N, M), or (N, M): cost of aligning time step i with j, of any sign. inf forbids a cell: a pair
            without any allowed path has value inf and gradient 0. dtype and strides as for :func:`soft_dtw`.
        gamma: smoothing, in units of the cost; finite and > 0.
        n_lengths: (B,) integer tensor: true numbers of rows, as x_lengths of :func:`soft_dtw`.
        m_lengths: likewise of columns.
        bandwidth, band, max_slope: as in :func:`soft_dtw`; costs outside the band are not looked at.
        reduction: "none", "mean" or "sum".

    Returns:
        (B,) values, 0-d for unbatched input or with a reduction; float64 for float64 input, else float32.

    Raises:
        TypeError, ValueError, NotImplementedError: as :func:`soft_dtw`.

    Example:
        >>> x = torch.randn(8, 100, 3)
        >>> y = torch.randn(8, 120, 3)
        >>> soft_dtw_cost(torch.cdist(x, y, p=1.0), gamma=0.1).shape
        torch.Size([8])
    """
    reduction = check_reduction(reduction)
    gamma = check_gamma(gamma)
    settings = check_band(bandwidth, band, max_slope)
    cost = check_table(cost_matrix, "cost_matrix", "N, M")
    unbatched = cost.dim() == 2
    cost = _widened(cost.unsqueeze(0) if unbatched else cost)
    batch = cost.shape[0]
    n = check_lengths(n_lengths, "n_lengths", "N", cost, batch)
    m = check_lengths(m_lengths, "m_lengths", "M", cost.transpose(1, 2), batch)
    _check_settings(cost, settings)
    with _naming_the_band(settings):
        value = _autograd.cost_matrix(cost, n, m, gamma, settings)
    return _reduced(value.squeeze(0) if unbatched else value, reduction)


def _reduced(value: Tensor, reduction: Reduction) -> Tensor:
    if reduction == "mean":
        return value.mean()
    return value.sum() if reduction == "sum" else value


def _series(
    x: Tensor,
    y: Tensor,
    gamma: float,
    x_lengths: Tensor | None,
    y_lengths: Tensor | None,
    settings: Settings,
    *,
    with_alignment: bool,
) -> tuple[Tensor, Tensor]:
    gamma = check_gamma(gamma)
    x, y = check_pair(x, y)
    unbatched = x.dim() == 2
    if unbatched:
        x, y = x.unsqueeze(0), y.unsqueeze(0)
    batch = y.shape[0] if x.shape[0] == 1 else x.shape[0]
    x, y = (_widened(t if t.shape[0] == batch else t.expand(batch, -1, -1)) for t in (x, y))
    n = check_lengths(x_lengths, "x_lengths", "N", x, batch)
    m = check_lengths(y_lengths, "y_lengths", "M", y, batch)
    _check_settings(x, settings)
    with _naming_the_band(settings):
        value, alignment = _autograd.series(x, y, n, m, gamma, with_alignment, settings)
    return (value.squeeze(0), alignment.squeeze(0)) if unbatched else (value, alignment)


def _check_settings(table: Tensor, settings: Settings) -> None:
    check_available(table, band=settings.band != 0)


@contextmanager
def _naming_the_band(settings: Settings) -> Iterator[None]:
    """Only the core can tell whether a band holds a path; what it says becomes a ValueError."""
    try:
        yield
    except RuntimeError as error:
        message = str(error).splitlines()[0]
        if settings.band and message.startswith("warpalign: band: "):
            raise ValueError(message.removeprefix("warpalign: ")) from None
        raise


def _widened(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor
