"""Checks of arguments that any operator has. Messages name the argument, what was expected and what came."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from warpalign._core import library
from warpalign._core.scalars import PRECISIONS as PRECISIONS
from warpalign._core.scalars import REDUCTIONS as REDUCTIONS
from warpalign._core.scalars import Precision as Precision
from warpalign._core.scalars import Reduction as Reduction
from warpalign._core.scalars import check_count as check_count
from warpalign._core.scalars import check_flag as check_flag
from warpalign._core.scalars import check_number as check_number
from warpalign._core.scalars import check_reduction as check_reduction
from warpalign._core.scalars import precision_number
from warpalign._core.torch_internals import (
    constant_when_compiled,
    is_transforming,
    is_wrapped,
    matmul_precision,
)

DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


@contextmanager
def naming_arguments() -> Iterator[None]:
    """A RuntimeError of the core about an argument's values becomes a ValueError."""
    try:
        yield
    except RuntimeError as error:
        message = str(error).splitlines()[0]
        if message.startswith("warpalign: ") and ": expected " in message:
            raise ValueError(message.removeprefix("warpalign: ")) from None
        raise


def shape_of(tensor: Tensor) -> str:
    return str(tuple(tensor.shape))


def check_table(tensor: object, name: str, axes: str, *, series: bool = True) -> Tensor:
    """A floating-point tensor of 2 (unbatched) or 3 axes, of which only the batch may be empty.

    Args:
        series: whether messages speak of series, or of sets of points.
    """
    if not isinstance(tensor, Tensor):
        raise TypeError(
            f"{name}: expected a torch.Tensor, got {type(tensor).__name__}{_as_tensor(tensor, name, series)}"
        )
    if tensor.dtype not in DTYPES:
        remedy = "" if tensor.is_complex() else f": write {name}.float()"
        raise TypeError(
            f"{name}: expected dtype float64, float32, float16 or bfloat16, got {tensor.dtype}{remedy}"
        )
    if tensor.layout != torch.strided or tensor.is_nested:
        kind = "nested" if tensor.is_nested else tensor.layout
        raise TypeError(f"{name}: expected a dense tensor (layout torch.strided), got a {kind} one")
    if tensor.is_cuda and not library.has_cuda:
        raise ValueError(
            f"{name}: expected a CPU tensor, because warpalign was installed without its CUDA operators, "
            f"got one on {tensor.device}"
        )
    if tensor.dim() not in (2, 3):
        remedy = (
            f": write {name}[:, None] for {'one univariate series' if series else 'points of one feature'}"
            if tensor.dim() == 1 and axes[-1] == "D"
            else ""
        )
        raise ValueError(f"{name}: expected (B, {axes}) or ({axes}), got shape {shape_of(tensor)}{remedy}")
    if 0 in tensor.shape[-2:]:
        raise ValueError(f"{name}: expected no empty axis in ({axes}), got shape {shape_of(tensor)}")
    return tensor


def _as_tensor(given: object, name: str, series: bool) -> str:
    """What to write instead of something that is no tensor."""
    if isinstance(given, (list, tuple)) and not series:
        return f": write torch.as_tensor({name})"
    if isinstance(given, (list, tuple)):
        return (
            f": write torch.as_tensor({name}), or, of unequal series, torch.nn.utils.rnn.pad_sequence({name}, "
            "batch_first=True) and give their lengths"
        )
    if hasattr(given, "to_numpy"):
        return f": write torch.tensor({name}.to_numpy())"
    return f": write torch.as_tensor({name})" if hasattr(given, "__array__") else ""


def is_autocast(tensor: Tensor) -> bool:
    """Whether torch.autocast is active where the tensor is."""
    kind = tensor.device.type
    return kind in ("cpu", "cuda") and torch.is_autocast_enabled(kind)


def of_one_dtype(x: Tensor, y: Tensor, first: str, name: str) -> tuple[Tensor, Tensor]:
    """Both as they are, where they have one dtype; under autocast in the one that holds both, and float32."""
    if x.dtype == y.dtype:
        return x, y
    if not is_autocast(x):
        raise TypeError(
            f"{name}: expected the dtype of {first}, {x.dtype}, got {y.dtype}: write {name}.to({first}.dtype)"
        )
    dtype = torch.promote_types(torch.promote_types(x.dtype, y.dtype), torch.float32)
    return x.to(dtype), y.to(dtype)


