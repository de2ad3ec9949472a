"""Edit distances, and the loss of expected errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tests.python.bad_calls import BadCall, BadCalls
from warpalign.decoding import edit_distance, mwer_loss


def bad(
    function: Callable[..., object], message: str, error: type[BaseException] = ValueError, **given: Any
) -> BadCall:
    return BadCall(lambda _: function(**given), error, message, True)


def edits(message: str, error: type[BaseException] = ValueError, **changed: Any) -> BadCall:
    ints = torch.zeros(2, 5, dtype=torch.int64)
    return bad(edit_distance, message, error, **{"tokens": ints, "targets": ints} | changed)


def mwer(message: str, error: type[BaseException] = ValueError, **changed: Any) -> BadCall:
    numbers = torch.zeros(2, 5)
    return bad(mwer_loss, message, error, **{"scores": numbers, "errors": numbers} | changed)


INTS = torch.zeros(2, 5, dtype=torch.int64)
DTYPES = "float64, float32, float16 or bfloat16"

CALLS: BadCalls = {
    "edit_distance: tokens no tensor": edits(
        "tokens: expected a torch.Tensor, got list", TypeError, tokens=[[1]]
    ),
    "edit_distance: tokens of numbers": edits(
        "tokens: expected integers, got torch.float32", TypeError, tokens=torch.zeros(2, 5)
    ),
    "edit_distance: axes of tokens": edits(
        "tokens: expected (B, L) or (B, N, L), got shape (5,)", tokens=INTS[0]
    ),
    "edit_distance: axes of targets": edits("targets: expected (B, U), got shape (5,)", targets=INTS[0]),
    "edit_distance: batch of targets": edits(
        "targets: expected shape (2, U), by tokens, got (1, 5)", targets=INTS[:1]
    ),
    "edit_distance: target_lengths": edits(
        "target_lengths: expected lengths from 0 to U = 5, got 6 at index 1", target_lengths=[1, 6]
    ),
    "mwer_loss: scores no tensor": mwer(
        "scores: expected a torch.Tensor, got float", TypeError, scores=1.0
    ),
    "mwer_loss: scores of integers": mwer(
        f"scores: expected dtype {DTYPES}, got torch.int64", TypeError, scores=INTS
    ),
    "mwer_loss: axes of scores": mwer("scores: expected (B, N), got shape (2,)", scores=torch.zeros(2)),
    "mwer_loss: errors no tensor": mwer("errors: expected a torch.Tensor, got int", TypeError, errors=1),
    "mwer_loss: complex errors": mwer(
        "errors: expected real numbers, got torch.complex64", TypeError, errors=torch.zeros(2, 5) * 1j
    ),
    "mwer_loss: errors with a gradient": mwer(
        "errors: expected a tensor without a gradient, got one that requires it",
        errors=torch.zeros(2, 5, requires_grad=True),
    ),
    "mwer_loss: shape of errors": mwer(
        "errors: expected shape (2, 5), as scores, got (2, 4)", errors=torch.zeros(2, 4)
    ),
    "mwer_loss: temperature": mwer("temperature: expected a finite number > 0, got 0", temperature=0),
    "mwer_loss: reduction": mwer(
        'reduction: expected "none", "mean" or "sum", got \'max\'', reduction="max"
    ),
}  # fmt: skip
