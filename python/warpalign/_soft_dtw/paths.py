"""Best paths of hard DTW, and a query sought within a series."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from warpalign._core.checks import Precision, check_flag
from warpalign._core.costs import Cost, CostFunction, Mahalanobis
from warpalign._core.series import AnySeries, Lengths, Mask
from warpalign._core.transforms import not_compiled
from warpalign._soft_dtw.checks import check_settings
from warpalign._soft_dtw.problem import Problem, problem
from warpalign._soft_dtw.settings import Band

# Cells of the alignments that are held at once.
_PATH_CELLS = 2**24


class DTWPath(NamedTuple):
    """Result of :func:`dtw_path`."""

    value: Tensor
    """(B,) costs of the paths; 0-d for unbatched input. Differentiable."""
    paths: list[Tensor] | Tensor
    """One (L, 2) int64 tensor per pair, for unbatched input the tensor itself: the cells (i, j) from (0, 0) to (N-1, M-1)."""


class SoftDTWSubsequence(NamedTuple):
    """Result of :func:`soft_dtw_subsequence`."""

    value: Tensor
    """(B,) values over all places in the series; 0-d for unbatched input. Differentiable."""
    end_values: Tensor
    """(B, M) values of the matches that end at each time step; (M,) for unbatched input."""
    match: Tensor | None
    """(B, 2) int64: first and last time step of the best match; (2,) for unbatched input."""


@not_compiled
def dtw_path(
    x: AnySeries,
    y: AnySeries,
    *,
    cost: Cost | CostFunction = "sqeuclidean",
    x_lengths: Lengths | None = None,
    y_lengths: Lengths | None = None,
    bandwidth: int | None = None,
    band: Band = "sakoe_chiba",
    max_slope: float | None = None,
    step_penalty: float = 0.0,
    x_mask: Mask | None = None,
    y_mask: Mask | None = None,
    precision: Precision | None = None,
    batch_invariant: bool = False,
) -> DTWPath:
    """Best paths of hard DTW and their costs.

    Ties are resolved in favour of the diagonal step, then of the step from i - 1.

    Args:
        x: (B, N, D) series of N time steps with D features, or (N, D) for a single one, as a tensor; or an array, a data frame or a
            list of series (N, D) or (N,), which have no gradient. Integers become float64. Time steps that a NumPy masked array
            masks are missing.
        y: (B, M, D) or (M, D), in the same forms.
        cost: C[i, j]: "sqeuclidean" (the default), "euclidean", "l1", "cosine", "huber", or a function of x (B, N, D) and y
            (B, M, D) that returns (B, N, M), as in :func:`soft_dtw`.
        x_lengths: (B,) true lengths within x, from 1 to N: integers, as a tensor on the device of x, an array or a list. None: all N.
            Padding is ignored, and its gradient is 0.
        y_lengths: (B,) true lengths within y, from 1 to M. None: all M.
        bandwidth: radius r >= 0, in time steps, of a band around the diagonal to which paths are restricted. None: no band.
        band: the kind of band: "sakoe_chiba", "abs", "slanted" or "itakura", as in :func:`soft_dtw`.
        max_slope: the largest slope, >= 1, of band="itakura", which has no bandwidth. None: 2.
        step_penalty: finite and >= 0, in units of the cost: added for every step that is not diagonal.
        x_mask: (B, N) bools, True where a time step is missing: its cost to every other step is 0. None: no step is missing.
        y_mask: (B, M) bools for y.
        precision: how a GPU multiplies float32: "highest", "high" or "medium", as in :func:`soft_dtw`. None: what
            torch.get_float32_matmul_precision() says.
        batch_invariant: whether a pair's results are bitwise identical whatever else is in the batch.

    Returns:
        DTWPath(value, paths) with (B,) values, which are differentiable, and one (L, 2) int64 tensor of cells (i, j) per pair,
        in a list, or the tensor itself for unbatched input. A pair that has no path, or contains NaN, gets an empty one.

    Raises:
        TypeError, ValueError, NotImplementedError: as :func:`soft_dtw`.

    Examples:
        >>> value, path = dtw_path(torch.zeros(4, 1), torch.zeros(4, 1))
        >>> path.tolist()
        [[0, 0], [1, 1], [2, 2], [3, 3]]
    """
    of = problem(
        x,
        y,
        gamma=0.0,
        cost=cost,
        x_lengths=x_lengths,
        y_lengths=y_lengths,
        x_mask=x_mask,
        y_mask=y_mask,
        settings=check_settings(bandwidth, band, max_slope, step_penalty, precision, batch_invariant),
        takes_arrays=True,
    )
    batch, n, m = of.of.x.shape[0], of.of.x.shape[1], of.of.y.shape[1]
    step = max(1, _PATH_CELLS // (n * m))
    paths: list[Tensor] = []
    values = []
    for first in range(0, batch, step):
        value, alignment = of.pairs(first, first + step).value_and_alignment()
        values.append(value)
        # Row by row is also along the path; a NaN is not above 0.
        paths += [(one > 0).nonzero() for one in alignment.detach()]
    value = torch.cat(values) if values else of.value()
    return DTWPath(value.squeeze(0), paths[0]) if of.unbatched else DTWPath(value, paths)


def soft_dtw_subsequence(
    query: AnySeries,
    series: AnySeries,
    *,
    gamma: float = 1.0,
    cost: Cost | Mahalanobis = "sqeuclidean",
    query_lengths: Lengths | None = None,
    series_lengths: Lengths | None = None,
    step_penalty: float = 0.0,
    with_match: bool = True,
) -> SoftDTWSubsequence:
    """Subsequence soft-DTW: alignments of a query that begin and end anywhere in a series.

    A path begins at any (0, j) and ends at any (N-1, k), j <= k; every such path counts once. end_values[k] is the soft
    minimum of the paths that end at k, R[N-1, k], and value that of all paths, softmin_gamma over k of end_values[k].

    Args:
        query: (B, N, D), (1, N, D) for one query in B series, or (N, D): a tensor, an array, a data frame or a list of series.
        series: (B, M, D), (1, M, D) or (M, D), in the same forms.
        gamma: smoothing, in units of the cost; finite and >= 0, not a tensor. 0: only the best match.
        cost: a name as in :func:`soft_dtw`, or a :class:`Mahalanobis`; functions are not supported.
        query_lengths: (B,) true lengths of the queries, from 1 to N: integers, as a tensor on the device of query, an array or a
            list. None: all N.
        series_lengths: (B,) true lengths of the series, from 1 to M; end_values after them are inf. None: all M.
        step_penalty: finite and >= 0, in units of the cost: added for every step that is not diagonal.
        with_match: whether to look for the best match too, which takes about as long as value and gradient.

    Returns:
        SoftDTWSubsequence(value (B,), end_values (B, M), match (B, 2) or None). The value is differentiable in query and
        series, the rest is not. match holds the first and last time step of the best path of hard DTW (gamma = 0); -1 for
        a pair that contains NaN or has no path of finite cost.

    Raises:
        TypeError, ValueError: as :func:`soft_dtw`.
        NotImplementedError: for second derivatives, or in forward mode.

    Examples:
        >>> series = torch.randn(500, 3)
        >>> found = soft_dtw_subsequence(series[300:340], series, gamma=0.01)
        >>> found.match.tolist()
        [300, 339]
    """
    if isinstance(gamma, Tensor):
        raise TypeError("gamma: expected a float, got Tensor")
    if not isinstance(cost, (str, Mahalanobis)):
        raise TypeError(f"cost: expected a str or a Mahalanobis, got {type(cost).__name__}")
    of = problem(
        query,
        series,
        gamma=gamma,
        cost=cost,
        x_lengths=query_lengths,
        y_lengths=series_lengths,
        x_mask=None,
        y_mask=None,
        settings=check_settings(None, "sakoe_chiba", None, step_penalty),
        names=("query", "series"),
        takes_arrays=True,
    )
    for mask, name in ((of.of.x_mask, "query"), (of.of.y_mask, "series")):
        if mask is not None:
            raise ValueError(f"{name}: expected no missing time steps, got a masked array")
    value, _, ends = of.subsequence(with_alignment=False)
    match = _matches(of) if check_flag(with_match, "with_match") else None
    if of.unbatched:
        value, ends = value.squeeze(0), ends.squeeze(0)
        match = None if match is None else match.squeeze(0)
    return SoftDTWSubsequence(value, ends, match)


@torch.no_grad()
def _matches(of: Problem) -> Tensor:
    """(B, 2): first and last column of the best paths."""
    batch, n, m = of.of.x.shape[0], of.of.x.shape[1], of.of.y.shape[1]
    step = max(1, _PATH_CELLS // (n * m))
    found = [torch.empty(0, 2, dtype=torch.int64, device=of.of.x.device)]
    for first in range(0, batch, step):
        _, alignment, _ = of.pairs(first, first + step)._replace(gamma=0.0).subsequence(with_alignment=True)
        columns = (alignment > 0).any(dim=1).int()
        ends = torch.stack([columns.argmax(1), m - 1 - columns.flip(1).argmax(1)], dim=1)
        found.append(torch.where(columns.any(dim=1, keepdim=True), ends, -1))
    return torch.cat(found)
