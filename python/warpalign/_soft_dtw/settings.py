"""What soft-DTW may be told besides series and gamma, for every front end: this module imports no framework."""

from __future__ import annotations

from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict, get_args

from warpalign._core.scalars import Precision, check_number

if TYPE_CHECKING:
    from warpalign._core.costs import Cost, CostFunction

Band = Literal["sakoe_chiba", "abs", "slanted", "itakura"]


class MetricOptions(TypedDict, total=False):
    """What soft_dtw takes besides series and gamma, and what is built on it passes on for all pairs.

    soft_dtw and its like spell these parameters out: **options would hide them, and their defaults, from help().
    """

    cost: Cost | CostFunction
    bandwidth: int | None
    band: Band
    max_slope: float | None
    step_penalty: float
    precision: Precision | None


METRIC_OPTIONS = tuple(MetricOptions.__annotations__)

_BLOCK_PAIRS = 4096  # enough to fill a large GPU with pairs of a few hundred time steps
_BLOCK_BYTES = 2**29


def pairs_at_once(x_size: int, y_size: int, numbers: int, item_bytes: int) -> int:
    """Pairs of series of so many time steps that are computed at once by default, where a step has so many numbers."""
    return max(1, min(_BLOCK_PAIRS, _BLOCK_BYTES // ((x_size + y_size) * item_bytes * (numbers + 16))))


class Settings(NamedTuple):
    """What soft-DTW's operators take besides tensors: keyword arguments of their schemas, with the schemas' defaults."""

    gamma: float = 1.0
    """The schemas have no default for it. Not looked at where `gammas` holds one per pair."""
    cost_kind: int = 0
    """The place in `Cost`. The operators of cost matrices have no such argument."""
    band: int = 0
    """0 for none, else one more than the place in `Band`."""
    radius: int = 0
    max_slope: float = 2.0
    step_penalty: float = 0.0
    precision: int = 0
    """The place in `Precision`."""
    batch_invariant: bool = False


_DEFAULTS = tuple(Settings())


def as_keywords(settings: tuple[Any, ...]) -> tuple[float, dict[str, Any]]:
    """gamma, and the operators' other keyword arguments as far as they are not the schemas' defaults, which Settings repeats.

    So an operator may lack those that its callers never set. Settings go through Function.apply as a plain tuple:
    torch.compile of vmap understands neither a NamedTuple nor variable arguments.
    """
    if settings[1:] == _DEFAULTS[1:]:
        return settings[0], {}
    triples = zip(Settings._fields, settings, _DEFAULTS, strict=True)
    changed = {name: value for name, value, default in triples if value != default}
    return changed.pop("gamma", 1.0), changed


_BANDS: tuple[str, ...] = get_args(Band)
_NO_BAND = Settings()


def settings_of(
    bandwidth: object,
    band: object,
    max_slope: object,
    step_penalty: object,
    precision: int = 0,
    batch_invariant: object = False,
) -> Settings:
    """The settings behind the public arguments; precision is its number already."""
    penalty = check_number(step_penalty, "step_penalty")
    if not isinstance(batch_invariant, bool):
        raise TypeError(f"batch_invariant: expected a bool, got {type(batch_invariant).__name__}")
    settings = check_band(bandwidth, band, max_slope)
    if not (penalty or precision or batch_invariant):
        return settings
    return settings._replace(step_penalty=penalty, precision=precision, batch_invariant=batch_invariant)


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
