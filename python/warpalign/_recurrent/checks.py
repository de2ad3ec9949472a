"""Checks of the LSTM's arguments. Messages name the argument, what was expected and what came.

Values that lie on a device are not read.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from warpalign._core import library
from warpalign._core.checks import (
    DTYPES,
    check_count,
    check_flag,
    check_number,
    check_precision,
    is_autocast,
    shape_of,
)
from warpalign._core.torch_internals import is_jit_tracing
from warpalign._recurrent.settings import ACTIVATIONS, NAMES, LSTMWeights, Options

Function = TypeVar("Function", bound=Callable[..., Any])
INTEGERS = (torch.int32, torch.int64, torch.int16, torch.int8, torch.uint8)
HALF = (torch.float16, torch.bfloat16)


class ShapeError(ValueError, RuntimeError):
    """A shape that does not fit: a RuntimeError too, which torch.nn.LSTM raises for it."""


class DtypeError(TypeError, ValueError):
    """A dtype that does not fit: a ValueError too, which torch.nn.LSTM raises for it."""


def quiet_when_traced(function: Function) -> Function:
    """Without torch.jit.trace's warnings of Python's comparisons, which only check shapes: the operator checks them in each call.

    Of packed rows it warns: how many there are in a step becomes a constant.
    """

    @functools.wraps(function)
    def quiet(given: object, *arguments: Any, **keywords: Any) -> Any:
        if not is_jit_tracing() or isinstance(given, PackedSequence):
            return function(given, *arguments, **keywords)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", torch.jit.TracerWarning)  # type: ignore[attr-defined]
            return function(given, *arguments, **keywords)

    return quiet  # type: ignore[return-value]


def check_probability(value: object, name: str) -> float:
    number = check_number(value, name)
    if number >= 1:
        raise ValueError(f"{name}: expected a probability in [0, 1), got {value}")
    return number


def check_zoneout(value: object) -> tuple[float, float]:
    """Probabilities for h and c: one number for both, or two."""
    if isinstance(value, (tuple, list)):
        if len(value) != 2:
            raise ValueError(f"zoneout: expected one probability, or two, (hidden, cell), got {len(value)}")
        return check_probability(value[0], "zoneout[0]"), check_probability(value[1], "zoneout[1]")
    number = check_probability(value, "zoneout")
    return number, number


def check_options(
    *,
    activation: object,
    hard_slope: object,
    hard_offset: object,
    layer_norm_eps: object,
    dropout: object,
    rw_dropout: object,
    zoneout: object,
    precision: object,
    batch_invariant: object,
) -> Options:
    if activation not in ACTIVATIONS:
        raise ValueError(f'activation: expected "soft" or "hard", got {activation!r}')
    offset = check_number(hard_offset, "hard_offset", None)
    if offset >= 1:
        raise ValueError(f"hard_offset: expected a number between 0 and 1, got {hard_offset}")
    hidden, cell = check_zoneout(zoneout)
    return Options(
        ACTIVATIONS.index(activation),
        check_number(hard_slope, "hard_slope", None),
        offset,
        check_number(layer_norm_eps, "layer_norm_eps", None),
        check_probability(dropout, "dropout"),
        check_probability(rw_dropout, "rw_dropout"),
        hidden,
        cell,
        None if precision is None else check_precision(precision),
        check_flag(batch_invariant, "batch_invariant"),
    )


def check_input(given: object) -> Tensor:
    """(T, B, I), (B, T, I) or (T, I), or a PackedSequence's rows (N, I)."""
    if not isinstance(given, Tensor):
        raise TypeError(f"input: expected a torch.Tensor or a PackedSequence, got {type(given).__name__}")
    if given.dtype not in DTYPES:
        raise TypeError(f"input: expected dtype float64, float32, float16 or bfloat16, got {given.dtype}")
    if given.layout != torch.strided or given.is_nested:
        kind = "nested" if given.is_nested else given.layout
        raise TypeError(f"input: expected a dense tensor (layout torch.strided), got a {kind} one")
    if given.is_cuda and not library.has_cuda:
        raise ValueError(
            "input: expected a CPU tensor, because warpalign was installed without its CUDA operators, "
            f"got one on {given.device}"
        )
    if given.dim() not in (2, 3):
        raise ValueError(
            f"input: expected 3 axes, or 2 of one sequence without a batch, got shape {shape_of(given)}"
        )
    return given


def check_steps(x: Tensor) -> Tensor:
    """x (T, B, I) has a step: without one there is no output that has a gradient, and torch.nn.LSTM refuses it too."""
    if x.shape[0] == 0:
        raise ShapeError("input: expected at least one time step, got none")
    return x


