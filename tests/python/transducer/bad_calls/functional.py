"""The transducer losses."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import warpalign
from tests.python.bad_calls import BadCall, BadCalls, Given

U_OF_LOGITS = "as logits (3, 5, 3, 6) have U + 1 = 3"
DTYPES = "dtype float64, float32, float16 or bfloat16"
INTEGERS = "dtype int64, int32, int16, int8 or uint8"


def logits(given: Given, *shape: int, **options: Any) -> Tensor:
    return torch.zeros(shape or (3, 5, 3, 6), device=given.device, **options)


def targets(given: Given) -> Tensor:
    return given.ints([1, 2], [2, 1], [3, 1])


def rnnt(
    *, error: type[BaseException] = ValueError, message: str, cpu_only: bool = False, **changed: Any
) -> BadCall:
    """transducer_loss of good arguments but for those named: values, or functions of what is given."""

    def call(given: Given) -> object:
        made = {k: v(given) if isinstance(v, Callable) else v for k, v in changed.items()}  # type: ignore[arg-type]
        return warpalign.transducer_loss(**{"logits": logits(given), "targets": targets(given)} | made)  # type: ignore[arg-type]

    return BadCall(call, error, message, cpu_only)


def tdt(
    *, error: type[BaseException] = ValueError, message: str, cpu_only: bool = False, **changed: Any
) -> BadCall:
    def call(given: Given) -> object:
        made = {k: v(given) if isinstance(v, Callable) else v for k, v in changed.items()}  # type: ignore[arg-type]
        good = {
            "label_logits": logits(given),
            "duration_logits": logits(given, 3, 5, 3, 2),
            "targets": targets(given),
            "durations": (0, 1),
        }
        return warpalign.tdt_loss(**good | made)  # type: ignore[arg-type]

    return BadCall(call, error, message, cpu_only)


def in_place_leaf(given: Given) -> Tensor:
    return logits(given, requires_grad=True)


def in_place_view_of_leaf(given: Given) -> Tensor:
    return logits(given, 3, 5, 3, 7, requires_grad=True)[..., :6]


def in_place_expanded(given: Given) -> Tensor:
    return (logits(given, 1, 5, 3, 6, requires_grad=True) * 1).expand(3, 5, 3, 6)


def under_grad(given: Given) -> object:
    labels = targets(given)
    return torch.func.grad(lambda x: warpalign.transducer_loss(x, labels, inplace_grad=True))(logits(given))


def backward_twice(given: Given) -> None:
    loss = warpalign.transducer_loss(logits(given, requires_grad=True) * 1, targets(given), inplace_grad=True)
    loss.backward(retain_graph=True)
    loss.backward()


def backward_with_graph(given: Given) -> None:
    x = logits(given, requires_grad=True)
    loss = warpalign.transducer_loss(x * 1, targets(given), inplace_grad=True)
    torch.autograd.grad(loss, x, create_graph=True)


def second_derivative(given: Given) -> None:
    x = logits(given, requires_grad=True)
    (gradient,) = torch.autograd.grad(warpalign.transducer_loss(x, targets(given)), x, create_graph=True)
    gradient.sum().backward()


def shared(function: Callable[..., BadCall], name: str) -> BadCalls:
    """Arguments that both losses have; alignments have some of them."""
    first = "label_logits" if name == "tdt_loss" else "logits"
    return {
        f"{name}: logits no tensor": function(
            **{first: 1}, error=TypeError, message=f"{first}: expected a torch.Tensor, got int"
        ),
        f"{name}: logits of integers": function(
            **{first: lambda g: logits(g).long()},
            error=TypeError,
            message=f"{first}: expected {DTYPES}, got torch.int64",
        ),
        f"{name}: sparse logits": function(
            **{first: lambda g: logits(g).to_sparse()},
            error=TypeError,
            message=f"{first}: expected a dense tensor (layout torch.strided), got a torch.sparse_coo one",
        ),
        f"{name}: axes of logits": function(
            **{first: lambda g: logits(g, 5, 6)},
            message=f"{first}: expected (B, T, U+1, V) or (T, U+1, V), got shape (5, 6)",
        ),
        f"{name}: axes of packed logits": function(
            packed=True, message=f"{first}: expected packed rows (N, V), got shape (3, 5, 3, 6)"
        ),
        f"{name}: no columns": function(
            **{first: lambda g: logits(g, 3, 5, 3, 0)},
            message=f"{first}: expected no empty axis of states or labels, got shape (3, 5, 3, 0)",
        ),
        f"{name}: stride of logits": function(
            **{first: lambda g: logits(g, 3, 5, 6, 3).transpose(2, 3)},
            message=f"{first}: expected a last axis of stride 1, as a copy would double the largest tensor, got strides (90, 18, 1, 3)",
        ),
        f"{name}: targets no tensor": function(
            targets=[[1, 2]],
            error=TypeError,
            message="targets: expected an integer tensor (B, U), got list: write torch.tensor(targets)",
        ),
        f"{name}: targets of floats": function(
            targets=lambda g: targets(g).float(),
            error=TypeError,
            message=f"targets: expected {INTEGERS}, got torch.float32",
        ),
        f"{name}: shape of targets": function(
            targets=lambda g: targets(g)[:, :1],
            message=f"targets: expected shape (3, 2), (B, U), or one axis, {U_OF_LOGITS}, got (3, 1)"
            ": or the axes of logits are not (B, T, U+1, V)",
        ),
        f"{name}: T and U + 1 swapped": function(
            targets=lambda g: targets(g).repeat(1, 2),
            message=f"targets: expected shape (3, 2), (B, U), or one axis, {U_OF_LOGITS}, got (3, 4)"
            ": the axes T and U+1 of logits are swapped: write logits.transpose(1, 2)",
        ),
        f"{name}: targets transposed": function(
            targets=lambda g: targets(g).T,
            message=f"targets: expected shape (3, 2), (B, U), or one axis, {U_OF_LOGITS}, got (2, 3)"
            ": write targets.T",
        ),
        f"{name}: logits without the start symbol's state": function(
            targets=lambda g: g.ints([1, 2, 1], [2, 1, 1], [3, 1, 1]),
            message=f"targets: expected shape (3, 2), (B, U), or one axis, {U_OF_LOGITS}, got (3, 3)"
            ": the predictor reads a start symbol before the 3 labels, which makes U + 1 = 4 states",
        ),
        f"{name}: blank as a label": function(
            targets=lambda g: g.ints([1, 2], [2, 5], [3, 1]),
            message="targets: expected labels from 0 to 5 other than blank = 5, got 5 at index 1, which is blank: "
            "write blank= if another column is, or target_lengths= if it is padding",
            cpu_only=True,
        ),
        f"{name}: padding as a label": function(
            targets=lambda g: g.ints([1, 2], [2, -1], [3, 1]),
            message="targets: expected labels from 0 to 5 other than blank = 5, got -1 at index 1: "
            "write target_lengths= if it is padding",
            cpu_only=True,
        ),
        f"{name}: a label beyond": function(
            targets=lambda g: g.ints([1, 2], [2, 6], [3, 1]),
            message="targets: expected labels from 0 to 5 other than blank = 5, got 6 at index 1",
            cpu_only=True,
        ),
        f"{name}: flat targets without lengths": function(
            targets=lambda g: targets(g).flatten(),
            message="target_lengths: expected integers (B,) with targets of one axis, all labels one after the other, got None",
        ),
        f"{name}: too few flat targets": function(
            targets=lambda g: g.ints(1, 2, 3),
            target_lengths=lambda g: g.ints(2, 1, 1),
            message="targets: expected as many labels as target_lengths say, got 3",
            cpu_only=True,
        ),
        f"{name}: logit_lengths no list": function(
            logit_lengths=5,
            error=TypeError,
            message="logit_lengths: expected integers (B,) as a tensor, list, tuple or array, got int",
        ),
        f"{name}: logit_lengths of text": function(
            logit_lengths=["5", "4", "3"],
            error=TypeError,
            message="logit_lengths: expected integers (B,), got list of other values",
        ),
        f"{name}: logit_lengths as fractions": function(
            logit_lengths=[1.0, 0.5, 1.0],
            error=TypeError,
            message="logit_lengths: expected integers of dtype int64, int32, int16, int8 or uint8, got torch.float32: multiply "
            "fractions in [0, 1] by the number of steps, T = 5, and round to integers, (logit_lengths * T).round().long()",
        ),
        f"{name}: a list of logit_lengths too long": function(
            logit_lengths=[5, 4, 6],
            message="logit_lengths: expected lengths from 0 to T = 5, got 6 at index 2",
        ),
        f"{name}: shape of logit_lengths": function(
            logit_lengths=lambda g: g.ints(5, 5),
            message="logit_lengths: expected shape (3,), one length per utterance, got (2,)",
        ),
        f"{name}: logit_lengths too long": function(
            logit_lengths=lambda g: g.ints(5, 4, 6),
            message="logit_lengths: expected lengths from 0 to T = 5, got 6 at index 2",
            cpu_only=True,
        ),
        f"{name}: target_lengths too long": function(
            target_lengths=lambda g: g.ints(2**40, 0, 1),
            message="target_lengths: expected lengths from 0 to U = 2, got 1099511627776 at index 0",
            cpu_only=True,
        ),
        f"{name}: target_lengths of floats": function(
            target_lengths=lambda g: g.ints(1, 1, 1).float(),
            error=TypeError,
            message=f"target_lengths: expected integers of {INTEGERS}, got torch.float32: multiply fractions in [0, 1] by the "
            "number of steps, U = 2, and round to integers, (target_lengths * U).round().long()",
        ),
        f"{name}: blank no int": function(
            blank=1.5, error=TypeError, message="blank: expected an int, got float"
        ),
        f"{name}: blank": function(blank=6, message="blank: expected a column of 6, from -6 to 5, got 6"),
        f"{name}: sigma": function(sigma=math.nan, message="sigma: expected a finite number, got nan"),
        f"{name}: sigma no float": function(
            sigma="0", error=TypeError, message="sigma: expected a float, got str"
        ),
        f"{name}: fastemit_lambda": function(
            fastemit_lambda=-0.1, message="fastemit_lambda: expected a finite number >= 0, got -0.1"
        ),
        f"{name}: penalties": function(
            penalties={"delay_penalty": 0.1},
            error=TypeError,
            message="penalties: expected TransducerPenalties or None, got dict",
        ),
        f"{name}: clamp": function(clamp=0.0, message="clamp: expected a finite number > 0, got 0.0"),
        f"{name}: zero_infinity": function(
            zero_infinity=1, error=TypeError, message="zero_infinity: expected a bool, got int"
        ),
        f"{name}: from_log_probs": function(
            from_log_probs=None, error=TypeError, message="from_log_probs: expected a bool, got NoneType"
        ),
        f"{name}: packed": function(packed=1, error=TypeError, message="packed: expected a bool, got int"),
        f"{name}: inplace_grad": function(
            inplace_grad=1, error=TypeError, message="inplace_grad: expected a bool, got int"
        ),
        f"{name}: inplace_grad of a leaf": function(
            **{first: in_place_leaf},
            inplace_grad=True,
            message="inplace_grad: expected logits that an operation has computed, got a leaf, whose values would be lost",
        ),
        f"{name}: reduction": function(
            reduction="max",
            message='reduction: expected one of "none", "sum", "mean", "mean_target", "mean_volume", "mean_frame", got \'max\'',
        ),
    }


CALLS: BadCalls = {
    **shared(rnnt, "transducer_loss"),
    **shared(tdt, "tdt_loss"),
    "transducer_loss: one utterance's axes swapped": rnnt(
        logits=lambda g: logits(g, 5, 3, 6),
        targets=lambda g: g.ints(1, 2, 3, 4),
        message="targets: expected shape (2,), as logits (5, 3, 6) have U + 1 = 3, got (4,): "
        "the axes T and U+1 of logits are swapped: write logits.transpose(0, 1)",
    ),
    "transducer_loss: positional blank": BadCall(
        lambda g: warpalign.transducer_loss(logits(g), targets(g), None, None, 5),  # type: ignore[misc]
        TypeError,
        "transducer_loss: expected at most 4 positional arguments, got 5: write blank=, or use "
        "warpalign.compat.torchaudio.rnnt_loss, which has torchaudio's order of arguments",
    ),
    "transducer_loss: lengths out of range under vmap": BadCall(
        lambda g: torch.func.vmap(
            lambda x, t: warpalign.transducer_loss(x[None], targets(g)[:1], t[None]), in_dims=(0, 0)
        )(logits(g), g.ints(5, 6, 5)),
        ValueError,
        "logit_lengths: expected lengths from 0 to T = 5, got 6 at index 1",
        cpu_only=True,
    ),
    "transducer_loss: nested logits": rnnt(
        logits=lambda g: torch.nested.nested_tensor([logits(g, 2, 3)]),
        error=TypeError,
        message="logits: expected a dense tensor (layout torch.strided), got a nested one",
    ),
    "transducer_loss: packed without logit_lengths": rnnt(
        logits=lambda g: logits(g, 45, 6),
        packed=True,
        message="logit_lengths: expected integers (B,) with packed=True, got None",
    ),
    "transducer_loss: packed without target_lengths": rnnt(
        logits=lambda g: logits(g, 45, 6),
        packed=True,
        logit_lengths=lambda g: g.ints(5, 5, 5),
        message="target_lengths: expected integers (B,) with packed=True, got None",
    ),
    "transducer_loss: axes of packed logit_lengths": rnnt(
        logits=lambda g: logits(g, 45, 6),
        packed=True,
        logit_lengths=lambda g: g.ints([5, 5, 5]),
        message="logit_lengths: expected shape (B,), one length per utterance, got (1, 3)",
    ),
    "transducer_loss: packed rows": rnnt(
        logits=lambda g: logits(g, 45, 6),
        packed=True,
        logit_lengths=lambda g: g.ints(5, 5, 4),
        target_lengths=lambda g: g.ints(2, 2, 2),
        message="logits: expected sum of T_b (U_b + 1) packed rows, by both lengths, got 45",
        cpu_only=True,
    ),
    "transducer_loss: a big blank as a label": rnnt(
        big_blanks=(2,),
        targets=lambda g: g.ints([1, 2], [2, 1], [4, 1]),
        message="targets: expected labels from 0 to 5 other than blank = 5 and big_blanks (4,), got 4 at index 2, "
        "which is a big blank: write big_blanks={column: frames} if other columns are",
        cpu_only=True,
    ),
    "transducer_loss: big_blanks no sequence": rnnt(
        big_blanks=2,
        error=TypeError,
        message="big_blanks: expected a sequence of ints, got int",
    ),
    "transducer_loss: big_blanks of floats": rnnt(
        big_blanks=(2.0,),
        error=TypeError,
        message="big_blanks: expected a sequence of ints, got one with float",
    ),
    "transducer_loss: big_blanks": rnnt(
        big_blanks=(2, 1), message="big_blanks: expected 2 to 64 frames each, got 1"
    ),
    "transducer_loss: too many big_blanks": rnnt(
        big_blanks=range(2, 11), message="big_blanks: expected at most 8, got 9"
    ),
    "transducer_loss: columns of big_blanks out of range": rnnt(
        big_blanks={6: 2}, message="big_blanks: expected a column of 6, from -6 to 5, got 6"
    ),
    "transducer_loss: equal columns of big_blanks": rnnt(
        big_blanks={1: 2, -5: 3},
        message="big_blanks: expected different columns, and not blank's 5, got (1, 1)",
    ),
    "transducer_loss: no room for big_blanks": rnnt(
        blank=0,
        big_blanks=(2,),
        message="big_blanks: expected {column: frames} where blank = 0 has fewer than 1 columns before it, got (2,)",
    ),
    **{
        f"TransducerPenalties: {name}": BadCall(
            lambda g, wrong=wrong: warpalign.TransducerPenalties(**wrong),  # type: ignore[misc]
            error,
            message,
        )
        for name, wrong, error, message in (
            (
                "delay_penalty",
                {"delay_penalty": math.inf},
                ValueError,
                "delay_penalty: expected a finite number, got inf",
            ),
            (
                "eos_id",
                {"eos_id": -1},
                ValueError,
                "eos_id: expected a label >= 0, or None, got -1",
            ),
            (
                "eos_id no int",
                {"eos_id": 1.0},
                TypeError,
                "eos_id: expected an int or None, got float",
            ),
            (
                "eos_penalty",
                {"eos_penalty": math.nan},
                ValueError,
                "eos_penalty: expected a finite number, got nan",
            ),
            ("star_id", {"star_id": -2}, ValueError, "star_id: expected a label >= 0, or None, got -2"),
            (
                "star_id is eos_id",
                {"star_id": 2, "eos_id": 2},
                ValueError,
                "star_id: expected another label than eos_id, got 2 for both",
            ),
            (
                "star_penalty",
                {"star_penalty": 0},
                ValueError,
                "star_penalty: expected a finite number > 0, got 0",
            ),
        )
    },
    "transducer_loss: a wildcard that is blank": rnnt(
        penalties=warpalign.TransducerPenalties(star_id=5),
        message="penalties: expected a star_id that is no blank's column, got 5",
    ),
    "tdt_loss: a wildcard": tdt(
        penalties=warpalign.TransducerPenalties(star_id=2),
        message="penalties: expected no star_id with durations, got 2",
    ),
    "transducer_loss: inplace_grad of a view of a leaf": rnnt(
        logits=in_place_view_of_leaf,
        inplace_grad=True,
        message="inplace_grad: expected logits that an operation has computed, got a leaf, whose values would be lost",
    ),
    "transducer_loss: inplace_grad of expanded logits": rnnt(
        logits=in_place_expanded,
        inplace_grad=True,
        message="inplace_grad: expected logits that do not share memory, got expanded ones of strides (0, 18, 6, 1)",
    ),
    "transducer_loss: inplace_grad under torch.func": BadCall(
        under_grad,
        RuntimeError,
        "inplace_grad: expected False under torch.func, which allows no writing in place, got True",
    ),
    "transducer_loss: inplace_grad and two backward passes": BadCall(
        backward_twice,
        RuntimeError,
        "inplace_grad: expected one backward pass, as the gradient took the logits' memory, got a second one",
    ),
    "transducer_loss: inplace_grad and create_graph": BadCall(
        backward_with_graph,
        RuntimeError,
        "inplace_grad: expected a backward pass without create_graph, got one with it",
    ),
    "transducer_loss: second derivative": BadCall(
        second_derivative,
        NotImplementedError,
        "warpalign: second derivatives of the transducer losses are not available",
    ),
    "tdt_loss: duration_logits no tensor": tdt(
        duration_logits=1,
        error=TypeError,
        message="duration_logits: expected a torch.Tensor, got int",
    ),
    "tdt_loss: no columns of labels": tdt(
        label_logits=lambda g: logits(g, 3, 5, 3, 2),
        duration_logits=None,
        message="label_logits: expected columns of labels besides those of 2 durations, as duration_logits is None, got 2",
    ),
    "tdt_loss: dtype of duration_logits": tdt(
        duration_logits=lambda g: logits(g, 3, 5, 3, 2).double(),
        error=TypeError,
        message="duration_logits: expected the dtype of label_logits, torch.float32, got torch.float64",
    ),
    "tdt_loss: shape of duration_logits": tdt(
        duration_logits=lambda g: logits(g, 3, 5, 3, 3),
        message="duration_logits: expected shape (3, 5, 3, 2), got (3, 5, 3, 3)",
    ),
    "tdt_loss: durations": tdt(durations=(0, 65), message="durations: expected 0 to 64 frames each, got 65"),
    "tdt_loss: no durations": tdt(durations=(), message="durations: expected 1 to 16, got 0"),
    "tdt_loss: durations of 0": tdt(
        durations=(0, 0), message="durations: expected one at least above 0, got (0, 0)"
    ),
    "tdt_loss: a duration twice": tdt(
        durations=(1, 1, 2),
        message="durations: expected different numbers of frames, got (1, 1, 2): write each duration once, with one column of "
        "duration logits",
    ),
    "tdt_loss: durations as text": tdt(
        durations="01", error=TypeError, message="durations: expected a sequence of ints, got str"
    ),
    "tdt_loss: omega": tdt(omega=1.5, message="omega: expected a probability, at most 1, got 1.5"),
    "tdt_loss: generator": tdt(
        generator=0.5,
        error=TypeError,
        message="generator: expected a torch.Generator, an int or None, got float",
    ),
    **{
        f"{name}: {argument}": BadCall(
            lambda g, make=make, rest=rest, argument=argument, value=value: make(**{argument: value})(
                logits(g), *rest(g)
            ),  # type: ignore[misc]
            error,
            message,
        )
        for name, make, rest in (
            ("TransducerLoss", warpalign.TransducerLoss, lambda g: (targets(g),)),
            (
                "TDTLoss",
                lambda **options: warpalign.TDTLoss(**{"durations": (0, 1)} | options),  # type: ignore[arg-type]
                lambda g: (logits(g, 3, 5, 3, 2), targets(g)),
            ),
        )
        for argument, value, error, message in (
            ("blank", -7, ValueError, "blank: expected a column of 6, from -6 to 5, got -7"),
            ("sigma", None, TypeError, "sigma: expected a float, got NoneType"),
            ("fastemit_lambda", -1, ValueError, "fastemit_lambda: expected a finite number >= 0, got -1"),
            (
                "penalties",
                0.1,
                TypeError,
                "penalties: expected TransducerPenalties or None, got float",
            ),
            ("clamp", -1.0, ValueError, "clamp: expected a finite number > 0, got -1.0"),
            ("zero_infinity", "no", TypeError, "zero_infinity: expected a bool, got str"),
            ("from_log_probs", 0, TypeError, "from_log_probs: expected a bool, got int"),
            ("packed", None, TypeError, "packed: expected a bool, got NoneType"),
            ("inplace_grad", None, TypeError, "inplace_grad: expected a bool, got NoneType"),
            (
                "reduction",
                "batch",
                ValueError,
                'reduction: expected one of "none", "sum", "mean", "mean_target", "mean_volume", "mean_frame", got \'batch\'',
            ),
            *(
                (
                    ("durations", (70,), ValueError, "durations: expected 0 to 64 frames each, got 70"),
                    ("omega", -1.0, ValueError, "omega: expected a finite number >= 0, got -1.0"),
                    (
                        "generator",
                        1,
                        TypeError,
                        "generator: expected a torch.Generator or None, got int: write torch.Generator().manual_seed(1)",
                    ),
                )
                if name == "TDTLoss"
                else (
                    (
                        "big_blanks",
                        (1,),
                        ValueError,
                        "big_blanks: expected 2 to 64 frames each, got 1",
                    ),
                )
            ),
        )
    },
}
