"""Checks of the tensors of a joint network. Messages name the argument, what was expected and what came."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from warpalign._core import library
from warpalign._core.checks import DTYPES, check_device, shape_of
from warpalign._transducer.checks import (
    check_integers,
    check_lengths,
    check_whole,
    narrowed,
    wrong_labels,
)
from warpalign._transducer.joint_autograd import JointInputs

ACTIVATIONS = ("relu", "tanh")


def check_activation(activation: object) -> int:
    """Its number in the C++ core."""
    if activation not in ACTIVATIONS:
        expected = " or ".join(f'"{name}"' for name in ACTIVATIONS)
        raise ValueError(f"activation: expected {expected}, got {activation!r}")
    return ACTIVATIONS.index(activation)


def check_layer(dtype: object, device: object) -> None:
    """Raises where an output layer cannot have parameters of this dtype and device."""
    if dtype is not None and dtype not in DTYPES:
        raise TypeError(f"dtype: expected float64, float32, float16 or bfloat16, got {dtype}")
    if device is not None:
        check_device(device, "device")


def _check_floats(given: object, name: str, dims: tuple[int, ...], axes: str) -> Tensor:
    if not isinstance(given, Tensor):
        raise TypeError(f"{name}: expected a torch.Tensor, got {type(given).__name__}")
    if given.dtype not in DTYPES:
        raise TypeError(f"{name}: expected dtype float64, float32, float16 or bfloat16, got {given.dtype}")
    if given.layout != torch.strided or given.is_nested:
        kind = "nested" if given.is_nested else given.layout
        raise TypeError(f"{name}: expected a dense tensor (layout torch.strided), got a {kind} one")
    if given.dim() not in dims:
        raise ValueError(f"{name}: expected shape {axes}, got {shape_of(given)}")
    return given


def _autocast(tensor: Tensor) -> Tensor:
    """As torch.autocast casts the arguments of a linear layer."""
    device = tensor.device.type
    if not torch.is_autocast_enabled(device) or tensor.dtype == torch.float64:
        return tensor
    return tensor.to(torch.get_autocast_dtype(device))


def _rows(tensor: Tensor) -> Tensor:
    """With a last axis of stride 1."""
    return tensor if tensor.shape[-1] == 1 or tensor.stride(-1) == 1 else tensor.contiguous()


def check_joint_inputs(
    encoder: object,
    predictor: object,
    weight: object,
    bias: object,
    targets: object,
    encoder_lengths: object,
    target_lengths: object,
) -> tuple[JointInputs, bool]:
    """What the operators take, and whether the input was one utterance without a batch axis."""
    encoder = _check_floats(encoder, "encoder", (2, 3), "(B, T, H) or (T, H)")
    unbatched = encoder.dim() == 2
    axes = "(U+1, H)" if unbatched else "(B, U+1, H)"
    predictor = _check_floats(predictor, "predictor", (2,) if unbatched else (3,), axes)
    check_whole(weight, 2, "weight")
    weight = _check_floats(weight, "weight", (2,), "(V, H)")
    if encoder.is_cuda and not library.has_cuda:
        raise ValueError(
            "encoder: expected a CPU tensor, because warpalign was installed without its CUDA operators, "
            f"got one on {encoder.device}"
        )
    if unbatched:
        encoder, predictor = encoder.unsqueeze(0), predictor.unsqueeze(0)
    batch, _, hidden = encoder.shape
    if hidden == 0:
        raise ValueError(f"encoder: expected no empty last axis, got shape {shape_of(encoder)}")
    if predictor.shape[0] != batch or predictor.shape[1] == 0 or predictor.shape[2] != hidden:
        raise ValueError(
            f"predictor: expected shape {axes} with U+1 of at least 1, by encoder of {shape_of(encoder)}, "
            f"got {shape_of(predictor)}"
        )
    if weight.shape[0] == 0 or weight.shape[1] != hidden:
        raise ValueError(
            f"weight: expected shape (V, {hidden}), by encoder's last axis, got {shape_of(weight)}"
        )
    if bias is not None:
        check_whole(bias, 1, "bias")
        bias = _check_floats(bias, "bias", (1,), "(V,)")
        if bias.shape != weight.shape[:1]:
            raise ValueError(f"bias: expected shape ({weight.shape[0]},), by weight, got {shape_of(bias)}")
    encoder, predictor, weight = _autocast(encoder), _autocast(predictor), _autocast(weight)
    bias = None if bias is None else _autocast(bias)
    for name, tensor in (("predictor", predictor), ("weight", weight), ("bias", bias)):
        if tensor is not None and tensor.dtype != encoder.dtype:
            raise TypeError(f"{name}: expected the dtype of encoder, {encoder.dtype}, got {tensor.dtype}")
        if tensor is not None and tensor.device != encoder.device:
            raise ValueError(f"{name}: expected the device of encoder, {encoder.device}, got {tensor.device}")
    options: Any = {"unbatched": unbatched, "whose": "encoder"}
    device, steps, states = encoder.device, encoder.shape[1], predictor.shape[1]
    frames = check_lengths(encoder_lengths, "encoder_lengths", device, batch, steps, "T", **options)
    counts = check_lengths(target_lengths, "target_lengths", device, batch, states - 1, "U", **options)
    labels = check_integers(targets, "targets", encoder, "(B, U)", "encoder")
    if unbatched and labels.dim() == 1:
        labels = labels.unsqueeze(0)
    if labels.dim() == 1:
        if counts is None:
            raise ValueError(
                "target_lengths: expected integers (B,) with targets of one axis, all labels behind each other, got None"
            )
    elif labels.shape != (batch, states - 1):
        whole = predictor[0] if unbatched else predictor
        swapped = labels.shape == (batch, encoder.shape[1] - 1)
        remedy = ": exchange encoder and predictor" if swapped else ""
        raise wrong_labels(labels, unbatched, batch, states, f"predictor {shape_of(whole)} has", remedy)
    inputs = JointInputs(
        _rows(encoder),
        _rows(predictor),
        weight.contiguous(),
        None if bias is None else bias.contiguous(),
        narrowed(labels),
        frames,
        counts,
        None,
        None,
    )
    return inputs, unbatched
