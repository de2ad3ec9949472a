"""Checks of the arguments that only soft-DTW has. Messages name the argument, what was expected and what came."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from warpalign._core.checks import DTYPES, can_be_read, check_number, check_precision, shape_of
from warpalign._soft_dtw.settings import METRIC_OPTIONS, Settings, settings_of
from warpalign._soft_dtw.settings import check_band as check_band


def check_gamma(gamma: object) -> float | Tensor:
    """A number, or a floating-point tensor whose shape and values gamma_of_pairs() checks."""
    if isinstance(gamma, Tensor):
        if gamma.dtype not in DTYPES:
            raise TypeError(f"gamma: expected dtype float64, float32, float16 or bfloat16, got {gamma.dtype}")
        return gamma
    return check_number(gamma, "gamma")


def check_positive_gamma(gamma: object) -> float:
    """What is built on top takes: one number, and not hard DTW."""
    return check_number(gamma, "gamma", None)


def gamma_of_pairs(gamma: float | Tensor, table: Tensor) -> float | Tensor:
    """A number as it is; a tensor as the operators want it: (B,), contiguous, of the table's dtype."""
    if not isinstance(gamma, Tensor):
        return gamma
    batch = table.shape[0]
    if gamma.device != table.device:
        raise ValueError(f"gamma: expected the series' device, {table.device}, got {gamma.device}")
    if gamma.shape not in ((), (batch,)):
        raise ValueError(f"gamma: expected shape () or ({batch},), one per pair, got {shape_of(gamma)}")
    wide = gamma.to(table.dtype).expand(batch).contiguous()
    if can_be_read(wide):
        wrong = ~((wide > 0) & wide.isfinite())
        if wrong.any():
            index = int(wrong.nonzero()[0])
            raise ValueError(f"gamma: expected finite numbers > 0, got {float(wide[index])} at index {index}")
    return wide


def check_settings(
    bandwidth: object,
    band: object,
    max_slope: object,
    step_penalty: object,
    precision: object = None,
    batch_invariant: object = False,
) -> Settings:
    return settings_of(bandwidth, band, max_slope, step_penalty, check_precision(precision), batch_invariant)


class naming_the_band:
    """Only the core can tell whether a band holds a path; what it says becomes a ValueError."""

    def __init__(self, settings: Settings) -> None:
        self.has_band = bool(settings.band)

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self.has_band and isinstance(error, RuntimeError):
            message = str(error).splitlines()[0]
            if message.startswith("warpalign: band: "):
                raise ValueError(message.removeprefix("warpalign: ")) from None


def check_options(options: dict[str, Any], function: str, *also: str) -> None:
    """Keyword arguments that a function passes on to soft_dtw."""
    for name in options:
        if name not in (*METRIC_OPTIONS, *also):
            raise TypeError(f"{name}: expected no such argument of {function}, got one")


def check_metric_params(given: object) -> dict[str, Any]:
    """The same as an argument of a class."""
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise TypeError(f"metric_params: expected a dict or None, got {type(given).__name__}")
    for name in given:
        if name not in METRIC_OPTIONS:
            raise ValueError(f"metric_params: expected only {', '.join(METRIC_OPTIONS)}, got {name!r}")
    return given
