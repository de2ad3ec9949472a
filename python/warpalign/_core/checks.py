"""Checks of arguments that any operator has. Messages name the argument, what was expected and what came."""

from __future__ import annotations

import sys
from numbers import Integral, Real
from typing import Literal, get_args

import torch
from torch import Tensor

from warpalign._core import library
from warpalign._core.torch_internals import is_wrapped, matmul_precision

Reduction = Literal["none", "mean", "sum"]
Precision = Literal["highest", "high", "medium"]
DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
# Integers that a length may come in, and whether each value is an int32 too.
_LENGTH_DTYPES = {
    torch.int32: True,
    torch.int64: False,
    torch.int16: True,
    torch.int8: True,
    torch.uint8: True,
}


def shape_of(tensor: Tensor) -> str:
    return str(tuple(tensor.shape))


def check_table(tensor: object, name: str, axes: str) -> Tensor:
    """A floating-point tensor of 2 (unbatched) or 3 axes, of which only the batch may be empty."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name}: expected a torch.Tensor, got {type(tensor).__name__}")
    if tensor.dtype not in DTYPES:
        raise TypeError(f"{name}: expected dtype float64, float32, float16 or bfloat16, got {tensor.dtype}")
    if tensor.layout != torch.strided or tensor.is_nested:
        kind = "nested" if tensor.is_nested else tensor.layout
        raise TypeError(f"{name}: expected a dense tensor (layout torch.strided), got a {kind} one")
    if tensor.is_cuda and not library.has_cuda:
        raise ValueError(
            f"{name}: expected a CPU tensor, because warpalign was installed without its CUDA operators, "
            f"got one on {tensor.device}"
        )
    if tensor.dim() not in (2, 3):
        raise ValueError(f"{name}: expected (B, {axes}) or ({axes}), got shape {shape_of(tensor)}")
    if 0 in tensor.shape[-2:]:
        raise ValueError(f"{name}: expected no empty axis in ({axes}), got shape {shape_of(tensor)}")
    return tensor


def check_pair(x: object, y: object, names: tuple[str, str]) -> tuple[Tensor, Tensor]:
    """Two series, or batches of them, that can be aligned."""
    first, name = names
    x = check_table(x, first, "N, D")
    y = check_table(y, name, "M, D")
    if x.dtype != y.dtype:
        raise TypeError(f"{name}: expected the dtype of {first}, {x.dtype}, got {y.dtype}")
    if x.device != y.device:
        raise ValueError(f"{name}: expected the device of {first}, {x.device}, got {y.device}")
    if x.dim() != y.dim():
        raise ValueError(
            f"{name}: expected as many axes as {first}, which has shape {shape_of(x)}, got shape {shape_of(y)}"
        )
    if x.shape[-1] != y.shape[-1]:
        raise ValueError(
            f"{name}: expected D = {x.shape[-1]} features as in {first}, got shape {shape_of(y)}"
        )
    if x.dim() == 3 and x.shape[0] != y.shape[0] and 1 not in (x.shape[0], y.shape[0]):
        raise ValueError(
            f"{name}: expected a batch of {x.shape[0]} as in {first}, or of 1, got shape {shape_of(y)}"
        )
    return x, y


def check_number(value: object, name: str, least: float | None = 0) -> float:
    """A finite number of at least `least`; None: above 0."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name}: expected a float, got {type(value).__name__}")
    number = value if isinstance(value, (int, float)) else float(value)  # an int may exceed every float
    # Comparisons that torch.compile can trace where the number varies from call to call; NaN fails them.
    is_enough = number > 0 if least is None else number >= least
    if not (is_enough and number <= sys.float_info.max):
        raise ValueError(
            f"{name}: expected a finite number {'> 0' if least is None else f'>= {least}'}, got {value}"
        )
    return float(number)


def check_count(value: object, name: str, least: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name}: expected an int, got {type(value).__name__}")
    if value < least:
        raise ValueError(f"{name}: expected at least {least}, got {value}")
    return int(value)


