"""The drop-ins of transducer losses."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from tests.python.bad_calls import BadCall, BadCalls, Given
from tests.python.transducer.bad_calls.functional import logits, targets
from warpalign.compat import apex, caiman, torchaudio, transformers, warp_rnnt, warprnnt_pytorch


def lengths(given: Given) -> tuple[torch.Tensor, torch.Tensor]:
    return given.ints(5, 5, 5), given.ints(2, 2, 2)


CALLS: BadCalls = {
    "torchaudio: reduction": BadCall(
        lambda g: torchaudio.rnnt_loss(logits(g), targets(g), *lengths(g), reduction="max"),
        ValueError,
        'reduction should be one of "none", "mean", or "sum"',
    ),
    "warprnnt_pytorch: reduction": BadCall(
        lambda g: warprnnt_pytorch.rnnt_loss(logits(g), targets(g), *lengths(g), reduction="max"),
        ValueError,
        "reduction: expected 'mean', 'sum' or 'none', got 'max'",
    ),
    "warp_rnnt: reduction": BadCall(
        lambda g: warp_rnnt.rnnt_loss(logits(g), targets(g), *lengths(g), reduction="max", blank=5),
        ValueError,
        "reduction: expected 'none', 'sum', 'mean' or None, got 'max'",
    ),
    "transformers: reduction": BadCall(
        lambda g: transformers.rnnt_loss(logits(g), targets(g), *lengths(g), 5, "max"),
        ValueError,
        "Invalid reduction mode \"max\". Expected one of 'mean_volume', 'mean_batch', 'mean', 'sum', 'none'.",
    ),
    "transformers: activation of the joint network": BadCall(
        lambda g: transformers.joint_loss(
            SimpleNamespace(config=SimpleNamespace(hidden_act="silu")),  # type: ignore[arg-type]
            labels=targets(g),
            decoder_input_ids=targets(g),
        ),
        ValueError,
        'model: expected a joint network with "relu" or "tanh", got \'silu\': call the model itself',
    ),
    "apex: packed without offsets": BadCall(
        lambda g: apex.TransducerLoss(packed_input=True)(logits(g, 45, 6), targets(g), *lengths(g), 5),
        ValueError,
        "Please specify batch_offset and max_f_len when packing is enabled",
    ),
    "apex: debug_list": BadCall(
        lambda g: apex.TransducerLoss()(logits(g), targets(g), *lengths(g), 5, debug_list=[]),
        NotImplementedError,
        "debug_list: expected None, as there is no alpha and no beta here, got a list",
    ),
    "caiman: eos_idx": BadCall(
        lambda g: caiman.TransducerLoss()(logits(g), targets(g), *lengths(g), 5, 5),
        ValueError,
        "eos_idx: expected another column than blank_idx = 5, got 5",
    ),
    "caiman: star_idx": BadCall(
        lambda g: caiman.TransducerLoss()(logits(g), targets(g), *lengths(g), 5, 4, 4),
        ValueError,
        "star_id: expected another label than eos_id, got 4 for both",
    ),
    "apex: packed joint without offsets": BadCall(
        lambda g: apex.TransducerJoint(pack_output=True)(logits(g, 3, 5, 4), logits(g, 3, 3, 4), *lengths(g)),
        ValueError,
        "Please specify batch_offset and packed_batch when packing is enabled",
    ),
}
