"""Sinkhorn normalisation of logits."""

from __future__ import annotations

from typing import Any

import torch

from tests.python.bad_calls import BadCall, BadCalls
from warpalign.transport import SinkhornNormalize, sinkhorn_normalize


def bad(*arguments: Any, error: type[BaseException] = ValueError, message: str, **options: Any) -> BadCall:
    """sinkhorn_normalize of these arguments after good logits."""
    return BadCall(lambda given: sinkhorn_normalize(given.cost, *arguments, **options), error, message)


def of_logits(logits: Any, *, error: type[BaseException] = ValueError, message: str) -> BadCall:
    """logits: a function of what is given."""
    return BadCall(lambda given: sinkhorn_normalize(logits(given)), error, message)


CALLS: BadCalls = {
    "sinkhorn_normalize: a list": of_logits(
        lambda given: [[0.0, 1.0]],
        error=TypeError,
        message="logits: expected a torch.Tensor, got list: write torch.as_tensor(logits)",
    ),
    "sinkhorn_normalize: integers": of_logits(
        lambda given: given.ints([0, 1], [1, 0]),
        error=TypeError,
        message="logits: expected dtype float64, float32, float16 or bfloat16, got torch.int64: write logits.float()",
    ),
    "sinkhorn_normalize: one axis": of_logits(
        lambda given: given.x[0, 0], message="logits: expected (B, K, L) or (K, L), got shape (2,)"
    ),
    "sinkhorn_normalize: no columns": of_logits(
        lambda given: given.x[..., :0],
        message="logits: expected no empty axis in (K, L), got shape (3, 5, 0)",
    ),
    "sinkhorn_normalize: a large matrix": of_logits(
        lambda given: torch.zeros(2, 3, 65, 8, device=given.device),
        message="logits: expected at most 64 rows and 64 columns, got shape (2, 3, 65, 8): write "
        "L * sinkhorn(cost_matrix=-logits, epsilon=1.0).plan.to_dense() for L columns",
    ),
    "sinkhorn_normalize: no iteration": bad(0, message="iterations: expected at least 1, got 0"),
    "sinkhorn_normalize: half an iteration": bad(
        0.5, error=TypeError, message="iterations: expected an int, got float"
    ),
    "sinkhorn_normalize: iterations without end": bad(
        2**21, message="iterations: expected 1 to 2^20, got 2097152"
    ),
    "sinkhorn_normalize: an unknown order": bad(
        axis_order="rows", message='axis_order: expected "rows_first" or "columns_first", got \'rows\''
    ),
    "SinkhornNormalize: no iteration": BadCall(
        lambda given: SinkhornNormalize(0), ValueError, "iterations: expected at least 1, got 0"
    ),
    "SinkhornNormalize: an unknown order": BadCall(
        lambda given: SinkhornNormalize(axis_order="rows"),  # type: ignore[arg-type]
        ValueError,
        'axis_order: expected "rows_first" or "columns_first", got \'rows\'',
    ),
}
