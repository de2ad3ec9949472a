"""The operators of transducer decoding, and the shapes of what they return, for torch."""

from __future__ import annotations

import torch
from torch import Tensor

from warpalign._core.library import check_devices


@torch.library.register_fake("warpalign::transducer_scores")  # type: ignore[untyped-decorator]
def _(
    frame: Tensor,
    lengths: Tensor | None,
    encoder: Tensor,
    predictor: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    activation: int = 0,
    beams: int = 1,
    window: int = 1,
) -> Tensor:
    check_devices(
        "encoder",
        encoder=encoder,
        frame=frame,
        lengths=lengths,
        predictor=predictor,
        weight=weight,
        bias=bias,
    )
    return encoder.new_empty(predictor.shape[0], window, weight.shape[0])


def _greedy(walk: Tensor, log_prob: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return (
        walk.new_empty(walk.shape),
        log_prob.new_empty(log_prob.shape),
        walk.new_empty(log_prob.shape, dtype=torch.int64),
        walk.new_empty(log_prob.shape, dtype=torch.bool),
    )


@torch.library.register_fake("warpalign::transducer_greedy_step")  # type: ignore[untyped-decorator]
def _(
    walk: Tensor, log_prob: Tensor, lengths: Tensor | None, scores: Tensor, **settings: object
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    check_devices("scores", scores=scores, walk=walk, log_prob=log_prob, lengths=lengths)
    return _greedy(walk, log_prob)


@torch.library.register_fake("warpalign::transducer_greedy_joint_step")  # type: ignore[untyped-decorator]
def _(
    walk: Tensor,
    log_prob: Tensor,
    lengths: Tensor | None,
    encoder: Tensor,
    predictor: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    **settings: object,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    check_devices(
        "encoder",
        encoder=encoder,
        walk=walk,
        log_prob=log_prob,
        lengths=lengths,
        predictor=predictor,
        weight=weight,
        bias=bias,
    )
    return _greedy(walk, log_prob)


@torch.library.register_fake("warpalign::transducer_beam_step")  # type: ignore[untyped-decorator]
def _(
    hypothesis: Tensor,
    log_prob: Tensor,
    hash: Tensor,
    nodes: Tensor,
    used: Tensor,
    lengths: Tensor | None,
    frames_before: Tensor | None,
    scores: Tensor,
    label_scores: Tensor | None,
    **settings: object,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    check_devices(
        "scores",
        scores=scores,
        hypothesis=hypothesis,
        log_prob=log_prob,
        hash=hash,
        nodes=nodes,
        used=used,
        lengths=lengths,
        frames_before=frames_before,
        label_scores=label_scores,
    )
    places = [hypothesis.new_empty(log_prob.shape) for _ in range(3)]
    return (
        hypothesis.new_empty(hypothesis.shape),
        log_prob.new_empty(log_prob.shape),
        hash.new_empty(hash.shape),
        places[0],
        places[1],
        places[2],
    )


scores = torch.ops.warpalign.transducer_scores.default
greedy_step = torch.ops.warpalign.transducer_greedy_step.default
greedy_joint_step = torch.ops.warpalign.transducer_greedy_joint_step.default
beam_step = torch.ops.warpalign.transducer_beam_step.default
