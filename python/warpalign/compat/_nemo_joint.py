"""RNNTJoint.forward of NeMo, with the loss of the fused joint network where its settings allow it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal

from torch import Tensor, nn

from warpalign.compat._nemo_losses import TransducerLossModule
from warpalign.transducer import JointWeights

_ACTIVATIONS: dict[type, Literal["relu", "tanh"]] = {nn.ReLU: "relu", nn.Tanh: "tanh"}


def why_not_fused(joint: Any, base: type) -> str | None:
    """Why this RNNTJoint cannot take the fused joint network; None: it can."""
    layers = list(joint.joint_net)
    kinds = [type(layer) for layer in layers]
    if not isinstance(getattr(joint.loss, "_loss", None), TransducerLossModule):
        return "its loss is not one of RNN-T, multi-blank RNN-T and TDT"
    own = ("joint", "joint_after_projection", "project_encoder", "project_prednet")
    if any(getattr(type(joint), name) is not getattr(base, name) for name in own):
        return f"{type(joint).__name__} computes the joint network itself"
    if kinds[0] not in _ACTIVATIONS or kinds[-1] is not nn.Linear or kinds[1:-1] not in ([], [nn.Dropout]):
        return f"expected relu or tanh, dropout and a linear layer, got {kinds}"
    if joint.is_adapter_available():
        return "it has adapters"
    if joint.training and joint.masking_prob > 0:
        return "it masks outputs of the prediction network"
    return None if joint.temperature == 1.0 else "its temperature is not 1"


def _losses(
    joint: Any,
    encoder_outputs: Tensor,
    decoder_outputs: Tensor,
    encoder_lengths: Tensor,
    transcripts: Tensor,
    transcript_lengths: Tensor,
) -> Tensor:
    activation, *dropout, linear = joint.joint_net
    loss: TransducerLossModule = joint.loss._loss
    labels = transcripts.shape[1]
    weights = JointWeights(linear.weight, linear.bias, activation=_ACTIVATIONS[type(activation)])
    return loss.of_joint(
        joint.project_encoder(encoder_outputs.transpose(1, 2)),
        joint.project_prednet(decoder_outputs.transpose(1, 2)[:, : labels + 1]),
        transcripts,
        weights,
        encoder_lengths,
        transcript_lengths,
        dropout=dropout[0].p if dropout and joint.training else 0.0,
    )


def fused_forward(base: type) -> Callable[..., Any]:
    """The forward of `base`, which is RNNTJoint, or the original one where the joint network cannot be fused."""
    original: Callable[..., Any] = base.forward  # type: ignore[attr-defined]
    if hasattr(original, "fuses_joint"):
        return original

    @functools.wraps(original)
    def forward(
        self: Any,
        encoder_outputs: Tensor,
        decoder_outputs: Tensor | None,
        encoder_lengths: Tensor | None = None,
        transcripts: Tensor | None = None,
        transcript_lengths: Tensor | None = None,
        compute_wer: bool = False,
        keep_hypotheses: bool = False,
    ) -> Any:
        rest = {
            "encoder_outputs": encoder_outputs,
            "encoder_lengths": encoder_lengths,
            "transcripts": transcripts,
            "transcript_lengths": transcript_lengths,
            "compute_wer": compute_wer,
            "keep_hypotheses": keep_hypotheses,
        }
        is_whole = (
            decoder_outputs is not None
            and encoder_lengths is not None
            and transcripts is not None
            and transcript_lengths is not None
        )
        if not (is_whole and self.fuse_loss_wer and why_not_fused(self, base) is None):
            return original(self, decoder_outputs=decoder_outputs, **rest)
        assert decoder_outputs is not None and encoder_lengths is not None
        assert transcripts is not None and transcript_lengths is not None
        losses = _losses(
            self, encoder_outputs, decoder_outputs, encoder_lengths, transcripts, transcript_lengths
        )
        # Without outputs of the decoder, the original computes error rates alone.
        _, *rates = original(self, decoder_outputs=None, **rest) if compute_wer else (None, None, None, None)
        if not compute_wer:
            self.hypotheses = [] if keep_hypotheses else None
        return (self.loss.reduce(losses, transcript_lengths), *rates)

    forward.fuses_joint = True  # type: ignore[attr-defined]
    return forward
