"""``rnnt_loss`` and ``tdt_loss`` of Transformers 5 (``transformers.loss.loss_rnnt`` and ``loss_tdt``), as Parakeet uses them.

:func:`install` puts them under their own names, and :func:`joint_loss` computes a Parakeet model's loss without its logits.
"mean" divides each loss by its number of labels, "mean_batch" does not, and "mean_volume" divides the sum of losses by the sum
of labels. What differs: a number of labels of 0 counts as 1, half types are not widened, and targets may stand in padding
with any value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any, Literal

from torch import Tensor, nn

from warpalign import transducer
from warpalign.compat._installation import Installation, Installations, Replacement
from warpalign.transducer import JointWeights

_REDUCTIONS: dict[str, Literal["mean_volume", "mean", "mean_target", "sum", "none"]] = {
    "mean_volume": "mean_volume",
    "mean_batch": "mean",
    "mean": "mean_target",
    "sum": "sum",
    "none": "none",
}


def _reduction(name: str) -> Literal["mean_volume", "mean", "mean_target", "sum", "none"]:
    if name not in _REDUCTIONS:
        raise ValueError(
            f'Invalid reduction mode "{name}". Expected one of {", ".join(map(repr, _REDUCTIONS))}.'
        )
    return _REDUCTIONS[name]


def rnnt_loss(
    logits: Tensor,
    targets: Tensor,
    logit_lengths: Tensor,
    target_lengths: Tensor,
    blank_token_id: int,
    reduction: str = "mean_volume",
) -> Tensor:
    """RNN-T loss of logits (B, T, U+1, V).

    Args:
        logits: (B, T, U+1, V).
        targets: (B, U) labels.
        logit_lengths: (B,) numbers of frames.
        target_lengths: (B,) numbers of labels.
        blank_token_id: the column of the blank.
        reduction: "mean_volume", "mean_batch", "mean", "sum" or "none".
    """
    device = logits.device
    return transducer.transducer_loss(
        logits,
        targets.to(device),
        logit_lengths.to(device),
        target_lengths.to(device),
        blank=blank_token_id,
        reduction=_reduction(reduction),
    )


def tdt_loss(
    token_logits: Tensor,
    duration_logits: Tensor,
    targets: Tensor,
    logit_lengths: Tensor,
    target_lengths: Tensor,
    blank_token_id: int,
    durations: Sequence[int],
    sigma: float = 0.0,
    reduction: str = "mean",
) -> Tensor:
    """TDT loss of logits (B, T, U+1, V) and (B, T, U+1, D).

    Args:
        token_logits: (B, T, U+1, V).
        duration_logits: (B, T, U+1, D).
        targets: (B, U) labels.
        logit_lengths: (B,) numbers of frames.
        target_lengths: (B,) numbers of labels.
        blank_token_id: the column of the blank.
        durations: the D numbers of frames.
        sigma: logit under-normalisation.
        reduction: "mean_volume", "mean_batch", "mean", "sum" or "none".
    """
    device = token_logits.device
    return transducer.tdt_loss(
        token_logits,
        duration_logits,
        targets.to(device),
        logit_lengths.to(device),
        target_lengths.to(device),
        durations=durations,
        blank=blank_token_id,
        sigma=sigma,
        reduction=_reduction(reduction),
    )


def joint_loss(
    model: nn.Module,
    *,
    labels: Tensor,
    decoder_input_ids: Tensor,
    input_features: Tensor | None = None,
    attention_mask: Tensor | None = None,
    encoder_outputs: Any = None,
    sigma: float = 0.0,
    reduction: str | None = None,
    **kwargs: Any,
) -> Tensor:
    """The loss of a ``ParakeetForRNNT`` or ``ParakeetForTDT``, without the logits of the joint network in memory.

    It is ``model(..., labels=labels).loss`` by :func:`warpalign.transducer_loss_from_joint`. The logits of a batch have
    B·T·(U+1)·V numbers, and their gradient as many.

    Args:
        model: the model, whose joint network has the activation relu or tanh.
        labels: (B, U) labels, as the model takes them: padded with its blank (RNN-T) or pad token (TDT).
        decoder_input_ids: (B, U+1) tokens of the prediction network, from the start token on.
        input_features: (B, T', F) features of the sound. None: ``encoder_outputs`` are given.
        attention_mask: (B, T') what is no padding of the features.
        encoder_outputs: what ``model.get_audio_features`` returns. None: it is called.
        sigma: logit under-normalisation.
        reduction: "mean_volume", "mean_batch", "mean", "sum" or "none". None: the model's own default, "mean_volume" for
            RNN-T and "mean" for TDT.
        **kwargs: what ``model.get_audio_features`` takes besides.

    Returns:
        The loss: a scalar, or (B,) with the reduction "none".

    Raises:
        ValueError: the joint network has another activation, or there is no such reduction.
    """
    of: Any = model
    config = of.config
    if config.hidden_act not in ("relu", "tanh"):
        raise ValueError(
            f'model: expected a joint network with "relu" or "tanh", got {config.hidden_act!r}: call the model itself'
        )
    durations = getattr(config, "durations", None)
    if encoder_outputs is None:
        encoder_outputs = of.get_audio_features(
            input_features=input_features, attention_mask=attention_mask, **kwargs
        )
    padding = config.blank_token_id if durations is None else config.pad_token_id
    head = of.joint.head
    return transducer.transducer_loss_from_joint(
        encoder_outputs.pooler_output,
        of.decoder(decoder_input_ids, cache=None)[:, : labels.shape[1] + 1],
        labels,
        JointWeights(
            head.weight, head.bias, config.hidden_act, config.blank_token_id, durations and tuple(durations)
        ),
        encoder_outputs.attention_mask.sum(-1),
        (labels != padding).sum(-1),
        sigma=sigma,
        reduction=_reduction(reduction or ("mean_volume" if durations is None else "mean")),
    )


_LOSSES = {"transformers.loss.loss_rnnt": rnnt_loss, "transformers.loss.loss_tdt": tdt_loss}

_installations = Installations()


def install() -> Installation:
    """Lets the Parakeet models of Transformers train with these losses, without a change to the models.

    Returns:
        The replaced names. A ``with`` block puts the originals back at its end, as ``uninstall()`` does.

    Raises:
        ImportError: Transformers 5 is not installed, or its losses are not where this function expects them.
    """
    return _installations.make(_replacements())


def uninstall() -> None:
    """Puts back what every :func:`install` has replaced. Without one it does nothing."""
    _installations.undo()


def _replacements() -> Iterator[Replacement]:
    for path, function in _LOSSES.items():
        name = function.__name__
        try:
            module = import_module(path)
            getattr(module, name)
        except (ImportError, AttributeError) as error:
            raise ImportError(
                f"install: expected Transformers 5 with {path}.{name}, got {error!r}: install transformers>=5"
            ) from error
        yield Replacement(module, name, function, f"{path}.{name}")
