"""Barycenters: the series with the least weighted sum of soft-DTW or DTW values to a group of series."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from torch import Tensor

from warpalign._core import optional
from warpalign._core.checks import check_count, check_number
from warpalign._core.series import (
    Lengths,
    Mask,
    SeriesSet,
    Taken,
    as_series,
    as_tensor,
    check_finite,
    resampled,
    without_gaps,
)
from warpalign._core.transforms import not_compiled
from warpalign._soft_dtw.barycenter_checks import Method, check_groups, check_method, check_weights
from warpalign._soft_dtw.checks import check_options, check_positive_gamma
from warpalign._soft_dtw.convergence import warn_unless_converged
from warpalign._soft_dtw.functional import soft_dtw, soft_dtw_alignment
from warpalign._soft_dtw.gamma import gamma_of_set
from warpalign._soft_dtw.minimize import Criterion, Search, adam, fixed_point, lbfgs, minimize
from warpalign._soft_dtw.settings import MetricOptions
from warpalign._soft_dtw.tiles import default_block_size

if TYPE_CHECKING:
    from typing_extensions import Unpack

_TABLE_CELLS = 2**24  # of the paths that "dba" holds at once


class _Options(MetricOptions, total=False):
    normalize: bool


class BarycenterResult(NamedTuple):
    """Result of :func:`soft_dtw_barycenter`."""

    barycenter: Tensor
    """(sz, D), or (k, sz, D) with groups; dtype and device of the series."""
    losses: Tensor
    """(iterations + 1,), or (k, iterations + 1) with groups: the least loss so far, at the start and after every iteration.
    Groups that ended earlier repeat their last loss. float64, on the CPU."""
    converged: Tensor
    """0-d, or (k,): bool, on the CPU; False where max_iter ended the search, and beside a loss that is not finite."""


@not_compiled
def soft_dtw_barycenter(
    X: object,
    *,
    gamma: float | Literal["auto"] = 1.0,
    groups: object = None,
    weights: object = None,
    x_lengths: Lengths | None = None,
    x_mask: Mask | None = None,
    init: object = "euclidean",
    barycenter_size: int | None = None,
    method: Method = "lbfgs",
    max_iter: int = 100,
    tol: float = 1e-5,
    annealing: Sequence[float] = (),
    lr: float = 0.1,
    block_size: int | None = None,
    progress: bool = False,
    **options: Unpack[_Options],
) -> BarycenterResult:
    """Series Z with the least sum_i weights[i] * soft_dtw(Z, X[i]): section 3.1 of Cuturi & Blondel 2017.

    The loss is not convex: the result is a local minimum, which depends on the start. It is not differentiable.

    Args:
        X: n series: (n, N, D), (n, N) for univariate ones, or a list of unequal ones, NaN as padding; forms and dtypes as for
            :func:`warpalign.cdist_soft_dtw`. Every value finite, but those of missing time steps.
        gamma: smoothing, in units of the cost; finite and > 0, or "auto", as in :func:`warpalign.cdist_soft_dtw`. Not used by
            "dba".
        groups: (n,) integers from 0 to k - 1, each of which occurs: one barycenter per group, all groups in one batch. No group's
            result depends on the other groups. None: one barycenter of all series.
        weights: (n,) numbers >= 0, positive for one series of each group at least. None: all 1.
        x_lengths: (n,) integers, a tensor on the device of X, an array or a list: true lengths, instead of NaN as padding.
        x_mask: (n, N) bools, True where a time step is missing: its cost to every other step is 0.
        init: where the search starts: the weighted "euclidean" mean of the series, each resampled to barycenter_size, or a tensor
            or array (sz, D), (k, sz, D) with groups.
        barycenter_size: time steps of the result. Default: the longest series' (init's, where it is a tensor).
        method: "lbfgs" (strong Wolfe line search, float64), "adam", or "dba", DTW barycenter averaging under hard DTW (Petitjean,
            Ketterlin & Gancarski, Pattern Recognition 2011): in turn every series is aligned with the barycenter, and every
            time step of the barycenter becomes the weighted mean of what is aligned with it.
        max_iter: iterations at most; 0 returns the start. L-BFGS evaluates the loss little more than once per iteration.
        tol: L-BFGS ends when three iterations, Adam when ten, together lower the loss by no more than tol * max(|loss|, gamma *
            weights' sum); "dba" when one lowers it by no more than tol * loss. Adam also requires that its last
            loss exceeds the least one by no more than this. 0: the search ends when nothing lowers the loss, and does not warn if
            max_iter ends it first.
        annealing: factors of gamma, (100, 10) for instance: descents with these larger gammas first, of max_iter iterations
            each, whose loss has fewer local minima. Worth it where gamma is small next to the costs.
        lr: Adam's step, in units of the series.
        block_size: series aligned at once. Default: at most 4096, fewer long ones.
        progress: show a progress bar (needs tqdm).
        options: cost, bandwidth, band, max_slope, step_penalty, precision and normalize of :func:`warpalign.soft_dtw`, the same for all
            series; x is the barycenter there. "dba" takes bands and step_penalty alone.

    Returns:
        BarycenterResult(barycenter, losses, converged).

    Warns:
        ConvergenceWarning: losses are not finite, or the search has not converged after max_iter iterations, max_iter > 0. Each
            calling line warns once.

    Raises:
        TypeError, ValueError: an argument is invalid; the message names it.
        NotImplementedError: as :func:`warpalign.soft_dtw`.
        ImportError: progress without tqdm.

    Examples:
        >>> X = [torch.randn(50, 3), torch.randn(70, 3), torch.randn(60, 3)]
        >>> soft_dtw_barycenter(X, gamma=0.1).barycenter.shape
        torch.Size([70, 3])
    """
    check_options({**options}, "soft_dtw_barycenter", "normalize")
    series = as_series(X, "X", x_lengths, "x_lengths", x_mask, "x_mask")
    series = series._replace(values=series.values.detach())
    check_finite(series, "X")
    gamma = gamma_of_set(gamma, series, None)
    membership = check_groups(groups, series)
    series_weights, totals = check_weights(weights, membership)
    start = _start(
        init, barycenter_size, series, membership, series_weights / totals[membership], groups is None
    )
    if not isinstance(annealing, Sequence):
        raise TypeError(f"annealing: expected a sequence of factors, got {type(annealing).__name__}")
    factors = [check_number(factor, "annealing") for factor in annealing]
    check_method(method, factors, {**options})
    if block_size is None:
        block_size = default_block_size(series.values, start.shape[1], needs_grad=True)

    descend = _Descent(
        series,
        membership,
        series_weights,
        totals,
        method,
        check_count(max_iter, "max_iter", 0),
        check_number(tol, "tol"),
        check_number(lr, "lr"),
        check_count(block_size, "block_size"),
        {**options},
    )
    with _progress_bar(progress, len(totals)) as update:
        for factor in factors:
            start = descend(start, check_positive_gamma(gamma * factor), update).barycenter
        result = descend(start, 0.0 if method == "dba" else gamma, update)
    warn_unless_converged(result.losses, result.converged, series.values.dtype, descend)
    return BarycenterResult(*(part[0] for part in result)) if groups is None else result


@dataclass(frozen=True)
class _Descent:
    """Groups of series and how their barycenters are sought."""

    series: SeriesSet
    membership: Tensor  # (n,) on the CPU
    weights: Tensor  # (n,) float64, on the CPU
    totals: Tensor  # (k,) their sums by group
    method: Method
    max_iter: int
    tol: float
    lr: float
    block: int
    options: dict[str, Any]  # of soft_dtw

    def __call__(self, start: Tensor, gamma: float, update: Callable[[int], None]) -> BarycenterResult:
        """From start (k, sz, D) downhill, all groups in one batch; gamma is 0 for "dba"."""
        epsilon = torch.finfo(start.dtype).eps
        searches: list[Search] = []
        for position, total in zip(
            start.to("cpu", torch.float64).flatten(1), self.totals.tolist(), strict=True
        ):
            unit = gamma * total
            if self.method == "dba":
                searches.append(fixed_point(position, Criterion(self.max_iter, 1, self.tol, unit, epsilon)))
            elif self.method == "adam":
                searches.append(
                    adam(position, Criterion(self.max_iter, 10, self.tol, unit, epsilon), self.lr)
                )
            else:
                # Aligned with one step of each series, a time step's loss is sum_i w_i (z - x_i)^2; its second derivative.
                curvature = 2 * total
                searches.append(
                    lbfgs(position, Criterion(self.max_iter, 3, self.tol, unit, epsilon), curvature)
                )
        # No group depends on how many others there are.
        options = {"gamma": gamma, "batch_invariant": True, **self.options}
        evaluation = _Means if self.method == "dba" else _Loss
        loss = evaluation(self.series, self.membership, self.weights, start.shape[1:], self.block, options)
        minima = minimize(searches, loss, update)
        longest = max(len(minimum.losses) for minimum in minima)
        losses = [m.losses + m.losses[-1:] * (longest - len(m.losses)) for m in minima]
        return BarycenterResult(
            torch.stack([minimum.position for minimum in minima]).view(start.shape).to(start),
            torch.tensor(losses, dtype=torch.float64),
            torch.tensor([minimum.converged for minimum in minima]),
        )


class _Loss:
    """Losses and gradients of some groups' barycenters: (indices of k groups, (k, sz * D)) -> ((k,), (k, sz * D))."""

    def __init__(
        self,
        series: SeriesSet,
        membership: Tensor,
        weights: Tensor,
        shape: torch.Size,
        block: int,
        options: dict[str, Any],
    ) -> None:
        self.series, self.membership, self.shape = series, membership, shape
        self.block, self.options = block, options
        self.weights = weights.to(series.values.device)

    @torch.inference_mode(False)  # the caller's, in which there are no gradients
    @torch.no_grad()
    def __call__(self, groups: list[int], positions: Tensor) -> tuple[Tensor, Tensor]:
        device = self.series.values.device
        centers = positions.to(self.series.values).view(-1, *self.shape)
        place = torch.full((int(self.membership.max()) + 1,), -1)
        place[groups] = torch.arange(len(groups))
        places = place[self.membership]
        sums: Tensor | None = None
        for index in (places >= 0).nonzero()[:, 0].split(self.block):
            own = places[index].to(device)
            values, parts = self.of_pairs(centers[own], self.series.take(index))
            rows = torch.cat([values[:, None].double(), parts.flatten(1).double()], dim=1)
            sums = rows.new_zeros(len(groups), rows.shape[1]) if sums is None else sums
            _add_by_group(sums, own, self.weights[index.to(device)], rows)
        assert sums is not None  # no group is empty
        return sums[:, 0], self.of_sums(sums[:, 1:], centers)

    def of_pairs(self, own: Tensor, targets: Taken) -> tuple[Tensor, Tensor]:
        """Values (B,) of centers and series, and what is to be summed (B, ...): gradients of the centers."""
        own.requires_grad_()
        with torch.enable_grad():
            values = soft_dtw(
                own, targets.values, y_lengths=targets.lengths, y_mask=targets.mask, **self.options
            )
            total = values.sum()  # a tensor of ones as the gradient would make torch import sympy
        (gradient,) = torch.autograd.grad(total, own)
        return values, gradient

    def of_sums(self, sums: Tensor, centers: Tensor) -> Tensor:
        """The answer of the groups whose sums these are, and whose centers (k, sz, D) were asked for."""
        return sums


class _Means(_Loss):
    """In place of gradients: the centers that lower the losses most if all paths stay, weighted means of what is aligned."""

    def __init__(self, series: SeriesSet, *arguments: Any) -> None:
        super().__init__(series, *arguments)
        self.block = max(1, min(self.block, _TABLE_CELLS // (self.shape[0] * series.values.shape[1])))

    def of_pairs(self, own: Tensor, targets: Taken) -> tuple[Tensor, Tensor]:
        """Sums (B, sz, D) of the series' time steps along the paths, and the numbers of these beside them: (B, sz, D + 1)."""
        values, lengths, mask = targets
        costs, paths = soft_dtw_alignment(own, values, y_lengths=lengths, y_mask=mask, **self.options)
        if lengths is not None:
            steps = torch.arange(values.shape[1], device=values.device)
            # What is there may be NaN.
            values = values.masked_fill((steps >= lengths[:, None])[:, :, None], 0.0)
        if mask is not None:  # no part of a mean
            paths = paths.masked_fill(mask[:, None, :], 0.0)
        paths = paths.double()
        return costs, torch.cat([paths @ values.double(), paths.sum(2, keepdim=True)], dim=2)

    def of_sums(self, sums: Tensor, centers: Tensor) -> Tensor:
        sums = sums.reshape(len(sums), self.shape[0], -1)
        means = sums[:, :, :-1] / sums[:, :, -1:]
        # A time step that meets missing ones alone stays.
        return torch.where(sums[:, :, -1:] > 0, means, centers.to(means)).flatten(1)


def _add_by_group(sums: Tensor, groups: Tensor, weights: Tensor, rows: Tensor) -> None:
    """sums[g] += the weighted rows (n, P) of group g, in the same order in every run."""
    if sums.device.type == "cpu":
        sums.index_add_(0, groups, weights[:, None] * rows)
        return
    # On a GPU that adds in any order, but a product does not.
    table = sums.new_zeros(len(sums), len(rows))
    table[groups, torch.arange(len(rows), device=table.device)] = weights
    sums += table @ rows


def _start(
    init: object, size: object, series: SeriesSet, membership: Tensor, shares: Tensor, is_single: bool
) -> Tensor:
    """(k, sz, D), of the series' dtype and device; shares (n,): their weights over their group's."""
    if size is not None:
        size = check_count(size, "barycenter_size")
    values = series.values
    features, count = values.shape[2], int(membership.max()) + 1
    if isinstance(init, str):
        if init != "euclidean":
            raise ValueError(f'init: expected "euclidean" or a tensor, got {init!r}')
        wide = resampled(without_gaps(series), size or values.shape[1]).flatten(1).double()
        mean = wide.new_zeros(count, wide.shape[1])
        _add_by_group(mean, membership.to(mean.device), shares.to(mean.device), wide)
        return mean.view(count, -1, features).to(values.dtype)
    given = as_tensor(init, "init").detach()
    start = given.unsqueeze(0) if is_single else given
    if start.dim() != 3 or start.shape[0] != count or start.shape[2] != features or not start.shape[1]:
        wanted = "sz" if size is None else str(size)
        expected = f"({wanted}, {features})" if is_single else f"({count}, {wanted}, {features})"
        raise ValueError(f"init: expected shape {expected}, got {tuple(given.shape)}")
    if size is not None and start.shape[1] != size:
        raise ValueError(f"barycenter_size: expected the {start.shape[1]} time steps of init, got {size}")
    if not bool(start.isfinite().all()):
        raise ValueError("init: expected finite values, got NaN or infinity")
    return start.to(values)


@contextlib.contextmanager
def _progress_bar(wanted: bool, groups: int) -> Iterator[Callable[[int], None]]:
    if not wanted:
        yield lambda remaining: None
        return
    tqdm: Any = optional.load("tqdm.auto", "progress=True", "progress").tqdm
    with tqdm(desc="barycenters", unit="evaluation") as bar:

        def update(remaining: int) -> None:
            bar.set_postfix_str(f"{groups - remaining} of {groups} done", refresh=False)
            bar.update()

        yield update
