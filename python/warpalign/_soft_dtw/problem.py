"""From the public functions' arguments to the operators: checked, padded, broadcast, widened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from warpalign._core import library
from warpalign._core.checks import (
    check_mask,
    check_pair,
    check_table,
    check_unbatched,
    warn_once,
)
from warpalign._core.costs import CostFunction, Mahalanobis, check_cost, check_costs, without_padding
from warpalign._core.lengths import check_lengths
from warpalign._core.series import as_batch, is_half, one_mask, padded, widened
from warpalign._core.torch_internals import is_transforming
from warpalign._core.transforms import no_autocast
from warpalign._soft_dtw import autograd, ops
from warpalign._soft_dtw.checks import check_gamma, gamma_of_pairs, naming_the_band
from warpalign._soft_dtw.inputs import Costs, Pairs
from warpalign._soft_dtw.packed import PackedProblem, packed_problem
from warpalign._soft_dtw.settings import Settings
from warpalign._soft_dtw.subsequence_autograd import subsequence

_OF_PADDED = ("x_lengths", "y_lengths", "x_mask", "y_mask")


class Problem(NamedTuple):
    """Batches of pairs, ready to be aligned."""

    of: Pairs
    gamma: float | Tensor
    cost: int | CostFunction
    settings: Settings
    unbatched: bool

    def value(self) -> Tensor:
        """(B,)"""
        with naming_the_band(self.settings):
            if isinstance(self.cost, int):
                return autograd.series(self.of, self.gamma, self.cost, self.settings)
            return autograd.cost_matrix(self._costs(self.cost), self.gamma, self.settings)[0]

    def value_and_alignment(self) -> tuple[Tensor, Tensor]:
        """(B,) and (B, N, M)"""
        with naming_the_band(self.settings):
            if isinstance(self.cost, int):
                return autograd.series_and_alignment(self.of, self.gamma, self.cost, self.settings)
            return autograd.cost_matrix(self._costs(self.cost), self.gamma, self.settings, True)

    def sample(self, count: int, seed: int) -> tuple[Tensor, Tensor]:
        """(B, count, N + M - 1, 2) cells and (B, count) lengths of paths; without gradients."""
        gammas = self.gamma if isinstance(self.gamma, Tensor) else None
        settings = (
            self.settings if isinstance(self.gamma, Tensor) else self.settings._replace(gamma=self.gamma)
        )
        with naming_the_band(settings):
            if not isinstance(self.cost, int):
                costs = self._costs(self.cost)._replace(gammas=gammas)
                return ops.draw_from_costs(costs, settings, count, seed)
            settings = settings._replace(cost_kind=self.cost)
            return ops.draw_from_series(self.of._replace(gammas=gammas), settings, count, seed)

    def without_hidden(self) -> tuple[Tensor, Tensor]:
        """The series, without what missing steps and padding hold: it must not come back through a function's derivative either."""
        of = self.of
        x = without_padding(_without_missing(of.x, of.x_mask), of.x_lengths)
        return x, without_padding(_without_missing(of.y, of.y_mask), of.y_lengths)

    def _costs(self, function: CostFunction) -> Costs:
        """What the caller's function makes of the pairs."""
        of = self.of
        x, y = self.without_hidden()
        with no_autocast():
            costs = check_costs(function(x, y), x, y)
        if of.x_mask is not None:
            costs = costs.masked_fill(of.x_mask[:, :, None], 0.0)
        if of.y_mask is not None:
            costs = costs.masked_fill(of.y_mask[:, None, :], 0.0)
        return Costs(costs, of.x_lengths, of.y_lengths)

    def subsequence(self, with_alignment: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Value, alignment (empty if not wanted) and end values of x within y; gamma and cost are numbers."""
        assert isinstance(self.cost, int) and not isinstance(self.gamma, Tensor)
        return subsequence(self.of, self.gamma, self.cost, self.settings.step_penalty, with_alignment)

    def divergence(self) -> Tensor:
        """s(x, y) - (s(x, x) + s(y, y)) / 2."""
        x, y, n, m, x_mask, y_mask, _ = self.of
        of_x = self._replace(of=Pairs(x, x, n, n, x_mask, x_mask)).value()
        of_y = self._replace(of=Pairs(y, y, m, m, y_mask, y_mask)).value()
        return self.value() - (of_x + of_y) / 2

    def pairs(self, first: int, last: int) -> Problem:
        """A part of the batch."""
        cut = slice(first, last)
        parts = Pairs(*(None if t is None else t[cut] for t in self.of))  # type: ignore[arg-type]
        gamma = self.gamma[cut] if isinstance(self.gamma, Tensor) else self.gamma
        return self._replace(of=parts, gamma=gamma)


def problem(
    x: object,
    y: object,
    *,
    gamma: float | Tensor,
    cost: object,
    x_lengths: object,
    y_lengths: object,
    x_mask: object,
    y_mask: object,
    settings: Settings,
    names: tuple[str, str] = ("x", "y"),
    unbatched: bool | None = None,
    takes_arrays: bool = False,
    takes_halves: bool = False,
) -> Problem:
    """The problem behind a public function's arguments.

    Args:
        unbatched: the argument of that name; None: the function has none.
        takes_arrays: whether x and y may be arrays and lists, which have no gradient.
        takes_halves: whether the caller asks for nothing but Problem.value(), which reads half types on CUDA as they are.
    """
    gamma, cost = check_gamma(gamma), check_cost(cost)
    takes_halves = takes_halves and isinstance(cost, int) and not isinstance(gamma, Tensor)
    only_series = x_lengths is None and y_lengths is None and x_mask is None and y_mask is None
    if only_series and not (unbatched or isinstance(gamma, Tensor)):
        pairs = _as_they_are(x, y, takes_halves)
        if pairs is not None:
            return _with_features(Problem(pairs, gamma, cost, settings, False))
    if takes_arrays:
        x, x_lengths, own = as_batch(x, x_lengths, names[0], f"{names[0]}_lengths")
        x_mask = one_mask(x_mask, own, f"{names[0]}_mask", names[0])
        y, y_lengths, own = as_batch(y, y_lengths, names[1], f"{names[1]}_lengths")
        y_mask = one_mask(y_mask, own, f"{names[1]}_mask", names[1])
    padded_x, x_lengths = padded(x, x_lengths, names[0], f"{names[0]}_lengths")
    padded_y, y_lengths = padded(y, y_lengths, names[1], f"{names[1]}_lengths")
    x, y = check_pair(padded_x, padded_y, names)
    if unbatched is not None:
        check_unbatched(unbatched, x, y, names)
    if only_series:
        _warn_of_one_step(x, y, names)
    is_single = x.dim() == 2
    if is_single:
        x, y = x.unsqueeze(0), y.unsqueeze(0)
    batch = y.shape[0] if x.shape[0] == 1 else x.shape[0]
    masks = check_mask(x_mask, "x_mask", x, batch), check_mask(y_mask, "y_mask", y, batch)
    # Widened before they are repeated: the gradients of a series' pairs are then summed in float32.
    if not (takes_halves and x.is_cuda and x.shape[0] == y.shape[0]):
        x, y = widened(x), widened(y)
    x, y = (t if t.shape[0] == batch else t.expand(batch, -1, -1) for t in (x, y))
    n = check_lengths(x_lengths, f"{names[0]}_lengths", "N", x, batch)
    m = check_lengths(y_lengths, f"{names[1]}_lengths", "M", y, batch)
    gamma = gamma_of_pairs(gamma, x)
    return _with_features(Problem(Pairs(x, y, n, m, *masks), gamma, cost, settings, is_single))


def any_problem(
    x: object, y: object, *, gamma: float | Tensor, cost: object, settings: Settings, **others: Any
) -> Problem | PackedProblem:
    """problem() where nothing but the value is asked for: jagged nested tensors stay packed."""
    is_nested = isinstance(x, Tensor) and x.is_nested or isinstance(y, Tensor) and y.is_nested
    if is_nested and not others["unbatched"] and all(others[name] is None for name in _OF_PADDED):
        found = packed_problem(x, y, check_gamma(gamma), check_cost(cost), settings)
        if found is not None:
            return found
    return problem(x, y, gamma=gamma, cost=cost, settings=settings, takes_halves=True, **others)


def _with_features(found: Problem) -> Problem:
    """Squared distances of other features in place of a Mahalanobis distance."""
    if not isinstance(found.cost, Mahalanobis):
        return found
    x, y = found.without_hidden()
    features = found.of._replace(x=found.cost.features(x), y=found.cost.features(y))
    return found._replace(of=features, cost=0)


def _as_they_are(x: object, y: object, takes_halves: bool) -> Pairs | None:
    """Two batches that the operators take as they are, as most calls' are; None: others, of which every check has its say."""
    if not (isinstance(x, Tensor) and isinstance(y, Tensor)):
        return None
    dtype, (batch, n, features), (others, m, also) = x.dtype, _axes(x), _axes(y)
    fit = (
        batch == others
        and features == also > 0 < n
        and m > 0
        and (n > 1 or m > 1 or features == 1)  # else the check has its say
        and dtype == y.dtype
        and (dtype == torch.float32 or dtype == torch.float64 or (takes_halves and x.is_cuda and is_half(x)))
        and x.device == y.device
        and (library.has_cuda or not x.is_cuda)
    )
    return Pairs(x, y) if fit else None


def _warn_of_one_step(x: Tensor, y: Tensor, names: tuple[str, str]) -> None:
    """Says that batches (B, 1, D) are series of one time step, where their caller may have meant (B, channel, time).

    Of one step on both sides there is nothing to align: the value is the cost. A batch whose longest series has one step comes with
    lengths, or is a rare case in training, where a warning that comes once and can be filtered does no harm.
    """
    if x.dim() == 3 and x.shape[1] == y.shape[1] == 1 < x.shape[2] and not is_transforming():
        first, second = names
        warn_once(
            f"{first} and {second}: expected (B, N, D), time before features, got series of one time step with {x.shape[2]} features: if "
            f"these are {x.shape[2]} time steps, write {first}.swapaxes(1, 2) and {second}.swapaxes(1, 2). Lengths silence this."
        )


def _axes(series: Tensor) -> Sequence[int]:
    """The sizes of a dense tensor of three axes; -1 for others."""
    is_dense = series.layout == torch.strided and not series.is_nested
    return series.shape if is_dense and series.dim() == 3 else (-1, -1, -1)


def cost_problem(
    cost_matrix: object,
    *,
    gamma: float | Tensor,
    x_lengths: object,
    y_lengths: object,
    settings: Settings,
) -> Tensor:
    """The values of the caller's own costs."""
    gamma = check_gamma(gamma)
    cost = check_table(cost_matrix, "cost_matrix", "N, M")
    unbatched = cost.dim() == 2
    cost = widened(cost.unsqueeze(0) if unbatched else cost)
    n = check_lengths(x_lengths, "x_lengths", "N", cost, cost.shape[0])
    m = check_lengths(y_lengths, "y_lengths", "M", cost.transpose(1, 2), cost.shape[0])
    gamma = gamma_of_pairs(gamma, cost)
    with naming_the_band(settings):
        value, _ = autograd.cost_matrix(Costs(cost, n, m), gamma, settings)
    return value.squeeze(0) if unbatched else value


def _without_missing(series: Tensor, mask: Tensor | None) -> Tensor:
    return series if mask is None else series.masked_fill(mask[:, :, None], 0.0)
