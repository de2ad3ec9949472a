"""CTC and monotonic alignment."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import warpalign
from tests.python.bad_calls import BadCall, BadCalls, Given

DTYPES = "dtype float64, float32, float16 or bfloat16"
INTEGERS = "dtype int64, int32, int16, int8 or uint8"
FUNCTIONS: dict[str, Callable[..., object]] = {
    "ctc_loss": warpalign.ctc_loss,
    "ctc_align": warpalign.ctc_align,
    "ctc_posteriors": warpalign.ctc_posteriors,
}


def logits(given: Given, *shape: int, **options: Any) -> Tensor:
    return torch.zeros(shape or (3, 5, 6), device=given.device, **options)


def targets(given: Given) -> Tensor:
    return given.ints([1, 2], [2, 1], [3, 1])


def called(
    function: Callable[..., object], good: Callable[[Given], dict[str, Any]], **changed: Any
) -> Callable[[Given], object]:
    """The function with good arguments but for those named: values, or functions of what is given."""

    def call(given: Given) -> object:
        made = {k: v(given) if isinstance(v, Callable) else v for k, v in changed.items()}  # type: ignore[arg-type]
        return function(**good(given) | made)

    return call


def of_labels(given: Given) -> dict[str, Any]:
    return {"logits": logits(given), "targets": targets(given)}


def of_all(
    what: str, error: type[BaseException], message: str, cpu_only: bool = True, **changed: Any
) -> BadCalls:
    """A bad call of every function of logits and labels."""
    return {
        f"{name}: {what}": BadCall(called(function, of_labels, **changed), error, message, cpu_only)
        for name, function in FUNCTIONS.items()
    }


def loss(what: str, error: type[BaseException], message: str, **changed: Any) -> BadCalls:
    return {
        f"ctc_loss: {what}": BadCall(called(warpalign.ctc_loss, of_labels, **changed), error, message, True)
    }


def search(what: str, error: type[BaseException], message: str, **changed: Any) -> BadCalls:
    def good(given: Given) -> dict[str, Any]:
        return {"scores": torch.zeros(3, 4, 9, device=given.device)}

    call = called(warpalign.monotonic_alignment_search, good, **changed)
    return {f"monotonic_alignment_search: {what}": BadCall(call, error, message, True)}


def forward_sum(what: str, error: type[BaseException], message: str, **changed: Any) -> BadCalls:
    def good(given: Given) -> dict[str, Any]:
        return {"attention_logprob": torch.zeros(3, 9, 4, device=given.device)}

    call = called(warpalign.forward_sum_loss, good, **changed)
    return {f"forward_sum_loss: {what}": BadCall(call, error, message, True)}


def second_backward(given: Given) -> None:
    x = logits(given, requires_grad=True)
    value = warpalign.ctc_loss(x * 1, targets(given), inplace_grad=True)
    value.backward(retain_graph=True)
    value.backward()


def differentiable_backward(given: Given) -> None:
    x = logits(given, requires_grad=True)
    value = warpalign.ctc_loss(x * 1, targets(given), inplace_grad=True)
    torch.autograd.grad(value, x, create_graph=True)


def second_derivative(given: Given) -> None:
    x = logits(given, requires_grad=True)
    (gradient,) = torch.autograd.grad(warpalign.ctc_loss(x, targets(given)), x, create_graph=True)
    gradient.sum().backward()


def vmapped_prior(given: Given) -> None:
    torch.func.vmap(lambda prior: warpalign.ctc_loss(logits(given), targets(given), label_prior=prior))(
        torch.zeros(2, 6)
    )


CALLS: BadCalls = {
    **of_all("a list of logits", TypeError, "logits: expected a torch.Tensor, got list", logits=[1.0]),
    **of_all("integer logits", TypeError, f"logits: expected {DTYPES}, got torch.int64", logits=lambda g: logits(g).long()),
    **of_all("sparse logits", TypeError, "logits: expected a dense tensor (layout torch.strided), got a torch.sparse_coo one", logits=lambda g: logits(g).to_sparse()),
    **of_all("one axis", ValueError, "logits: expected (B, T, C) or (T, C), got shape (6,)", logits=lambda g: logits(g, 6)),
    **of_all("no class", ValueError, "logits: expected at least one class, got shape (3, 5, 0)", logits=lambda g: logits(g, 3, 5, 0)),
    **of_all("a list of targets", TypeError, "targets: expected an integer tensor (B, U), got list: write torch.tensor(targets)", targets=[[1]]),
    **of_all("an array of targets", TypeError, "targets: expected an integer tensor (B, U), got int", targets=3),
    **of_all("float targets", TypeError, f"targets: expected {INTEGERS}, got torch.float32", targets=lambda g: targets(g).float()),
    **of_all("targets of another batch", ValueError, "targets: expected shape (3, U), or one axis of all labels, got (2, 4)", targets=lambda g: g.ints([1, 2, 3, 1], [2, 1, 3, 1])),
    **of_all("targets by labels", ValueError, "targets: expected shape (3, U), or one axis of all labels, got (2, 3): write targets.T", targets=lambda g: targets(g).T),
    **of_all("targets of one utterance", ValueError, "targets: expected shape (U,), got (2, 1)", logits=lambda g: logits(g, 5, 6), targets=lambda g: g.ints([1], [2])),
    **of_all("a label that is blank", ValueError, "targets: expected labels from 0 to 5 other than blank = 0, got 0 at index 1, which is blank: write blank= if another class is, or target_lengths= if it is padding", targets=lambda g: g.ints([1, 2], [2, 0], [3, 1])),
    **of_all("a label below 0", ValueError, "targets: expected labels from 0 to 5 other than blank = 0, got -1 at index 2: write target_lengths= if it is padding", targets=lambda g: g.ints([1, 2], [2, 1], [3, -1])),
    **of_all("a label that is no class", ValueError, "targets: expected labels from 0 to 5 other than blank = 0, or star = 8, got 6 at index 0", targets=lambda g: g.ints([1, 6], [2, 1], [3, 1]), star=8),
    **of_all("one length too many", ValueError, "logit_lengths: expected shape (3,), one length per utterance, got (4,)", logit_lengths=lambda g: g.ints(1, 2, 3, 4)),
    **of_all("a length beyond T", ValueError, "logit_lengths: expected lengths from 0 to T = 5, got 6 at index 1", logit_lengths=[5, 6, 5]),
    **of_all("a length beyond U", ValueError, "target_lengths: expected lengths from 0 to U = 2, got 3 at index 0", target_lengths=[3, 2, 1]),
    **of_all("flat targets without lengths", ValueError, "target_lengths: expected integers (B,) with targets of one axis, all labels concatenated, got None", targets=lambda g: g.ints(1, 2, 3)),
    **of_all("more flat targets than lengths", ValueError, "targets: expected as many labels as target_lengths say, got 5", targets=lambda g: g.ints(1, 2, 3, 1, 2), target_lengths=[1, 1, 1]),
    **of_all("a float blank", TypeError, "blank: expected an int, got float", blank=1.0),
    **of_all("a blank beyond C", ValueError, "blank: expected a column of 6, from -6 to 5, got 6", blank=6),
    **of_all("a number for from_log_probs", TypeError, "from_log_probs: expected a bool, got int", from_log_probs=1),
    **of_all("a float star", TypeError, "star: expected an int or None, got float", star=1.0),
    **of_all("a star below 0", ValueError, "star: expected a label >= 0, or None, got -1", star=-1),
    **of_all("a star that is blank", ValueError, "star: expected another label than blank = 0, got 0", star=0),
    **of_all("a list of priors", TypeError, "label_prior: expected a torch.Tensor (C,) or None, got list", label_prior=[0.0] * 6),
    **of_all("integer priors", TypeError, "label_prior: expected a floating-point dtype, got torch.int64", label_prior=lambda g: g.ints(*range(6))),
    **of_all("priors of other classes", ValueError, "label_prior: expected shape (6,), one logarithm of a prior for each class, got (5,)", label_prior=lambda g: logits(g, 5)),
    **of_all("priors with a gradient", ValueError, "label_prior: expected a tensor that requires no gradient, because losses are not differentiated with respect to it, got one that does: write label_prior.detach()", label_prior=lambda g: logits(g, 6, requires_grad=True)),
    **of_all("an infinite prior", ValueError, "label_prior: expected finite numbers, got -inf at index 2", label_prior=lambda g: torch.tensor([0, 0, -math.inf, 0, 0, 0], device=g.device)),
    **loss("a number for zero_infinity", TypeError, "zero_infinity: expected a bool, got int", zero_infinity=1),
    **loss("a number for batch_invariant", TypeError, "batch_invariant: expected a bool, got int", batch_invariant=1),
    **loss("no such reduction", ValueError, 'reduction: expected one of "none", "sum", "mean", "mean_target", "mean_volume", "mean_frame", got \'max\'', reduction="max"),
    **loss("a number for inplace_grad", TypeError, "inplace_grad: expected a bool, got int", inplace_grad=1),
    **loss("in place of a leaf", ValueError, "inplace_grad: expected logits that an operation has computed, got a leaf, whose values would be lost", logits=lambda g: logits(g, requires_grad=True), inplace_grad=True),
    "ctc_loss: five positional arguments": BadCall(
        lambda g: warpalign.ctc_loss(logits(g), targets(g), None, None, 0),  # type: ignore[misc]
        TypeError,
        "ctc_loss: expected at most 4 positional arguments, got 5: write blank=, or use warpalign.compat.torch.ctc_loss, which has torch's order of arguments",
        True,
    ),
    "ctc_loss: a second backward pass in place": BadCall(second_backward, RuntimeError, "inplace_grad: expected one backward pass, as the gradient took the logits' memory, got a second one", True),
    "ctc_loss: a graph of gradients in place": BadCall(differentiable_backward, RuntimeError, "inplace_grad: expected a backward pass without create_graph, got one with it", True),
    "ctc_loss: a second derivative": BadCall(second_derivative, NotImplementedError, "warpalign: second derivatives of ctc_loss are not available", True),
    "ctc_loss: vmapped priors": BadCall(vmapped_prior, NotImplementedError, "warpalign: priors of labels under a vmap over them are not available", True),
    **search("a list of scores", TypeError, "scores: expected a torch.Tensor, got list", scores=[1.0]),
    **search("one axis", ValueError, "scores: expected (B, S, T) or (S, T), got shape (9,)", scores=lambda g: logits(g, 9)),
    **search("a text beyond S", ValueError, "text_lengths: expected lengths from 0 to S = 4, got 5 at index 0", text_lengths=[5, 1, 1]),
    **search("frames of another batch", ValueError, "frame_lengths: expected shape (3,), one length per item, got (2,)", frame_lengths=[5, 1]),
    **search("no such output", ValueError, "output: expected \"path\" or \"durations\", got 'paths'", output="paths"),
    **forward_sum("a list", TypeError, "attention_logprob: expected a torch.Tensor, got list", attention_logprob=[1.0]),
    **forward_sum("two axes", ValueError, "attention_logprob: expected (B, T, S) or (B, 1, T, S), got shape (9, 4)", attention_logprob=lambda g: logits(g, 9, 4)),
    **forward_sum("a text beyond S", ValueError, "text_lengths: expected lengths from 0 to S = 4, got 5 at index 0", text_lengths=[5, 1, 1]),
    **forward_sum("frames beyond T", ValueError, "frame_lengths: expected lengths from 0 to T = 9, got 10 at index 2", frame_lengths=[5, 1, 10]),
    **forward_sum("no number for blank", TypeError, "blank_logprob: expected a float, got str", blank_logprob="-1"),
    **forward_sum("an infinite blank", ValueError, "blank_logprob: expected a finite number, got inf", blank_logprob=math.inf),
    **forward_sum("no such reduction", ValueError, 'reduction: expected one of "none", "sum", "mean", "mean_target", "mean_volume", "mean_frame", got \'max\'', reduction="max"),
}  # fmt: skip


def _module(name: str, argument: str, value: object, error: type[BaseException], message: str) -> BadCalls:
    """A module's bad setting, found where it is made or called."""

    def call(given: Given) -> object:
        made = getattr(warpalign, name)(**{argument: value})
        if name == "CTCLoss":
            return made(logits(given, requires_grad=True), targets(given))
        return made(torch.zeros(3, 9, 4, device=given.device))

    return {f"{name}: {argument}": BadCall(call, error, message, True)}


