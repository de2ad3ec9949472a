"""CTC's loss with the last layer within it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import warpalign
from tests.python.bad_calls import BadCall, BadCalls, Given
from tests.python.ctc.bad_calls.functional import DTYPES, REDUCTIONS, called, logits, targets


def of_encoder(given: Given) -> dict[str, Any]:
    """Three utterances of 5 frames, 4 hidden numbers and 6 classes."""
    return {
        "encoder_out": logits(given, 3, 5, 4),
        "weight": logits(given, 6, 4),
        "bias": logits(given, 6),
        "targets": targets(given),
    }


def head(what: str, error: type[BaseException], message: str, **changed: Any) -> BadCalls:
    call = called(warpalign.ctc_loss_from_encoder, of_encoder, **changed)
    return {f"ctc_loss_from_encoder: {what}": BadCall(call, error, message, True)}


def module(argument: str, value: object, error: type[BaseException], message: str) -> BadCalls:
    """A bad setting of CTCHeadLoss, found where it is made or called."""

    def call(given: Given) -> Tensor:
        made = warpalign.CTCHeadLoss(**{"hidden": 4, "classes": 6, argument: value})  # type: ignore[arg-type]
        loss: Tensor = made(logits(given, 3, 5, 4), targets(given))
        return loss

    return {f"CTCHeadLoss: {argument}": BadCall(call, error, message, True)}


def second_derivative(given: Given) -> None:
    inputs = of_encoder(given)
    weight = inputs["weight"].requires_grad_()
    (gradient,) = torch.autograd.grad(warpalign.ctc_loss_from_encoder(**inputs), weight, create_graph=True)
    gradient.sum().backward()


def flat_weight(given: Given) -> None:
    """As FSDP leaves a parameter: without memory."""
    inputs = of_encoder(given)
    inputs["weight"].untyped_storage().resize_(0)
    warpalign.ctc_loss_from_encoder(**inputs)


LAYER = "apply FSDP to the module that calls this function, not to the output layer alone, or gather the layer before (FSDP2: layer.unshard(); FSDP1: summon_full_params())"
CALLS: BadCalls = {
    **head("a list", TypeError, "encoder_out: expected a torch.Tensor, got list", encoder_out=[1.0]),
    **head("one axis", ValueError, "encoder_out: expected (B, T, H) or (T, H), got shape (4,)", encoder_out=lambda g: logits(g, 4)),
    **head("integers", TypeError, f"encoder_out: expected {DTYPES}, got torch.int64", encoder_out=lambda g: logits(g, 3, 5, 4).long()),
    **head("another hidden size", ValueError, "encoder_out: expected a last axis of 4, by weight, got shape (3, 5, 7)", encoder_out=lambda g: logits(g, 3, 5, 7)),
    **head("a layer for a weight", TypeError, "weight: expected a torch.Tensor, got Linear", weight=lambda _: torch.nn.Linear(4, 6)),
    **head("a weight of one axis", ValueError, "weight: expected shape (C, H), got (6,)", weight=lambda g: logits(g, 6)),
    **head("no class", ValueError, "weight: expected no empty axis in (C, H), got shape (0, 4)", weight=lambda g: logits(g, 0, 4), bias=None),
    **head("a weight of another dtype", TypeError, "weight: expected the dtype of encoder_out, torch.float32, got torch.float64", weight=lambda g: logits(g, 6, 4).double()),
    "ctc_loss_from_encoder: a weight without memory": BadCall(flat_weight, ValueError, f"weight: expected a whole tensor, got a tensor without memory: {LAYER}", True),
    **head("a number for the bias", TypeError, "bias: expected a torch.Tensor, got float", bias=0.0),
    **head("a bias of other classes", ValueError, "bias: expected shape (6,), by weight, got (5,)", bias=lambda g: logits(g, 5)),
    **head("a bias of two axes", ValueError, "bias: expected shape (C,), got (6, 1)", bias=lambda g: logits(g, 6, 1)),
    **head("a list of targets", TypeError, "targets: expected an integer tensor (B, U), got list: write torch.tensor(targets)", targets=[[1]]),
    **head("flat targets", ValueError, "targets: expected shape (3, U), got (4,): write torch.nn.utils.rnn.pad_sequence(targets.split(lengths), batch_first=True) and target_lengths=", targets=lambda g: g.ints(1, 2, 3, 1)),
    **head("targets of another batch", ValueError, "targets: expected shape (3, U), got (2, 2)", targets=lambda g: g.ints([1, 2], [2, 1])),
    **head("a label that is blank", ValueError, "targets: expected labels from 0 to 5 other than blank = 0, got 0 at index 1, which is blank: write blank= if another class is, or target_lengths= if it is padding", targets=lambda g: g.ints([1, 2], [2, 0], [3, 1])),
    **head("a label that is no class", ValueError, "targets: expected labels from 0 to 5 other than blank = 0, or star = 8, got 6 at index 0", targets=lambda g: g.ints([1, 6], [2, 1], [3, 1]), star=8),
    **head("a length beyond T", ValueError, "encoder_lengths: expected lengths from 0 to T = 5, got 6 at index 1", encoder_lengths=[5, 6, 5]),
    **head("a length beyond U", ValueError, "target_lengths: expected lengths from 0 to U = 2, got 3 at index 0", target_lengths=[3, 2, 1]),
    **head("a blank beyond C", ValueError, "blank: expected a column of 6, from -6 to 5, got 6", blank=6),
    **head("a number for zero_infinity", TypeError, "zero_infinity: expected a bool, got int", zero_infinity=1),
    **head("priors of other classes", ValueError, "label_prior: expected shape (6,), one logarithm of a prior for each class, got (5,)", label_prior=lambda g: logits(g, 5)),
    **head("a star that is blank", ValueError, "star: expected another label than blank = 0, got 0", star=0),
    **head("a negative limit", ValueError, "workspace_limit: expected at least 0, got -1", workspace_limit=-1),
    **head("no such reduction", ValueError, REDUCTIONS, reduction="max"),
    "ctc_loss_from_encoder: seven positional arguments": BadCall(
        lambda g: warpalign.ctc_loss_from_encoder(*of_encoder(g).values(), None, None, 0),  # type: ignore[misc, call-arg]
        TypeError,
        "ctc_loss_from_encoder: expected at most 6 positional arguments, got 7: write blank=, reduction= and so on",
        True,
    ),
    "ctc_loss_from_encoder: a second derivative": BadCall(second_derivative, NotImplementedError, "warpalign: second derivatives of ctc_loss_from_encoder are not available", True),
    **module("hidden", 0, ValueError, "hidden: expected at least 1, got 0"),
    **module("classes", 1.5, TypeError, "classes: expected an int, got float"),
    **module("bias", 1, TypeError, "bias: expected a bool, got int"),
    **module("device", "moon", ValueError, "device: expected a torch.device, or its name, got 'moon'"),
    **module("dtype", torch.int64, TypeError, "dtype: expected float64, float32, float16 or bfloat16, got torch.int64"),
    **module("blank", 6, ValueError, "blank: expected a column of 6, from -6 to 5, got 6"),
    **module("zero_infinity", 1, TypeError, "zero_infinity: expected a bool, got int"),
    **module("star", -1, ValueError, "star: expected a label >= 0, or None, got -1"),
    **module("workspace_limit", "1", TypeError, "workspace_limit: expected an int, got str"),
    **module("reduction", "max", ValueError, REDUCTIONS),
}  # fmt: skip
