"""fast_rnnt 1.3's losses: simple, smoothed and pruned RNN-T of the types "regular", "modified" and "constrained".

Names, signatures, defaults, shapes and results are the original's. What differs: only ``get_rnnt_prune_ranges`` waits for a
GPU, as the number of states that it returns may depend on the boundaries; otherwise boundaries on a GPU are not checked. The
recursion computes half types in float32; a score of -inf has gradient 0.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor

from warpalign._core import library
from warpalign._transducer import rnnt_scores
from warpalign._transducer.prune_ranges import first_states
from warpalign.compat._fast_rnnt import (
    Gradients,
    check,
    check_additive,
    check_pruned,
    check_type,
    loss_of,
    scored,
)

__all__ = [
    "do_rnnt_pruning",
    "get_rnnt_logprobs",
    "get_rnnt_logprobs_joint",
    "get_rnnt_logprobs_pruned",
    "get_rnnt_logprobs_smoothed",
    "get_rnnt_prune_ranges",
    "joint_mutual_information_recursion",
    "mutual_information_recursion",
    "rnnt_loss",
    "rnnt_loss_pruned",
    "rnnt_loss_simple",
    "rnnt_loss_smoothed",
    "with_cuda",
]


def mutual_information_recursion(
    px: Tensor, py: Tensor, boundary: Tensor | None = None, return_grad: bool = False
) -> Tensor | tuple[Tensor, Gradients]:
    """(B,) log-sums over all paths of px (B, S, T+1), or (B, S, T) for a label that consumes a frame, and py (B, S+1, T).

    Args:
        px: (B, S, T+1) log-weights of labels; (B, S, T): a label consumes a frame.
        py: (B, S+1, T) log-weights of blanks.
        boundary: (B, 4), int64: first label, first frame, number of labels, number of frames. None: (0, 0, S, T).
        return_grad: whether the posteriors of px and py are returned, too.
    """
    scores, of_px, of_py = scored(px, py, boundary, return_grad)
    return (scores, (of_px, of_py)) if return_grad else scores


def joint_mutual_information_recursion(
    px: Sequence[Tensor], py: Sequence[Tensor], boundary: Tensor | None = None
) -> Tensor:
    """(N, B): the score of the sums of N pairs of px and py, and what each pair contributes to it.

    Args:
        px: N tensors (B, S, T+1), or (B, S, T).
        py: N tensors (B, S+1, T).
        boundary: (B, 4), int64: first label, first frame, number of labels, number of frames. None: (0, 0, S, T).
    """
    check(len(px) == len(py) > 0, "py", f"{len(px)} tensors, as px has, and one at least", len(py))
    all_px, all_py = torch.stack(tuple(px)), torch.stack(tuple(py))
    sum_px, sum_py = all_px.sum(0), all_py.sum(0)
    with torch.no_grad():
        total, of_px, of_py = scored(sum_px, sum_py, boundary, True)
    least = torch.finfo(all_px.dtype).min
    parts = (of_px * all_px.clamp(min=least)).sum((2, 3)) + (of_py * all_py.clamp(min=least)).sum((2, 3))
    # The first one also has the difference of the log of the sum and the sum of logs.
    offset = (total - parts.sum(0)).detach()
    return torch.cat((parts[:1] + offset, parts[1:]))


def get_rnnt_logprobs(
    lm: Tensor,
    am: Tensor,
    symbols: Tensor,
    termination_symbol: int,
    rnnt_type: str = "regular",
    boundary: Tensor | None = None,
) -> Gradients:
    """px and py of the joint network whose logits are am (B, T, C) + lm (B, S+1, C).

    Args:
        lm: (B, S+1, C) logits of the predictor.
        am: (B, T, C) logits of the encoder.
        symbols: (B, S) labels, int64.
        termination_symbol: the column of the blank.
        rnnt_type: "regular"; "modified": a label consumes a frame; "constrained": the same, with the blank of the next state.
        boundary: (B, 4), int64: first label, first frame, number of labels, number of frames. None: (0, 0, S, T).
    """
    check_additive(lm, am, symbols, rnnt_type, boundary)
    return rnnt_scores.simple_scores(lm, am, symbols, termination_symbol, rnnt_type, boundary)


def get_rnnt_logprobs_smoothed(
    lm: Tensor,
    am: Tensor,
    symbols: Tensor,
    termination_symbol: int,
    lm_only_scale: float = 0.1,
    am_only_scale: float = 0.1,
    boundary: Tensor | None = None,
    rnnt_type: str = "regular",
) -> Gradients:
    """The same, interpolated with log-probabilities of lm alone and of am alone.

    Args:
        lm: (B, S+1, C) logits of the predictor.
        am: (B, T, C) logits of the encoder.
        symbols: (B, S) labels, int64.
        termination_symbol: the column of the blank.
        lm_only_scale: the weight of the log-probabilities of lm alone.
        am_only_scale: the weight of the log-probabilities of am with the mean distribution of lm.
        boundary: (B, 4), int64: first label, first frame, number of labels, number of frames. None: (0, 0, S, T).
        rnnt_type: "regular"; "modified": a label consumes a frame; "constrained": the same, with the blank of the next state.
    """
    check_additive(lm, am, symbols, rnnt_type, boundary)
    scales = lm_only_scale, am_only_scale
    return rnnt_scores.smoothed_scores(lm, am, symbols, termination_symbol, *scales, rnnt_type, boundary)


def get_rnnt_logprobs_joint(
    logits: Tensor,
    symbols: Tensor,
    termination_symbol: int,
    boundary: Tensor | None = None,
    rnnt_type: str = "regular",
) -> Gradients:
    """px and py of logits (B, T, S+1, C).

    Args:
        logits: (B, T, S+1, C) logits of the joint network.
        symbols: (B, S) labels, int64.
        termination_symbol: the column of the blank.
        boundary: (B, 4), int64: first label, first frame, number of labels, number of frames. None: (0, 0, S, T).
        rnnt_type: "regular"; "modified": a label consumes a frame; "constrained": the same, with the blank of the next state.
    """
    check(logits.dim() == 4, "logits", "shape (B, T, S+1, C)", tuple(logits.shape))
    batch, frames, states, _ = logits.shape
    check(
        symbols.shape == (batch, states - 1), "symbols", f"shape {(batch, states - 1)}", tuple(symbols.shape)
    )
    check_type(rnnt_type, states - 1, frames, boundary)
    return rnnt_scores.joint_scores(logits, symbols, termination_symbol, rnnt_type, boundary)


def get_rnnt_logprobs_pruned(
    logits: Tensor,
    symbols: Tensor,
    ranges: Tensor,
    termination_symbol: int,
    boundary: Tensor | None = None,
    rnnt_type: str = "regular",
) -> Gradients:
    """px and py of logits (B, T, s_range, C), whose states are ranges (B, T, s_range).

    Args:
        logits: (B, T, s_range, C) logits of the joint network at the states in ranges.
        symbols: (B, S) labels, int64.
        ranges: (B, T, s_range) states of each frame, int64, ascending by 1.
        termination_symbol: the column of the blank.
        boundary: (B, 4), int64: first label, first frame, number of labels, number of frames. None: (0, 0, S, T).
        rnnt_type: "regular"; "modified": a label consumes a frame; "constrained": the same, with the blank of the next state.
    """
    check_pruned(logits, symbols, ranges, rnnt_type, boundary)
    return rnnt_scores.pruned_scores(logits, symbols, ranges, termination_symbol, rnnt_type, boundary)


def rnnt_loss_simple(
    lm: Tensor,
    am: Tensor,
    symbols: Tensor,
    termination_symbol: int,
    boundary: Tensor | None = None,
    rnnt_type: str = "regular",
    delay_penalty: float = 0.0,
    reduction: str | None = "mean",
    return_grad: bool = False,
) -> Tensor | tuple[Tensor, Gradients]:
    """RNN-T loss of the joint network am + lm; with return_grad also the posteriors of px and py.

    Args:
        lm: (B, S+1, C) logits of the predictor.
        am: (B, T, C) logits of the encoder.
        symbols: (B, S) labels, int64.
        termination_symbol: the column of the blank.
        boundary: (B, 4), int64: first label, first frame, number of labels, number of frames. None: (0, 0, S, T).
        rnnt_type: "regular"; "modified": a label consumes a frame; "constrained": the same, with the blank of the next state.
        delay_penalty: delay_penalty · ((T_b − 1)/2 − t) is added to the weight of a label at frame t; ignored unless above 0.
        reduction: "none" (B,), "mean" or "sum".
        return_grad: whether the posteriors of px and py are returned, too.
    """
    scores = get_rnnt_logprobs(lm, am, symbols, termination_symbol, rnnt_type, boundary)
    return loss_of(scores, boundary, delay_penalty, reduction, return_grad)


def rnnt_loss_smoothed(
    lm: Tensor,
    am: Tensor,
    symbols: Tensor,
    termination_symbol: int,
    lm_only_scale: float = 0.1,
    am_only_scale: float = 0.1,
    boundary: Tensor | None = None,
    rnnt_type: str = "regular",
    delay_penalty: float = 0.0,
    reduction: str | None = "mean",
    return_grad: bool = False,
) -> Tensor | tuple[Tensor, Gradients]:
    """The same of the interpolated scores.

    Args:
        lm: (B, S+1, C) logits of the predictor.
        am: (B, T, C) logits of the encoder.
        symbols: (B, S) labels, int64.
        termination_symbol: the column of the blank.
        lm_only_scale: the weight of the log-probabilities of lm alone.
        am_only_scale: the weight of the log-probabilities of am with the mean distribution of lm.
        boundary: (B, 4), int64: first label, first frame, number of labels, number of frames. None: (0, 0, S, T).
        rnnt_type: "regular"; "modified": a label consumes a frame; "constrained": the same, with the blank of the next state.
        delay_penalty: delay_penalty · ((T_b − 1)/2 − t) is added to the weight of a label at frame t; ignored unless above 0.
        reduction: "none" (B,), "mean" or "sum".
        return_grad: whether the posteriors of px and py are returned, too.
    """
    scales = lm_only_scale, am_only_scale
    scores = get_rnnt_logprobs_smoothed(lm, am, symbols, termination_symbol, *scales, boundary, rnnt_type)
    return loss_of(scores, boundary, delay_penalty, reduction, return_grad)


def rnnt_loss(
    logits: Tensor,
    symbols: Tensor,
    termination_symbol: int,
    boundary: Tensor | None = None,
    rnnt_type: str = "regular",
    delay_penalty: float = 0.0,
    reduction: str | None = "mean",
    return_grad: bool = False,
) -> Tensor | tuple[Tensor, Gradients]:
    """RNN-T loss of logits (B, T, S+1, C).

    Args:
        logits: (B, T, S+1, C) logits of the joint network.
        symbols: (B, S) labels, int64.
        termination_symbol: the column of the blank.
        boundary: (B, 4), int64: first label, first frame, number of labels, number of frames. None: (0, 0, S, T).
        rnnt_type: "regular"; "modified": a label consumes a frame; "constrained": the same, with the blank of the next state.
        delay_penalty: delay_penalty · ((T_b − 1)/2 − t) is added to the weight of a label at frame t; ignored unless above 0.
        reduction: "none" (B,), "mean" or "sum".
        return_grad: whether the posteriors of px and py are returned, too.
    """
    scores = get_rnnt_logprobs_joint(logits, symbols, termination_symbol, boundary, rnnt_type)
    return loss_of(scores, boundary, delay_penalty, reduction, return_grad)


def rnnt_loss_pruned(
    logits: Tensor,
    symbols: Tensor,
    ranges: Tensor,
    termination_symbol: int,
    boundary: Tensor | None = None,
    rnnt_type: str = "regular",
    delay_penalty: float = 0.0,
    reduction: str | None = "mean",
    return_grad: bool = False,
) -> Tensor | tuple[Tensor, Gradients]:
    """RNN-T loss of logits (B, T, s_range, C) of the states in ranges.

    Args:
        logits: (B, T, s_range, C) logits of the joint network at the states in ranges.
        symbols: (B, S) labels, int64.
        ranges: (B, T, s_range) states of each frame, int64, ascending by 1.
        termination_symbol: the column of the blank.
        boundary: (B, 4), int64: first label, first frame, number of labels, number of frames. None: (0, 0, S, T).
        rnnt_type: "regular"; "modified": a label consumes a frame; "constrained": the same, with the blank of the next state.
        delay_penalty: delay_penalty · ((T_b − 1)/2 − t) is added to the weight of a label at frame t; ignored unless above 0.
        reduction: "none" (B,), "mean" or "sum".
        return_grad: whether the posteriors of px and py are returned, too.
    """
    scores = get_rnnt_logprobs_pruned(logits, symbols, ranges, termination_symbol, boundary, rnnt_type)
    return loss_of(scores, boundary, delay_penalty, reduction, return_grad)


def get_rnnt_prune_ranges(px_grad: Tensor, py_grad: Tensor, boundary: Tensor, s_range: int) -> Tensor:
    """(B, T, s_range) states of each frame, from the posteriors of px and py.

    Args:
        px_grad: (B, S, T+1), or (B, S, T): posteriors of the labels.
        py_grad: (B, S+1, T): posteriors of the blanks.
        boundary: (B, 4), int64: first label, first frame, number of labels, number of frames. None: (0, 0, S, T).
        s_range: the number of states that are kept.
    """
    batch, labels, columns = px_grad.shape
    frames = py_grad.shape[-1]
    expected = (batch, labels + 1, frames)
    check(py_grad.shape == expected, "py_grad", f"shape {expected}", tuple(py_grad.shape))
    check(columns in (frames, frames + 1), "px_grad", f"{frames} or {frames + 1} frames", columns)
    check(boundary.shape == (batch, 4), "boundary", f"shape ({batch}, 4)", tuple(boundary.shape))
    regular = columns == frames + 1
    check_type("regular" if regular else "modified", labels, frames, boundary)
    counts, lengths = boundary[:, 2], boundary[:, 3]
    if regular and batch:
        least = int(((counts - 1) // lengths.clamp(min=1) + 2).max())
        if s_range < least:
            warnings.warn(f"s_range: {s_range} states have no path, computed with {least}", stacklevel=2)
            s_range = least
    width = labels + 1 if s_range > labels else s_range
    least = 2 if regular else 1
    check(width >= least, "s_range", f"at least {least}, else no path is left", s_range)
    of_labels = px_grad[:, :, :frames].mT
    first = first_states(py_grad.mT, of_labels, lengths, counts, width, width - 1 if regular else 1)
    return first[..., None] + torch.arange(width, device=first.device)


def do_rnnt_pruning(am: Tensor, lm: Tensor, ranges: Tensor) -> tuple[Tensor, Tensor]:
    """(B, T, s_range, C) of am (B, T, C) and of lm (B, S+1, C), at the states in ranges.

    Args:
        am: (B, T, C) outputs of the encoder.
        lm: (B, S+1, C) outputs of the predictor.
        ranges: (B, T, s_range) states of each frame, int64, ascending by 1.
    """
    batch, frames, width = ranges.shape
    check(am.shape[:2] == (batch, frames), "am", f"shape ({batch}, {frames}, C)", tuple(am.shape))
    check(lm.dim() == 3 and lm.shape[0] == batch, "lm", f"shape ({batch}, S+1, C)", tuple(lm.shape))
    index = ranges.reshape(batch, frames * width, 1).expand(-1, -1, lm.shape[2])
    pruned = lm.gather(1, index).view(batch, frames, width, lm.shape[2])
    return am[:, :, None].expand(batch, frames, width, am.shape[2]), pruned


def with_cuda() -> bool:
    """Whether the CUDA operators are installed."""
    return library.has_cuda
