"""SpeechBrain's ``transducer_loss`` (``speechbrain.nnet.losses``), and :func:`install`, which puts it under that name.

Lengths are shares of the padded length, as everywhere in SpeechBrain. What differs: the loss runs on a CPU too, without
Numba, keeps no log-probabilities, and the gradient of "mean" is that of the mean. SpeechBrain 1.1.2 returns the gradient
of the sum there, B times as large: adapt the learning rate.
"""

from __future__ import annotations

from importlib import import_module
from typing import Literal

from torch import Tensor

from warpalign import transducer
from warpalign.compat._installation import Installation, Installations, Replacement

_LOSSES = "speechbrain.nnet.losses"

_installations = Installations()


def transducer_loss(
    logits: Tensor,
    targets: Tensor,
    input_lens: Tensor,
    target_lens: Tensor,
    blank_index: int,
    reduction: Literal["mean", "sum", "none"] = "mean",
) -> Tensor:
    """RNN-T loss of logits (B, T, U+1, V).

    Args:
        logits: (B, T, U+1, V).
        targets: (B, U) labels, without blanks.
        input_lens: (B,) shares of T in [0, 1].
        target_lens: (B,) shares of U in [0, 1].
        blank_index: the column of the blank.
        reduction: "mean" or "sum" over the batch, or "none", (B,).
    """
    return transducer.transducer_loss(
        logits,
        targets,
        (input_lens * logits.shape[1]).round().int(),
        (target_lens * targets.shape[1]).round().int(),
        blank=blank_index,
        reduction=reduction,
    )


def install() -> Installation:
    """Lets recipes of SpeechBrain train with this loss: ``!name:speechbrain.nnet.losses.transducer_loss`` is this function.

    Call it before hyperparameters are loaded, because they keep the function that they find.

    Returns:
        The replaced names. A ``with`` block puts the original back at its end, as ``uninstall()`` does.

    Raises:
        ImportError: SpeechBrain is not installed, or its loss is not where this function expects it.
    """
    try:
        losses = import_module(_LOSSES)
        losses.transducer_loss  # noqa: B018
    except (ImportError, AttributeError) as error:
        raise ImportError(
            f"install: expected SpeechBrain with {_LOSSES}.transducer_loss, got {error!r}: install speechbrain"
        ) from error
    return _installations.make(
        [Replacement(losses, "transducer_loss", transducer_loss, f"{_LOSSES}.transducer_loss")]
    )


def uninstall() -> None:
    """Puts the original back. Without :func:`install` it does nothing."""
    _installations.undo()
