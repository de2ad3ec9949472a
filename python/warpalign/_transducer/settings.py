"""What the transducer losses may be told besides logits, targets and lengths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

from warpalign._core.reduction import BatchReduction
from warpalign._core.scalars import check_number

TransducerActivation = Literal["relu", "tanh"]
BigBlanks = Sequence[int] | Mapping[int, int]
TransducerReduction = BatchReduction
ACTIVATIONS: tuple[str, ...] = get_args(TransducerActivation)

WORKSPACE_LIMIT = 128 * 2**20
"""Bytes: the core's own default."""


class Settings(NamedTuple):
    """What all operators take besides their tensors: keyword arguments of their schemas."""

    blank: int = 0
    durations: tuple[int, ...] = ()
    big_blank_columns: tuple[int, ...] = ()
    sigma: float = 0.0
    fastemit_lambda: float = 0.0
    delay_penalty: float = 0.0
    eos_id: int = -1
    eos_penalty: float = 0.0
    star_id: int = -1
    star_penalty: float = 1.0
    clamp: float = 0.0
    zero_infinity: bool = False
    from_log_probs: bool = False
    packed: bool = False


def as_keywords(settings: tuple[Any, ...]) -> dict[str, Any]:
    """Settings go through Function.apply as a plain tuple, which torch.compile of vmap understands."""
    return dict(zip(Settings._fields, settings, strict=True))


def check_activation(activation: object, name: str = "activation") -> int:
    """Its number in the C++ core."""
    if activation not in ACTIVATIONS:
        expected = " or ".join(f'"{one}"' for one in ACTIVATIONS)
        raise ValueError(f"{name}: expected {expected}, got {activation!r}")
    return ACTIVATIONS.index(str(activation))


def check_omega(omega: object) -> float:
    value = check_number(omega, "omega")
    if value > 1:
        raise ValueError(f"omega: expected a probability, at most 1, got {omega}")
    return value


def check_dropout(dropout: object) -> float:
    value = check_number(dropout, "dropout")
    if value >= 1:
        raise ValueError(f"dropout: expected a probability below 1, got {dropout}")
    return value
