"""Checks of the arguments of the transducer losses. Messages name the argument, what was expected and what came.

Values that lie on a device are not read. On the CPU the operators themselves check lengths and labels; naming_arguments()
turns what they say into a ValueError.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch
from torch import Tensor

from warpalign._core import library
from warpalign._core.checks import DTYPES, shape_of
from warpalign._core.labels import check_column as check_column
from warpalign._core.labels import check_in_place as check_in_place
from warpalign._core.labels import check_reduction as check_reduction
from warpalign._core.labels import keyword_only as keyword_only
from warpalign._core.lengths import lengths_tensor
from warpalign._transducer.autograd import Inputs
from warpalign._transducer.settings import Settings

INTEGERS = (torch.int32, torch.int64, torch.int16, torch.int8, torch.uint8)
_BIG = 2**31 - 1


def check_logits(logits: object, name: str, packed: bool) -> Tensor:
    if not isinstance(logits, Tensor):
        raise TypeError(f"{name}: expected a torch.Tensor, got {type(logits).__name__}")
    if logits.dtype not in DTYPES:
        raise TypeError(f"{name}: expected dtype float64, float32, float16 or bfloat16, got {logits.dtype}")
    if logits.layout != torch.strided or logits.is_nested:
        kind = "nested" if logits.is_nested else logits.layout
        raise TypeError(f"{name}: expected a dense tensor (layout torch.strided), got a {kind} one")
    if logits.is_cuda and not library.has_cuda:
        raise ValueError(
            f"{name}: expected a CPU tensor, because warpalign was installed without its CUDA operators, "
            f"got one on {logits.device}"
        )
    if packed and logits.dim() != 2:
        raise ValueError(f"{name}: expected packed rows (N, V), got shape {shape_of(logits)}")
    if not packed and logits.dim() not in (3, 4):
        raise ValueError(f"{name}: expected (B, T, U+1, V) or (T, U+1, V), got shape {shape_of(logits)}")
    if logits.shape[-1] == 0 or (not packed and logits.shape[-2] == 0):
        raise ValueError(f"{name}: expected no empty axis of states or labels, got shape {shape_of(logits)}")
    if logits.shape[-1] > 1 and logits.stride(-1) != 1:
        raise ValueError(
            f"{name}: expected a last axis of stride 1, as a copy would double the largest tensor, got strides {logits.stride()}"
        )
    return logits


def check_duration_logits(
    given: object, logits: Tensor, durations: Sequence[int], packed: bool, name: str = "label_logits"
) -> Tensor:
    """name: of the labels' logits, whose dtype, device and shape the durations' must have."""
    tensor = check_logits(given, "duration_logits", packed)
    if tensor.dtype != logits.dtype:
        raise TypeError(f"duration_logits: expected the dtype of {name}, {logits.dtype}, got {tensor.dtype}")
    if tensor.device != logits.device:
        raise ValueError(
            f"duration_logits: expected the device of {name}, {logits.device}, got {tensor.device}"
        )
    shape = (*logits.shape[:-1], len(durations))
    if tensor.shape != shape:
        raise ValueError(f"duration_logits: expected shape {tuple(shape)}, got {shape_of(tensor)}")
    return tensor


def check_joined_columns(logits: Tensor, durations: Sequence[int], name: str = "label_logits") -> int:
    """The number of labels' columns, which stand before those of the durations."""
    columns = logits.shape[-1] - len(durations)
    if columns < 1:
        raise ValueError(
            f"{name}: expected columns of labels besides those of {len(durations)} durations, as duration_logits "
            f"is None, got {logits.shape[-1]}"
        )
    return columns


def check_integers(
    given: object, name: str, logits: Tensor, shape_text: str, whose: str = "the logits"
) -> Tensor:
    if not isinstance(given, Tensor):
        remedy = f": write torch.tensor({name})" if isinstance(given, (list, tuple)) else ""
        raise TypeError(
            f"{name}: expected an integer tensor {shape_text}, got {type(given).__name__}{remedy}"
        )
    if given.dtype not in INTEGERS:
        raise TypeError(f"{name}: expected dtype int64, int32, int16, int8 or uint8, got {given.dtype}")
    if given.device != logits.device:
        raise ValueError(f"{name}: expected the device of {whose}, {logits.device}, got {given.device}")
    return given


def narrowed(tensor: Tensor) -> Tensor:
    """int32; what lies beyond must not come back as a small number."""
    if tensor.dtype == torch.int64:
        tensor = tensor.clamp(-_BIG - 1, _BIG)
    return tensor.to(torch.int32).contiguous()


