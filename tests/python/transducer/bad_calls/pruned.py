"""The pruned loss, and the drop-ins of fast_rnnt and k2."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import warpalign
from tests.python.bad_calls import BadCall, BadCalls, Given
from tests.python.transducer.bad_calls.joint import DTYPES, SETTINGS, good, zeros
from warpalign import JointWeights
from warpalign.compat import fast_rnnt, k2
from warpalign.compat._common import ShapeError

NAME = "transducer_loss_pruned"


def pruned(
    *, error: type[BaseException] = ValueError, message: str, cpu_only: bool = False, **changed: Any
) -> BadCall:
    """A call with other arguments, or with a joint network of other fields: values, or functions of what is given."""

    def call(given: Given) -> object:
        made = {k: v(given) if isinstance(v, Callable) else v for k, v in changed.items()}  # type: ignore[arg-type]
        of_joint = {name: made.pop(name) for name in JointWeights._fields if name in made}
        arguments = good(given) | {
            "encoder_logits": zeros(given, 3, 5, 6),
            "predictor_logits": zeros(given, 3, 3, 6),
        }
        arguments["joint"] = arguments["joint"]._replace(**of_joint)
        return warpalign.transducer_loss_pruned(**arguments | made)

    return BadCall(call, error, message, cpu_only)


def second_derivative(given: Given) -> None:
    made = good(given)
    logits = zeros(given, 3, 5, 6, requires_grad=True)
    loss = warpalign.transducer_loss_pruned(
        **made, encoder_logits=logits, predictor_logits=zeros(given, 3, 3, 6)
    ).loss
    (gradient,) = torch.autograd.grad(loss, logits, create_graph=True)
    gradient.sum().backward()


SHARED = (
    "sigma",
    "fastemit_lambda",
    "clamp",
    "zero_infinity",
    "dropout",
    "workspace_limit",
    "precision",
    "reduction",
)
CALLS: BadCalls = {
    f"{NAME}: inplace_grad": pruned(
        inplace_grad=1, error=TypeError, message="inplace_grad: expected a bool, got int"
    ),
    f"{NAME}: inplace_grad of a leaf": pruned(
        inplace_grad=True,
        encoder_logits=lambda given: zeros(given, 3, 5, 6, requires_grad=True),
        message="inplace_grad: expected logits that an operation has computed, got a leaf, whose values would be lost",
    ),
    **{
        f"{NAME}: {argument} {value}": pruned(error=error, message=message, **{argument: value})
        for argument, value, error, message in SETTINGS
        if argument in SHARED
    },
    f"{NAME}: generator": pruned(
        generator=0.5,
        dropout=0.1,
        error=TypeError,
        message="generator: expected a torch.Generator, an int or None, got float",
    ),
    f"{NAME}: joint": pruned(joint=1, error=TypeError, message="joint: expected JointWeights, got int"),
    f"{NAME}: durations": pruned(
        durations=(0, 1),
        error=NotImplementedError,
        message="joint: expected no durations in a pruned loss, got (0, 1)",
    ),
    f"{NAME}: encoder_out": pruned(
        encoder_out=1, error=TypeError, message="encoder_out: expected a torch.Tensor, got int"
    ),
    f"{NAME}: predictor_out": pruned(
        predictor_out=1, error=TypeError, message="predictor_out: expected a torch.Tensor, got int"
    ),
    f"{NAME}: encoder_logits no tensor": pruned(
        encoder_logits=1, error=TypeError, message="encoder_logits: expected a torch.Tensor, got int"
    ),
    f"{NAME}: encoder_logits of integers": pruned(
        encoder_logits=lambda g: zeros(g, 3, 5, 6).long(),
        error=TypeError,
        message=f"encoder_logits: expected {DTYPES}, got torch.int64",
    ),
    f"{NAME}: shape of predictor_logits": pruned(
        predictor_logits=lambda g: zeros(g, 3, 3, 5),
        message="predictor_logits: expected shape (3, 3, 6), got (3, 3, 5)",
    ),
    f"{NAME}: flat targets": pruned(
        targets=lambda g: g.ints(1, 2, 1, 2, 1, 2),
        target_lengths=lambda g: g.ints(2, 2, 2),
        message="targets: expected (B, U) in a pruned loss, got shape (6,)",
    ),
    f"{NAME}: encoder_lengths": pruned(
        encoder_lengths=5,
        error=TypeError,
        message="encoder_lengths: expected integers (B,) as a tensor, list, tuple or array, got int",
    ),
    f"{NAME}: target_lengths": pruned(
        target_lengths=lambda g: g.ints(3, 0, 1),
        message="target_lengths: expected lengths from 0 to U = 2, got 3 at index 0",
        cpu_only=True,
    ),
    f"{NAME}: blank as a label": pruned(
        targets=lambda g: g.ints([1, 2], [2, 5], [3, 1]),
        message="targets: expected labels from 0 to 5 other than blank = 5, got 5 at index 1, which is blank: "
        "write blank= if another column is, or target_lengths= if it is padding",
        cpu_only=True,
    ),
    f"{NAME}: prune_range": pruned(prune_range=1, message="prune_range: expected at least 2, got 1"),
    f"{NAME}: simple_scale": pruned(
        simple_scale=-1, message="simple_scale: expected a finite number >= 0, got -1"
    ),
    f"{NAME}: pruned_scale": pruned(
        pruned_scale=math.inf, message="pruned_scale: expected a finite number >= 0, got inf"
    ),
    f"{NAME}: predictor_only_scale": pruned(
        predictor_only_scale=1.5, message="predictor_only_scale: expected a number from 0 to 1, got 1.5"
    ),
    f"{NAME}: delay_penalty": pruned(
        delay_penalty=math.nan, message="delay_penalty: expected a finite number, got nan"
    ),
    f"{NAME}: second derivative": BadCall(
        second_derivative,
        NotImplementedError,
        "warpalign: second derivatives of the transducer losses are not available",
    ),
}


def scores(given: Given) -> tuple[Tensor, Tensor]:
    """px (2, 2, 4) and py (2, 3, 3)."""
    return zeros(given, 2, 2, 4), zeros(given, 2, 3, 3)


def additive(given: Given) -> tuple[Tensor, Tensor, Tensor, int]:
    """lm (2, 3, 5), am (2, 4, 5), symbols (2, 2), the blank."""
    return zeros(given, 2, 3, 5), zeros(given, 2, 4, 5), given.ints([1, 2], [2, 1]), 0


def second_derivative_of_scores(given: Given) -> None:
    px, py = (one.requires_grad_() for one in scores(given))
    gradients = torch.autograd.grad(
        fast_rnnt.mutual_information_recursion(px, py).sum(), (px, py), create_graph=True
    )
    gradients[0].sum().backward()


def shape_error(call: Callable[[Given], object], message: str) -> BadCall:
    return BadCall(call, ShapeError, message)


CALLS |= {
    "fast_rnnt: axes of px": shape_error(
        lambda g: fast_rnnt.mutual_information_recursion(zeros(g, 2, 4), scores(g)[1]),
        "px: expected 3 axes, got (2, 4)",
    ),
    "fast_rnnt: shape of py": shape_error(
        lambda g: fast_rnnt.mutual_information_recursion(scores(g)[0], zeros(g, 2, 2, 3)),
        "py: expected shape (2, 3, T), got (2, 2, 3)",
    ),
    "fast_rnnt: dtype of the boundary": shape_error(
        lambda g: fast_rnnt.mutual_information_recursion(*scores(g), g.ints([0, 0, 2, 3]).int()),
        "boundary: expected an int64 tensor, got torch.int32",
    ),
    "fast_rnnt: shape of the boundary": shape_error(
        lambda g: fast_rnnt.mutual_information_recursion(*scores(g), g.ints([0, 0, 2, 3])),
        "boundary: expected shape (2, 4), got (1, 4)",
    ),
    "fast_rnnt: boundary": shape_error(
        lambda g: fast_rnnt.mutual_information_recursion(*scores(g), g.ints([0, 0, 2, 4], [0, 0, 2, 3])),
        "boundary: expected 0 <= begin <= end <= S = 2 and T = 3, got [[0, 0, 2, 4], [0, 0, 2, 3]]",
    ),
    "fast_rnnt: rnnt_type": shape_error(
        lambda g: fast_rnnt.rnnt_loss_simple(*additive(g), rnnt_type="strict"),
        "rnnt_type: expected regular or modified or constrained, got 'strict'",
    ),
    "fast_rnnt: fewer frames than labels": shape_error(
        lambda g: fast_rnnt.rnnt_loss_simple(*additive(g), g.ints([0, 0, 2, 1], [0, 0, 2, 4]), "modified"),
        "rnnt_type: expected T >= S unless regular, got ([1, 4], [2, 2])",
    ),
    "fast_rnnt: reduction": BadCall(
        lambda g: fast_rnnt.rnnt_loss_simple(*additive(g), reduction="max"),
        ValueError,
        "reduction: expected 'none', 'mean' or 'sum', got 'max'",
    ),
    "fast_rnnt: second derivative": BadCall(
        second_derivative_of_scores,
        NotImplementedError,
        "warpalign: second derivatives of the transducer losses are not available",
    ),
    "fast_rnnt: s_range": shape_error(
        lambda g: fast_rnnt.get_rnnt_prune_ranges(
            zeros(g, 1, 2, 3), zeros(g, 1, 3, 3), g.ints([0, 0, 2, 3]), 0
        ),
        "s_range: expected at least 1, else no path is left, got 0",
    ),
    "k2: blank of HAT": shape_error(
        lambda g: k2.rnnt_loss_pruned(zeros(g, 2, 4, 2, 5), additive(g)[2], g.ints(0), 4, use_hat_loss=True),
        "termination_symbol: expected 0 with use_hat_loss, got 4",
    ),
}
