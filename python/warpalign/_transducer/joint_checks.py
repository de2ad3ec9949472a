"""Checks of the tensors of a joint network. Messages name the argument, what was expected and what came."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from warpalign._core import library
from warpalign._core.checks import DTYPES, shape_of
from warpalign._core.layers import as_linear_casts, check_whole
from warpalign._transducer.checks import (
    check_integers,
    check_lengths,
    narrowed,
    wrong_labels,
)
from warpalign._transducer.columns import Columns, check_columns
from warpalign._transducer.joint_autograd import JointInputs
from warpalign._transducer.joint_weights import JointWeights
from warpalign._transducer.settings import check_activation


def check_joint(given: object) -> tuple[JointWeights, int, Columns]:
    """The joint network with tensors of matching shapes, its activation's number, and the meaning of its columns."""
    if not isinstance(given, JointWeights):
        remedy = ": write JointWeights(weight, bias)" if isinstance(given, Tensor) else ""
        raise TypeError(f"joint: expected JointWeights, got {type(given).__name__}{remedy}")
    check_whole(given.weight, 2, "joint.weight")
    weight = _check_floats(given.weight, "joint.weight", (2,), "(V, H)")
    if 0 in weight.shape:
        raise ValueError(f"joint.weight: expected no empty axis in (V, H), got shape {shape_of(weight)}")
    if given.bias is not None:
        check_whole(given.bias, 1, "joint.bias")
        bias = _check_floats(given.bias, "joint.bias", (1,), "(V,)")
        if bias.shape != weight.shape[:1]:
            raise ValueError(
                f"joint.bias: expected shape ({weight.shape[0]},), by joint.weight, got {shape_of(bias)}"
            )
    kind = check_activation(given.activation, "joint.activation")
    arcs = check_columns(given.blank, given.durations, given.big_blanks, weight.shape[0], "joint.")
    return given, kind, arcs


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


def _rows(tensor: Tensor) -> Tensor:
    """With a last axis of stride 1."""
    return tensor if tensor.shape[-1] == 1 or tensor.stride(-1) == 1 else tensor.contiguous()


def check_joint_inputs(
    encoder_out: object,
    predictor_out: object,
    targets: object,
    joint: JointWeights,
    encoder_lengths: object,
    target_lengths: object,
) -> tuple[JointInputs, bool]:
    """What the operators take, and whether the input was one utterance without a batch axis. joint has been checked."""
    encoder, predictor, unbatched = _check_outputs(encoder_out, predictor_out, joint.weight.shape[1])
    encoder, predictor, weight = (
        as_linear_casts(encoder),
        as_linear_casts(predictor),
        as_linear_casts(joint.weight),
    )
    bias = None if joint.bias is None else as_linear_casts(joint.bias)
    for name, tensor in (("predictor_out", predictor), ("joint.weight", weight), ("joint.bias", bias)):
        if tensor is not None and tensor.dtype != encoder.dtype:
            raise TypeError(f"{name}: expected the dtype of encoder_out, {encoder.dtype}, got {tensor.dtype}")
        if tensor is not None and tensor.device != encoder.device:
            raise ValueError(
                f"{name}: expected the device of encoder_out, {encoder.device}, got {tensor.device}"
            )
    options: Any = {"unbatched": unbatched, "whose": "encoder_out"}
    batch, steps, states = *encoder.shape[:2], predictor.shape[1]
    device = encoder.device
    frames = check_lengths(encoder_lengths, "encoder_lengths", device, batch, steps, "T", **options)
    counts = check_lengths(target_lengths, "target_lengths", device, batch, states - 1, "U", **options)
    inputs = JointInputs(
        _rows(encoder),
        _rows(predictor),
        weight.contiguous(),
        None if bias is None else bias.contiguous(),
        narrowed(_check_targets(targets, encoder, predictor, counts, unbatched)),
        frames,
        counts,
        None,
        None,
    )
    return inputs, unbatched


def _check_outputs(encoder_out: object, predictor_out: object, hidden: int) -> tuple[Tensor, Tensor, bool]:
    """(B, T, H) and (B, U+1, H), and whether the input was one utterance."""
    encoder = _check_floats(encoder_out, "encoder_out", (2, 3), "(B, T, H) or (T, H)")
    unbatched = encoder.dim() == 2
    axes = "(U+1, H)" if unbatched else "(B, U+1, H)"
    predictor = _check_floats(predictor_out, "predictor_out", (2,) if unbatched else (3,), axes)
    if encoder.is_cuda and not library.has_cuda:
        raise ValueError(
            "encoder_out: expected a CPU tensor, because warpalign was installed without its CUDA operators, "
            f"got one on {encoder.device}"
        )
    if unbatched:
        encoder, predictor = encoder.unsqueeze(0), predictor.unsqueeze(0)
    batch = encoder.shape[0]
    if encoder.shape[2] != hidden:
        raise ValueError(
            f"encoder_out: expected a last axis of {hidden}, by joint.weight, got shape {shape_of(encoder)}"
        )
    if predictor.shape[0] != batch or predictor.shape[1] == 0 or predictor.shape[2] != hidden:
        raise ValueError(
            f"predictor_out: expected shape {axes} with U+1 of at least 1, by encoder_out of {shape_of(encoder)}, "
            f"got {shape_of(predictor)}"
        )
    return encoder, predictor, unbatched


def _check_targets(
    targets: object, encoder: Tensor, predictor: Tensor, counts: Tensor | None, unbatched: bool
) -> Tensor:
    """(B, U), or (sum U_b,), which needs the counts."""
    labels = check_integers(targets, "targets", encoder, "(B, U)", "encoder_out")
    batch, states = predictor.shape[:2]
    if unbatched and labels.dim() == 1:
        labels = labels.unsqueeze(0)
    if labels.dim() == 1:
        if counts is None:
            raise ValueError(
                "target_lengths: expected integers (B,) with targets of one axis, all labels one after the other, got None"
            )
    elif labels.shape != (batch, states - 1):
        whole = predictor[0] if unbatched else predictor
        swapped = labels.shape == (batch, encoder.shape[1] - 1)
        remedy = ": exchange encoder_out and predictor_out" if swapped else ""
        raise wrong_labels(labels, unbatched, batch, states, f"predictor_out {shape_of(whole)} has", remedy)
    return labels
