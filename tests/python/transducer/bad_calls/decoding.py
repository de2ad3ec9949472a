"""Decoding with transducers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import warpalign
from tests.python.bad_calls import BadCall, BadCalls, Given
from tests.python.transducer.bad_calls.joint import FSDP, freed
from warpalign.transducer import JointFunction, JointWeights

DTYPES = "dtype float64, float32, float16 or bfloat16"


class Embedded:
    """Rows of 6 tokens."""

    def __init__(self) -> None:
        self.rows = torch.nn.Embedding(6, 4)

    def initial_state(self, batch: int) -> Tensor:
        return torch.zeros(batch, 1)

    def step(self, tokens: Tensor, state: Tensor) -> Any:
        return self.rows(tokens), state


class Ended:
    """A language model of 6 labels, of which final() returns one number."""

    def initial_state(self, batch: int) -> Tensor:
        return torch.zeros(batch, 1)

    def step(self, tokens: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return torch.zeros(len(tokens), 6, device=tokens.device), state.to(tokens.device)

    def final(self, state: Tensor) -> Any:
        return state[0] if len(state) == 3 else 0.0


class LastToken:
    """Rows of 4 numbers; what step() returns can be another thing, and so can the state."""

    def __init__(self, returned: Any = None, state: Any = None, batch_axis: Any = 0) -> None:
        self.returned, self.state, self.batch_axis = returned, state, batch_axis

    def initial_state(self, batch: int) -> Tensor:
        return torch.zeros(batch, 1)

    def step(self, tokens: Tensor, state: Tensor) -> Any:
        if self.returned is not None:
            return self.returned
        state = state.to(tokens.device) if self.state is None else self.state
        return torch.zeros(len(tokens), 4, device=tokens.device), state


def weights(given: Given, columns: int = 6, hidden: int = 4) -> JointWeights:
    return JointWeights(torch.zeros(columns, hidden, device=given.device))


def joint_function(call: Any, blank: int) -> Callable[[Given], JointFunction]:
    return lambda given: JointFunction(call, blank)


def encoder(given: Given, frames: int = 5) -> Tensor:
    return torch.zeros(3, frames, 4, device=given.device)


def short_encoder(given: Given) -> Tensor:
    """No longer than the fewest frames that greedy search looks at in one step, on any device."""
    return encoder(given, 4)


def call_of(
    function: str, error: type[BaseException], message: str, cpu_only: bool, changed: dict[str, Any]
) -> BadCall:
    """A call of good arguments but for those named: values, or functions of what is given."""

    def call(given: Given) -> object:
        good = {"encoder_out": encoder, "encoder_lengths": None, "predictor": LastToken(), "joint": weights}
        made = {}
        for name, value in (good | changed).items():
            takes_given = isinstance(value, Callable) and name not in ("predictor", "language_model")  # type: ignore[arg-type]
            made[name] = value(given) if takes_given else value
        return getattr(warpalign, function)(**made)

    return BadCall(call, error, message, cpu_only)


def shared(
    function: str, hypotheses: int, rows: int, kind: str, often: str, extra: dict[str, Any]
) -> BadCalls:
    """Arguments that every search has. hypotheses: rows of the predictor; rows: of the joint function's first call.

    kind: of state.
    """

    def bad(
        message: str, error: type[BaseException] = ValueError, cpu_only: bool = False, **changed: Any
    ) -> BadCall:
        return call_of(function, error, message, cpu_only, extra | changed)

    calls = {
        "encoder no tensor": bad("encoder_out: expected a torch.Tensor, got int", TypeError, encoder_out=1),
        "encoder of integers": bad(
            f"encoder_out: expected {DTYPES}, got torch.int64",
            TypeError,
            encoder_out=lambda g: encoder(g).long(),
        ),
        "axes of encoder": bad(
            "encoder_out: expected (B, T, H) with H >= 1, got shape (5, 4)",
            encoder_out=lambda g: encoder(g)[0],
        ),
        "lengths no list": bad(
            "encoder_lengths: expected integers (B,) as a tensor, list, tuple or array, got int",
            TypeError,
            encoder_lengths=5,
        ),
        "lengths as fractions": bad(
            "encoder_lengths: expected integers of dtype int64, int32, int16, int8 or uint8, got torch.float32: multiply fractions "
            "in [0, 1] by the number of steps, T = 5, and round to integers, (encoder_lengths * T).round().long()",
            TypeError,
            encoder_lengths=lambda g: torch.ones(3, device=g.device),
        ),
        "shape of lengths": bad(
            "encoder_lengths: expected shape (3,), one length per utterance, got (2,)",
            encoder_lengths=lambda g: g.ints(1, 2),
        ),
        "lengths out of range": bad(
            "encoder_lengths: expected lengths from 0 to T = 5, got 6 at index 2",
            cpu_only=True,
            encoder_lengths=lambda g: g.ints(1, 2, 6),
        ),
        "a list of lengths out of range": bad(
            "encoder_lengths: expected lengths from 0 to T = 5, got 6 at index 2", encoder_lengths=[1, 2, 6]
        ),
        "durations left out": bad(
            "predictor: expected step() to read the labels of joint's 8 columns, of which blank is 7, and start_id = 7, got "
            "IndexError for tokens up to 7 (index out of range in self): write JointWeights(durations=...) if joint's last columns are TDT's "
            "durations",
            IndexError,
            cpu_only=True,
            predictor=Embedded(),
            joint=lambda g: weights(g, 8),
        ),
        "durations left out of a function": bad(
            "predictor: expected step() to read the labels of joint's columns, of which blank is 5, and start_id = 6, got "
            "IndexError for tokens up to 6 (index out of range in self): write JointWeights(durations=...) if joint's last columns are TDT's "
            "durations",
            IndexError,
            cpu_only=True,
            predictor=Embedded(),
            joint=joint_function(lambda x, g: torch.zeros(len(x), 8), 5),
            start_id=6,
        ),
        "joint's weight of FSDP1": bad(
            f"joint.weight: expected a whole tensor, got a tensor without memory: {FSDP}",
            joint=lambda g: JointWeights(freed(torch.zeros(6, 4, device=g.device))),
        ),
        "predictor without step": bad(
            "predictor: expected a method initial_state(), got int without it", TypeError, predictor=1
        ),
        "predictor returns one thing": bad(
            "predictor: expected step() to return rows and a state, got Tensor",
            TypeError,
            predictor=LastToken(torch.zeros(3, 4)),
        ),
        "predictor's rows": bad(
            f"predictor: expected rows ({hypotheses}, H) from step(), got shape (4,)",
            predictor=LastToken((torch.zeros(4), torch.zeros(3, 1))),
        ),
        "predictor's rows no tensor": bad(
            f"predictor: expected rows ({hypotheses}, H) from step(), got list",
            predictor=LastToken(([], 0)),
        ),
        "predictor's width": bad(
            f"predictor: expected rows of 4 numbers, as the encoder's, got shape ({hypotheses}, 5)",
            predictor=LastToken((torch.zeros(hypotheses, 5), torch.zeros(hypotheses, 1))),
        ),
        "predictor's state": bad(
            "predictor: expected a state of tensors, got one with NoneType",
            TypeError,
            predictor=LastToken(state=[None]),
        ),
        "predictor's batch axis": bad(
            f"predictor: expected states with {hypotheses} hypotheses on axis 1 (batch_axis), "
            f"got shape ({hypotheses}, 1)",
            predictor=LastToken(state={"h": torch.zeros(hypotheses, 1)}, batch_axis=1),
        ),
        "predictor's bad axis": bad(
            "predictor.batch_axis: expected at least 0, got -1", predictor=LastToken(batch_axis=-1)
        ),
        "joint a plain function": bad(
            "joint: expected JointWeights or JointFunction, got function: write JointFunction(joint, blank)",
            TypeError,
            joint=lambda g: lambda x, rows: x,
        ),
        "joint a number": bad(
            "joint: expected JointWeights or JointFunction, got int", TypeError, joint=lambda g: 1
        ),
        "joint's function": bad(
            "joint.function: expected a function, got int", TypeError, joint=joint_function(1, 5)
        ),
        "joint's activation": bad(
            'joint.activation: expected "relu" or "tanh", got \'gelu\'',
            joint=lambda g: weights(g)._replace(activation="gelu"),
        ),
        "joint's weight": bad(
            "joint.weight: expected shape (V, 4), by encoder_out, got (6, 5)",
            joint=lambda g: weights(g, 6, 5),
        ),
        "joint's weight no tensor": bad(
            "joint.weight: expected a torch.Tensor, got int",
            TypeError,
            joint=lambda g: JointWeights(1),  # type: ignore[arg-type]
        ),
        "joint without labels": bad(
            "joint.weight: expected more rows than the 2 of durations, got 2",
            joint=lambda g: weights(g, 2)._replace(durations=(0, 1)),
        ),
        "joint's bias": bad(
            "joint.bias: expected shape (6,), by joint.weight, got (5,)",
            joint=lambda g: weights(g)._replace(bias=torch.zeros(5, device=g.device)),
        ),
        "joint's bias no tensor": bad(
            "joint.bias: expected a torch.Tensor, got float",
            TypeError,
            joint=lambda g: weights(g)._replace(bias=0.0),
        ),
        "joint function's shape": bad(
            f"joint: expected scores ({rows}, columns), got shape (2, 6)",
            joint=joint_function(lambda x, g: torch.zeros(2, 6, device=x.device), 0),
            encoder_out=short_encoder,
        ),
        "joint function's result": bad(
            f"joint: expected scores ({rows}, columns), got int",
            joint=joint_function(lambda x, g: 1, 0),
            encoder_out=short_encoder,
        ),
        "joint function's columns": bad(
            "joint: expected more than 6 columns of labels, because of blank and big_blanks, got 6",
            joint=joint_function(lambda x, g: torch.zeros(len(x), 6, device=x.device), 6),
        ),
        "blank beyond": bad(
            "joint.blank: expected a column of 6, from -6 to 5, got 6",
            joint=lambda g: weights(g)._replace(blank=6),
        ),
        "blank counted from the end of a function": bad(
            "joint.blank: expected a column >= 0 of a JointFunction, whose columns are not known, got -1",
            joint=joint_function(lambda x, g: x, -1),
        ),
        "big_blanks with durations": bad(
            "joint.big_blanks: expected none with durations, got (2,)",
            joint=lambda g: weights(g, 8)._replace(durations=(0, 1), big_blanks=(2,)),
        ),
        "big_blanks": bad(
            "joint.big_blanks: expected different columns, and not blank's 5, got (5,)",
            joint=lambda g: weights(g)._replace(big_blanks={5: 2}),
        ),
        "durations": bad(
            "joint.durations: expected one at least above 0, got (0,)",
            joint=lambda g: weights(g)._replace(durations=(0,)),
        ),
        "start_id": bad("start_id: expected at least 0, got -1", start_id=-1),
        "max_symbols_per_frame": bad(
            "max_symbols_per_frame: expected at least 1, got 0", max_symbols_per_frame=0
        ),
        "state of another kind": bad(
            f"state: expected the state of {kind} hypotheses, or None, got int", TypeError, state=1
        ),
        often: bad(f"{often}: expected at least 1, got 0", **{often: 0}),
        "cuda_graph no flag": bad("cuda_graph: expected a bool, got int", TypeError, cuda_graph=1),
        "cuda_graph on a CPU": bad(
            "cuda_graph: expected False, because encoder_out lies on cpu, got True",
            cpu_only=True,
            cuda_graph=True,
        ),
    }
    return {f"{function}: {name}": call for name, call in calls.items()}


def other_batch(given: Given) -> object:
    found = warpalign.transducer_greedy_decode(encoder(given), None, LastToken(), weights(given))
    return warpalign.transducer_greedy_decode(
        encoder(given)[:2], None, LastToken(), weights(given), state=found.state
    )


def other_greedy_language(given: Given) -> object:
    found = warpalign.transducer_greedy_decode(encoder(given), None, LastToken(), weights(given))
    return warpalign.transducer_greedy_decode(
        encoder(given),
        None,
        LastToken(),
        weights(given),
        language_model=Ended(),
        lm_weight=1.0,
        state=found.state,
    )


def other_beam(given: Given) -> object:
    (found,) = warpalign.transducer_beam_decode(encoder(given), None, LastToken(), weights(given))
    return warpalign.transducer_beam_decode(
        encoder(given), None, LastToken(), weights(given), beam=2, state=found.state
    )


def other_language(given: Given) -> object:
    (found,) = warpalign.transducer_beam_decode(encoder(given), None, LastToken(), weights(given))
    return warpalign.transducer_beam_decode(
        encoder(given),
        None,
        LastToken(),
        weights(given),
        language_model=LastToken(),
        lm_weight=1.0,
        state=found.state,
    )


def fused(message: str, error: type[BaseException] = ValueError, **changed: Any) -> BadCall:
    given = {"language_model": Ended(), "lm_weight": 1.0} | changed
    return call_of("transducer_greedy_decode", error, message, False, given)


def beam(message: str, error: type[BaseException] = ValueError, **changed: Any) -> BadCall:
    return call_of("transducer_beam_decode", error, message, False, changed)


CALLS: BadCalls = (
    shared("transducer_greedy_decode", 3, 12, "greedy", "labels_per_round", {})
    | shared("transducer_beam_decode", 6, 6, "beam", "steps_per_round", {"beam": 1})
    | {
        "transducer_greedy_decode: state of other utterances": BadCall(
            other_batch, ValueError, "state: expected one of 2 utterances, got 3"
        ),
        "transducer_greedy_decode: language_model": fused(
            "language_model: expected a method initial_state(), got int without it",
            TypeError,
            language_model=1,
        ),
        "transducer_greedy_decode: language_model's columns": fused(
            "language_model: expected log-probabilities of 6 labels, blanks included, got shape (3, 4)",
            language_model=LastToken(),
        ),
        "transducer_greedy_decode: language_model's end": fused(
            "language_model: expected scores (3,) from final(), got shape (1,)"
        ),
        "transducer_greedy_decode: lm_weight": fused(
            "lm_weight: expected a finite number >= 0, got -1.0", lm_weight=-1.0
        ),
        "transducer_greedy_decode: lm_weight alone": fused(
            "lm_weight: expected None without language_model, got 5.0: pass language_model=",
            language_model=None,
            lm_weight=5.0,
        ),
        "transducer_greedy_decode: state without a language model": BadCall(
            other_greedy_language,
            ValueError,
            "state: expected one that was made with a language_model too, or without one too, got another",
        ),
        "transducer_beam_decode: language_model's end": beam(
            "language_model: expected scores (24,) from final(), got float",
            language_model=Ended(),
            lm_weight=1.0,
        ),
        "transducer_beam_decode: state of another beam": BadCall(
            other_beam, ValueError, "state: expected one of 3 utterances and beam = 2, got 3 and 4"
        ),
        "transducer_beam_decode: state without a language model": BadCall(
            other_language,
            ValueError,
            "state: expected one that was made with a language_model too, or without one too, got another",
        ),
        "transducer_beam_decode: beam of floats": beam(
            "beam: expected an int, got float", TypeError, beam=1.5
        ),
        "transducer_beam_decode: wide beam": beam("beam: expected at most 16, got 17", beam=17),
        "transducer_beam_decode: n_best": beam("n_best: expected at most beam = 4, got 5", n_best=5),
        "transducer_beam_decode: merge": beam('merge: expected "sum" or "max", got \'mean\'', merge="mean"),
        "transducer_beam_decode: score_norm": beam(
            "score_norm: expected a bool, got int", TypeError, score_norm=1
        ),
        "transducer_beam_decode: language_model": beam(
            "language_model: expected a method initial_state(), got int without it",
            TypeError,
            language_model=1,
            lm_weight=1.0,
        ),
        "transducer_beam_decode: language_model's columns": beam(
            "language_model: expected log-probabilities of 6 labels, blanks included, got shape (24, 4)",
            language_model=LastToken(),
            lm_weight=1.0,
        ),
        "transducer_beam_decode: language_model's rows": beam(
            "language_model: expected rows (24, H) from step(), got list",
            language_model=LastToken(([], 0)),
            lm_weight=1.0,
        ),
        "transducer_beam_decode: no lm_weight": beam(
            "lm_weight: expected the weight of language_model, got None: write lm_weight=0.3, for example",
            language_model=LastToken(),
        ),
        "transducer_beam_decode: lm_weight alone": beam(
            "lm_weight: expected None without language_model, got 5.0: pass language_model=",
            lm_weight=5.0,
        ),
        "transducer_beam_decode: lm_weight": beam(
            "lm_weight: expected a finite number >= 0, got -1.0", lm_weight=-1.0
        ),
    }
)
