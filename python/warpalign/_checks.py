"""Checks of the public functions' arguments. Messages name the argument, what was expected and what came."""

from __future__ import annotations

import sys
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from warpalign import _ops
from warpalign._ops import Settings
from warpalign._transforms import matmul_precision

Reduction = Literal["none", "mean", "sum"]
Precision = Literal["highest", "high", "medium"]
Cost = Literal["sqeuclidean", "euclidean", "l1", "cosine", "huber"]
CostFunction = Callable[[Tensor, Tensor], Tensor]
Band = Literal["sakoe_chiba", "abs", "slanted", "itakura"]
# What soft_dtw takes besides series and gamma, and what is built on it passes on for all pairs.
METRIC_OPTIONS = ("cost", "bandwidth", "band", "max_slope", "step_penalty", "precision")
_DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
# Integers that a length may come in, and whether each value is an int32 too.
_LENGTH_DTYPES = {
    torch.int32: True,
    torch.int64: False,
    torch.int16: True,
    torch.int8: True,
    torch.uint8: True,
}


def _shape(tensor: Tensor) -> str:
    return str(tuple(tensor.shape))


def check_table(tensor: object, name: str, axes: str) -> Tensor:
    """A floating-point tensor of 2 (unbatched) or 3 axes, of which only the batch may be empty."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name}: expected a torch.Tensor, got {type(tensor).__name__}")
    if tensor.dtype not in _DTYPES:
        raise TypeError(f"{name}: expected dtype float64, float32, float16 or bfloat16, got {tensor.dtype}")
    if tensor.layout != torch.strided or tensor.is_nested:
        kind = "nested" if tensor.is_nested else tensor.layout
        raise TypeError(f"{name}: expected a dense tensor (layout torch.strided), got a {kind} one")
    if tensor.is_cuda and not _ops.has_cuda:
        raise ValueError(
            f"{name}: expected a CPU tensor, because warpalign was installed without its CUDA operators, "
            f"got one on {tensor.device}"
        )
    if tensor.dim() not in (2, 3):
        raise ValueError(f"{name}: expected (B, {axes}) or ({axes}), got shape {_shape(tensor)}")
    if 0 in tensor.shape[-2:]:
        raise ValueError(f"{name}: expected no empty axis in ({axes}), got shape {_shape(tensor)}")
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
            f"{name}: expected as many axes as {first}, which has shape {_shape(x)}, got shape {_shape(y)}"
        )
    if x.shape[-1] != y.shape[-1]:
        raise ValueError(f"{name}: expected D = {x.shape[-1]} features as in {first}, got shape {_shape(y)}")
    if x.dim() == 3 and x.shape[0] != y.shape[0] and 1 not in (x.shape[0], y.shape[0]):
        raise ValueError(
            f"{name}: expected a batch of {x.shape[0]} as in {first}, or of 1, got shape {_shape(y)}"
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


def check_gamma(gamma: object) -> float | Tensor:
    """A number, or a floating-point tensor whose shape and values gamma_of_pairs() checks."""
    if isinstance(gamma, Tensor):
        if gamma.dtype not in _DTYPES:
            raise TypeError(f"gamma: expected dtype float64, float32, float16 or bfloat16, got {gamma.dtype}")
        return gamma
    return check_number(gamma, "gamma")


def check_positive_gamma(gamma: object) -> float:
    """What is built on top takes: one number, and not hard DTW."""
    return check_number(gamma, "gamma", None)


def gamma_of_pairs(gamma: float | Tensor, table: Tensor) -> float | Tensor:
    """A number as it is; a tensor as the operators want it: (B,), contiguous, of the table's dtype."""
    if not isinstance(gamma, Tensor):
        return gamma
    batch = table.shape[0]
    if gamma.device != table.device:
        raise ValueError(f"gamma: expected the series' device, {table.device}, got {gamma.device}")
    if gamma.shape not in ((), (batch,)):
        raise ValueError(f"gamma: expected shape () or ({batch},), one per pair, got {_shape(gamma)}")
    wide = gamma.to(table.dtype).expand(batch).contiguous()
    if _can_be_read(wide):
        wrong = ~((wide > 0) & wide.isfinite())
        if wrong.any():
            index = int(wrong.nonzero()[0])
            raise ValueError(f"gamma: expected finite numbers > 0, got {float(wide[index])} at index {index}")
    return wide