def check_device(device: object, name: str) -> torch.device:
    try:
        checked: torch.device = torch.device(device)  # type: ignore[arg-type, call-overload, unused-ignore]
    except (RuntimeError, TypeError):
        raise ValueError(f"{name}: expected a torch.device, or its name, got {device!r}") from None
    if checked.type not in ("cpu", "cuda"):
        raise ValueError(f"{name}: expected a CPU or CUDA device, got {device!r}")
    if checked.type == "cuda" and (checked.index or 0) >= torch.cuda.device_count():
        raise ValueError(
            f"{name}: expected a device of this machine, where torch sees {torch.cuda.device_count()} GPUs, got {device!r}"
        )
    return checked


def check_precision(precision: object) -> int:
    """Its number in the operators; None: that of torch's own float32 products."""
    names = get_args(Precision)
    if precision is None:
        return names.index(matmul_precision())
    if not isinstance(precision, str):
        raise TypeError(f"precision: expected a str or None, got {type(precision).__name__}")
    if precision not in names:
        expected = ", ".join(f'"{name}"' for name in names)
        raise ValueError(f"precision: expected one of {expected}, or None, got {precision!r}")
    return names.index(precision)


def check_reduction(reduction: object) -> Reduction:
    if reduction not in get_args(Reduction):
        raise ValueError(f'reduction: expected "none", "mean" or "sum", got {reduction!r}')
    return reduction  # type: ignore[return-value]


def check_mask(mask: object, name: str, series: Tensor, batch: int) -> Tensor | None:
    """(B, N), contiguous; series is (B, N, D) or, to be broadcast, (1, N, D)."""
    if mask is None:
        return None
    if not isinstance(mask, Tensor):
        raise TypeError(f"{name}: expected a bool tensor, got {type(mask).__name__}")
    if mask.dtype != torch.bool:
        raise TypeError(f"{name}: expected dtype torch.bool, got {mask.dtype}")
    if mask.device != series.device:
        raise ValueError(f"{name}: expected the series' device, {series.device}, got {mask.device}")
    steps = series.shape[1]
    if mask.shape not in ((steps,), (1, steps), (batch, steps)):
        raise ValueError(
            f"{name}: expected shape ({batch}, {steps}), one per time step, got {shape_of(mask)}"
        )
    return mask.expand(batch, steps).contiguous()


def check_lengths(lengths: object, name: str, limit_name: str, table: Tensor, batch: int) -> Tensor | None:
    """Lengths as the operators want them: int32, contiguous, (B,).

    On the CPU every length must be in [1, limit]. On other devices nothing is read back: the kernel clamps lengths
    into that range.
    """
    if lengths is None:
        return None
    if not isinstance(lengths, Tensor):
        raise TypeError(f"{name}: expected an integer tensor (B,), got {type(lengths).__name__}")
    if lengths.dtype not in _LENGTH_DTYPES:
        raise TypeError(f"{name}: expected dtype int64, int32, int16, int8 or uint8, got {lengths.dtype}")
    if lengths.device != table.device:
        raise ValueError(f"{name}: expected the series' device, {table.device}, got {lengths.device}")
    if lengths.shape != (batch,):
        raise ValueError(f"{name}: expected shape ({batch},), one length per pair, got {shape_of(lengths)}")
    limit = table.shape[1]
    if can_be_read(lengths):
        low, high = (int(bound) for bound in torch.aminmax(lengths))
        if low < 1 or high > limit:
            wide = lengths.long()  # int8 cannot be compared with a limit of 300
            index = int(((wide < 1) | (wide > limit)).nonzero()[0])
            raise ValueError(
                f"{name}: expected lengths from 1 to {limit_name} = {limit}, got {int(lengths[index])} at index {index}"
            )
    if not _LENGTH_DTYPES[lengths.dtype]:
        # Beyond int32 they must not come back small and positive.
        lengths = lengths.clamp(-(2**31), 2**31 - 1)
    return lengths.to(torch.int32).contiguous()


def can_be_read(tensor: Tensor) -> bool:
    """Values are there without waiting for a device, and not hidden by torch.compile, torch.func.vmap and their like."""
    return bool(
        tensor.numel()
        and tensor.device.type == "cpu"
        and not torch.compiler.is_compiling()
        and not is_wrapped(tensor)
    )
