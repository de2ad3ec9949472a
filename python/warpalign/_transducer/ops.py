"""The transducer's operators, and the shapes of what they return, for torch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from warpalign._core.library import check_devices
from warpalign._core.saved_bytes import transducer_arcs, transducer_saved_bytes


def padded_saved_bytes(shape: Any, tdt: bool, durations: tuple[int, ...], dtype: torch.dtype) -> Any:
    """Bytes of the saved tensor for logits (B, T, U+1, ..), enough for the layout of every device."""
    batch, frames, states = shape[:3]
    rows = batch * frames * states
    return _saved_bytes(False, batch, frames, states, rows, tdt, durations, dtype)


def _saved_bytes(
    packed: bool,
    batch: Any,
    frames: Any,
    states: Any,
    rows: Any,
    tdt: bool,
    durations: tuple[int, ...],
    dtype: torch.dtype,
) -> Any:
    return transducer_saved_bytes(
        packed,
        b=batch,
        t=frames,
        s=states,
        rows=rows,
        arcs=transducer_arcs(tdt, tuple(durations)),
        size=8 if dtype == torch.float64 else 4,
    )


@torch.library.register_fake("warpalign::transducer")  # type: ignore[untyped-decorator]
def _(
    logits: Tensor,
    duration_logits: Tensor | None,
    targets: Tensor,
    logit_lengths: Tensor | None,
    target_lengths: Tensor | None,
    without_durations: Tensor | None,
    needs_grad: bool,
    durations: tuple[int, ...] = (),
    packed: bool = False,
    **settings: object,
) -> tuple[Tensor, Tensor]:
    check_devices(
        "logits",
        logits=logits,
        duration_logits=duration_logits,
        targets=targets,
        logit_lengths=logit_lengths,
        target_lengths=target_lengths,
        without_durations=without_durations,
    )
    tdt = duration_logits is not None
    if packed:
        assert logit_lengths is not None
        batch = logit_lengths.shape[0]
        rows, states = logits.shape[0], targets.shape[-1] + 1
        size = _saved_bytes(True, batch, rows, states, rows, tdt, durations, logits.dtype)
    else:
        batch = logits.shape[0]
        size = padded_saved_bytes(logits.shape, tdt, durations, logits.dtype)
    dtype = torch.float64 if logits.dtype == torch.float64 else torch.float32
    return logits.new_empty(batch, dtype=dtype), logits.new_empty(
        size if needs_grad else 0, dtype=torch.uint8
    )


@torch.library.register_fake("warpalign::transducer_gradient")  # type: ignore[untyped-decorator]
def _(
    logits: Tensor, duration_logits: Tensor | None, *rest: Any, **settings: object
) -> tuple[Tensor, Tensor]:
    durations = logits.new_empty(0) if duration_logits is None else logits.new_empty(duration_logits.shape)
    return logits.new_empty(logits.shape), durations


@torch.library.register_fake("warpalign::transducer_gradient_joined")  # type: ignore[untyped-decorator]
def _(logits: Tensor, duration_logits: Tensor, *rest: Any, **settings: object) -> Tensor:
    return logits.new_empty((*logits.shape[:-1], logits.shape[-1] + duration_logits.shape[-1]))


@torch.library.register_fake("warpalign::transducer_gradient_")  # type: ignore[untyped-decorator]
def _(logits: Tensor, *rest: Any, **settings: object) -> None:
    return None


@torch.library.register_fake("warpalign::transducer_align")  # type: ignore[untyped-decorator]
def _(
    logits: Tensor,
    duration_logits: Tensor | None,
    targets: Tensor,
    logit_lengths: Tensor | None,
    target_lengths: Tensor | None,
    without_durations: Tensor | None,
    posteriors: bool,
    durations: tuple[int, ...] = (),
    packed: bool = False,
    **settings: object,
) -> tuple[Tensor, ...]:
    check_devices(
        "logits",
        logits=logits,
        duration_logits=duration_logits,
        targets=targets,
        logit_lengths=logit_lengths,
        target_lengths=target_lengths,
        without_durations=without_durations,
    )
    batch = logit_lengths.shape[0] if packed and logit_lengths is not None else logits.shape[0]
    dtype = torch.float64 if logits.dtype == torch.float64 else torch.float32
    rows = logits.shape[:-1]
    blanks = rows if packed else rows[:2]
    integer = torch.int32
    part = rows if posteriors else (0,)
    groups = (len(durations), *rows) if posteriors else (0,)
    return (
        logits.new_empty(batch, dtype=dtype),
        logits.new_empty(targets.shape, dtype=integer),
        logits.new_empty(targets.shape, dtype=integer),
        logits.new_empty(blanks, dtype=integer),
        logits.new_empty(part, dtype=dtype),
        logits.new_empty(part, dtype=dtype),
        logits.new_empty(groups, dtype=dtype),
    )


@torch.library.register_fake("warpalign::transducer_band")  # type: ignore[untyped-decorator]
def _(
    gradients: Tensor, logit_lengths: Tensor | None, target_lengths: Tensor | None, band_states: int
) -> Tensor:
    return gradients.new_empty(gradients.shape[:2], dtype=torch.int32)


# An operator of CTC: in one read of the logits their log-sums, and log-probabilities of blank and labels.
emissions = torch.ops.warpalign.ctc_chunk_emissions_.default
band = torch.ops.warpalign.transducer_band.default
loss = torch.ops.warpalign.transducer.default
gradient = torch.ops.warpalign.transducer_gradient.default
align = torch.ops.warpalign.transducer_align.default
gradient_joined = torch.ops.warpalign.transducer_gradient_joined.default
gradient_in_place = torch.ops.warpalign.transducer_gradient_.default