def check_cost(cost: object) -> int | CostFunction:
    """The number of a cost that the operators have, or the caller's own function."""
    if isinstance(cost, str):
        if cost not in get_args(Cost):
            names = ", ".join(f'"{name}"' for name in get_args(Cost))
            raise ValueError(f"cost: expected one of {names}, or a function, got {cost!r}")
        return get_args(Cost).index(cost)
    if not callable(cost):
        raise TypeError(f"cost: expected a str or a function, got {type(cost).__name__}")
    function: CostFunction = cost
    return function


def check_costs(costs: object, x: Tensor, y: Tensor) -> Tensor:
    """What the caller's function has made of x and y."""
    if not isinstance(costs, Tensor):
        raise TypeError(f"cost: expected a function that returns a torch.Tensor, got {type(costs).__name__}")
    shape = (x.shape[0], x.shape[1], y.shape[1])
    if costs.shape != shape or costs.dtype != x.dtype or costs.device != x.device:
        raise ValueError(
            f"cost: expected a function that returns shape {shape}, {x.dtype}, on {x.device}, "
            f"got shape {_shape(costs)}, {costs.dtype}, on {costs.device}"
        )
    return costs


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
        raise ValueError(f"{name}: expected shape ({batch}, {steps}), one per time step, got {_shape(mask)}")
    return mask.expand(batch, steps).contiguous()


def check_settings(
    bandwidth: object,
    band: object,
    max_slope: object,
    step_penalty: object,
    precision: object = None,
    batch_invariant: object = False,
) -> Settings:
    penalty = check_number(step_penalty, "step_penalty")
    number = check_precision(precision)
    if not isinstance(batch_invariant, bool):
        raise TypeError(f"batch_invariant: expected a bool, got {type(batch_invariant).__name__}")
    return check_band(bandwidth, band, max_slope)._replace(
        step_penalty=penalty, precision=number, batch_invariant=batch_invariant
    )


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


def check_options(options: dict[str, Any], function: str, *also: str) -> None:
    """Keyword arguments that a function passes on to soft_dtw."""
    for name in options:
        if name not in (*METRIC_OPTIONS, *also):
            raise TypeError(f"{name}: expected no such argument of {function}, got one")


def check_metric_params(given: object) -> dict[str, Any]:
    """The same as an argument of a class."""
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise TypeError(f"metric_params: expected a dict or None, got {type(given).__name__}")
    for name in given:
        if name not in METRIC_OPTIONS:
            raise ValueError(f"metric_params: expected only {', '.join(METRIC_OPTIONS)}, got {name!r}")
    return given


def check_band(bandwidth: object, band: object, max_slope: object) -> Settings:
    """The band's settings, or those of none."""
    if band not in get_args(Band):
        raise ValueError(f'band: expected "sakoe_chiba", "abs", "slanted" or "itakura", got {band!r}')
    if band == "itakura":
        if bandwidth is not None:
            raise ValueError(
                f'bandwidth: expected None with band="itakura", which has max_slope, got {bandwidth}'
            )
        return Settings(band=4, max_slope=check_number(2 if max_slope is None else max_slope, "max_slope", 1))
    if max_slope is not None:
        raise ValueError(f'max_slope: expected None without band="itakura", got {max_slope}')
    if bandwidth is None:
        return Settings()
    if isinstance(bandwidth, bool) or not isinstance(bandwidth, Integral):
        raise TypeError(f"bandwidth: expected an int or None, got {type(bandwidth).__name__}")
    if bandwidth < 0:
        raise ValueError(f"bandwidth: expected a radius >= 0, or None for no band, got {bandwidth}")
    kind = {"sakoe_chiba": 1, "abs": 2, "slanted": 3}[str(band)]
    return Settings(band=kind, radius=min(int(bandwidth), 2**31 - 1))


def check_reduction(reduction: object) -> Reduction:
    if reduction not in get_args(Reduction):
        raise ValueError(f'reduction: expected "none", "mean" or "sum", got {reduction!r}')
    return reduction  # type: ignore[return-value]


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
        raise ValueError(f"{name}: expected shape ({batch},), one length per pair, got {_shape(lengths)}")
    limit = table.shape[1]
    if _can_be_read(lengths):
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


def _can_be_read(tensor: Tensor) -> bool:
    """Values are there without waiting for a device, and not hidden by torch.compile, torch.func.vmap and their like."""
    return bool(
        tensor.numel()
        and tensor.device.type == "cpu"
        and not torch.compiler.is_compiling()
        and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    )
