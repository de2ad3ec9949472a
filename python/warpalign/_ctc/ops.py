"""CTC's operators, and the shapes of what they return, for torch."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from warpalign._core.library import check_devices, empty_unless
from warpalign._core.saved_bytes import ctc_saved_bytes

# 8-byte words of the core's CtcWalk and CtcHypothesis.
WALK_WORDS, HYPOTHESIS_WORDS = 2, 9


def _saved_bytes(batch: Any, frames: Any, labels: Any, dtype: torch.dtype) -> Any:
    """Bytes of the saved tensor, enough for the layout of every device."""
    root = math.ceil(torch.sym_sqrt(frames))
    wide = 2 if dtype == torch.float64 else 1
    return ctc_saved_bytes(b=batch, t=frames, u=labels, root=root, wide=wide)


def real_of(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _check(
    logits: Tensor,
    targets: Tensor,
    logit_lengths: Tensor | None,
    target_lengths: Tensor | None,
    label_prior: Tensor | None,
) -> None:
    check_devices(
        "logits",
        logits=logits,
        targets=targets,
        logit_lengths=logit_lengths,
        target_lengths=target_lengths,
        label_prior=label_prior,
    )


@torch.library.register_fake("warpalign::ctc_loss")  # type: ignore[untyped-decorator]
def _(
    logits: Tensor,
    targets: Tensor,
    logit_lengths: Tensor | None,
    target_lengths: Tensor | None,
    label_prior: Tensor | None,
    needs_grad: bool,
    **settings: object,
) -> tuple[Tensor, Tensor]:
    _check(logits, targets, logit_lengths, target_lengths, label_prior)
    batch, frames, _ = logits.shape
    size = _saved_bytes(batch, frames, targets.shape[-1], logits.dtype) if needs_grad else 0
    return logits.new_empty(batch, dtype=real_of(logits.dtype)), logits.new_empty(size, dtype=torch.uint8)


@torch.library.register_fake("warpalign::ctc_gradient")  # type: ignore[untyped-decorator]
def _(logits: Tensor, *rest: Any, **settings: object) -> Tensor:
    return logits.new_empty(logits.shape)


@torch.library.register_fake("warpalign::ctc_gradient_")  # type: ignore[untyped-decorator]
def _(logits: Tensor, *rest: Any, **settings: object) -> None:
    return None


@torch.library.register_fake("warpalign::ctc_posteriors")  # type: ignore[untyped-decorator]
def _(
    logits: Tensor,
    targets: Tensor,
    logit_lengths: Tensor | None,
    target_lengths: Tensor | None,
    label_prior: Tensor | None,
    **settings: object,
) -> tuple[Tensor, Tensor]:
    _check(logits, targets, logit_lengths, target_lengths, label_prior)
    batch, frames, _ = logits.shape
    real = real_of(logits.dtype)
    return (
        logits.new_empty(batch, dtype=real),
        logits.new_empty((batch, frames, targets.shape[-1]), dtype=real),
    )


@torch.library.register_fake("warpalign::ctc_align")  # type: ignore[untyped-decorator]
def _(
    logits: Tensor,
    targets: Tensor,
    logit_lengths: Tensor | None,
    target_lengths: Tensor | None,
    label_prior: Tensor | None,
    **settings: object,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    _check(logits, targets, logit_lengths, target_lengths, label_prior)
    batch, frames, _ = logits.shape
    real = real_of(logits.dtype)
    return (
        logits.new_empty(batch, dtype=real),
        logits.new_empty((batch, frames), dtype=torch.int32),
        logits.new_empty((batch, frames), dtype=real),
        logits.new_empty((*targets.shape, 2), dtype=torch.int32),
    )


@torch.library.register_fake("warpalign::monotonic_alignment")  # type: ignore[untyped-decorator]
def _(
    scores: Tensor, text_lengths: Tensor | None, frame_lengths: Tensor | None, wants_path: bool
) -> tuple[Tensor, Tensor, Tensor]:
    check_devices("scores", scores=scores, text_lengths=text_lengths, frame_lengths=frame_lengths)
    batch, positions, _ = scores.shape
    path = empty_unless(wants_path, scores, *scores.shape).bool()
    return (
        scores.new_empty(batch, dtype=real_of(scores.dtype)),
        scores.new_empty((batch, positions), dtype=torch.int32),
        path,
    )


@torch.library.register_fake("warpalign::ctc_greedy_search")  # type: ignore[untyped-decorator]
def _(
    logits: Tensor, logit_lengths: Tensor | None, walk: Tensor | None, **settings: object
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    check_devices("logits", logits=logits, logit_lengths=logit_lengths, walk=walk)
    batch, frames, _ = logits.shape
    int64 = torch.int64
    return (
        logits.new_empty((batch, frames), dtype=int64),
        logits.new_empty((batch, frames), dtype=int64),
        logits.new_empty(batch, dtype=int64),
        logits.new_empty((batch, WALK_WORDS), dtype=int64),
    )


@torch.library.register_fake("warpalign::ctc_beam_search")  # type: ignore[untyped-decorator]
def _(
    logits: Tensor,
    logit_lengths: Tensor | None,
    hypotheses: Tensor | None,
    frames_before: Tensor | None,
    label_scores: Tensor | None,
    nodes: Tensor,
    **settings: object,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    check_devices(
        "logits",
        logits=logits,
        logit_lengths=logit_lengths,
        hypotheses=hypotheses,
        frames_before=frames_before,
        label_scores=label_scores,
        nodes=nodes,
    )
    batch, beams = nodes.shape[0], nodes.shape[2]
    return (
        logits.new_empty((batch, beams, HYPOTHESIS_WORDS), dtype=torch.int64),
        logits.new_empty(batch, dtype=torch.int32),
        logits.new_empty((batch, beams), dtype=torch.int32),
        logits.new_empty((batch, beams), dtype=torch.int32),
    )


@torch.library.register_fake("warpalign::ctc_beam_labels")  # type: ignore[untyped-decorator]
def _(hypotheses: Tensor, nodes: Tensor, n_best: Any, longest: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    check_devices("hypotheses", hypotheses=hypotheses, nodes=nodes)
    batch = hypotheses.shape[0]
    return (
        hypotheses.new_empty((batch, n_best, longest)),
        hypotheses.new_empty((batch, n_best, longest)),
        hypotheses.new_empty((batch, n_best)),
        hypotheses.new_empty((batch, n_best), dtype=torch.float64),
    )


@torch.library.register_fake("warpalign::ctc_head_labels")  # type: ignore[untyped-decorator]
def _(
    targets: Tensor, target_lengths: Tensor | None, frames: Any, classes: Any, **settings: object
) -> tuple[Tensor, Tensor]:
    check_devices("targets", targets=targets, target_lengths=target_lengths)
    return targets.new_empty(targets.shape, dtype=torch.int32), targets.new_empty(
        targets.shape, dtype=torch.int32
    )


@torch.library.register_fake("warpalign::ctc_chunk_emissions_")  # type: ignore[untyped-decorator]
def _(logits: Tensor, *rest: Any, **settings: object) -> None:
    return None


@torch.library.register_fake("warpalign::ctc_chunk_gradient_")  # type: ignore[untyped-decorator]
def _(logits: Tensor, *rest: Any, **settings: object) -> None:
    return None


loss = torch.ops.warpalign.ctc_loss.default
gradient = torch.ops.warpalign.ctc_gradient.default
gradient_in_place = torch.ops.warpalign.ctc_gradient_.default
posteriors = torch.ops.warpalign.ctc_posteriors.default
align = torch.ops.warpalign.ctc_align.default
head_labels = torch.ops.warpalign.ctc_head_labels.default
chunk_emissions_in_place = torch.ops.warpalign.ctc_chunk_emissions_.default
chunk_gradient_in_place = torch.ops.warpalign.ctc_chunk_gradient_.default
greedy_search = torch.ops.warpalign.ctc_greedy_search.default
beam_search = torch.ops.warpalign.ctc_beam_search.default
beam_labels = torch.ops.warpalign.ctc_beam_labels.default
monotonic = torch.ops.warpalign.monotonic_alignment.default
