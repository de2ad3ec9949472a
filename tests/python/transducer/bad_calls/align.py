"""Alignments by a transducer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import warpalign
from tests.python.bad_calls import BadCall, BadCalls, Given
from tests.python.transducer.bad_calls import functional
from tests.python.transducer.bad_calls.functional import logits, targets


def align(
    *, error: type[BaseException] = ValueError, message: str, cpu_only: bool = False, **changed: Any
) -> BadCall:
    """transducer_align of good arguments but for those named: values, or functions of what is given."""

    def call(given: Given) -> object:
        made = {k: v(given) if isinstance(v, Callable) else v for k, v in changed.items()}  # type: ignore[arg-type]
        return warpalign.transducer_align(**{"logits": logits(given), "targets": targets(given)} | made)  # type: ignore[arg-type]

    return BadCall(call, error, message, cpu_only)


# Arguments that the losses have and alignments have not.
OF_LOSSES = ("fastemit_lambda", "clamp", "zero_infinity", "inplace_grad", "reduction")

CALLS: BadCalls = {
    **{
        name: call
        for name, call in functional.shared(align, "transducer_align").items()
        if not name.split(": ")[1].startswith(OF_LOSSES)
    },
    "transducer_align: no columns besides those of durations": align(
        durations=(0, 1, 2, 3, 4, 5),
        message="logits: expected columns of labels besides those of 6 durations, as duration_logits is None, got 6",
    ),
    "transducer_align: dtype of duration_logits": align(
        durations=(0, 1),
        duration_logits=lambda g: logits(g, 3, 5, 3, 2).double(),
        error=TypeError,
        message="duration_logits: expected the dtype of logits, torch.float32, got torch.float64",
    ),
    "transducer_align: duration_logits alone": align(
        duration_logits=lambda g: logits(g, 3, 5, 3, 2),
        message="durations: expected the durations of duration_logits, got None",
    ),
    "transducer_align: durations": align(
        durations=(0, 65),
        duration_logits=lambda g: logits(g, 3, 5, 3, 2),
        message="durations: expected 0 to 64 frames each, got 65",
    ),
    "transducer_align: big_blanks with durations": align(
        durations=(0, 1),
        duration_logits=lambda g: logits(g, 3, 5, 3, 2),
        big_blanks=(2,),
        message="big_blanks: expected none with durations, got (2,)",
    ),
    "transducer_align: big_blanks": align(
        big_blanks=(2, 1), message="big_blanks: expected 2 to 64 frames each, got 1"
    ),
    "transducer_align: a wildcard with durations": align(
        durations=(0, 1),
        duration_logits=lambda g: logits(g, 3, 5, 3, 2),
        penalties=warpalign.TransducerPenalties(star_id=1),
        message="penalties: expected no star_id with durations, got 1",
    ),
    "transducer_align: penalties": align(
        penalties=0.1,
        error=TypeError,
        message="penalties: expected TransducerPenalties or None, got float",
    ),
    "transducer_align: posteriors": align(
        posteriors=1, error=TypeError, message="posteriors: expected a bool, got int"
    ),
}
