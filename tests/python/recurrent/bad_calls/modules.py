"""The LSTM: function, modules, stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from tests.python.bad_calls import BadCall, BadCalls, Given
from warpalign._recurrent.checks import DtypeError, ShapeError
from warpalign._recurrent.onnx import _lstm
from warpalign.compat import haste
from warpalign.compat.caiman import CustomLSTM
from warpalign.recurrent import (
    LSTM,
    HardLSTM,
    LSTMCell,
    LSTMStream,
    LSTMWeights,
    lstm,
    replace_lstm,
    restore_lstm,
)
from warpalign.transducer import LSTMPredictor

INTEGERS = "dtype int64, int32, int16, int8 or uint8"
DTYPES = "dtype float64, float32, float16 or bfloat16"


def series(given: Given, *shape: int, **options: Any) -> Tensor:
    return torch.zeros(shape or (5, 3, 2), device=given.device, **options)


def weights(given: Given, **changed: Any) -> list[LSTMWeights]:
    good = {"ih": series(given, 16, 2), "hh": series(given, 16, 4)}
    made = {k: v(given) if callable(v) else v for k, v in changed.items()}
    return [LSTMWeights(**good | made)]


def states(given: Given, *shape: int, **options: Any) -> Tensor:
    return series(given, *(shape or (1, 3, 4)), **options)


def packed(given: Given) -> Any:
    return pack_padded_sequence(series(given), torch.tensor([5, 3, 1]))


def call(
    *, error: type[BaseException] = ValueError, message: str, cpu_only: bool = True, **changed: Any
) -> BadCall:
    """lstm of good arguments but for those named: values, or functions of what is given."""

    def run(given: Given) -> object:
        made = {k: v(given) if isinstance(v, Callable) else v for k, v in changed.items()}  # type: ignore[arg-type]
        return lstm(**{"input": series(given), "weights": weights(given)} | made)  # type: ignore[arg-type]

    return BadCall(run, error, message, cpu_only)


def module(kind: Any, *, error: type[BaseException] = ValueError, message: str, **changed: Any) -> BadCall:
    good = {"input_size": 2, "hidden_size": 4}
    return BadCall(lambda g: kind(**good | changed), error, message, True)


def of_options(name: str, make: Callable[..., BadCall], is_function: bool, is_cell: bool = False) -> BadCalls:
    """What all of them may be told."""
    some = {
        "activation": (
            {"activation": "softer"},
            ValueError,
            'activation: expected "soft" or "hard", got \'softer\'',
        ),
        "hard_slope": ({"hard_slope": 0}, ValueError, "hard_slope: expected a finite number > 0, got 0"),
        "hard_offset": (
            {"hard_offset": 1},
            ValueError,
            "hard_offset: expected a number between 0 and 1, got 1",
        ),
        "layer_norm_eps": ({"layer_norm_eps": "1"}, TypeError, "layer_norm_eps: expected a float, got str"),
        "rw_dropout": (
            {"rw_dropout": 1.0},
            ValueError,
            "rw_dropout: expected a probability in [0, 1), got 1.0",
        ),
        "zoneout": ({"zoneout": -0.1}, ValueError, "zoneout: expected a finite number >= 0, got -0.1"),
        "zoneout of three": (
            {"zoneout": (0.1, 0.1, 0.1)},
            ValueError,
            "zoneout: expected one probability, or two, (hidden, cell), got 3",
        ),
        "zoneout of cells": (
            {"zoneout": (0.1, 2)},
            ValueError,
            "zoneout[1]: expected a probability in [0, 1), got 2",
        ),
        "precision": (
            {"precision": "low"},
            ValueError,
            'precision: expected one of "highest", "high", "medium", or None, got \'low\'',
        ),
        "batch_invariant": ({"batch_invariant": 1}, TypeError, "batch_invariant: expected a bool, got int"),
    }
    if not is_cell:
        some |= {
            "dropout": ({"dropout": 1.5}, ValueError, "dropout: expected a probability in [0, 1), got 1.5"),
            "bidirectional": ({"bidirectional": 2}, TypeError, "bidirectional: expected a bool, got int"),
            "batch_first": ({"batch_first": None}, TypeError, "batch_first: expected a bool, got NoneType"),
            "recompute": ({"recompute": 1}, TypeError, "recompute: expected a bool, got int"),
            "return_all_states": (
                {"return_all_states": 0},
                TypeError,
                "return_all_states: expected a bool, got int",
            ),
        }
    if not is_function:
        some |= {
            "input_size": ({"input_size": 0}, ValueError, "input_size: expected at least 1, got 0"),
            "hidden_size": ({"hidden_size": 4.0}, TypeError, "hidden_size: expected an int, got float"),
            "bias": ({"bias": "yes"}, TypeError, "bias: expected a bool, got str"),
            "layer_norm": ({"layer_norm": 1}, TypeError, "layer_norm: expected a bool, got int"),
            "forget_bias": ({"forget_bias": "1"}, TypeError, "forget_bias: expected a float, got str"),
            "forget_bias without bias": (
                {"forget_bias": 1.0, "bias": False},
                ValueError,
                "forget_bias: expected None without bias, got a number",
            ),
        }
    if not (is_function or is_cell):
        some |= {
            "num_layers": ({"num_layers": 0}, ValueError, "num_layers: expected at least 1, got 0"),
            "proj_size": ({"proj_size": -1}, ValueError, "proj_size: expected at least 0, got -1"),
            "proj_size of all": (
                {"proj_size": 4},
                ValueError,
                "proj_size: expected less than hidden_size, 4, got 4",
            ),
        }
    return {
        f"{name}: {key}": make(error=error, message=message, **changed)
        for key, (changed, error, message) in some.items()
    }


def stream(given: Given, **options: Any) -> LSTMStream:
    return LSTM(2, 4, device=given.device, **options).eval().stream(3)


def second_derivative(module: LSTM) -> None:
    x = torch.zeros(5, 3, 2, requires_grad=True)
    (first,) = torch.autograd.grad(module(x)[0].sum(), x, create_graph=True)
    first.sum().backward()


CALLS: BadCalls = {
    "LSTMPredictor: no vocabulary": BadCall(
        lambda g: LSTMPredictor(0, 4, 4), ValueError, "vocabulary: expected at least 1, got 0"
    ),
    "LSTMPredictor: no embedding": BadCall(
        lambda g: LSTMPredictor(5, 0, 4), ValueError, "embedding: expected at least 1, got 0"
    ),
    "LSTMPredictor: no hidden": BadCall(
        lambda g: LSTMPredictor(5, 4, 0), ValueError, "hidden: expected at least 1, got 0"
    ),
    "LSTMPredictor: no layers": BadCall(
        lambda g: LSTMPredictor(5, 4, 4, 0), ValueError, "layers: expected at least 1, got 0"
    ),
    "LSTMPredictor: start of another type": BadCall(
        lambda g: LSTMPredictor(5, 4, 4, start=0.5),  # type: ignore[arg-type]
        TypeError,
        "start: expected an int, got float",
    ),
    "LSTMPredictor: start beyond the vocabulary": BadCall(
        lambda g: LSTMPredictor(5, 4, 4, start=5),
        ValueError,
        "start: expected a label of vocabulary = 5, got 5",
    ),
    "LSTMPredictor: two directions": BadCall(
        lambda g: LSTMPredictor(5, 4, 4, bidirectional=True),
        TypeError,
        "options: bidirectional is the predictor's own: it reads (B, U) in one direction",
    ),
    **of_options("lstm", call, True),
    **of_options("LSTM", lambda **o: module(LSTM, **o), False),
    **of_options("HardLSTM", lambda **o: module(HardLSTM, **o), False),
    **of_options("LSTMCell", lambda **o: module(LSTMCell, **o), False, True),
    "lstm: input no tensor": call(
        input=1, error=TypeError, message="input: expected a torch.Tensor or a PackedSequence, got int"
    ),
    "lstm: input of integers": call(
        input=lambda g: series(g).long(),
        error=TypeError,
        message=f"input: expected {DTYPES}, got torch.int64",
    ),
    "lstm: input sparse": call(
        input=lambda g: series(g).to_sparse(),
        error=TypeError,
        message="input: expected a dense tensor (layout torch.strided), got a torch.sparse_coo one",
    ),
    "lstm: input of 4 axes": call(
        input=lambda g: series(g, 1, 5, 3, 2),
        message="input: expected 3 axes, or 2 of one sequence without a batch, got shape (1, 5, 3, 2)",
    ),
    "lstm: input without steps": call(
        input=lambda g: series(g, 0, 3, 2),
        error=ShapeError,
        message="input: expected at least one time step, got none",
    ),
    "lstm: input without features": call(
        input=lambda g: series(g, 5, 3, 0),
        weights=lambda g: weights(g, ih=series(g, 16, 0)),
        message="input: expected 1 to 2^28 features, got 0",
    ),
    "lstm: weights no sequence": call(
        weights=lambda g: series(g),
        error=TypeError,
        message="weights: expected a sequence of LSTMWeights, one for each layer and direction",
    ),
    "lstm: weights none": call(weights=[], message="weights: expected at least one, got 0"),
    "LSTM: input of other features": BadCall(
        lambda g: LSTM(2, 4, batch_first=True)(series(g, 3, 5, 3)),
        ShapeError,
        "input: expected 2 features on the last axis, as input_size, got shape (3, 5, 3)",
        True,
    ),
    "LSTM: packed input of other features": BadCall(
        lambda g: LSTM(3, 4)(packed(g)),
        ShapeError,
        "input: expected 3 features on the last axis, as input_size, got shape (9, 2)",
        True,
    ),
    "LSTM: input of another dtype": BadCall(
        lambda g: LSTM(2, 4, dtype=torch.float64)(series(g)),
        DtypeError,
        "input: expected the dtype of the module, torch.float64, got torch.float32: write input.to(torch.float64)",
        True,
    ),
    "LSTMCell: input of other features": BadCall(
        lambda g: LSTMCell(2, 4)(series(g, 3, 5)),
        ShapeError,
        "input: expected 2 features on the last axis, as input_size, got shape (3, 5)",
        True,
    ),
    "lstm: weights of one direction": call(
        bidirectional=True, message="weights: expected a pair for each layer, got 1"
    ),
    "lstm: weights of 15 rows": call(
        weights=lambda g: weights(g, hh=series(g, 15, 4)),
        message="weights[0].hh: expected a tensor of shape (4H, P), got (15, 4)",
    ),
    "lstm: weights that are no tensors": call(
        weights=lambda g: weights(g, ih=1),
        error=TypeError,
        message="weights[0].ih: expected a torch.Tensor, got int",
    ),
    "lstm: weights without projection": call(
        weights=lambda g: weights(g, hh=series(g, 16, 3)),
        message="weights[0].hr: expected a tensor, as weights[0].hh has 3 columns for 4 units, got None",
    ),
    "lstm: weights of another shape": call(
        weights=lambda g: weights(g, ih=series(g, 16, 3)),
        message="weights[0].ih: expected shape (16, 2), got (16, 3)",
    ),
    "lstm: weights of another dtype": call(
        weights=lambda g: weights(g, ih=series(g, 16, 2).double()),
        error=TypeError,
        message="weights[0].ih: expected the dtype of input, torch.float32, got torch.float64",
    ),
    "lstm: weights with one bias": call(
        weights=lambda g: weights(g, bias_ih=series(g, 16)),
        message="weights[0].bias_hh: expected a tensor, as weights[0].bias_ih is one, got None",
    ),
    "lstm: weights with some of layer norm": call(
        weights=lambda g: weights(g, ln_cell=series(g, 4)),
        message="weights[0].ln_cell: expected None, as weights[0].ln_ih is None, got one",
    ),
    "lstm: hx no pair": call(
        hx=lambda g: states(g), error=TypeError, message="hx: expected a pair (h_0, c_0), got Tensor"
    ),
    **{
        f"LSTM: lengths in the place of hx, {kind}": BadCall(
            lambda g, given=given: LSTM(2, 4)(series(g), given),  # type: ignore[misc]
            TypeError,
            "hx: expected a pair (h_0, c_0), got lengths: write input_lengths=...",
        )
        for kind, given in (
            ("a tensor", torch.tensor([5, 3, 1])),
            ("a list", [5, 3, 1]),
            ("an array", np.array([5, 3, 1])),
        )
    },
    "lstm: hx of lists": call(
        hx=([], []), error=TypeError, message="hx[0]: expected a torch.Tensor, got list"
    ),
    "lstm: hx of another shape": call(
        hx=lambda g: (states(g), states(g, 2, 3, 4)),
        error=ShapeError,
        message="hx[1]: expected shape (1, 3, 4), got (2, 3, 4)",
    ),
    "lstm: hx of another dtype": call(
        hx=lambda g: (states(g).double(), states(g)),
        error=TypeError,
        message="hx[0]: expected dtype torch.float32, got torch.float64",
    ),
    "lstm: input of fewer rows than batch_sizes say": call(
        input=lambda g: PackedSequence(series(g, 5, 2), torch.tensor([3, 3])),
        message="input: expected the 6 rows that batch_sizes say, got data of shape (5, 2)",
    ),
    "lstm: generator": call(
        generator="torch",
        error=TypeError,
        message="generator: expected a torch.Generator, an int or None, got str",
    ),
    "lstm: input_lengths a number": call(
        input_lengths=5,
        error=TypeError,
        message="input_lengths: expected integers (B,) as a tensor, list, tuple or array, got int",
    ),
    "lstm: input_lengths of strings": call(
        input_lengths=["5", "3", "1"],
        error=TypeError,
        message="input_lengths: expected integers (B,), got list of other values",
    ),
    "lstm: input_lengths of floats": call(
        input_lengths=lambda g: series(g, 3),
        error=TypeError,
        message=f"input_lengths: expected integers of {INTEGERS}, got torch.float32: multiply fractions in [0, 1] by the number of "
        "steps, T = 5, and round to integers, (input_lengths * T).round().long()",
    ),
    "lstm: input_lengths of bools": call(
        input_lengths=[True, True, False],
        error=TypeError,
        message=f"input_lengths: expected integers of {INTEGERS}, got torch.bool",
    ),
    "lstm: input_lengths of too many": call(
        input_lengths=lambda g: g.ints(1, 1),
        message="input_lengths: expected shape (3,), one length per row, got (2,)",
    ),
    "lstm: input_lengths too long": call(
        input_lengths=lambda g: g.ints(1, 6, 5),
        message="input_lengths: expected lengths from 0 to T = 5, got 6 at index 1",
    ),
    "lstm: input_lengths too long for recompute": call(
        input=lambda g: series(g, 40, 3, 2),
        weights=lambda g: weights(g, ih=lambda g: series(g, 16, 2, requires_grad=True)),
        input_lengths=lambda g: g.ints(1, 41, 5),
        recompute=True,
        message="input_lengths: expected lengths from 0 to T = 40, got 41 at index 1",
    ),
    "lstm: input_lengths beyond int32": call(
        input_lengths=lambda g: g.ints(1, 2**32 + 1, 5),
        message="input_lengths: expected lengths from 0 to T = 5, got 4294967297 at index 1",
    ),
    "lstm: input_lengths with a PackedSequence": call(
        input=packed,
        input_lengths=lambda g: g.ints(1, 1, 1),
        message="input_lengths: expected None with a PackedSequence, which has its own, got lengths",
    ),
    "lstm: input_lengths with one sequence": call(
        input=lambda g: series(g, 5, 2),
        input_lengths=lambda g: g.ints(1),
        message="input_lengths: expected None with one sequence, got lengths",
    ),
    "lstm: resets a list": call(
        resets=[True], error=TypeError, message="resets: expected a bool tensor, got list"
    ),
    "lstm: resets of integers": call(
        resets=lambda g: g.ints([0, 1]),
        error=TypeError,
        message="resets: expected dtype torch.bool, got torch.int64",
    ),
    "lstm: resets of another shape": call(
        resets=lambda g: series(g, 3, 5, dtype=torch.bool),
        message="resets: expected shape (5, 3), a flag for each step, got (3, 5)",
    ),
    "lstm: resets with a PackedSequence": call(
        input=packed,
        resets=lambda g: series(g, 5, 3, dtype=torch.bool),
        message="resets: expected None with a PackedSequence, got resets",
    ),
    "lstm: training": call(training=1, error=TypeError, message="training: expected a bool, got int"),
    "lstm: state_dtype": call(
        state_dtype=torch.float64,
        message="state_dtype: expected None, the dtype of input, torch.float32, or float32 for half types, got torch.float64",
    ),
    **{
        f"{kind.__name__}: state_dtype": module(
            kind,
            state_dtype="float32",
            error=TypeError,
            message="state_dtype: expected a torch.dtype or None, got str",
        )
        for kind in (LSTM, HardLSTM)
    },
    "LSTMCell: call of a number": BadCall(
        lambda g: LSTMCell(2, 4)(1), TypeError, "input: expected a torch.Tensor, got int"
    ),
    "LSTMCell: call with a sequence": BadCall(
        lambda g: LSTMCell(2, 4)(torch.zeros(5, 3, 2)),
        ValueError,
        "input: expected (B, I) or (I,), got shape (5, 3, 2)",
    ),
    "LSTMStream: module": BadCall(
        lambda g: LSTMStream(torch.nn.LSTM(2, 4)),  # type: ignore[arg-type]
        TypeError,
        "module: expected a warpalign.recurrent.LSTM, got LSTM",
    ),
    "LSTMStream: training": BadCall(
        lambda g: LSTM(2, 4).stream(),
        ValueError,
        "module: expected evaluation mode, got a module in training mode: call module.eval()",
    ),
    "LSTMStream: two directions": BadCall(
        lambda g: stream(g, bidirectional=True),
        ValueError,
        "module: expected one direction, as the other one starts at the end, got two",
    ),
    "LSTMStream: batch_size": BadCall(
        lambda g: LSTM(2, 4).eval().stream(0), ValueError, "batch_size: expected at least 1, got 0"
    ),
    "LSTMStream: step of a number": BadCall(
        lambda g: stream(g).step(1),  # type: ignore[arg-type]
        TypeError,
        "x: expected a torch.Tensor, got int",
    ),
    "LSTMStream: step of another batch": BadCall(
        lambda g: stream(g).step(torch.zeros(2, 2)),
        ValueError,
        "x: expected shape (3, 2), or (T, 3, 2) of T >= 1 steps, got (2, 2)",
    ),
    "LSTMStream: step of time first with batch_first": BadCall(
        lambda g: stream(g, batch_first=True).step(torch.zeros(5, 3, 2)),
        ValueError,
        "x: expected shape (3, 2), or (3, T, 2) of T >= 1 steps, got (5, 3, 2)",
    ),
    "LSTMStream: step of no steps": BadCall(
        lambda g: stream(g).step(torch.zeros(0, 3, 2)),
        ValueError,
        "x: expected shape (3, 2), or (T, 3, 2) of T >= 1 steps, got (0, 3, 2)",
    ),
    "LSTMStream: h of another shape": BadCall(
        lambda g: setattr(stream(g), "h", torch.zeros(3, 4)),
        ValueError,
        "h: expected a tensor of shape (1, 3, 4), got shape (3, 4)",
    ),
    "LSTMStream: c no tensor": BadCall(
        lambda g: setattr(stream(g), "c", None),
        ValueError,
        "c: expected a tensor of shape (1, 3, 4), got NoneType",
    ),
    "LSTMStream: step of another dtype": BadCall(
        lambda g: stream(g).step(torch.zeros(3, 2, dtype=torch.float64)),
        TypeError,
        "x: expected torch.float32 on cpu, as the weights, got torch.float64 on cpu",
    ),
    "LSTMStream: reset": BadCall(
        lambda g: stream(g).reset([0]),  # type: ignore[arg-type]
        TypeError,
        "rows: expected a bool mask (B,) or a tensor of indices, got list",
    ),
    "LSTMStream: reset of floats": BadCall(
        lambda g: stream(g).reset(torch.zeros(3)),
        TypeError,
        "rows: expected a bool mask (B,) or a tensor of indices, got torch.float32",
    ),
    "LSTMStream: reset by a mask of another size": BadCall(
        lambda g: stream(g).reset(torch.tensor([True])),
        ValueError,
        "rows: expected a bool mask of shape (3,), got shape (1,)",
    ),
    "replace_lstm: model": BadCall(
        lambda g: replace_lstm("model"),  # type: ignore[arg-type]
        TypeError,
        "model: expected a torch.nn.Module, got str",
    ),
    "replace_lstm: options": BadCall(
        lambda g: replace_lstm(torch.nn.LSTM(2, 4), slope=1),
        TypeError,
        "options: expected options of LSTM (activation, hard_slope, hard_offset, rw_dropout, zoneout, layer_norm, "
        "layer_norm_eps, forget_bias, return_all_states, recompute, state_dtype, precision, batch_invariant), got slope",
    ),
    "restore_lstm: model": BadCall(
        lambda g: restore_lstm(None),  # type: ignore[arg-type]
        TypeError,
        "model: expected a torch.nn.Module, got NoneType",
    ),
    "restore_lstm: unsupported": BadCall(
        lambda g: restore_lstm(LSTM(2, 4), unsupported="skip"),  # type: ignore[arg-type]
        ValueError,
        'unsupported: expected "raise" or "leave", got \'skip\'',
    ),
    "restore_lstm: model of hard modules": BadCall(
        lambda g: restore_lstm(torch.nn.Sequential(LSTM(2, 4), HardLSTM(4, 4, zoneout=0.1))),
        ValueError,
        "model: expected modules that torch.nn.LSTM can express, got 1 (activation='hard', zoneout=0.1): "
        'unsupported="leave" leaves them as they are',
    ),
    "LSTM: second derivatives with masks": BadCall(
        lambda g: second_derivative(LSTM(2, 4, zoneout=0.1)),
        NotImplementedError,
        "warpalign: second derivatives of the LSTM with zoneout in training are not available",
    ),
    "onnx_translations: resets": BadCall(
        lambda g: _lstm(None, [], resets=series(g)),
        NotImplementedError,
        "onnx_translations: expected a soft LSTM without options, got resets, which ONNX's LSTM does not have",
    ),
    "caiman: quantize": BadCall(
        lambda g: CustomLSTM(2, 4, quantize=True),
        NotImplementedError,
        "quantize: expected False, as there are no quantized products here, got True",
    ),
    "haste: dropout": BadCall(
        lambda g: haste.LayerNormLSTM(2, 4, dropout=1.0),
        ValueError,
        "LayerNormLSTM: dropout must be in [0.0, 1.0), got 1.0",
    ),
}
