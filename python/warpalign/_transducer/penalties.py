"""Penalties of a transducer's arcs, and the checks of all settings of its operators."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from numbers import Integral, Real

from warpalign._core.scalars import check_flag, check_number
from warpalign._transducer.columns import Columns
from warpalign._transducer.settings import Settings


@dataclass(frozen=True, kw_only=True)
class TransducerPenalties:
    """Changes of the weights of a transducer's arcs, for early labels, the end of an utterance and unknown labels.

    Args:
        delay_penalty: (arXiv 2211.00490) a label emitted at frame t gets delay_penalty · ((T−1)/2 − t) added to its weight:
            above 0 it favours early labels. In units of log-probabilities for each frame.
        eos_id: the label that ends an utterance, for ``eos_penalty``. None: there is none.
        eos_penalty: a delay penalty of the label ``eos_id``, in addition to ``delay_penalty``.
        star_id: a wildcard label, whose arc has no score; not with durations. None: there is none.
        star_penalty: blanks after a wildcard have the weight log(star_penalty) instead of their own; above 0.

    Raises:
        TypeError, ValueError: an invalid value; the message names it. The functions that take penalties refuse a wildcard that
            is the column of a blank, and one with durations.

    Examples:
        >>> from warpalign import transducer_loss
        >>> penalties = TransducerPenalties(delay_penalty=0.01)
        >>> logits, targets = torch.randn(4, 50, 11, 30), torch.randint(0, 29, (4, 10))
        >>> transducer_loss(logits, targets, penalties=penalties).shape
        torch.Size([])
    """

    delay_penalty: float = 0.0
    eos_id: int | None = None
    eos_penalty: float = 0.0
    star_id: int | None = None
    star_penalty: float = 1.0

    def __post_init__(self) -> None:
        _check_finite(self.delay_penalty, "delay_penalty")
        _check_finite(self.eos_penalty, "eos_penalty")
        check_number(self.star_penalty, "star_penalty", None)
        star, eos = _check_label(self.star_id, "star_id"), _check_label(self.eos_id, "eos_id")
        if star >= 0 and star == eos:
            raise ValueError(f"star_id: expected another label than eos_id, got {star} for both")


def _check_finite(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name}: expected a float, got {type(value).__name__}")
    # Comparisons that torch.compile can trace; NaN fails them.
    if not -sys.float_info.max <= float(value) <= sys.float_info.max:
        raise ValueError(f"{name}: expected a finite number, got {value}")
    return float(value)


def _check_label(value: object, name: str) -> int:
    """-1 for None."""
    if value is None:
        return -1
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name}: expected an int or None, got {type(value).__name__}")
    if not 0 <= int(value) < 2**31:
        raise ValueError(f"{name}: expected a label >= 0, or None, got {value}")
    return int(value)


def check_settings(
    columns: Columns,
    penalties: object,
    *,
    sigma: object,
    fastemit_lambda: object = 0.0,
    clamp: object = None,
    zero_infinity: object = False,
    from_log_probs: object = False,
    packed: bool = False,
) -> Settings:
    own = TransducerPenalties() if penalties is None else penalties
    if not isinstance(own, TransducerPenalties):
        raise TypeError(f"penalties: expected TransducerPenalties or None, got {type(own).__name__}")
    settings = Settings(
        blank=columns.blank,
        durations=columns.durations,
        big_blank_columns=columns.big_blank_columns,
        sigma=_check_finite(sigma, "sigma"),
        fastemit_lambda=check_number(fastemit_lambda, "fastemit_lambda"),
        delay_penalty=float(own.delay_penalty),
        eos_id=-1 if own.eos_id is None else int(own.eos_id),
        eos_penalty=float(own.eos_penalty),
        star_id=-1 if own.star_id is None else int(own.star_id),
        star_penalty=float(own.star_penalty),
        clamp=0.0 if clamp is None else check_number(clamp, "clamp", None),
        zero_infinity=check_flag(zero_infinity, "zero_infinity"),
        from_log_probs=check_flag(from_log_probs, "from_log_probs"),
        packed=packed,
    )
    if settings.star_id >= 0 and columns.tdt:
        raise ValueError(f"penalties: expected no star_id with durations, got {own.star_id}")
    if settings.star_id >= 0 and settings.star_id in (settings.blank, *settings.big_blank_columns):
        raise ValueError(f"penalties: expected a star_id that is no blank's column, got {settings.star_id}")
    return settings
