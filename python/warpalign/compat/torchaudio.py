"""torchaudio's ``rnnt_loss``, ``RNNTLoss``, ``forced_align``, ``merge_tokens`` and ``TokenSpan``, of torchaudio 2.11.

What differs in forced_align: it takes batches, of which a path ends with its utterance (blanks follow it, with score 0); sums are
float64; and where the label before and the one two before are equally good, and better than the same one, the best path is found.
What differs in rnnt_loss: losses of float16 logits are float32, where torchaudio's overflow; bfloat16, float64, any strides and any integer
type are accepted; a length of 0 is fine, and no length must reach its axis. Both may be compiled by torch.jit.script; a process
that loads them must import this module before.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from warpalign.ctc import ctc_align
from warpalign.transducer import transducer_loss


def rnnt_loss(
    logits: Tensor,
    targets: Tensor,
    logit_lengths: Tensor,
    target_lengths: Tensor,
    blank: int = -1,
    clamp: float = -1,
    reduction: str = "mean",
    fused_log_softmax: bool = True,
) -> Tensor:
    """RNN-T loss: (B,) with "none", else a number.

    Args:
        logits: (B, T, U+1, V) logits, float64, float32, float16 or bfloat16.
        targets: (B, U) labels; integers.
        logit_lengths: (B,) true numbers of frames; integers.
        target_lengths: (B,) true numbers of labels; integers.
        blank: the column of the blank; a negative number counts from V.
        clamp: gradients are clamped to ±clamp; 0 and less: they are not.
        reduction: "none", "mean" or "sum".
        fused_log_softmax: True: of logits. False: of log-probabilities, with the gradient with respect to them.
    """
    if torch.jit.is_scripting():  # type: ignore[attr-defined]
        result: Tensor = torch.ops.warpalign.torchaudio_rnnt_loss(
            logits, targets, logit_lengths, target_lengths, blank, clamp, reduction, fused_log_softmax
        )
        return result
    else:  # TorchScript would compile what follows a return
        return _rnnt_loss(
            logits, targets, logit_lengths, target_lengths, blank, clamp, reduction, fused_log_softmax
        )


def _rnnt_loss(
    logits: Tensor,
    targets: Tensor,
    logit_lengths: Tensor,
    target_lengths: Tensor,
    blank: int,
    clamp: float,
    reduction: str,
    fused_log_softmax: bool,
) -> Tensor:
    if reduction not in ("none", "mean", "sum"):
        raise ValueError('reduction should be one of "none", "mean", or "sum"')
    return transducer_loss(
        logits,
        targets,
        logit_lengths,
        target_lengths,
        blank=blank,
        clamp=clamp if clamp > 0 else None,
        from_log_probs=not fused_log_softmax,
        reduction=reduction,  # type: ignore[arg-type]
    )


# TorchScript calls an operator by its name, where it cannot read Python. Its gradient is that of the function within.
_library = torch.library.Library("warpalign", "FRAGMENT")
_library.define(
    "torchaudio_rnnt_loss(Tensor logits, Tensor targets, Tensor logit_lengths, Tensor target_lengths, int blank, float clamp, "
    "str reduction, bool fused_log_softmax) -> Tensor"
)
_library.impl("torchaudio_rnnt_loss", _rnnt_loss, "CompositeImplicitAutograd")


class RNNTLoss(nn.Module):
    """:func:`rnnt_loss` with fixed settings.

    Args:
        blank: the column of the blank; a negative number counts from V.
        clamp: gradients are clamped to ±clamp; 0 and less: they are not.
        reduction: "none", "mean" or "sum".
        fused_log_softmax: True: of logits. False: of log-probabilities, with the gradient with respect to them.
    """

    def __init__(
        self, blank: int = -1, clamp: float = -1.0, reduction: str = "mean", fused_log_softmax: bool = True
    ) -> None:
        super().__init__()
        self.blank = blank
        self.clamp = clamp
        self.reduction = reduction
        self.fused_log_softmax = fused_log_softmax

    def forward(
        self, logits: Tensor, targets: Tensor, logit_lengths: Tensor, target_lengths: Tensor
    ) -> Tensor:
        """As :func:`rnnt_loss`.

        Args:
            logits: (B, T, U+1, V) logits, float64, float32, float16 or bfloat16.
            targets: (B, U) labels; integers.
            logit_lengths: (B,) true numbers of frames; integers.
            target_lengths: (B,) true numbers of labels; integers.
        """
        return rnnt_loss(
            logits,
            targets,
            logit_lengths,
            target_lengths,
            self.blank,
            self.clamp,
            self.reduction,
            self.fused_log_softmax,
        )


def forced_align(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor | None = None,
    target_lengths: Tensor | None = None,
    blank: int = 0,
) -> tuple[Tensor, Tensor]:
    """The best CTC path: labels (B, T), of the dtype of targets, and scores (B, T), of that of log_probs.

    Blanks of score 0 follow the end of an utterance.

    Args:
        log_probs: (B, T, C) log-probabilities.
        targets: (B, L) labels without blank.
        input_lengths: (B,) true numbers of frames; None: all T.
        target_lengths: (B,) true numbers of labels; None: all L.
        blank: the class of the blank.
    """
    if targets.device.type == "cpu":
        if blank in targets:
            raise ValueError(f"targets Tensor shouldn't contain blank index. Found {targets}.")
        if targets.numel() and torch.max(targets) >= log_probs.shape[-1]:
            raise ValueError("targets values must be less than the CTC dimension")
    found = ctc_align(log_probs, targets, input_lengths, target_lengths, blank=blank, from_log_probs=True)
    if found.score.device.type == "cpu" and found.score.isinf().any():
        b = int(found.score.isinf().nonzero()[0])
        labels = targets[b] if target_lengths is None else targets[b, : target_lengths[b]]
        frames = log_probs.shape[1] if input_lengths is None else int(input_lengths[b])
        repeats = int((labels[1:] == labels[:-1]).sum())
        raise RuntimeError(
            f"targets length is too long for CTC. Found log_probs length: {frames}, targets length: {len(labels)}, and number "
            f"of repeats: {repeats}"
        )
    padding = found.labels < 0
    return found.labels.masked_fill(padding, blank).to(targets.dtype), found.scores.to(log_probs.dtype)


@dataclass
class TokenSpan:
    """A token with its frames and the mean of their scores.

    Args:
        token: the class.
        start: the first frame.
        end: the frame after the last one.
        score: the mean of the frames' scores.
    """

    token: int
    start: int
    end: int
    score: float

    def __len__(self) -> int:
        """The number of frames."""
        return self.end - self.start


def merge_tokens(tokens: Tensor, scores: Tensor, blank: int = 0) -> list[TokenSpan]:
    """Runs of equal labels but blank, from one utterance's path and its scores.

    Args:
        tokens: (T,) the path, from :func:`forced_align`.
        scores: (T,) its scores.
        blank: the class of the blank.
    """
    if tokens.ndim != 1 or scores.ndim != 1:
        raise ValueError("`tokens` and `scores` must be 1D Tensor.")
    if len(tokens) != len(scores):
        raise ValueError("`tokens` and `scores` must be the same length.")
    labels, counts = torch.unique_consecutive(tokens, return_counts=True)
    ends = counts.cumsum(0).tolist()
    spans = []
    for token, start, end in zip(labels.tolist(), [0, *ends[:-1]], ends, strict=True):
        if token != blank:
            spans.append(TokenSpan(token, start, end, scores[start:end].mean().item()))
    return spans
