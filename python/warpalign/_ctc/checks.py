"""Checks of the arguments of CTC and monotonic alignment. Messages name the argument, what was expected and what came.

Values that lie on a device are not read. On the CPU the operators themselves check labels; explained() says with the numbers
that the caller knows what they say.
"""

from __future__ import annotations

import re

import torch
from torch import Tensor

from warpalign._core.checks import DTYPES, can_be_read, shape_of
from warpalign._core.lengths import lengths_tensor
from warpalign._ctc.autograd import Inputs
from warpalign._ctc.settings import Settings
from warpalign._ctc.settings import check_settings as check_settings

_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
_AS_THEY_ARE = (torch.int64, torch.int32)


def check_floats(given: object, name: str, axes: str, dims: tuple[int, ...] = (2, 3)) -> Tensor:
    """A dense floating-point tensor of 3 axes, or of 2 without a batch; or of other numbers of axes."""
    if not isinstance(given, Tensor):
        raise TypeError(f"{name}: expected a torch.Tensor, got {type(given).__name__}")
    if given.dtype not in DTYPES:
        raise TypeError(f"{name}: expected dtype float64, float32, float16 or bfloat16, got {given.dtype}")
    if given.layout != torch.strided or given.is_nested:
        kind = "nested" if given.is_nested else given.layout
        raise TypeError(f"{name}: expected a dense tensor (layout torch.strided), got a {kind} one")
    if given.dim() not in dims:
        single = f"({axes}{'' if ',' in axes else ','})"
        expected = f"(B, {axes}) or {single}" if len(dims) > 1 else f"shape {single}"
        came = f"shape {shape_of(given)}" if len(dims) > 1 else shape_of(given)
        raise ValueError(f"{name}: expected {expected}, got {came}")
    return given


def check_logits(given: object) -> Tensor:
    logits = check_floats(given, "logits", "T, C")
    if logits.shape[-1] == 0:
        raise ValueError(f"logits: expected at least one class, got shape {shape_of(logits)}")
    return logits


def check_lengths(
    given: object,
    name: str,
    device: torch.device,
    count: int,
    most: int,
    most_name: str,
    *,
    unbatched: bool = False,
    whose: str = "the logits",
    unit: str = "utterance",
) -> Tensor | None:
    """Lengths of 0 to most, one for each of count rows; without a batch axis a number, too.

    int64 on a device stays int64: the operators read it as it is.
    """
    if unbatched and isinstance(given, Tensor) and given.dim() == 0:
        given = given.unsqueeze(0)
    if (
        isinstance(given, Tensor)
        and given.dtype in _AS_THEY_ARE
        and given.device == device
        and given.shape == (count,)
        and not can_be_read(given)
    ):
        return given.contiguous()
    return lengths_tensor(given, name, count, most, device, maximum_name=most_name, whose=whose, unit=unit)


def check_integers(
    given: object, name: str, logits: Tensor, shape_text: str, whose: str = "the logits"
) -> Tensor:
    """Integers of the type that the operators read, with a last axis of stride 1. whose: where they lie, too."""
    if not isinstance(given, Tensor):
        remedy = f": write torch.tensor({name})" if isinstance(given, (list, tuple)) else ""
        raise TypeError(
            f"{name}: expected an integer tensor {shape_text}, got {type(given).__name__}{remedy}"
        )
    if given.dtype not in _INTEGERS:
        raise TypeError(f"{name}: expected dtype int64, int32, int16, int8 or uint8, got {given.dtype}")
    if given.device != logits.device:
        raise ValueError(f"{name}: expected the device of {whose}, {logits.device}, got {given.device}")
    if given.dtype not in _AS_THEY_ARE:
        given = given.to(torch.int32)
    return given if given.shape[-1:] == (1,) or given.stride()[-1:] == (1,) else given.contiguous()


def check_inputs(
    logits: Tensor, targets: object, logit_lengths: object, target_lengths: object, label_prior: object
) -> tuple[Inputs, bool]:
    """What the operators take, and whether the input was one utterance without a batch axis."""
    unbatched = logits.dim() == 2
    labels = check_integers(targets, "targets", logits, "(B, U)")
    if unbatched:
        logits = logits.unsqueeze(0)
        labels = labels.unsqueeze(0) if labels.dim() == 1 else labels
    batch, frames = logits.shape[:2]
    device = logits.device
    if labels.dim() not in (1, 2) or (labels.dim() == 2 and labels.shape[0] != batch):
        shape = "(U,)" if unbatched else f"({batch}, U), or one axis of all labels"
        came = shape_of(labels[0] if unbatched and labels.shape[:1] == (1,) else labels)
        is_turned = not unbatched and labels.dim() == 2 and labels.shape[1] == batch
        remedy = ": write targets.T" if is_turned else ""
        raise ValueError(f"targets: expected shape {shape}, got {came}{remedy}")
    lengths = check_lengths(logit_lengths, "logit_lengths", device, batch, frames, "T", unbatched=unbatched)
    counts = check_lengths(
        target_lengths, "target_lengths", device, batch, labels.shape[-1], "U", unbatched=unbatched
    )
    if labels.dim() == 1 and counts is None:
        raise ValueError(
            "target_lengths: expected integers (B,) with targets of one axis, all labels concatenated, got None"
        )
    return Inputs(
        logits, labels, lengths, counts, check_prior(label_prior, logits, logits.shape[-1])
    ), unbatched


def check_prior(given: object, logits: Tensor, classes: int, whose: str = "the logits") -> Tensor | None:
    """(C,) as the operators take it: of the losses' dtype, contiguous."""
    if given is None:
        return None
    if not isinstance(given, Tensor):
        raise TypeError(f"label_prior: expected a torch.Tensor (C,) or None, got {type(given).__name__}")
    if not given.is_floating_point():
        raise TypeError(f"label_prior: expected a floating-point dtype, got {given.dtype}")
    if given.device != logits.device:
        raise ValueError(f"label_prior: expected the device of {whose}, {logits.device}, got {given.device}")
    if given.shape != (classes,):
        raise ValueError(
            f"label_prior: expected shape ({classes},), one logarithm of a prior for each class, got {shape_of(given)}"
        )
    if given.requires_grad and torch.is_grad_enabled():
        raise ValueError(
            "label_prior: expected a tensor that requires no gradient, because losses are not differentiated with respect to "
            "it, got one that does: write label_prior.detach()"
        )
    return given.to(torch.float64 if logits.dtype == torch.float64 else torch.float32).contiguous()


_BAD_LABEL = re.compile(r"targets: expected classes of the logits but blank, got (-?\d+)( at index \d+)")


def explained(error: ValueError, settings: Settings, frames: int, classes: int, labels: int) -> ValueError:
    """What the operators say of lengths and labels, with the numbers that the caller knows.

    Lengths come this far only where Python cannot read them, as under torch.func.vmap.
    """
    text = str(error)
    text = text.replace("0 to T frames", f"lengths from 0 to T = {frames}")
    text = text.replace("0 to U labels", f"lengths from 0 to U = {labels}")
    found = _BAD_LABEL.fullmatch(text)
    if not found:
        return ValueError(text)
    label = int(found[1])
    others = f" other than blank = {settings.blank}" + (
        f", or star = {settings.star}" if settings.star >= 0 else ""
    )
    reason = ": write target_lengths= if it is padding" if label < 0 else ""
    if label == settings.blank:
        reason = ", which is blank: write blank= if another class is, or target_lengths= if it is padding"
    return ValueError(
        f"targets: expected labels from 0 to {classes - 1}{others}, got {label}{found[2]}{reason}"
    )
