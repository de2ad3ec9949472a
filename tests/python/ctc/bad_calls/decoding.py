"""Decoding of CTC's frames."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import warpalign
from tests.python.bad_calls import BadCall, BadCalls, Given
from tests.python.ctc.bad_calls.functional import DTYPES, called, logits


class Reader:
    """A language model of so many columns."""

    def __init__(self, columns: int = 6) -> None:
        self.columns = columns

    def initial_state(self, batch: int) -> Tensor:
        return torch.zeros(batch, 1)

    def step(self, tokens: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return torch.zeros(len(tokens), self.columns, device=tokens.device), state.to(tokens.device)


class NoStep:
    def initial_state(self, batch: int) -> None:
        return None


class NotPair(Reader):
    def step(self, tokens: Tensor, state: Tensor) -> Any:
        return torch.zeros(len(tokens), 6)


class OneRow(Reader):
    def step(self, tokens: Tensor, state: Tensor) -> Any:
        return torch.zeros(1, 6, device=tokens.device), state


class StateOfInts(Reader):
    def step(self, tokens: Tensor, state: Tensor) -> Any:
        return torch.zeros(len(tokens), 6, device=tokens.device), 3


class StateOfOne(Reader):
    def step(self, tokens: Tensor, state: Tensor) -> Any:
        return torch.zeros(len(tokens), 6, device=tokens.device), torch.zeros(1)


def vmapped(name: str, function: Callable[..., object]) -> BadCalls:
    message = (
        f"warpalign: {name} is not available under torch.func.vmap: call it with a batch, or for each sample"
    )

    def call(given: Given) -> object:
        return torch.func.vmap(function)(logits(given))

    return {f"{name}: under vmap": BadCall(call, NotImplementedError, message, True)}


def good(given: Given) -> dict[str, Any]:
    return {"logits": logits(given)}


def both(what: str, error: type[BaseException], message: str, **changed: Any) -> BadCalls:
    functions = {
        "ctc_greedy_decode": warpalign.ctc_greedy_decode,
        "ctc_beam_decode": warpalign.ctc_beam_decode,
    }
    return {
        f"{name}: {what}": BadCall(called(function, good, **changed), error, message, True)
        for name, function in functions.items()
    }


def beam(what: str, error: type[BaseException], message: str, **changed: Any) -> BadCalls:
    weight = {"lm_weight": 1.0} if "language_model" in changed else {}
    call = called(warpalign.ctc_beam_decode, good, **weight | changed)
    return {f"ctc_beam_decode: {what}": BadCall(call, error, message, True)}


def beam_state(given: Given, **options: Any) -> object:
    return warpalign.ctc_beam_decode(logits(given), **{"beam": 2, **options})[0].state


CALLS: BadCalls = {
    **both("a list of logits", TypeError, "logits: expected a torch.Tensor, got list", logits=[1.0]),
    **both("integer logits", TypeError, f"logits: expected {DTYPES}, got torch.int64", logits=lambda g: logits(g).long()),
    **both("one axis", ValueError, "logits: expected (B, T, C) or (T, C), got shape (6,)", logits=lambda g: logits(g, 6)),
    **both("no class", ValueError, "logits: expected at least one class, got shape (3, 5, 0)", logits=lambda g: logits(g, 3, 5, 0)),
    **both("one length too many", ValueError, "logit_lengths: expected shape (3,), one length per utterance, got (4,)", logit_lengths=lambda g: g.ints(1, 2, 3, 4)),
    **both("a length beyond T", ValueError, "logit_lengths: expected lengths from 0 to T = 5, got 6 at index 1", logit_lengths=[5, 6, 5]),
    **both("a blank beyond C", ValueError, "blank: expected a column of 6, from -6 to 5, got 6", blank=6),
    **both("a list of priors", TypeError, "label_prior: expected a torch.Tensor (C,) or None, got list", label_prior=[0.0] * 6),
    **both("priors of other classes", ValueError, "label_prior: expected shape (6,), one logarithm of a prior for each class, got (5,)", label_prior=lambda g: logits(g, 5)),
    **both("an infinite prior", ValueError, "label_prior: expected finite numbers, got -inf at index 2", label_prior=lambda g: torch.tensor([0, 0, -math.inf, 0, 0, 0], device=g.device)),
    **vmapped("ctc_greedy_decode", warpalign.ctc_greedy_decode),
    **vmapped("ctc_beam_decode", warpalign.ctc_beam_decode),
    **both("a number for from_log_probs", TypeError, "from_log_probs: expected a bool, got int", from_log_probs=1),
    "ctc_greedy_decode: positional": BadCall(lambda g: warpalign.ctc_greedy_decode(logits(g), None, 0), TypeError, "ctc_greedy_decode: expected at most 2 positional arguments, got 3: write blank=", True),  # type: ignore[misc]
    "ctc_greedy_decode: no state": BadCall(called(warpalign.ctc_greedy_decode, good, state=3), TypeError, "state: expected the state of greedy CTC hypotheses, or None, got int", True),
    "ctc_greedy_decode: a state of another batch": BadCall(
        called(warpalign.ctc_greedy_decode, good, state=lambda g: warpalign.ctc_greedy_decode(logits(g, 2, 5, 6)).state), ValueError, "state: expected one of 3 utterances, as the logits, got 2", True
    ),
    "ctc_beam_decode: positional": BadCall(lambda g: warpalign.ctc_beam_decode(logits(g), None, 4), TypeError, "ctc_beam_decode: expected at most 2 positional arguments, got 3: write beam=", True),  # type: ignore[misc]
    **beam("a float beam", TypeError, "beam: expected an int, got float", beam=2.0),
    **beam("a beam of 0", ValueError, "beam: expected at least 1, got 0", beam=0),
    **beam("too wide a beam", ValueError, "beam: expected at most 128, got 129", beam=129),
    **beam("too wide a beam for a language model", ValueError, "beam: expected at most 64 with a language_model, got 65", beam=65, language_model=Reader()),
    **beam("more than the beam", ValueError, "n_best: expected at most beam = 4, got 5", beam=4, n_best=5),
    **beam("no hypothesis", ValueError, "n_best: expected at least 1, got 0", n_best=0),
    **beam("a threshold of 0", ValueError, "beam_threshold: expected a finite number > 0, got 0", beam_threshold=0),
    **beam("no number for the threshold", TypeError, "beam_threshold: expected a float, got str", beam_threshold="5"),
    **beam("a weight below 0", ValueError, "lm_weight: expected a finite number >= 0, got -1", lm_weight=-1),
    **beam("a weight of no language model", ValueError, "lm_weight: expected None without language_model, got 5.0: pass language_model=", lm_weight=5.0),
    **beam("a language model without a weight", ValueError, "lm_weight: expected the weight of language_model, got None: write lm_weight=0.3, for example", language_model=Reader(), lm_weight=None),
    **beam("a start below 0", ValueError, "start_id: expected at least 0, got -1", start_id=-1),
    **beam("no language model", TypeError, "language_model: expected a method step(), got NoStep without it", language_model=NoStep()),
    **beam("a language model of other classes", ValueError, "language_model: expected log-probabilities of 6 classes, blank included, got shape (48, 5)", language_model=Reader(5)),
    **beam("rows alone", TypeError, "language_model: expected step() to return rows and a state, got Tensor", language_model=NotPair()),
    **beam("one row", ValueError, "language_model: expected rows (48, H) from step(), got shape (1, 6)", language_model=OneRow()),
    **beam("a state of integers", TypeError, "language_model: expected a state of tensors, got one with int", language_model=StateOfInts()),
    **beam("a state of one", ValueError, "language_model: expected states with 48 hypotheses on axis 0 (batch_axis), got shape (1,)", language_model=StateOfOne()),
    **beam("no state", TypeError, "state: expected the state of beam CTC hypotheses, or None, got int", state=3),
    **beam("a state of another beam", ValueError, "state: expected one of 3 utterances and beam = 4, got 3 and 2", beam=4, state=beam_state),
    **beam("a state without a language model", ValueError, "state: expected one that was made with a language_model too, or without one too, got another", beam=2, state=beam_state, language_model=Reader()),
}  # fmt: skip
