"""Elastic distances whose steps have costs of their own, by the kernels of hard DTW.

Most elastic distances are a change of the recursion: for nodes (i, j),

    R[i, j] = min(R[i-1, j] + up[i, j],  R[i, j-1] + left[i, j],  R[i-1, j-1] + match[i, j]).

That is hard DTW on a grid of (2 N - 1) x (2 M - 1) cells. A node has the cell (2 i, 2 j), of cost 0; each step into it has the cell between the two
nodes, with the step's cost. A path through two cells of steps without a node between them costs at least as much as the one that takes the diagonal:
no cost is negative, and of equally good steps hard DTW takes the diagonal one.
"""

from __future__ import annotations

import sys
from numbers import Real
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from warpalign._core.checks import check_number
from warpalign._core.series import AnySeries, Lengths
from warpalign._soft_dtw import autograd
from warpalign._soft_dtw.inputs import Costs, Pairs
from warpalign._soft_dtw.problem import problem
from warpalign._soft_dtw.settings import Settings

ElasticMetric = Literal["adtw", "wdtw", "erp", "msm", "twe"]

# The parameters of each metric, with their defaults.
_DEFAULTS: dict[str, dict[str, float]] = {
    "adtw": {"penalty": 1.0},
    "wdtw": {"steepness": 0.05},
    "erp": {"gap": 0.0},
    "msm": {"penalty": 1.0},
    "twe": {"penalty": 1.0, "stiffness": 0.001},
}


class _Steps(NamedTuple):
    """Costs of the steps into N x M nodes, and of the first node."""

    up: Tensor  # (B, N - 1, M): into all rows but the first one; one column stands for all
    left: Tensor  # (B, N, M - 1): into all columns but the first one; one row stands for all
    match: Tensor  # (B, N, M), of which the first row and column are ignored
    start: Tensor | None


_FEW_FEATURES = 8  # up to here differences of all features at once are faster than torch.cdist
_CHUNK = 2**18  # differences of features, of the pairs whose matrices are made together on a CPU


def elastic_distance(
    x: AnySeries,
    y: AnySeries,
    *,
    metric: ElasticMetric,
    x_lengths: Lengths | None = None,
    y_lengths: Lengths | None = None,
    penalty: float | None = None,
    gap: float | None = None,
    stiffness: float | None = None,
    steepness: float | None = None,
) -> Tensor:
    """Elastic distances between pairs of time series, differentiable along the best path.

    "adtw": hard DTW with a penalty for each step that is not diagonal (Herrmann & Webb, "Amercing", DMKD 2023).

    "wdtw": hard DTW whose costs have the weight 1 / (1 + exp(-steepness (abs(i - j) - L / 2))), L the longer length (Jeong, Jeong & Omitaomu,
    "Weighted dynamic time warping for time series classification", Pattern Recognition 2011).

    "erp": edit distance with real penalty: a step that is not diagonal costs the distance to the gap value (Chen & Ng, "On the marriage of
    Lp-norms and edit distance", VLDB 2004).

    "msm": move, split, merge (Stefan, Athitsos & Das, "The move-split-merge metric for time series", TKDE 2013); of several features, the sum of
    the distances of each.

    "twe": time warp edit distance (Marteau, "Time warp edit distance with stiffness adjustment for time series matching", TPAMI 2009).

    DTW's costs are squared distances, the others' are distances. Values are those of aeon, but for "erp": paths may begin with a part of the
    gaps there, as in the paper. "wdtw" takes a cost matrix of N M numbers for each pair, "erp", "msm" and "twe" take one of about 4 N M; with 2 to 8
    features all but "msm" take another D N M numbers. On a CPU a few pairs are computed at a time.

    Args:
        x: (B, N, D) series of N time steps with D features, or (N, D) for a single one, as a tensor; or an array, a data frame or a
            list of series (N, D) or (N,), which have no gradient. Integers become float64. A batch of 1 is paired with every series of
            the other batch: a row of a matrix of distances.
        y: (B, M, D) or (M, D), in the same forms.
        metric: the distance.
        x_lengths: (B,) true lengths within x, from 1 to N: integers, as a tensor on the device of x, an array or a list. None: all N.
            Padding is ignored, and its gradient is 0.
        y_lengths: (B,) true lengths within y, from 1 to M. None: all M.
        penalty: finite and >= 0: of a step that is not diagonal, in units of the cost for "adtw" and of a distance for "msm" and "twe".
            None: 1.
        gap: the value of every feature of "erp"'s gap. None: 0.
        stiffness: finite and >= 0: "twe"'s cost of a distance in time of one step. None: 0.001.
        steepness: finite and >= 0: of "wdtw"'s weights over time. None: 0.05.

    Returns:
        (B,) distances, 0-d for unbatched input; float64 for float64 input, else float32.

    Raises:
        TypeError, ValueError: as :func:`soft_dtw`; ValueError also for an unknown metric, or a parameter that the metric does not have.

    Examples:
        >>> x, y = torch.randn(8, 50, 1), torch.randn(8, 60, 1)
        >>> elastic_distance(x, y, metric="msm", penalty=0.5).shape
        torch.Size([8])
    """
    given = {"penalty": penalty, "gap": gap, "stiffness": stiffness, "steepness": steepness}
    values = _parameters(metric, given)
    of = problem(
        x,
        y,
        gamma=0.0,
        cost="sqeuclidean",
        x_lengths=x_lengths,
        y_lengths=y_lengths,
        x_mask=None,
        y_mask=None,
        settings=Settings(),
        takes_arrays=True,
    )
    own_x, own_y = of.without_hidden()
    found = _distance(of.of._replace(x=own_x, y=own_y), metric, values)
    return found.squeeze(0) if of.unbatched else found


