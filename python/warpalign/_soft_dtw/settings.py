"""What soft-DTW may be told besides series and gamma."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypedDict

from warpalign._core.checks import Precision
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
