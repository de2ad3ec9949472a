"""Checks of the arguments that only soft-DTW has. Messages name the argument, what was expected and what came."""

from __future__ import annotations

from numbers import Integral
from typing import Any, get_args

from torch import Tensor

from warpalign._core.checks import DTYPES, can_be_read, check_number, check_precision, shape_of
from warpalign._soft_dtw.settings import METRIC_OPTIONS, Band, Settings

_BANDS: tuple[str, ...] = get_args(Band)
_NO_BAND = Settings()


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
    penalty = check_number(step_penalty, "step_penalty")
    number = check_precision(precision)
    if not isinstance(batch_invariant, bool):
        raise TypeError(f"batch_invariant: expected a bool, got {type(batch_invariant).__name__}")
    settings = check_band(bandwidth, band, max_slope)
    if not (penalty or number or batch_invariant):
        return settings
    return settings._replace(step_penalty=penalty, precision=number, batch_invariant=batch_invariant)


def check_band(bandwidth: object, band: object, max_slope: object) -> Settings:
    """The band's settings, or those of none."""
    if band not in _BANDS:
        raise ValueError(f'band: expected "sakoe_chiba", "abs", "slanted" or "itakura", got {band!r}')
    if band == "itakura":
        if bandwidth is not None:
            raise ValueError(
                f'bandwidth: expected None with band="itakura", which has max_slope, got {bandwidth}'
            )
        return Settings(band=4, max_slope=check_number(2 if max_slope is None else max_slope, "max_slope", 1))
    if max_slope is not None:
        raise ValueError(f'max_slope: expected None without band="itakura", got {max_slope}')
    if bandwidth is None:
        if band != "sakoe_chiba":
            raise ValueError(f'bandwidth: expected a radius with band="{band}", got None')
        return _NO_BAND
    if isinstance(bandwidth, bool) or not isinstance(bandwidth, Integral):
        raise TypeError(f"bandwidth: expected an int or None, got {type(bandwidth).__name__}")
    if bandwidth < 0:
        raise ValueError(f"bandwidth: expected a radius >= 0, or None for no band, got {bandwidth}")
    kind = {"sakoe_chiba": 1, "abs": 2, "slanted": 3}[str(band)]
    return Settings(band=kind, radius=min(int(bandwidth), 2**31 - 1))


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