@quiet_when_traced
def check_input_of_module(given: object, weight: Tensor) -> None:
    """The last axis and the dtype, by the first layer's weight (4H, I): a module's caller gave the input, not the weights."""
    x = given.data if isinstance(given, PackedSequence) else given
    if not isinstance(x, Tensor) or x.dim() not in (1, 2, 3) or x.dtype not in DTYPES:
        return  # the call itself says so
    features = weight.shape[1]
    if x.shape[-1] != features:
        raise ShapeError(
            f"input: expected {features} features on the last axis, as input_size, got shape {shape_of(x)}"
        )
    if x.dtype != weight.dtype and not is_autocast(x):
        raise DtypeError(
            f"input: expected the dtype of the module, {weight.dtype}, got {x.dtype}: write input.to({weight.dtype})"
        )


def as_autocast(tensor: Tensor) -> Tensor:
    """In autocast's dtype, where that is active; differentiable."""
    if not is_autocast(tensor) or tensor.dtype == torch.float64:
        return tensor
    return tensor.to(torch.get_autocast_dtype(tensor.device.type))


def _check_weight(given: object, name: str, like: Tensor, shape: Sequence[int]) -> Tensor:
    if not isinstance(given, Tensor):
        raise TypeError(f"{name}: expected a torch.Tensor, got {type(given).__name__}")
    given = as_autocast(given)
    if given.device != like.device:
        raise ValueError(f"{name}: expected the device of input, {like.device}, got {given.device}")
    if given.dtype != like.dtype:
        raise TypeError(f"{name}: expected the dtype of input, {like.dtype}, got {given.dtype}")
    if given.shape != tuple(shape):
        raise ValueError(f"{name}: expected shape {tuple(shape)}, got {shape_of(given)}")
    return given.contiguous()


def check_weights(given: object, x: Tensor, directions: int) -> tuple[list[list[Tensor]], LSTMWeights]:
    """The weights of each layer and direction in the operator's order, and those of the first one."""
    if not isinstance(given, Sequence) or not all(isinstance(w, LSTMWeights) for w in given):
        raise TypeError("weights: expected a sequence of LSTMWeights, one for each layer and direction")
    if len(given) == 0 or len(given) % directions != 0:
        expected = "a pair for each layer" if directions == 2 else "at least one"
        raise ValueError(f"weights: expected {expected}, got {len(given)}")
    first = given[0]
    if (
        not isinstance(first.hh, Tensor)
        or first.hh.dim() != 2
        or first.hh.shape[0] % 4
        or not first.hh.numel()
    ):
        came = shape_of(first.hh) if isinstance(first.hh, Tensor) else type(first.hh).__name__
        raise ValueError(f"weights[0].hh: expected a tensor of shape (4H, P), got {came}")
    hidden, output = first.hh.shape[0] // 4, first.hh.shape[1]
    if first.hr is None and output != hidden:
        raise ValueError(
            f"weights[0].hr: expected a tensor, as weights[0].hh has {output} columns for {hidden} units, got None"
        )
    shapes = LSTMWeights(
        (4 * hidden, 0),  # type: ignore[arg-type]
        (4 * hidden, output),  # type: ignore[arg-type]
        *((4 * hidden,),) * 2,  # type: ignore[arg-type]
        (output, hidden),  # type: ignore[arg-type]
        *((4 * hidden,),) * 2,  # type: ignore[arg-type]
        *((hidden,),) * 2,  # type: ignore[arg-type]
    )
    checked = []
    for cell, weights in enumerate(given):
        width = x.shape[-1] if cell < directions else output * directions
        for names in (("bias_ih", "bias_hh"), ("ln_ih", "ln_hh", "ln_cell", "ln_cell_bias"), ("hr",)):
            _check_all_or_none(weights, first, cell, names)
        tensors = []
        for field, tensor in zip(LSTMWeights._fields, weights, strict=True):
            shape = (4 * hidden, width) if field == "ih" else getattr(shapes, field)
            if tensor is not None:
                tensors.append(_check_weight(tensor, f"weights[{cell}].{field}", x, shape))
        checked.append(tensors)
    return checked, first


def _check_all_or_none(weights: LSTMWeights, first: LSTMWeights, cell: int, names: Sequence[str]) -> None:
    """Either all cells have all of these, or none has any."""
    wanted = getattr(first, names[0]) is not None
    for name in names:
        if (getattr(weights, name) is not None) != wanted:
            came = "None" if wanted else "one"
            whole = "a tensor" if wanted else "None"
            raise ValueError(
                f"weights[{cell}].{name}: expected {whole}, as weights[0].{names[0]} is {'one' if wanted else 'None'}, got {came}"
            )


