"""The joint's operators, and the shapes of what they return, for torch."""

from __future__ import annotations

import torch
from torch import Tensor

from warpalign._core.library import check_devices
from warpalign._transducer.ops import padded_saved_bytes


@torch.library.register_fake("warpalign::transducer_joint")  # type: ignore[untyped-decorator]
def _(
    encoder: Tensor,
    predictor: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    encoder_lengths: Tensor | None,
    target_lengths: Tensor | None,
    without_durations: Tensor | None,
    seed: Tensor | None,
    band: Tensor | None,
    needs_grad: bool,
    tdt: bool = False,
    durations: tuple[int, ...] = (),
    band_states: int = 0,
    **settings: object,
) -> tuple[Tensor, Tensor]:
    check_devices(
        "encoder",
        encoder=encoder,
        predictor=predictor,
        weight=weight,
        bias=bias,
        targets=targets,
        encoder_lengths=encoder_lengths,
        target_lengths=target_lengths,
        without_durations=without_durations,
        seed=seed,
        band=band,
    )
    batch, frames = encoder.shape[:2]
    states = predictor.shape[1]
    if band is not None and encoder.is_cuda and encoder.dtype != torch.float64:
        # As has_band_lattice() of the core: the band's states alone are saved.
        states = band_states if band_states <= 8 and not tdt and not durations else states
    size = padded_saved_bytes((batch, frames, states), tdt, durations, encoder.dtype)
    dtype = torch.float64 if encoder.dtype == torch.float64 else torch.float32
    aligned = (size + 255) // 256 * 256  # so that the saved memory of several calls can be stacked
    saved = encoder.new_empty(aligned if needs_grad else 0, dtype=torch.uint8)
    return encoder.new_empty(batch, dtype=dtype), saved


@torch.library.register_fake("warpalign::transducer_joint_gradient")  # type: ignore[untyped-decorator]
def _(
    encoder: Tensor,
    predictor: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    encoder_lengths: Tensor | None,
    target_lengths: Tensor | None,
    without_durations: Tensor | None,
    seed: Tensor | None,
    band: Tensor | None,
    saved: Tensor,
    grad_loss: Tensor,
    needs_encoder: bool,
    needs_predictor: bool,
    needs_weight: bool,
    needs_bias: bool,
    **settings: object,
) -> tuple[Tensor, ...]:
    return (
        encoder.new_empty(encoder.shape if needs_encoder else 0),
        encoder.new_empty(predictor.shape if needs_predictor else 0),
        encoder.new_empty(weight.shape if needs_weight else 0),
        encoder.new_empty(weight.shape[0] if needs_bias else 0),
    )


loss = torch.ops.warpalign.transducer_joint.default
gradient = torch.ops.warpalign.transducer_joint_gradient.default
