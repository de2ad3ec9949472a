"""The loss of a joint network."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import warpalign
from tests.python.bad_calls import BadCall, BadCalls, Given
from warpalign import JointWeights

U_OF_PREDICTOR = "as predictor_out (3, 3, 4) has U + 1 = 3"
WHOLE = "expected a whole tensor"
FSDP = (
    "apply FSDP to the module that calls this function, not to the output layer alone, or gather the layer before "
    "(FSDP2: layer.unshard(); FSDP1: summon_full_params())"
)
DTYPES = "dtype float64, float32, float16 or bfloat16"
INTEGERS = "dtype int64, int32, int16, int8 or uint8"


def zeros(given: Given, *shape: int, **options: Any) -> Tensor:
    return torch.zeros(shape, device=given.device, **options)


def freed(tensor: Tensor) -> Tensor:
    """Its memory given back, as FSDP1 leaves parameters between calls of their module."""
    tensor.untyped_storage().resize_(0)
    return tensor


def good(given: Given) -> dict[str, Any]:
    """B = 3, T = 5, U = 2, H = 4, V = 6."""
    return {
        "encoder_out": zeros(given, 3, 5, 4),
        "predictor_out": zeros(given, 3, 3, 4),
        "targets": given.ints([1, 2], [2, 1], [3, 1]),
        "joint": JointWeights(zeros(given, 6, 4), zeros(given, 6)),
    }


def joint(
    *,
    error: type[BaseException] = ValueError,
    message: str,
    cpu_only: bool = False,
    function: str = "transducer_loss_from_joint",
    **changed: Any,
) -> BadCall:
    """A call with other arguments, or with a joint network of other fields: values, or functions of what is given."""

    def call(given: Given) -> object:
        made = {k: v(given) if isinstance(v, Callable) else v for k, v in changed.items()}  # type: ignore[arg-type]
        of_joint = {name: made.pop(name) for name in JointWeights._fields if name in made}
        arguments = good(given)
        arguments["joint"] = arguments["joint"]._replace(**of_joint)
        return getattr(warpalign, function)(**arguments | made)

    return BadCall(call, error, message, cpu_only)


def module(error: type[BaseException], message: str, **changed: Any) -> BadCall:
    def call(given: Given) -> object:
        options = {"hidden": 4, "vocabulary": 6, "device": given.device} | changed
        tensors = good(given)
        return warpalign.TransducerJointLoss(**options)(
            tensors["encoder_out"], tensors["predictor_out"], tensors["targets"]
        )

    return BadCall(call, error, message)


def second_derivative(given: Given) -> None:
    made = good(given)
    made["encoder_out"].requires_grad_()
    loss = warpalign.transducer_loss_from_joint(**made)
    (gradient,) = torch.autograd.grad(loss, made["encoder_out"], create_graph=True)
    gradient.sum().backward()


NAME = "transducer_loss_from_joint"
SETTINGS: tuple[tuple[str, Any, type[BaseException], str], ...] = (
    ("activation", "gelu", ValueError, 'activation: expected "relu" or "tanh", got \'gelu\''),
    ("blank", 6, ValueError, "blank: expected a column of 6, from -6 to 5, got 6"),
    ("big_blanks", (1,), ValueError, "big_blanks: expected 2 to 64 frames each, got 1"),
    ("durations", (0, 65), ValueError, "durations: expected 0 to 64 frames each, got 65"),
    ("sigma", math.nan, ValueError, "sigma: expected a finite number, got nan"),
    ("omega", 0.5, ValueError, "omega: expected 0 without durations, got 0.5"),
    ("fastemit_lambda", -0.1, ValueError, "fastemit_lambda: expected a finite number >= 0, got -0.1"),
    ("penalties", 0.1, TypeError, "penalties: expected TransducerPenalties or None, got float"),
    ("clamp", 0.0, ValueError, "clamp: expected a finite number > 0, got 0.0"),
    ("zero_infinity", 1, TypeError, "zero_infinity: expected a bool, got int"),
    ("dropout", 1.0, ValueError, "dropout: expected a probability below 1, got 1.0"),
    ("workspace_limit", -1, ValueError, "workspace_limit: expected at least 0, got -1"),
    ("workspace_limit", 1e6, TypeError, "workspace_limit: expected an int, got float"),
    ("precision", 0, TypeError, "precision: expected a str or None, got int"),
    (
        "precision",
        "tf32",
        ValueError,
        'precision: expected one of "highest", "high", "medium", or None, got \'tf32\'',
    ),
    (
        "reduction",
        "max",
        ValueError,
        'reduction: expected one of "none", "sum", "mean", "mean_target", "mean_volume", "mean_frame", got \'max\'',
    ),
)

CALLS: BadCalls = {
    **{
        f"{NAME}: {argument}": joint(
            error=error,
            message=f"joint.{message}" if argument in JointWeights._fields else message,
            **{argument: value},
        )
        for argument, value, error, message in SETTINGS
    },
    f"{NAME}: generator": joint(
        generator=0.5,
        error=TypeError,
        message="generator: expected a torch.Generator, an int or None, got float",
    ),
    f"{NAME}: joint": joint(
        joint=lambda g: zeros(g, 6, 4),
        error=TypeError,
        message="joint: expected JointWeights, got Tensor: write JointWeights(weight, bias)",
    ),
    f"{NAME}: no columns": joint(
        weight=lambda g: zeros(g, 0, 4),
        message="joint.weight: expected no empty axis in (V, H), got shape (0, 4)",
    ),
    "TransducerJointLoss: generator": module(
        TypeError,
        "generator: expected a torch.Generator or None, got int: write torch.Generator().manual_seed(0)",
        generator=0,
    ),
    **{
        f"TransducerJointLoss: {argument}": module(error, message, **{argument: value})
        for argument, value, error, message in SETTINGS
    },
    "TransducerJointLoss: hidden": module(ValueError, "hidden: expected at least 1, got 0", hidden=0),
    "TransducerJointLoss: vocabulary": module(
        TypeError, "vocabulary: expected an int, got float", vocabulary=6.0
    ),
    "TransducerJointLoss: bias": module(TypeError, "bias: expected a bool, got int", bias=1),
    "TransducerJointLoss: dtype": module(
        TypeError, "dtype: expected float64, float32, float16 or bfloat16, got torch.int64", dtype=torch.int64
    ),
    "TransducerJointLoss: device": module(
        ValueError, "device: expected a torch.device, or its name, got 'disk'", device="disk"
    ),
    f"{NAME}: encoder_out no tensor": joint(
        encoder_out=1, error=TypeError, message="encoder_out: expected a torch.Tensor, got int"
    ),
    f"{NAME}: encoder_out of integers": joint(
        encoder_out=lambda g: zeros(g, 3, 5, 4).long(),
        error=TypeError,
        message=f"encoder_out: expected {DTYPES}, got torch.int64",
    ),
    f"{NAME}: sparse encoder": joint(
        encoder_out=lambda g: zeros(g, 3, 5, 4).to_sparse(),
        error=TypeError,
        message="encoder_out: expected a dense tensor (layout torch.strided), got a torch.sparse_coo one",
    ),
    f"{NAME}: axes of encoder": joint(
        encoder_out=lambda g: zeros(g, 4), message="encoder_out: expected shape (B, T, H) or (T, H), got (4,)"
    ),
    f"{NAME}: no hidden numbers": joint(
        encoder_out=lambda g: zeros(g, 3, 5, 0),
        message="encoder_out: expected a last axis of 4, by joint.weight, got shape (3, 5, 0)",
    ),
    f"{NAME}: axes of predictor": joint(
        predictor_out=lambda g: zeros(g, 3, 4),
        message="predictor_out: expected shape (B, U+1, H), got (3, 4)",
    ),
    f"{NAME}: shape of predictor": joint(
        predictor_out=lambda g: zeros(g, 3, 3, 5),
        message="predictor_out: expected shape (B, U+1, H) with U+1 of at least 1, by encoder_out of (3, 5, 4), got (3, 3, 5)",
    ),
    f"{NAME}: dtype of predictor": joint(
        predictor_out=lambda g: zeros(g, 3, 3, 4).double(),
        error=TypeError,
        message="predictor_out: expected the dtype of encoder_out, torch.float32, got torch.float64",
    ),
    f"{NAME}: axes of weight": joint(
        weight=lambda g: zeros(g, 4), message="joint.weight: expected shape (V, H), got (4,)"
    ),
    f"{NAME}: shape of weight": joint(
        weight=lambda g: zeros(g, 6, 5),
        message="encoder_out: expected a last axis of 5, by joint.weight, got shape (3, 5, 4)",
    ),
    f"{NAME}: rows of durations alone": joint(
        durations=(0, 1, 2, 3, 4, 5),
        message="joint.weight: expected more rows than the 6 of durations, got 6",
    ),
    f"{NAME}: shape of bias": joint(
        bias=lambda g: zeros(g, 5), message="joint.bias: expected shape (6,), by joint.weight, got (5,)"
    ),
    f"{NAME}: targets of floats": joint(
        targets=lambda g: zeros(g, 3, 2),
        error=TypeError,
        message=f"targets: expected {INTEGERS}, got torch.float32",
    ),
    f"{NAME}: shape of targets": joint(
        targets=lambda g: g.ints([1], [2], [3]),
        message=f"targets: expected shape (3, 2), (B, U), or one axis, {U_OF_PREDICTOR}, got (3, 1)",
    ),
    f"{NAME}: encoder_out and predictor exchanged": joint(
        targets=lambda g: g.ints([1, 2, 1, 1], [2, 1, 1, 1], [3, 1, 1, 1]),
        message=f"targets: expected shape (3, 2), (B, U), or one axis, {U_OF_PREDICTOR}, got (3, 4)"
        ": exchange encoder_out and predictor_out",
    ),
    f"{NAME}: a weight of FSDP1": joint(
        weight=lambda g: freed(zeros(g, 6, 4)),
        message=f"joint.weight: {WHOLE}, got a tensor without memory: {FSDP}",
    ),
    f"{NAME}: blank as a label": joint(
        targets=lambda g: g.ints([1, 2], [2, 5], [3, 1]),
        message="targets: expected labels from 0 to 5 other than blank = 5, got 5 at index 1, which is blank: "
        "write blank= if another column is, or target_lengths= if it is padding",
        cpu_only=True,
    ),
    f"{NAME}: flat targets without lengths": joint(
        targets=lambda g: g.ints(1, 2, 3, 1),
        message="target_lengths: expected integers (B,) with targets of one axis, all labels one after the other, got None",
    ),
    f"{NAME}: encoder_lengths too long": joint(
        encoder_lengths=lambda g: g.ints(5, 4, 6),
        message="encoder_lengths: expected lengths from 0 to T = 5, got 6 at index 2",
        cpu_only=True,
    ),
    f"{NAME}: encoder_lengths no list": joint(
        encoder_lengths=5,
        error=TypeError,
        message="encoder_lengths: expected integers (B,) as a tensor, list, tuple or array, got int",
    ),
    f"{NAME}: target_lengths too long": joint(
        target_lengths=lambda g: g.ints(3, 0, 1),
        message="target_lengths: expected lengths from 0 to U = 2, got 3 at index 0",
        cpu_only=True,
    ),
    f"{NAME}: big blanks and durations": joint(
        durations=(0, 1),
        big_blanks=(2,),
        message="joint.big_blanks: expected none with durations, got (2,)",
    ),
    f"{NAME}: a wildcard with durations": joint(
        durations=(0, 1),
        penalties=warpalign.TransducerPenalties(star_id=2),
        message="penalties: expected no star_id with durations, got 2",
    ),
    f"{NAME}: second derivative": BadCall(
        second_derivative,
        NotImplementedError,
        "warpalign: second derivatives of the transducer losses are not available",
    ),
}

ALIGN = "transducer_align_from_joint"
OF_ALIGN = ("sigma", "penalties", "workspace_limit")
CALLS |= {
    **{
        f"{ALIGN}: {argument}": joint(error=error, message=message, function=ALIGN, **{argument: value})
        for argument, value, error, message in SETTINGS
        if argument in OF_ALIGN
    },
    f"{ALIGN}: encoder_out": joint(
        encoder_out=1,
        error=TypeError,
        message="encoder_out: expected a torch.Tensor, got int",
        function=ALIGN,
    ),
    f"{ALIGN}: predictor_out": joint(
        predictor_out=1,
        error=TypeError,
        message="predictor_out: expected a torch.Tensor, got int",
        function=ALIGN,
    ),
    f"{ALIGN}: joint": joint(
        joint=1, error=TypeError, message="joint: expected JointWeights, got int", function=ALIGN
    ),
    f"{ALIGN}: encoder_lengths": joint(
        encoder_lengths=5,
        error=TypeError,
        message="encoder_lengths: expected integers (B,) as a tensor, list, tuple or array, got int",
        function=ALIGN,
    ),
    f"{ALIGN}: target_lengths": joint(
        target_lengths=lambda g: g.ints(3, 0, 1),
        message="target_lengths: expected lengths from 0 to U = 2, got 3 at index 0",
        cpu_only=True,
        function=ALIGN,
    ),
    f"{ALIGN}: posteriors": joint(
        posteriors=1, error=TypeError, message="posteriors: expected a bool, got int", function=ALIGN
    ),
    f"{ALIGN}: a wildcard with durations": joint(
        durations=(0, 1),
        penalties=warpalign.TransducerPenalties(star_id=2),
        message="penalties: expected no star_id with durations, got 2",
        function=ALIGN,
    ),
    f"{ALIGN}: targets": joint(
        targets=lambda g: g.ints([1, 2], [2, 5], [3, 1]),
        message="targets: expected labels from 0 to 5 other than blank = 5, got 5 at index 1, which is blank: "
        "write blank= if another column is, or target_lengths= if it is padding",
        cpu_only=True,
        function=ALIGN,
    ),
}
