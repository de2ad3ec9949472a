"""What soft-DTW may be told besides series and gamma."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from torch import Tensor

Cost = Literal["sqeuclidean", "euclidean", "l1", "cosine", "huber"]
CostFunction = Callable[[Tensor, Tensor], Tensor]
Band = Literal["sakoe_chiba", "abs", "slanted", "itakura"]
# What soft_dtw takes besides series and gamma, and what is built on it passes on for all pairs.
METRIC_OPTIONS = ("cost", "bandwidth", "band", "max_slope", "step_penalty", "precision")


class Settings(NamedTuple):
    """What all operators take besides their tensors and gamma: keyword arguments of their schemas."""

    band: int = 0
    radius: int = 0
    max_slope: float = 2.0
    step_penalty: float = 0.0
    precision: int = 0
    batch_invariant: bool = False


def as_keywords(settings: tuple[Any, ...]) -> dict[str, Any]:
    """Settings go through Function.apply as a plain tuple, which torch.compile of vmap understands; a NamedTuple or
    variable arguments it does not."""
    return dict(zip(Settings._fields, settings, strict=True))
