"""Paths drawn from the Gibbs distribution of soft-DTW."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from warpalign._core.checks import check_count
from warpalign._core.costs import Cost, CostFunction
from warpalign._core.randomness import seed_of
from warpalign._core.series import AnySeries, Lengths, Mask
from warpalign._core.transforms import not_compiled
from warpalign._soft_dtw.checks import check_positive_gamma, check_settings
from warpalign._soft_dtw.problem import problem
from warpalign._soft_dtw.settings import Band


class SoftDTWSample(NamedTuple):
    """Result of :func:`soft_dtw_sample`."""

    paths: Tensor
    """(B, S, N + M - 1, 2) int64 cells (i, j), from (0, 0) to the last time steps; -1 after a path's end. No B for unbatched input."""
    lengths: Tensor
    """(B, S) int64 numbers of cells; (S,) for unbatched input. 0 for pairs without a path."""


@not_compiled
@torch.no_grad()
def soft_dtw_sample(
    x: AnySeries,
    y: AnySeries,
    n_paths: int,
    *,
    gamma: float | Tensor = 1.0,
    cost: Cost | CostFunction = "sqeuclidean",
    x_lengths: Lengths | None = None,
    y_lengths: Lengths | None = None,
    bandwidth: int | None = None,
    band: Band = "sakoe_chiba",
    max_slope: float | None = None,
    step_penalty: float = 0.0,
    x_mask: Mask | None = None,
    y_mask: Mask | None = None,
    generator: torch.Generator | int | None = None,
) -> SoftDTWSample:
    """Random alignments: paths drawn from the Gibbs distribution P(path) = exp((value - cost(path)) / gamma).

    The alignment of :func:`soft_dtw_alignment` is the expectation of these paths. Steps are drawn from the end to the start, each
    with its exact conditional probability in float64, in multiples of 2^-31 (Mensch & Blondel, "Differentiable dynamic programming for
    structured prediction and attention", ICML 2018, section 4).

    Args:
        x: (B, N, D) series of N time steps with D features, or (N, D) for a single one, as a tensor; or an array, a data frame or a
            list of series (N, D) or (N,). Integers become float64. Time steps that a NumPy masked array masks are missing.
        y: (B, M, D) or (M, D), in the same forms.
        n_paths: S >= 0, the number of paths for every pair.
        gamma: smoothing, in units of the cost; finite and > 0, or a tensor () or (B,) of such numbers. Small gammas give paths of
            nearly least cost.
        cost: C[i, j]: "sqeuclidean" (the default), "euclidean", "l1", "cosine", "huber", or a function of x (B, N, D) and y
            (B, M, D) that returns (B, N, M), as in :func:`soft_dtw`.
        x_lengths: (B,) true lengths within x, from 1 to N: integers, as a tensor on the device of x, an array or a list. None: all N.
        y_lengths: (B,) true lengths within y, from 1 to M. None: all M.
        bandwidth: radius r >= 0, in time steps, of a band around the diagonal to which paths are restricted. None: no band.
        band: the kind of band: "sakoe_chiba", "abs", "slanted" or "itakura", as in :func:`soft_dtw`.
        max_slope: the largest slope, >= 1, of band="itakura", which has no bandwidth. None: 2.
        step_penalty: finite and >= 0, in units of the cost: added for every step that is not diagonal.
        x_mask: (B, N) bools, True where a time step is missing: its cost to every other step is 0. None: no step is missing.
        y_mask: (B, M) bools for y.
        generator: a torch.Generator on the CPU, or a seed; None: torch's default generator. The same seed gives the same paths on a CPU
            and on a GPU, but for ties within rounding. Paths depend on their pair's place in the batch, and on no other pair.

    Returns:
        SoftDTWSample(paths (B, S, N + M - 1, 2), lengths (B, S)), int64, without gradients. A pair that has no path, or contains NaN,
        gets paths of length 0.

    Raises:
        TypeError, ValueError: as :func:`soft_dtw`; ValueError also for gamma = 0, whose only path is that of :func:`dtw_path`.

    Examples:
        >>> x, y = torch.randn(8, 50, 3), torch.randn(8, 60, 3)
        >>> paths, lengths = soft_dtw_sample(x, y, 100, gamma=0.5, generator=0)
        >>> paths.shape, lengths.shape
        (torch.Size([8, 100, 109, 2]), torch.Size([8, 100]))
    """
    count = check_count(n_paths, "n_paths", 0)
    of = problem(
        x,
        y,
        gamma=gamma if isinstance(gamma, Tensor) else check_positive_gamma(gamma),
        cost=cost,
        x_lengths=x_lengths,
        y_lengths=y_lengths,
        x_mask=x_mask,
        y_mask=y_mask,
        settings=check_settings(bandwidth, band, max_slope, step_penalty),
        takes_arrays=True,
    )
    paths, lengths = of.sample(count, seed_of(generator))
    return SoftDTWSample(paths[0], lengths[0]) if of.unbatched else SoftDTWSample(paths, lengths)