def check_state(
    given: object, name: str, x: Tensor, shape: tuple[int, ...], dtypes: tuple[torch.dtype, ...]
) -> Tensor:
    if not isinstance(given, Tensor):
        raise TypeError(f"{name}: expected a torch.Tensor, got {type(given).__name__}")
    if given.device != x.device:
        raise ValueError(f"{name}: expected the device of input, {x.device}, got {given.device}")
    if given.dtype not in dtypes:
        expected = " or ".join(str(dtype) for dtype in dtypes)
        raise TypeError(f"{name}: expected dtype {expected}, got {given.dtype}")
    if given.shape != shape:
        raise ShapeError(f"{name}: expected shape {shape}, got {shape_of(given)}")
    return given


def _looks_like_lengths(given: object) -> bool:
    """Integers (B,), which are the third argument in other packages' order."""
    if isinstance(given, (list, tuple)):
        return len(given) > 0 and all(not isinstance(n, Tensor) and isinstance(n, Integral) for n in given)
    kind = str(getattr(given, "dtype", ""))
    return getattr(given, "ndim", 0) == 1 and "int" in kind


def check_hx(given: object) -> tuple[object, object]:
    if _looks_like_lengths(given):
        raise TypeError("hx: expected a pair (h_0, c_0), got lengths: write input_lengths=...")
    if not isinstance(given, (tuple, list)) or len(given) != 2:
        raise TypeError(f"hx: expected a pair (h_0, c_0), got {type(given).__name__}")
    return given[0], given[1]


def check_resets(given: object, x: Tensor, batch_first: bool, unbatched: bool) -> Tensor | None:
    """(T, B), contiguous; x is (T, B, I)."""
    if given is None:
        return None
    if not isinstance(given, Tensor):
        raise TypeError(f"resets: expected a bool tensor, got {type(given).__name__}")
    if given.dtype != torch.bool:
        raise TypeError(f"resets: expected dtype torch.bool, got {given.dtype}")
    if given.device != x.device:
        raise ValueError(f"resets: expected the device of input, {x.device}, got {given.device}")
    steps, batch = x.shape[:2]
    shape = (steps,) if unbatched else (batch, steps) if batch_first else (steps, batch)
    if given.shape != shape:
        raise ValueError(f"resets: expected shape {shape}, a flag for each step, got {shape_of(given)}")
    if unbatched:
        return given.unsqueeze(1).contiguous()
    return (given.t() if batch_first else given).contiguous()


def check_rows(given: object, batch: int) -> Tensor:
    """Some rows of a batch: a bool mask (B,), or indices as int64."""
    if not isinstance(given, Tensor) or given.dim() != 1:
        came = f"shape {shape_of(given)}" if isinstance(given, Tensor) else type(given).__name__
        raise TypeError(f"rows: expected a bool mask (B,) or a tensor of indices, got {came}")
    if given.dtype == torch.bool:
        if given.shape != (batch,):
            raise ValueError(f"rows: expected a bool mask of shape ({batch},), got shape {shape_of(given)}")
        return given
    if given.dtype not in INTEGERS or given.dtype == torch.uint8:  # which is a mask to torch
        raise TypeError(f"rows: expected a bool mask (B,) or a tensor of indices, got {given.dtype}")
    return given.long()


def check_projection(given: object, hidden_size: object) -> None:
    if isinstance(hidden_size, int) and check_count(given, "proj_size", 0) >= max(hidden_size, 1):
        raise ValueError(f"proj_size: expected less than hidden_size, {hidden_size}, got {given}")


def check_dtype(given: object) -> None:
    if not (given is None or isinstance(given, torch.dtype)):
        raise TypeError(f"state_dtype: expected a torch.dtype or None, got {type(given).__name__}")


def check_state_dtype(given: object, x: Tensor) -> bool:
    """Whether c is float32 where the input is of a half type and no c_0 is given."""
    check_dtype(given)
    if given is None or given == x.dtype:
        return False
    if given != torch.float32 or x.dtype not in HALF:
        raise ValueError(
            f"state_dtype: expected None, the dtype of input, {x.dtype}, or float32 for half types, got {given}"
        )
    return True


def check_no_lengths(input: object, lengths: object, resets: object) -> None:
    """Packed and unbatched input has no use for them."""
    if lengths is not None and (isinstance(input, PackedSequence) or input.dim() == 2):  # type: ignore[attr-defined]
        kind = "a PackedSequence, which has its own" if isinstance(input, PackedSequence) else "one sequence"
        raise ValueError(f"input_lengths: expected None with {kind}, got lengths")
    if resets is not None and isinstance(input, PackedSequence):
        raise ValueError("resets: expected None with a PackedSequence, got resets")


def parameter_name(field: str) -> str:
    name: str = getattr(NAMES, field)
    return name
