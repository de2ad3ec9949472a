"""Functions of tensors and the module SoftDTW."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas
import torch

import warpalign
from tests.python.bad_calls import BadCall, BadCalls, Given
from warpalign import (
    Mahalanobis,
    SoftDTW,
    dtw,
    dtw_path,
    soft_dtw,
    soft_dtw_alignment,
    soft_dtw_cost,
    soft_dtw_sample,
    soft_dtw_subsequence,
)

Wrong = tuple[
    Any, type[BaseException], str
]  # a value, or a function that makes it; the error; what the message says after the name

DTYPES = "expected dtype float64, float32, float16 or bfloat16, got "
LENGTH_DTYPES = "expected integers of dtype int64, int32, int16, int8 or uint8, got "


def jagged(*sizes: tuple[int, ...]) -> torch.Tensor:
    return torch.nested.nested_tensor([torch.zeros(size) for size in sizes], layout=torch.jagged)


def packed() -> Any:
    return torch.nn.utils.rnn.pack_sequence([torch.zeros(n, 2) for n in (5, 4, 2)])


def module(x: Any, y: Any, **options: Any) -> object:
    call = {name: options.pop(name) for name in list(options) if name.endswith(("_lengths", "_mask"))}
    return SoftDTW(**options)(x, y, **call)


# Functions of two batches of series: name of the first, of the second.
SERIES: dict[str, tuple[Callable[..., object], str, str]] = {
    "soft_dtw": (soft_dtw, "x", "y"),
    "soft_dtw_alignment": (soft_dtw_alignment, "x", "y"),
    "dtw": (dtw, "x", "y"),
    "dtw_path": (dtw_path, "x", "y"),
    "soft_dtw_sample": (lambda x, y, **options: soft_dtw_sample(x, y, 2, **options), "x", "y"),
    "soft_dtw_subsequence": (soft_dtw_subsequence, "query", "series"),
    "SoftDTW": (module, "x", "y"),
}

UNEQUAL = ": write torch.as_tensor({x}), or, of unequal series, torch.nn.utils.rnn.pad_sequence({x}, batch_first=True) and give their lengths"
UNIVARIATE = ": write {x}[..., None] and {y}[..., None] for batches of univariate series"
# Losses take tensors alone; what has no gradient takes arrays and lists too.
LOSSES = ("soft_dtw", "dtw", "SoftDTW")
NO_TENSORS: dict[str, tuple[Callable[[Given], tuple[Any, Any]], type[BaseException], str]] = {
    "a list": (lambda g: ([[1.0]], g.y), TypeError, "{x}: expected a torch.Tensor, got list" + UNEQUAL),
    "an array": (lambda g: (g.x, np.zeros((3, 6, 2))), TypeError, "{y}: expected a torch.Tensor, got ndarray: write torch.as_tensor({y})"),
    "a data frame": (lambda g: (pandas.DataFrame([[1.0]]), g.y), TypeError, "{x}: expected a torch.Tensor, got DataFrame: write torch.tensor({x}.to_numpy())"),
}  # fmt: skip
NO_SERIES: dict[str, tuple[Callable[[Given], tuple[Any, Any]], type[BaseException], str]] = {
    "words": (lambda g: (np.array(["a"]), g.y), TypeError, "{x}: expected floating-point numbers or integers, got ndarray of <U1"),
    "a list of numbers": (lambda g: ([1.0, 2.0], g.y), ValueError, "{x}: expected (B, N, D) or (N, D), got shape (2,): write {x}[:, None] for one univariate series"),
    "features of a list": (lambda g: ([np.zeros((5, 2)), np.zeros(3)], g.y), ValueError, "{x}[1]: expected D = 2 features as in {x}[0], got 1"),
    "an array of another dtype": (lambda g: (g.x, np.zeros((3, 6, 2))), TypeError, "{y}: expected the dtype of {x}, torch.float32, got torch.float64: write {y}.to({x}.dtype)"),
}  # fmt: skip

# The series, made from those that fit; {x} and {y} are their names.
PAIRS: dict[str, tuple[Callable[[Given], tuple[Any, Any]], type[BaseException], str]] = {
    "None": (lambda g: (None, g.y), TypeError, "{x}: expected a torch.Tensor, got NoneType"),
    "integers": (lambda g: (g.x.long(), g.y.long()), TypeError, "{x}: " + DTYPES + "torch.int64: write {x}.float()"),
    "bools": (lambda g: (g.x.bool(), g.y), TypeError, "{x}: " + DTYPES + "torch.bool: write {x}.float()"),
    "complex": (lambda g: (g.x, g.y.to(torch.complex64)), TypeError, "{y}: " + DTYPES + "torch.complex64"),
    "two dtypes": (lambda g: (g.x, g.y.double()), TypeError, "{y}: expected the dtype of {x}, torch.float32, got torch.float64: write {y}.to({x}.dtype)"),
    "sparse": (lambda g: (g.x.to_sparse(), g.y), TypeError, "{x}: expected a dense tensor (layout torch.strided), got a torch.sparse_coo one"),
    "0 axes": (lambda g: (g.x.sum(), g.y), ValueError, "{x}: expected (B, N, D) or (N, D), got shape ()"),
    "1 axis": (lambda g: (g.x[0, 0], g.y), ValueError, "{x}: expected (B, N, D) or (N, D), got shape (2,): write {x}[:, None] for one univariate series"),
    "4 axes": (lambda g: (g.x, g.y[None]), ValueError, "{y}: expected (B, M, D) or (M, D), got shape (1, 3, 6, 2)"),
    "one batched": (lambda g: (g.x, g.y[0]), ValueError, "{y}: expected as many axes as {x}, which has shape (3, 5, 2), got shape (6, 2): write {y}[None] to pair one series with each of {x}, or {y}[..., None] for a batch of univariate ones"),
    "features": (lambda g: (g.x, g.y[..., :1]), ValueError, "{y}: expected D = 2 features as in {x}, got shape (3, 6, 1)"),
    "univariate batches": (lambda g: (torch.zeros(3, 5), torch.zeros(3, 6)), ValueError, "{y}: expected D = 5 features as in {x}, got shape (3, 6)" + UNIVARIATE),
    "features, unbatched": (lambda g: (g.x[0], g.y[0, :, :1]), ValueError, "{y}: expected D = 2 features as in {x}, got shape (6, 1)"),
    "batches": (lambda g: (g.x, g.y[:2]), ValueError, "{y}: expected a batch of 3 as in {x}, or of 1, got shape (2, 6, 2)"),
    "empty with full": (lambda g: (g.x, g.y[:0]), ValueError, "{y}: expected a batch of 3 as in {x}, or of 1, got shape (0, 6, 2)"),
    "full with empty": (lambda g: (g.x[:0], g.y), ValueError, "{y}: expected a batch of 0 as in {x}, or of 1, got shape (3, 6, 2)"),
    "no steps in the first": (lambda g: (g.x[:, :0], g.y), ValueError, "{x}: expected no empty axis in (N, D), got shape (3, 0, 2)"),
    "no steps in the second": (lambda g: (g.x[0], g.y[0, :0]), ValueError, "{y}: expected no empty axis in (M, D), got shape (0, 2)"),
    "no features": (lambda g: (g.x[..., :0], g.y[..., :0]), ValueError, "{x}: expected no empty axis in (N, D), got shape (3, 5, 0)"),
    "another device": (lambda g: (g.x, g.y.to("meta")), ValueError, "{y}: expected the device of {x}, DEVICE, got meta: write {y}.to({x}.device)"),
    "nested without features": (lambda g: (jagged((3,), (4,)), g.y), ValueError, "{x}: expected a nested tensor of series (length, D), got 1 axes"),
}  # fmt: skip

FRACTIONS = ": multiply fractions in [0, 1] by the number of steps, {limit}, and round to integers, ({name} * {axis}).round().long()"
LENGTHS: dict[str, Wrong] = {
    "words": (["a", "b", "c"], TypeError, "expected integers (B,), got list of other values"),
    "words in an array": (np.array(["a", "b", "c"]), TypeError, "expected integers (B,), got ndarray of other values"),
    "an int": (3, TypeError, "expected integers (B,) as a tensor, list, tuple or array, got int"),
    "floats in a list": ([1.0, 2.0, 3.0], TypeError, LENGTH_DTYPES + "torch.float32" + FRACTIONS),
    "fractions in an array": (np.array([0.5, 1.0, 0.25]), TypeError, LENGTH_DTYPES + "torch.float64" + FRACTIONS),
    "too few in a list": ([1, 2], ValueError, "expected shape (3,), one length per pair, got (2,)"),
    "floats": (lambda g: g.ints(1, 2, 3).float(), TypeError, LENGTH_DTYPES + "torch.float32" + FRACTIONS),
    "bools": (lambda g: g.ints(1, 1, 1).bool(), TypeError, LENGTH_DTYPES + "torch.bool"),
    "uint64": (lambda g: g.ints(1, 2, 3, dtype=torch.uint64), TypeError, LENGTH_DTYPES + "torch.uint64"),
    "0 axes": (lambda g: g.ints(1)[0], ValueError, "expected shape (3,), one length per pair, got ()"),
    "too few": (lambda g: g.ints(1, 2), ValueError, "expected shape (3,), one length per pair, got (2,)"),
    "one": (lambda g: g.ints(1), ValueError, "expected shape (3,), one length per pair, got (1,)"),
    "2 axes": (lambda g: g.ints(1, 2, 3)[None], ValueError, "expected shape (3,), one length per pair, got (1, 3)"),
    "another device": (lambda g: g.ints(1, 2, 3).to("meta"), ValueError, "expected the device of the series, DEVICE, got meta: write {name}.to('DEVICE')"),
}  # fmt: skip

# On the CPU alone: on CUDA they are clamped (test_torch_cuda.py). What int64 holds and int32 does not must not wrap around.
OUT_OF_RANGE = {
    f"{bad} as {str(dtype).removeprefix('torch.')}": (bad, dtype)
    for bad, dtype in [
        (0, torch.int64), (-1, torch.int32), (7, torch.uint8), (0, torch.int8), (9, torch.int16), (2**31, torch.int64),
        (2**32 + 3, torch.int64), (-(2**32) + 3, torch.int64), (-(2**63), torch.int64), (2**63 - 1, torch.int64),
    ]
}  # fmt: skip

MASKS: dict[str, Wrong] = {
    "words": (["a"], TypeError, "expected bools (B, N), got list of others"),
    "a bool": (True, TypeError, "expected bools (B, N) as a tensor, array or list, got bool"),
    "too short a list": ([True], ValueError, "expected shape (3, STEPS), one per time step, got (1,)"),
    "floats": (lambda g: g.x[..., 0], TypeError, "expected dtype torch.bool, got torch.float32"),
    "another device": (lambda g: g.x[..., 0].bool().to("meta"), ValueError, "expected the series' device, DEVICE, got meta"),
    "too long": (lambda g: g.x.new_zeros(3, 9).bool(), ValueError, "expected shape (3, STEPS), one per time step, got (3, 9)"),
    "another batch": (lambda g: g.x.new_zeros(2, 5).bool(), ValueError, "expected shape (3, STEPS), one per time step, got (2, 5)"),
}  # fmt: skip


def not_a_number(name: str, least: str) -> dict[str, tuple[dict[str, Any], type[BaseException], str]]:
    """Bad calls of an argument that is a number."""
    values = {
        "-1": (-1.0, ValueError, f"expected a finite number {least}, got -1.0"),
        "NaN": (math.nan, ValueError, f"expected a finite number {least}, got nan"),
        "infinite": (math.inf, ValueError, f"expected a finite number {least}, got inf"),
        "minus infinite": (-math.inf, ValueError, f"expected a finite number {least}, got -inf"),
        "beyond float": (10**400, ValueError, f"expected a finite number {least}, got {10**400}"),
        "a str": ("1", TypeError, "expected a float, got str"),
        "a list": ([1.0], TypeError, "expected a float, got list"),
        "complex": (1j, TypeError, "expected a float, got complex"),
        "a bool": (True, TypeError, "expected a float, got bool"),
    }
    return {
        f"{name} {what}": ({name: value}, error, f"{name}: {message}")
        for what, (value, error, message) in values.items()
    }


# Options: arguments, or a function that makes them; error; message. Those of the constructor of SoftDTW too.
GAMMAS: dict[str, Wrong] = {
    **not_a_number("gamma", ">= 0"),
    "gamma None": ({"gamma": None}, TypeError, "gamma: expected a float, got NoneType"),
    "gamma of integers": ({"gamma": torch.tensor(1)}, TypeError, "gamma: " + DTYPES + "torch.int64"),
}
SAMPLING: dict[str, Wrong] = {
    **not_a_number("gamma", "> 0"),
    "gamma 0": ({"gamma": 0}, ValueError, "gamma: expected a finite number > 0, got 0"),
    "generator a str": ({"generator": "1"}, TypeError, "generator: expected a torch.Generator, an int or None, got str"),
}  # fmt: skip
STEP_PENALTIES: dict[str, Wrong] = {
    **not_a_number("step_penalty", ">= 0"),
    "step_penalty None": ({"step_penalty": None}, TypeError, "step_penalty: expected a float, got NoneType"),
    "step_penalty a tensor": ({"step_penalty": torch.tensor(1.0)}, TypeError, "step_penalty: expected a float, got Tensor"),
}  # fmt: skip
EXECUTIONS: dict[str, Wrong] = {
    "precision an int": ({"precision": 1}, TypeError, "precision: expected a str or None, got int"),
    "batch_invariant an int": ({"batch_invariant": 1}, TypeError, "batch_invariant: expected a bool, got int"),
    "an unknown precision": ({"precision": "tf32"}, ValueError, 'precision: expected one of "highest", "high", "medium", or None, got \'tf32\''),
}  # fmt: skip
BANDS: dict[str, Wrong] = {
    "a negative bandwidth": ({"bandwidth": -1}, ValueError, "bandwidth: expected a radius >= 0, or None for no band, got -1"),
    "a bandwidth of float": ({"bandwidth": 2.0}, TypeError, "bandwidth: expected an int or None, got float"),
    "a bandwidth of bool": ({"bandwidth": True}, TypeError, "bandwidth: expected an int or None, got bool"),
    "an unknown band": ({"band": "round"}, ValueError, 'band: expected "sakoe_chiba", "abs", "slanted" or "itakura", got \'round\''),
    "no band": ({"band": None}, ValueError, 'band: expected "sakoe_chiba", "abs", "slanted" or "itakura", got None'),
    "abs without a bandwidth": ({"band": "abs"}, ValueError, 'bandwidth: expected a radius with band="abs", got None'),
    "slanted without a bandwidth": ({"band": "slanted"}, ValueError, 'bandwidth: expected a radius with band="slanted", got None'),
    "a slope with a bandwidth": ({"bandwidth": 1, "max_slope": 2.0}, ValueError, 'max_slope: expected None without band="itakura", got 2.0'),
    "a bandwidth with a slope": ({"band": "itakura", "bandwidth": 1}, ValueError, 'bandwidth: expected None with band="itakura", which has max_slope, got 1'),
    "max_slope below 1": ({"band": "itakura", "max_slope": 0.5}, ValueError, "max_slope: expected a finite number >= 1, got 0.5"),
    "max_slope NaN": ({"band": "itakura", "max_slope": math.nan}, ValueError, "max_slope: expected a finite number >= 1, got nan"),
    "max_slope a str": ({"band": "itakura", "max_slope": "2"}, TypeError, "max_slope: expected a float, got str"),
}  # fmt: skip
COSTS: dict[str, Wrong] = {
    "an unknown cost": ({"cost": "manhattan"}, ValueError, 'cost: expected one of "sqeuclidean", "euclidean", "l1", "cosine", "huber", or a function, got \'manhattan\''),
    "cost an int": ({"cost": 2}, TypeError, "cost: expected a str or a function, got int"),
    "cost None": ({"cost": None}, TypeError, "cost: expected a str or a function, got NoneType"),
}  # fmt: skip
REDUCTIONS: dict[str, Wrong] = {
    f"reduction {bad!r}": (
        {"reduction": bad}, ValueError, f'reduction: expected "none", "mean" or "sum", got {bad!r}'
    )
    for bad in ("max", "", "Mean", None, 1, ["mean"])
}  # fmt: skip
FLAGS: dict[str, Wrong] = {
    "normalize a str": ({"normalize": "no"}, TypeError, "normalize: expected a bool, got str"),
    "unbatched a str": ({"unbatched": "no"}, TypeError, "unbatched: expected a bool, got str"),
}
# What only a call can see.
GAMMAS_OF_PAIRS: dict[str, Wrong] = {
    "gammas of another batch": (lambda g: {"gamma": torch.ones(2, device=g.device)}, ValueError, "gamma: expected shape () or (3,), one per pair, got (2,)"),
    "gammas on another device": (lambda g: {"gamma": torch.ones((), device="meta")}, ValueError, "gamma: expected the series' device, DEVICE, got meta"),
}  # fmt: skip
GAMMAS_READ: dict[str, Wrong] = {
    "a gamma of 0 among others": ({"gamma": torch.tensor([1.0, 0.0, 1.0])}, ValueError, "gamma: expected finite numbers > 0, got 0.0 at index 1"),
    "a gamma of NaN": ({"gamma": torch.tensor(math.nan)}, ValueError, "gamma: expected finite numbers > 0, got nan at index 0"),
}  # fmt: skip
FUNCTIONS: dict[str, Wrong] = {
    "a cost function that returns nothing": ({"cost": lambda x, y: None}, TypeError, "cost: expected a function that returns a torch.Tensor, got NoneType"),
    "a cost function with another shape": ({"cost": lambda x, y: x}, ValueError, "cost: expected a function that returns shape (3, 5, 6), torch.float32, on DEVICE, got shape (3, 5, 2), torch.float32, on DEVICE"),
    "a cost function with another dtype": ({"cost": lambda x, y: torch.cdist(x, y).double()}, ValueError, "cost: expected a function that returns shape (3, 5, 6), torch.float32, on DEVICE, got shape (3, 5, 6), torch.float64, on DEVICE"),
}  # fmt: skip
NO_PATH: dict[str, Wrong] = {
    "a band without a path": ({"bandwidth": 0, "band": "abs"}, ValueError, "band: expected a radius that leaves a path between the pair's ends, got 0"),
    "a slanted band without a path": ({"bandwidth": 0, "band": "slanted"}, ValueError, "band: expected a radius that leaves a path between the pair's ends, got 0"),
    "a parallelogram without a path": ({"band": "itakura", "max_slope": 1.01}, ValueError, "band: expected a max_slope that leaves a path between the pair's ends, got 1.01"),
}  # fmt: skip


def made(value: Any, given: Given) -> Any:
    return value(given) if callable(value) else value


def _series() -> BadCalls:
    calls: BadCalls = {}
    for name, (function, x, y) in SERIES.items():
        if name == "SoftDTW":
            x_lengths, y_lengths = "x_lengths", "y_lengths"
        else:
            x_lengths, y_lengths = f"{x}_lengths", f"{y}_lengths"

        def add(
            what: str,
            options: Any,
            error: type[BaseException],
            message: str,
            *,
            name: str = name,
            function: Callable[..., object] = function,
            cpu_only: bool = False,
        ) -> None:
            calls[f"{name}: {what}"] = BadCall(
                lambda g: function(g.x, g.y, **made(options, g)), error, message, cpu_only
            )

        for what, (pair, error, message) in (PAIRS | (NO_TENSORS if name in LOSSES else NO_SERIES)).items():
            calls[f"{name}: {what}"] = BadCall(
                lambda g, function=function, pair=pair: function(*pair(g)), error, message.format(x=x, y=y),
                "nested" in what or what in ("univariate batches", "an array of another dtype"),
            )  # fmt: skip
        for argument, limit in ((x_lengths, "N = 5"), (y_lengths, "M = 6")):
            for what, (value, error, message) in LENGTHS.items():
                add(
                    f"{argument} {what}",
                    lambda g, argument=argument, value=value: {argument: made(value, g)},
                    error,
                    f"{argument}: {message.format(name=argument, limit=limit, axis=limit[0])}",
                )
            for what, (bad, dtype) in OUT_OF_RANGE.items():
                lengths = {argument: torch.tensor([1, bad, 2], dtype=dtype)}
                message = f"{argument}: expected lengths from 1 to {limit}, got {bad} at index 1"
                add(f"{argument} {what}", lengths, ValueError, message, cpu_only=True)
        if name not in ("soft_dtw_sample", "soft_dtw_subsequence"):
            for what, (options, error, message) in EXECUTIONS.items():
                add(what, options, error, message)
        if name not in ("dtw", "dtw_path", "soft_dtw_subsequence"):
            own = SAMPLING if name == "soft_dtw_sample" else {}
            for what, (options, error, message) in (GAMMAS | own | GAMMAS_OF_PAIRS).items():
                add(what, options, error, message)
            for what, (options, error, message) in GAMMAS_READ.items():
                add(what, options, error, message, cpu_only=True)
        if name == "soft_dtw_subsequence":
            for what, (options, error, message) in not_a_number("gamma", ">= 0").items():
                add(what, options, error, message)
            add("gamma a tensor", {"gamma": torch.ones(())}, TypeError, "gamma: expected a float, got Tensor")
            add(
                "cost a function",
                {"cost": torch.cdist},
                TypeError,
                "cost: expected a str or a Mahalanobis, got function",
            )
            unknown, error, message = COSTS["an unknown cost"]
            add("an unknown cost", unknown, error, message)
            for what, (options, error, message) in STEP_PENALTIES.items():
                add(what, options, error, message)
            add(
                "with_match a str",
                {"with_match": "no"},
                TypeError,
                "with_match: expected a bool, got str",
            )
            continue
        for what, (options, error, message) in (STEP_PENALTIES | BANDS | COSTS).items():
            add(what, options, error, message)
        for what, (options, error, message) in (FUNCTIONS | NO_PATH).items():
            add(what, options, error, message, cpu_only=True)
        for argument, steps in (("x_mask", 5), ("y_mask", 6)):
            for what, (value, error, message) in MASKS.items():
                add(
                    f"{argument} {what}",
                    lambda g, argument=argument, value=value: {argument: made(value, g)},
                    error,
                    f"{argument}: {message}".replace("STEPS", str(steps)),
                )
        if name in LOSSES:
            flags = {what: flag for what, flag in FLAGS.items() if name != "dtw" or "unbatched" in what}
            for what, (options, error, message) in (REDUCTIONS | flags).items():
                add(what, options, error, message)
            message = "x: expected (N, D) with unbatched=True, got shape (3, 5, 2)"
            add("a batch that is said to be none", {"unbatched": True}, ValueError, message)
    return calls


def _own_costs() -> BadCalls:
    """soft_dtw_cost."""

    def table(change: Callable[[Given], Any], error: type[BaseException], message: str) -> BadCall:
        return BadCall(lambda g: soft_dtw_cost(change(g)), error, f"cost_matrix: {message}")

    calls = {
        "a str": table(lambda g: "x", TypeError, "expected a torch.Tensor, got str"),
        "a list": table(lambda g: [[1.0]], TypeError, "expected a torch.Tensor, got list" + UNEQUAL.format(x="cost_matrix")),
        "integers": table(lambda g: g.cost.int(), TypeError, DTYPES + "torch.int32: write cost_matrix.float()"),
        "1 axis": table(lambda g: g.cost[0, 0], ValueError, "expected (B, N, M) or (N, M), got shape (6,)"),
        "4 axes": table(lambda g: g.cost[None], ValueError, "expected (B, N, M) or (N, M), got shape (1, 3, 5, 6)"),
        "no rows": table(lambda g: g.cost[:, :0], ValueError, "expected no empty axis in (N, M), got shape (3, 0, 6)"),
        "no columns": table(lambda g: g.cost[0, :, :0], ValueError, "expected no empty axis in (N, M), got shape (5, 0)"),
        "nested": table(lambda g: jagged((3, 2), (4, 2)), TypeError, "expected a dense tensor (layout torch.strided), got a nested one"),
    }  # fmt: skip

    def add(
        what: str, options: Any, error: type[BaseException], message: str, cpu_only: bool = False
    ) -> None:
        calls[what] = BadCall(lambda g: soft_dtw_cost(g.cost, **made(options, g)), error, message, cpu_only)

    for argument, limit in (("x_lengths", "N = 5"), ("y_lengths", "M = 6")):
        for what, (value, error, message) in LENGTHS.items():
            options = lambda g, argument=argument, value=value: {argument: made(value, g)}  # noqa: E731
            message = message.format(name=argument, limit=limit, axis=limit[0])
            add(f"{argument} {what}", options, error, f"{argument}: {message}")
        for what, (bad, dtype) in OUT_OF_RANGE.items():
            lengths = {argument: torch.tensor([1, bad, 2], dtype=dtype)}
            message = f"{argument}: expected lengths from 1 to {limit}, got {bad} at index 1"
            add(f"{argument} {what}", lengths, ValueError, message, True)
    for what, (options, error, message) in (
        GAMMAS | GAMMAS_OF_PAIRS | STEP_PENALTIES | BANDS | REDUCTIONS
    ).items():
        add(what, options, error, message)
    for what, (options, error, message) in (GAMMAS_READ | NO_PATH).items():
        add(what, options, error, message, True)
    what = "batch_invariant an int"
    add(what, *EXECUTIONS[what])
    return {f"soft_dtw_cost: {what}": call for what, call in calls.items()}


CALLS: BadCalls = {
    **_series(),
    **_own_costs(),
    # The constructor looks at what it can see.
    **{
        f"SoftDTW: {what}, when constructed": BadCall(
            lambda g, options=options: SoftDTW(**made(options, g)), error, message
        )
        for what, (options, error, message) in (
            GAMMAS | STEP_PENALTIES | BANDS | COSTS | REDUCTIONS | EXECUTIONS | FLAGS
        ).items()
    },
    "soft_dtw: lengths of a nested tensor": BadCall(
        lambda g: soft_dtw(jagged((3, 2), (4, 2)), g.y[:2], x_lengths=g.ints(1, 2)), ValueError,
        "x_lengths: expected None with a nested tensor as x, which has its lengths", True,
    ),
    "soft_dtw: lengths of a PackedSequence": BadCall(
        lambda g: soft_dtw(g.x, packed(), y_lengths=g.ints(1, 2, 3)), ValueError,
        "y_lengths: expected None with a PackedSequence as y, which has its lengths", True,
    ),
    "soft_dtw: a PackedSequence without features": BadCall(
        lambda g: soft_dtw(g.x, torch.nn.utils.rnn.pack_sequence([torch.zeros(3)] * 3)), ValueError,
        "y: expected a PackedSequence of series (length, D), got 1 axes", True,
    ),
    "soft_dtw: the band of one pair alone holds no path": BadCall(
        lambda g: soft_dtw(g.x, g.y, x_lengths=g.ints(5, 5, 2), bandwidth=2, band="abs"), ValueError,
        "band: expected a radius that leaves a path between the pair's ends, got 2 at index 2", True,
    ),
    "soft_dtw: options without their names": BadCall(
        lambda g: soft_dtw(g.x, g.y, 1.0), TypeError, "soft_dtw() takes 2 positional arguments but 3 were given"  # type: ignore[misc]
    ),
    "soft_dtw_alignment: options without their names": BadCall(
        lambda g: soft_dtw_alignment(g.x, g.y, 1.0), TypeError,  # type: ignore[misc]
        "soft_dtw_alignment() takes 2 positional arguments but 3 were given",
    ),
    "soft_dtw_cost: options without their names": BadCall(
        lambda g: soft_dtw_cost(g.cost, 1.0), TypeError,  # type: ignore[misc]
        "soft_dtw_cost() takes 1 positional argument but 2 were given",
    ),
    "SoftDTW: options without their names": BadCall(
        lambda g: SoftDTW(1.0, "l1"), TypeError,  # type: ignore[misc]
        "SoftDTW.__init__() takes from 1 to 2 positional arguments but 3 were given",
    ),
    "soft_dtw: an option that there is not": BadCall(
        lambda g: soft_dtw(g.x, g.y, bandwith=3), TypeError,  # type: ignore[call-arg]
        "soft_dtw() got an unexpected keyword argument 'bandwith'",
    ),
    "dtw_path: two masks": BadCall(
        lambda g: dtw_path(np.ma.masked_array(np.zeros((3, 5, 2)), True), g.y.double(), x_mask=[[True] * 5] * 3), ValueError,
        "x_mask: expected None with a masked array as x, which has its mask", True,
    ),
    **{
        f"soft_dtw_sample: n_paths {bad!r}": BadCall(
            lambda g, bad=bad: soft_dtw_sample(g.x, g.y, bad), error, f"n_paths: expected {message}"
        )
        for bad, error, message in (
            (-1, ValueError, "at least 0, got -1"),
            (2.0, TypeError, "an int, got float"),
            (True, TypeError, "an int, got bool"),
        )
    },
    **{
        f"Mahalanobis: {what}": BadCall(lambda g, factor=factor: Mahalanobis(factor), error, f"factor: expected {message}")
        for what, factor, error, message in (
            ("a list", [[1.0]], TypeError, "a torch.Tensor, got list"),
            ("integers", torch.eye(2).long(), TypeError, "dtype float64, float32, float16 or bfloat16, got torch.int64"),
            ("1 axis", torch.ones(2), ValueError, "(D, K) without an empty axis, got shape (2,)"),
            ("no columns", torch.ones(2, 0), ValueError, "(D, K) without an empty axis, got shape (2, 0)"),
        )
    },
    **{
        f"Mahalanobis: {what}, in a call": BadCall(
            lambda g, factor=factor: soft_dtw(g.x, g.y, cost=Mahalanobis(factor(g.device))), error, f"factor: expected {message}"
        )
        for what, factor, error, message in (
            ("another dtype", lambda d: torch.eye(2, device=d).double(), TypeError, "the dtype of the series, torch.float32, got torch.float64: write factor.to(torch.float32)"),
            ("another device", lambda d: torch.eye(2, device="meta"), ValueError, "the device of the series, DEVICE, got meta: move the cost with .to('DEVICE')"),
            ("other features", lambda d: torch.eye(3, device=d), ValueError, "(D, K) with the D = 2 features of the series, got shape (3, 3)"),
        )
    },
    "soft_dtw_subsequence: a masked query": BadCall(
        lambda g: soft_dtw_subsequence(np.ma.masked_array(np.zeros((3, 5, 2)), True), g.y.double()), ValueError,
        "query: expected no missing time steps, got a masked array", True,
    ),
    "warpalign: a name that there is not": BadCall(
        lambda g: warpalign.SoftDTWKMean, AttributeError, "module 'warpalign' has no attribute 'SoftDTWKMean'"  # type: ignore[attr-defined]
    ),
    "warpalign.compat: a package that there is not": BadCall(
        lambda g: warpalign.compat.dtaidistance, AttributeError, "module 'warpalign.compat' has no attribute 'dtaidistance'"  # type: ignore[attr-defined]
    ),
}  # fmt: skip