def check_pair(x: object, y: object, names: tuple[str, str], *, series: bool = True) -> tuple[Tensor, Tensor]:
    """Two series or sets of points, or batches of them, that can be aligned, of one dtype."""
    first, name = names
    x = check_table(x, first, "N, D", series=series)
    y = check_table(y, name, "M, D", series=series)
    if x.device != y.device:
        raise ValueError(
            f"{name}: expected the device of {first}, {x.device}, got {y.device}: write {name}.to({first}.device)"
        )
    x, y = of_one_dtype(x, y, first, name)
    if x.dim() != y.dim():
        single, other = (first, name) if x.dim() == 2 else (name, first)
        remedy = f"{single}[None] to pair one set of points with each of {other}"
        if series:
            remedy = f"{single}[None] to pair one series with each of {other}, or {single}[..., None] for a batch of univariate ones"
        raise ValueError(
            f"{name}: expected as many axes as {first}, which has shape {shape_of(x)}, got shape {shape_of(y)}: write {remedy}"
        )
    if x.shape[-1] != y.shape[-1]:
        remedy = f": write {first}[..., None] and {name}[..., None] for batches of univariate series"
        raise ValueError(
            f"{name}: expected D = {x.shape[-1]} features as in {first}, got shape {shape_of(y)}"
            + (remedy if series and x.dim() == 2 and x.shape[-1] > 1 and y.shape[-1] > 1 else "")
        )
    if x.dim() == 3 and x.shape[0] != y.shape[0] and 1 not in (x.shape[0], y.shape[0]):
        raise ValueError(
            f"{name}: expected a batch of {x.shape[0]} as in {first}, or of 1, got shape {shape_of(y)}"
        )
    return x, y


def check_unbatched(unbatched: object, x: Tensor, y: Tensor, names: tuple[str, str]) -> None:
    """True: both are single series (N, D). False: what they are goes by their axes, and shapes that puzzle are warned of."""
    if check_flag(unbatched, "unbatched"):
        for tensor, name in zip((x, y), names, strict=True):
            if tensor.dim() != 2:
                raise ValueError(f"{name}: expected (N, D) with unbatched=True, got shape {shape_of(tensor)}")
    elif x.shape == y.shape:
        warn_of_one_series(x, names)


def warn_of_one_series(x: Tensor, names: tuple[str, str]) -> None:
    """Says that (N, D) is one series, where its caller may have meant N univariate ones.

    Nobody means that of one feature, as the series would have one step, nor within a transform of torch.func, where vmap has taken the
    batch away.
    """
    if x.dim() == 2 and x.shape[-1] > 1 and not is_transforming():
        first, second = names
        warn_once(
            f"{first} and {second}: (N, D) is one series of N time steps with D features. For a batch of univariate series write "
            f"{first}[..., None] and {second}[..., None]. unbatched=True says that they are single series, and silences this."
        )


_warned: set[str] = set()


@constant_when_compiled
def warn_once(message: str) -> None:
    """A warning that comes once in a process, at the line of the caller's own code; in a compiled graph when it is traced."""
    if message not in _warned:
        _warned.add(message)
        warn_caller(message)


def warn_caller(message: str) -> None:
    """A warning at the line of the caller's own code."""
    package, torch_package = str(Path(__file__).parents[1]), str(Path(torch.__file__).parent)
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith((package, torch_package)):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)


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


def check_device_list(devices: object, name: str, default: Tensor) -> list[torch.device]:
    """At least one device; None: that of the default."""
    if devices is None:
        return [default.device]
    if isinstance(devices, (str, torch.device)) or not isinstance(devices, Sequence):
        raise TypeError(f"{name}: expected a sequence of devices, got {type(devices).__name__}")
    if not devices:
        raise ValueError(f"{name}: expected at least one device, got none")
    return [check_device(device, name) for device in devices]


def check_group(distributed: object) -> dist.ProcessGroup | None:
    if distributed is False:
        return None
    if not dist.is_available() or not dist.is_initialized():
        raise ValueError(
            "distributed: expected torch.distributed to be initialised (init_process_group), which it is not"
        )
    if distributed is True:
        return dist.group.WORLD
    if not isinstance(distributed, dist.ProcessGroup):
        raise TypeError(f"distributed: expected a bool or a ProcessGroup, got {type(distributed).__name__}")
    return distributed


def check_precision(precision: object) -> int:
    """Its number in the operators; None: that of torch's own float32 products."""
    return precision_number(matmul_precision() if precision is None else precision)


def check_mask(mask: object, name: str, series: Tensor, batch: int) -> Tensor | None:
    """(B, N), contiguous; series is (B, N, D) or, to be broadcast, (1, N, D)."""
    if mask is None:
        return None
    mask = _without_gradient(mask, name, series.device, "bools (B, N)")
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


def _without_gradient(given: object, name: str, device: torch.device | None, expected: str) -> Tensor:
    """A tensor as it is; an array or a list, which has no gradient, as one."""
    if isinstance(given, Tensor):
        return given
    try:
        if hasattr(given, "__array__"):
            import numpy as np  # only for those who bring arrays

            return torch.tensor(np.asarray(given), device=device)
        if isinstance(given, (list, tuple)):
            return torch.tensor(given, device=device)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"{name}: expected {expected}, got {type(given).__name__} of others") from None
    raise TypeError(f"{name}: expected {expected} as a tensor, array or list, got {type(given).__name__}")


def can_be_read(tensor: Tensor) -> bool:
    """Values are there without waiting for a device, and not hidden by torch.compile, torch.func.vmap and their like."""
    return bool(
        tensor.numel()
        and tensor.device.type == "cpu"
        and not torch.compiler.is_compiling()
        and not is_wrapped(tensor)
    )