def check_lengths(
    given: object,
    name: str,
    device: torch.device,
    count: int | None,
    most: int | None,
    most_name: str,
    *,
    unbatched: bool = False,
    whose: str = "the logits",
) -> Tensor | None:
    """Lengths of 0 to most, one for each of count utterances; of one utterance without a batch axis a number, too."""
    if unbatched and isinstance(given, Tensor) and given.dim() == 0:
        given = given.unsqueeze(0)
    return lengths_tensor(
        given, name, count, most, device, maximum_name=most_name, whose=whose, unit="utterance"
    )


def check_inputs(
    logits: Tensor,
    duration_logits: Tensor | None,
    targets: object,
    logit_lengths: object,
    target_lengths: object,
    packed: bool,
) -> tuple[Inputs, bool]:
    """What the operators take, and whether the input was one utterance without a batch axis."""
    unbatched = not packed and logits.dim() == 3
    if unbatched:
        logits = logits.unsqueeze(0)
        duration_logits = None if duration_logits is None else duration_logits.unsqueeze(0)
    batch, frames, most = (None, None, None) if packed else logits.shape[:3]
    device = logits.device
    lengths = check_lengths(logit_lengths, "logit_lengths", device, batch, frames, "T", unbatched=unbatched)
    if packed:
        if lengths is None:
            raise ValueError("logit_lengths: expected integers (B,) with packed=True, got None")
        batch = lengths.shape[0]
    counts = check_lengths(
        target_lengths, "target_lengths", device, batch, most and most - 1, "U", unbatched=unbatched
    )
    if packed and counts is None:
        raise ValueError("target_lengths: expected integers (B,) with packed=True, got None")
    labels = check_integers(targets, "targets", logits, "(B, U)")
    if unbatched and labels.dim() == 1:
        labels = labels.unsqueeze(0)
    if labels.dim() == 1:
        if counts is None:
            raise ValueError(
                "target_lengths: expected integers (B,) with targets of one axis, all labels one after the other, got None"
            )
    else:
        states = labels.shape[-1] + 1 if packed else logits.shape[2]
        if labels.shape != (batch, states - 1):
            whole = logits[0] if unbatched else logits
            remedy = f": or the axes of logits are not ({'T' if unbatched else 'B, T'}, U+1, V)"
            if not packed and labels.shape == (batch, logits.shape[1] - 1):
                axes = "0, 1" if unbatched else "1, 2"
                remedy = f": the axes T and U+1 of logits are swapped: write logits.transpose({axes})"
            raise wrong_labels(
                labels, unbatched, int(batch or 0), states, f"logits {shape_of(whole)} have", remedy
            )
    return Inputs(logits, duration_logits, narrowed(labels), lengths, counts, None), unbatched


def wrong_labels(
    labels: Tensor, unbatched: bool, batch: int, states: int, source: str, remedy: str
) -> ValueError:
    """The error of labels whose shape is not (batch, states - 1). source: "logits (2, 6, 3, 5) have", where U + 1 comes from."""
    if labels.shape == (states - 1, batch):
        remedy = ": write targets.T"
    elif labels.shape == (batch, states):
        remedy = f": the predictor reads a start symbol before the {states} labels, which makes U + 1 = {states + 1} states"
    shape = f"({states - 1},)" if unbatched else f"({batch}, {states - 1}), (B, U), or one axis"
    came = shape_of(labels[0] if unbatched and labels.shape[0] == 1 else labels)
    return ValueError(f"targets: expected shape {shape}, as {source} U + 1 = {states}, got {came}{remedy}")


_BAD_LABEL = re.compile(
    r"targets: expected (?:columns of the logits that are no blank's|classes of the logits but blank), "
    r"got (-?\d+)( at index \d+)"
)


def explained(error: ValueError, settings: Settings, frames: int, states: int, columns: int) -> ValueError:
    """What the operators say of lengths and labels, with the numbers that the caller knows. Packed logits show no T and U.

    Lengths come this far only where Python cannot read them, as under torch.func.vmap.
    """
    text = str(error)
    if not settings.packed:
        text = text.replace("0 to T frames", f"lengths from 0 to T = {frames}")
        text = text.replace("0 to U labels", f"lengths from 0 to U = {states - 1}")
    found = _BAD_LABEL.fullmatch(text)
    if not found:
        return ValueError(text)
    label, big_blanks = int(found[1]), settings.big_blank_columns
    others = f" other than blank = {settings.blank}" + (f" and big_blanks {big_blanks}" if big_blanks else "")
    padding = "target_lengths= if it is padding"
    reason = f": write {padding}" if label < 0 else ""
    if label == settings.blank:
        reason = f", which is blank: write blank= if another column is, or {padding}"
    elif label in big_blanks:
        reason = ", which is a big blank: write big_blanks={column: frames} if other columns are"
    return ValueError(
        f"targets: expected labels from 0 to {columns - 1}{others}, got {label}{found[2]}{reason}"
    )


def check_flag(value: object, name: str) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{name}: expected a bool, got {type(value).__name__}")
    return value