def _parameters(metric: object, given: dict[str, float | None]) -> dict[str, float]:
    if metric not in get_args(ElasticMetric):
        raise ValueError(f'metric: expected "adtw", "wdtw", "erp", "msm" or "twe", got {metric!r}')
    values = dict(_DEFAULTS[str(metric)])
    for name, value in given.items():
        if value is None:
            continue
        if name not in values:
            raise ValueError(f'{name}: expected None with metric="{metric}", got {value}')
        values[name] = _check_gap(value) if name == "gap" else check_number(value, name)
    return values


def _check_gap(value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"gap: expected a float, got {type(value).__name__}")
    if not abs(value) <= sys.float_info.max:
        raise ValueError(f"gap: expected a finite number, got {value}")
    return float(value)


def _distance(of: Pairs, metric: str, values: dict[str, float]) -> Tensor:
    if metric == "adtw":
        return autograd.series(of, 0.0, 0, Settings(step_penalty=values["penalty"]))
    found = [_by_matrix(part, metric, values) for part in _parts(of)]
    return torch.cat(found) if len(found) > 1 else found[0]


def _parts(of: Pairs) -> list[Pairs]:
    """On a CPU, a few pairs at a time: their matrices stay in the caches, and their memory is used again."""
    pairs = max(of.x.shape[0], of.y.shape[0])
    count = max(1, _CHUNK // max(1, of.x.shape[1] * of.y.shape[1] * of.x.shape[2]))
    if of.x.is_cuda or pairs <= count:
        return [of]
    return [
        Pairs._make(one if one is None or one.shape[0] != pairs else one[first : first + count] for one in of)
        for first in range(0, pairs, count)
    ]


def _by_matrix(of: Pairs, metric: str, values: dict[str, float]) -> Tensor:
    if metric == "wdtw":
        return _hard(Costs(_weighted(of, **values), of.x_lengths, of.y_lengths))
    if metric == "erp":
        return _on_grid(_erp(of, **values), of.x_lengths, of.y_lengths, 1)
    if metric == "twe":
        return _on_grid(_twe(of, **values), of.x_lengths, of.y_lengths, 0)
    features = of.x.shape[2]
    n, m = (None if n is None else n.repeat_interleave(features) for n in (of.x_lengths, of.y_lengths))
    x, y = (series.transpose(1, 2).flatten(0, 1) for series in (of.x, of.y))
    return _on_grid(_msm(x, y, **values), n, m, 0).view(-1, features).sum(1)


def _hard(costs: Costs) -> Tensor:
    return autograd.cost_matrix(costs, 0.0, Settings())[0]


def _on_grid(steps: _Steps, x_lengths: Tensor | None, y_lengths: Tensor | None, further: int) -> Tensor:
    """The last node's value. further: nodes beside the time steps of a series."""
    batch, n, m = steps.match.shape
    grid = steps.match.new_zeros(batch, 2 * n - 1, 2 * m - 1)
    grid[:, 1::2, 0::2] = steps.up
    grid[:, 0::2, 1::2] = steps.left
    grid[:, 1::2, 1::2] = steps.match[:, 1:, 1:]
    if steps.start is not None:
        grid[:, 0, 0] = steps.start
    on_grid = (None if of is None else 2 * (of + further) - 1 for of in (x_lengths, y_lengths))
    return _hard(Costs(grid, *on_grid))


def _distances(x: Tensor, y: Tensor) -> Tensor:
    """(B, N, M) Euclidean distances, from differences; their derivative at 0 is 0."""
    if x.shape[2] == 1:
        return (x - y.mT).abs()
    if x.shape[2] <= _FEW_FEATURES:  # the other function takes as long for one feature as for many
        distances: Tensor = torch.linalg.vector_norm(x[:, :, None] - y[:, None], dim=-1)
        return distances
    return torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")


def _shifts(of: Pairs) -> Tensor:
    """(N, M): |i - j|."""
    i, j = (torch.arange(series.shape[1], device=series.device) for series in (of.x, of.y))
    return (i[:, None] - j).abs().to(of.x.dtype)


def _weighted(of: Pairs, steepness: float) -> Tensor:
    n, m = (
        torch.as_tensor(series.shape[1] if given is None else given, device=series.device)
        for series, given in ((of.x, of.x_lengths), (of.y, of.y_lengths))
    )
    middle = torch.maximum(n, m).to(of.x.dtype).view(-1, 1, 1) / 2
    weights = torch.sigmoid(steepness * (_shifts(of) - middle))
    if of.x.shape[2] == 1:
        return weights * (of.x - of.y.mT).square()
    return weights * _distances(of.x, of.y).square()


def _erp(of: Pairs, gap: float) -> _Steps:
    """Node (i, j): i steps of x and j of y are behind."""
    of_x, of_y = (torch.linalg.vector_norm(series - gap, dim=-1) for series in (of.x, of.y))
    first = torch.nn.functional.pad
    match = first(_distances(of.x, of.y), (1, 0, 1, 0))
    return _Steps(of_x[:, :, None], of_y[:, None], match, None)


def _msm(x: Tensor, y: Tensor, penalty: float) -> _Steps:
    """Of single features, (B, N) and (B, M).

    A split or merge costs the penalty and how far x[i] is from the interval between x[i-1] and y[j]:
    (|x[i] - x[i-1]| + |x[i] - y[j]| - |x[i-1] - y[j]|) / 2, of which the last two are costs of moves.
    """
    match = (x[:, :, None] - y[:, None]).abs()
    of_x, of_y = (series.diff(dim=1).abs() for series in (x, y))
    up = (match[:, 1:] - match[:, :-1] + of_x[:, :, None]).relu() / 2 + penalty
    left = (match[:, :, 1:] - match[:, :, :-1] + of_y[:, None]).relu() / 2 + penalty
    return _Steps(up, left, match, match[:, 0, 0])


def _twe(of: Pairs, penalty: float, stiffness: float) -> _Steps:
    same = _distances(of.x, of.y)
    before = torch.nn.functional.pad(same[:, :-1, :-1], (1, 0, 1, 0))
    of_x, of_y = (
        torch.linalg.vector_norm(series.diff(dim=1), dim=-1) + (stiffness + penalty)
        for series in (of.x, of.y)
    )
    match = same + before + 2 * stiffness * _shifts(of)
    return _Steps(of_x[:, :, None], of_y[:, None], match, same[:, 0, 0])
