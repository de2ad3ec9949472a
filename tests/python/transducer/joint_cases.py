"""Calls of the fused joint, and the same losses from logits in memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tests.python.transducer.cases import every_family_and_penalty, loss
from tests.python.transducer.reference import Options, keywords
from warpalign import JointWeights, transducer_loss_from_joint

# Logits that are log-probabilities come from no joint network.
CASES = {name: options for name, options in every_family_and_penalty().items() if not options.from_log_probs}
H, V = 5, 7


def network(options: Options, batch: int, frames: int, states: int, **kwargs: Any) -> list[Tensor]:
    """Encoder, predictor, weight, bias."""
    columns = V + len(options.durations or ())
    shapes = ((batch, frames, H), (batch, states, H), (columns, H), (columns,))
    return [torch.randn(*shape, **kwargs) for shape in shapes]


def joint_of(
    weight: Tensor, bias: Tensor | None, options: Options, activation: Any = "relu"
) -> tuple[JointWeights, dict[str, Any]]:
    """The joint network, and the arguments that stay for the functions that take it."""
    given = keywords(options)
    del given["from_log_probs"]
    of_joint = {name: given.pop(name) for name in ("blank", "durations", "big_blanks") if name in given}
    return JointWeights(weight, bias, activation, **of_joint), given


def fused(
    tensors: Any, targets: Tensor, options: Options, *lengths: Any, activation: Any = "relu", **more: Any
) -> Tensor:
    encoder, predictor, weight, bias = tensors
    joint, given = joint_of(weight, bias, options, activation)
    given = {"reduction": "none"} | given | more
    return transducer_loss_from_joint(encoder, predictor, targets, joint, *lengths, **given)


def materialised(
    tensors: Any, targets: Tensor, options: Options, *lengths: Any, activation: str = "relu", **more: Any
) -> Tensor:
    encoder, predictor, weight, bias = tensors
    hidden = getattr(torch, activation)(encoder[:, :, None] + predictor[:, None])
    rows = nn.functional.linear(hidden, weight, bias)
    x, z = (rows, None) if options.durations is None else rows.split([V, len(options.durations)], -1)
    return loss(x, z, targets, options, *lengths, **more)
