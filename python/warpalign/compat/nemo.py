"""NeMo's Numba losses, RNNTLossNumba, MultiblankRNNTLossNumba and TDTLossNumba, and its ForwardSumLoss.

:func:`install` puts them under NeMo's own names. "mean" is the mean over the batch and "sum" its sum, both of shape (1,).
Under FastEmit the value is 1 + lambda times the loss. omega decides once per call, for the whole batch. What differs:
results are float32 for half types, the CPU has all three, and no call waits for the GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

from torch import Tensor, nn

from warpalign.compat._installation import Installation, Installations, Replacement
from warpalign.compat._nemo_joint import fused_forward
from warpalign.compat._nemo_losses import TransducerLossModule
from warpalign.ctc import forward_sum_loss


class RNNTLossNumba(TransducerLossModule):
    """RNN-T loss of logits (B, T, U+1, V).

    Args:
        blank: the column of the blank.
        reduction: "mean" or "sum" over the batch, of shape (1,); anything else: (B,) losses.
        fastemit_lambda: FastEmit's weight.
        clamp: every entry of the gradient by the logits is clipped to [-clamp, clamp]; 0 and less: it is not.
    """

    def __init__(
        self, blank: int = 0, reduction: str = "mean", fastemit_lambda: float = 0.0, clamp: float = -1
    ) -> None:
        super().__init__(blank, reduction, fastemit_lambda, clamp)


class MultiblankRNNTLossNumba(TransducerLossModule):
    """Multi-blank loss of logits (B, T, U+1, V); the big blanks come before the blank, the last duration first.

    Args:
        blank: the column of the blank.
        big_blank_durations: the frames that each big blank consumes.
        reduction: "mean" or "sum" over the batch, of shape (1,); anything else: (B,) losses.
        fastemit_lambda: FastEmit's weight.
        clamp: every entry of the gradient by the logits is clipped to [-clamp, clamp]; 0 and less: it is not.
        sigma: logit under-normalisation.
    """

    def __init__(
        self,
        blank: int,
        big_blank_durations: Sequence[int],
        reduction: str = "mean",
        fastemit_lambda: float = 0.0,
        clamp: float = -1,
        sigma: float = 0.0,
    ) -> None:
        super().__init__(blank, reduction, fastemit_lambda, clamp)
        self.big_blank_durations = big_blank_durations
        self.sigma = sigma


class TDTLossNumba(TransducerLossModule):
    """TDT loss of logits (B, T, U+1, V + D), the durations' in the last D columns.

    Args:
        blank: the column of the blank.
        durations: the D numbers of frames.
        reduction: "mean" or "sum" over the batch, of shape (1,); anything else: (B,) losses.
        fastemit_lambda: FastEmit's weight.
        clamp: every entry of the gradient by the logits is clipped to [-clamp, clamp]; 0 and less: it is not.
        sigma: logit under-normalisation.
        omega: the probability that a call's loss is the RNN-T loss of the columns of labels.
    """

    def __init__(
        self,
        blank: int,
        durations: Sequence[int] | None = None,
        reduction: str = "mean",
        fastemit_lambda: float = 0.0,
        clamp: float = -1,
        sigma: float = 0.0,
        omega: float = 0.0,
    ) -> None:
        super().__init__(blank, reduction, fastemit_lambda, clamp)
        self.durations = durations if durations is not None else []
        self.sigma = sigma
        self.omega = omega


class ForwardSumLoss(nn.Module):
    """The loss of an aligner's attention: the mean over the batch of the loss over the length of the text.

    Args:
        blank_logprob: the logit of blank at every frame.
    """

    def __init__(self, blank_logprob: float = -1) -> None:
        super().__init__()
        self.blank_logprob = blank_logprob

    def forward(self, attn_logprob: Tensor, in_lens: Tensor, out_lens: Tensor) -> Tensor:
        """0-d, float64 for float64 attention, else float32.

        Args:
            attn_logprob: (B, 1, T, S) or (B, T, S): logarithm of the attention that frame t pays to position s.
            in_lens: (B,) true numbers of positions of the texts; integers.
            out_lens: (B,) true numbers of frames; integers.
        """
        return forward_sum_loss(attn_logprob, in_lens, out_lens, self.blank_logprob)


_LOSSES = "nemo.collections.asr.losses.rnnt"
_NUMBA = (
    "nemo.collections.asr.parts.numba.rnnt_loss",
    "nemo.collections.asr.parts.numba.rnnt_loss.rnnt_pytorch",
)
_JOINT = "nemo.collections.asr.modules.rnnt"

_installations = Installations()


def install(*, fused_joint: bool = True) -> Installation:
    """Lets NeMo's RNN-T, multi-blank and TDT models train with these losses, without a change to their configuration.

    NeMo's ``RNNTLoss`` resolves the names "default", "warprnnt_numba", "multiblank_rnnt" and "tdt" of a model's
    ``loss_name`` to three Numba losses. After this call it resolves them to this module's. Losses that exist already are
    not changed: call it before the model is made. Numba is not needed any more.

    Args:
        fused_joint: whether a joint network with ``fuse_loss_wer`` computes its loss without the logits in memory, for
            the whole batch at once whatever ``fused_batch_size`` says, by :func:`warpalign.transducer_loss_from_joint`.
            Joint networks with the sigmoid, adapters, masking, a temperature or a class that computes something else
            keep their own way.

    Returns:
        The replaced names. A ``with`` block puts the originals back at its end, as ``uninstall()`` does.

    Raises:
        ImportError: NeMo is not installed, or its modules are not where this function expects them.
    """
    return _installations.make(_replacements(fused_joint))


def uninstall() -> None:
    """Puts back what every :func:`install` has replaced. Without one it does nothing."""
    _installations.undo()


def _replacements(fused_joint: bool) -> Iterator[Replacement]:
    try:
        losses = import_module(_LOSSES)
        resolver = losses.RNNT_LOSS_RESOLVER
        joint = import_module(_JOINT).RNNTJoint if fused_joint else None
    except (ImportError, AttributeError) as error:
        raise ImportError(
            f"install: expected NeMo with {_LOSSES}.RNNT_LOSS_RESOLVER and {_JOINT}.RNNTJoint, got {error!r}: install "
            "nemo_toolkit[asr]"
        ) from error
    for name, of_numba in (("warprnnt_numba", False), ("multiblank_rnnt", True), ("tdt", True)):
        config = resolver[name]
        yield _of(config, "is_available", True, name)
        yield _of(config, "min_version", None, name)
        if of_numba:
            yield _of(config, "force_float32", False, name)
    for kind in (RNNTLossNumba, MultiblankRNNTLossNumba, TDTLossNumba):
        yield _of(losses, kind.__name__, kind, _LOSSES)
        for path in _NUMBA:
            try:
                yield _of(import_module(path), kind.__name__, kind, path)
            except ImportError:  # without Numba there is no such module
                continue
    if joint is not None:
        yield _of(joint, "forward", fused_forward(joint), f"{_JOINT}.RNNTJoint")


def _of(owner: Any, attribute: str, value: object, path: str) -> Replacement:
    return Replacement(owner, attribute, value, f"{path}.{attribute}")
