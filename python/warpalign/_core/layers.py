"""Checks of an output layer that a loss computes itself. Messages name the argument, what was expected and what came."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from torch import Tensor

from warpalign._core.checks import DTYPES, check_device, shape_of
from warpalign._core.torch_internals import is_transforming


def check_whole(given: object, axes: int, name: str) -> None:
    """Raises where FSDP has left a parameter in parts. Its module gathers it in its own forward alone.

    FSDP2 leaves a DTensor; FSDP1 a flat tensor, or one whose memory it has freed.
    """
    if not isinstance(given, Tensor) or torch.compiler.is_compiling() or is_transforming():
        return
    # Where it is not imported there are no DTensors, and importing it takes long.
    distributed = sys.modules.get("torch.distributed.tensor")
    if distributed is not None and isinstance(given, distributed.DTensor):
        came = f"a DTensor sharded as {given.placements}"
    elif type(given) not in (Tensor, torch.nn.Parameter) or given.layout != torch.strided or given.is_nested:
        return
    elif given.numel() and not given.untyped_storage().size():
        came = "a tensor without memory"
    elif given.dim() < axes and dist.is_available() and dist.is_initialized():
        came = f"a flat one of shape {shape_of(given)}"
    else:
        return
    raise ValueError(
        f"{name}: expected a whole tensor, got {came}: apply FSDP to the module that calls this function, not to "
        "the output layer alone, or gather the layer before (FSDP2: layer.unshard(); FSDP1: summon_full_params())"
    )


def check_layer(dtype: object, device: object) -> None:
    """Raises where an output layer cannot have parameters of this dtype and device."""
    if dtype is not None and dtype not in DTYPES:
        raise TypeError(f"dtype: expected float64, float32, float16 or bfloat16, got {dtype}")
    if device is not None:
        check_device(device, "device")


def as_linear_casts(tensor: Tensor) -> Tensor:
    """As torch.autocast casts the arguments of a linear layer."""
    device = tensor.device.type
    if not torch.is_autocast_enabled(device) or tensor.dtype == torch.float64:
        return tensor
    return tensor.to(torch.get_autocast_dtype(device))
