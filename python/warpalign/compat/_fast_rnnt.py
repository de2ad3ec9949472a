"""Checks and the end of every loss of the drop-ins of fast_rnnt and k2."""

from __future__ import annotations

import torch
from torch import Tensor

from warpalign._transducer import rnnt_scores
from warpalign._transducer.arc_lattice import recursion
from warpalign.compat._common import ShapeError

Gradients = tuple[Tensor, Tensor]


def check(correct: bool, name: str, expected: str, came: object) -> None:
    if not correct:
        raise ShapeError(f"{name}: expected {expected}, got {came}")


def check_boundary(boundary: Tensor | None, batch: int, labels: int, frames: int) -> None:
    """What lies on a GPU is not read."""
    if boundary is None:
        return
    if not isinstance(boundary, Tensor) or boundary.dtype != torch.int64:
        came = boundary.dtype if isinstance(boundary, Tensor) else type(boundary).__name__
        raise ShapeError(f"boundary: expected an int64 tensor, got {came}")
    check(boundary.shape == (batch, 4), "boundary", f"shape ({batch}, 4)", tuple(boundary.shape))
    if boundary.is_cuda:
        return
    begin, end = boundary[:, :2], boundary[:, 2:]
    limit = boundary.new_tensor([labels, frames])
    inside = bool(((begin >= 0) & (begin <= end) & (end <= limit)).all())
    check(inside, "boundary", f"0 <= begin <= end <= S = {labels} and T = {frames}", boundary.tolist())


def check_type(kind: str, labels: int, frames: int, boundary: Tensor | None) -> None:
    """The type, and that there are labels, and frames enough for them."""
    check(kind in rnnt_scores.TYPES, "rnnt_type", " or ".join(rnnt_scores.TYPES), repr(kind))
    if boundary is None:
        check(labels >= 1, "symbols", "one label at least", labels)
        check(kind == "regular" or frames >= labels, "rnnt_type", "T >= S unless regular", (frames, labels))
    elif not boundary.is_cuda:
        counts, lengths = boundary[:, 2], boundary[:, 3]
        check(bool((counts >= 1).all()), "boundary", "one label at least", counts.tolist())
        enough = kind == "regular" or bool((lengths >= counts).all())
        check(enough, "rnnt_type", "T >= S unless regular", (lengths.tolist(), counts.tolist()))


def check_additive(lm: Tensor, am: Tensor, symbols: Tensor, kind: str, boundary: Tensor | None) -> None:
    check(lm.dim() == 3, "lm", "shape (B, S+1, C)", tuple(lm.shape))
    check(am.dim() == 3, "am", "shape (B, T, C)", tuple(am.shape))
    same = lm.shape[0] == am.shape[0] and lm.shape[2] == am.shape[2]
    check(same, "am", f"B and C of lm's {tuple(lm.shape)}", tuple(am.shape))
    batch, labels, frames = lm.shape[0], lm.shape[1] - 1, am.shape[1]
    check(symbols.shape == (batch, labels), "symbols", f"shape {(batch, labels)}", tuple(symbols.shape))
    check_type(kind, labels, frames, boundary)


def check_pruned(logits: Tensor, symbols: Tensor, ranges: Tensor, kind: str, boundary: Tensor | None) -> None:
    check(logits.dim() == 4, "logits", "shape (B, T, s_range, C)", tuple(logits.shape))
    check(ranges.shape == logits.shape[:3], "ranges", f"shape {tuple(logits.shape[:3])}", tuple(ranges.shape))
    check_type(kind, symbols.shape[1], logits.shape[1], boundary)


def scored(
    px: Tensor, py: Tensor, boundary: Tensor | None, with_posteriors: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Scores (B,) and posteriors of checked px and py."""
    check(px.dim() == 3, "px", "3 axes", tuple(px.shape))
    batch, labels, columns = px.shape
    frames = py.shape[-1]
    check(py.shape == (batch, labels + 1, frames), "py", f"shape ({batch}, {labels + 1}, T)", tuple(py.shape))
    check(columns in (frames, frames + 1), "px", f"{frames} or {frames + 1} frames", columns)
    check(px.dtype == py.dtype, "py", f"the dtype of px, {px.dtype}", py.dtype)
    check_boundary(boundary, batch, labels, frames)
    return recursion(px, py, boundary, with_posteriors)


def loss_of(
    scores: Gradients,
    boundary: Tensor | None,
    delay_penalty: float,
    reduction: str | None,
    return_grad: bool,
) -> Tensor | tuple[Tensor, Gradients]:
    px, py = scores
    if delay_penalty > 0:
        px = rnnt_scores.delayed(px, py, boundary, delay_penalty)
    values, *posteriors = scored(px, py, boundary, return_grad)
    if reduction == "none":
        loss = -values
    elif reduction == "mean":
        loss = -values.mean()
    elif reduction == "sum":
        loss = -values.sum()
    else:
        raise ValueError(f"reduction: expected 'none', 'mean' or 'sum', got {reduction!r}")
    return (loss, (posteriors[0], posteriors[1])) if return_grad else loss