REDUCTIONS = 'reduction: expected one of "none", "sum", "mean", "mean_target", "mean_volume", "mean_frame", got \'max\''
CALLS |= {
    **_module("CTCLoss", "blank", 6, ValueError, "blank: expected a column of 6, from -6 to 5, got 6"),
    **_module("CTCLoss", "from_log_probs", 1, TypeError, "from_log_probs: expected a bool, got int"),
    **_module("CTCLoss", "zero_infinity", 1, TypeError, "zero_infinity: expected a bool, got int"),
    **_module("CTCLoss", "star", -1, ValueError, "star: expected a label >= 0, or None, got -1"),
    **_module("CTCLoss", "reduction", "max", ValueError, REDUCTIONS),
    **_module("CTCLoss", "inplace_grad", 1, TypeError, "inplace_grad: expected a bool, got int"),
    **_module("CTCLoss", "batch_invariant", 1, TypeError, "batch_invariant: expected a bool, got int"),
    **_module("ForwardSumLoss", "blank_logprob", "-1", TypeError, "blank_logprob: expected a float, got str"),
    **_module("ForwardSumLoss", "reduction", "max", ValueError, REDUCTIONS),
}


def forward_mode(given: Given) -> None:
    of = logits(given)
    torch.func.jvp(lambda x: warpalign.ctc_loss(x, targets(given)), (of,), (of,))


CALLS["ctc_loss: forward mode"] = BadCall(
    forward_mode,
    NotImplementedError,
    "warpalign: forward-mode derivatives of ctc_loss and forward_sum_loss are not available",
)
