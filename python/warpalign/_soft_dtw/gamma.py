"""A gamma for a set of series."""

from __future__ import annotations

import torch
from torch import Tensor

from warpalign._core.checks import check_number
from warpalign._core.series import SeriesSet

_STEPS = 100


def gamma_of_set(gamma: object, series: SeriesSet, least: float | None = 0) -> float:
    """A number as it is, once checked; "auto": the heuristic's.

    Args:
        least: that gamma may be; None: above 0.
    """
    if not (isinstance(gamma, str) and gamma == "auto"):
        return check_number(gamma, "gamma", least)
    values = series.values.detach()
    steps = torch.arange(values.shape[1])
    is_step = (steps < series.true_lengths()[:, None]).to(values.device)
    if series.mask is not None:
        is_step &= ~series.mask
    known = values[is_step].cpu().double()
    known = known[known.isfinite().all(1)]
    # The same steps at every call, so that a result is that of the data alone.
    chosen = torch.randperm(len(known), generator=torch.Generator().manual_seed(0))[:_STEPS]
    found = float(heuristic(known[chosen], values.shape[1], 0.5)) if len(chosen) > 1 else 0.0
    if not found > 0:
        raise ValueError(
            f'gamma: expected a number where "auto" finds none, as the median distance between time steps is {found:g}'
        )
    return found


def heuristic(steps: Tensor, size: int, quantile: float | None = None) -> Tensor:
    """2 sz m^2, m being the median distance between time steps (k, D): Cuturi, "Fast global alignment kernels", ICML 2011.

    Args:
        quantile: 0.5 takes the mean of the two distances in the middle, as NumPy does; None the lower one, as torch does.
    """
    distances = torch.pdist(steps)
    median = distances.median() if quantile is None else distances.quantile(quantile)
    return 2 * size * median.square()
