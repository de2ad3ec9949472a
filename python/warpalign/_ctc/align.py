"""Alignments by CTC: best paths, and posteriors of labels."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from warpalign._core.checks import naming_arguments
from warpalign._core.labels import keyword_only
from warpalign._core.series import Lengths
from warpalign._ctc import autograd
from warpalign._ctc.checks import check_inputs, check_logits, check_settings, explained


class CTCAlignment(NamedTuple):
    """Best paths of a batch, by :func:`ctc_align`. For one utterance without a batch axis B is left out."""

    score: Tensor
    """(B,): log-probability of the best path; −inf where there is none, NaN where a logit is NaN or +inf."""
    labels: Tensor
    """(B, T), int32: the class of each frame: blank, a label, or star; −1 after T_b, and where there is no path."""
    scores: Tensor
    """(B, T): log-probability of each frame's class, less its prior; 0 after T_b, and where there is no path."""
    spans: Tensor
    """(B, U, 2), int32, or (sum U_b, 2) for targets of one axis: first and last frame of each label; −1 after U_b, and where
    there is no path."""


@keyword_only(
    4,
    "write blank=, or use warpalign.compat.torchaudio.forced_align, which has torchaudio's order of arguments",
)
def ctc_align(
    logits: Tensor,
    targets: Tensor,
    logit_lengths: Lengths | None = None,
    target_lengths: Lengths | None = None,
    *,
    blank: int = 0,
    from_log_probs: bool = False,
    label_prior: Tensor | None = None,
    star: int | None = None,
) -> CTCAlignment:
    """The most probable CTC path of every utterance: forced alignment of labels to frames.

    Sums of log-probabilities are float64. Among paths of equal probability, the choice is torchaudio's: from the end,
    the last label rather than the last blank, then the same state rather than the one before. No matrix of frames and labels
    is stored: 60 000 frames and 15 000 labels take 16 MB on a CPU.

    Args:
        logits: (B, T, C) or (T, C), as in :func:`ctc_loss`.
        targets: (B, U), (U,) or (sum U_b,), as in :func:`ctc_loss`.
        logit_lengths: (B,) true numbers of frames T_b, 0 to T. None: all T.
        target_lengths: (B,) true numbers of labels U_b, 0 to U. None: all U.
        blank: the class of the blank; a negative number counts from C.
        from_log_probs: True: the logits are log-probabilities.
        label_prior: (C,) logarithms of priors of the classes, which are subtracted from log-probabilities.
        star: a label that matches any class but blank, with the log-probability of the most probable one. Use it for
            text that the model has no symbol for, as whisperX does. None: there is none.

    Returns:
        CTCAlignment(score, labels, scores, spans). Reals are float64 for float64 logits, else float32. The results are
        not differentiable.

    Raises:
        TypeError, ValueError: an argument is invalid. On a GPU, labels and lengths are not read back: an invalid label
            makes that utterance's score NaN.

    Examples:
        >>> logits, targets = torch.randn(4, 50, 30), torch.randint(1, 30, (4, 10))
        >>> alignment = ctc_align(logits, targets)
        >>> alignment.labels.shape, alignment.spans.shape
        (torch.Size([4, 50]), torch.Size([4, 10, 2]))
    """
    found, unbatched = _call(
        "align", logits, targets, logit_lengths, target_lengths, blank, from_log_probs, label_prior, star
    )
    alignment = CTCAlignment(*found)
    return CTCAlignment(*(part.squeeze(0) for part in alignment)) if unbatched else alignment


@keyword_only(4, "write blank=")
def ctc_posteriors(
    logits: Tensor,
    targets: Tensor,
    logit_lengths: Lengths | None = None,
    target_lengths: Lengths | None = None,
    *,
    blank: int = 0,
    from_log_probs: bool = False,
    label_prior: Tensor | None = None,
    star: int | None = None,
) -> Tensor:
    """The probability that a frame belongs to a label, given the labels: CTC's posteriors, a soft alignment.

    The remaining probability of a frame is that of the blank. The mean over a label's frames is a measure of confidence.

    Args:
        logits: (B, T, C) or (T, C), as in :func:`ctc_loss`.
        targets: (B, U), (U,) or (sum U_b,), as in :func:`ctc_loss`.
        logit_lengths: (B,) true numbers of frames T_b, 0 to T. None: all T.
        target_lengths: (B,) true numbers of labels U_b, 0 to U. None: all U.
        blank: the class of the blank; a negative number counts from C.
        from_log_probs: True: the logits are log-probabilities.
        label_prior: (C,) logarithms of priors of the classes, as in :func:`ctc_loss`.
        star: a label that matches any class but blank, as in :func:`ctc_loss`.

    Returns:
        (B, T, U) probabilities, or (T, U); for targets of one axis U is their number, of which an utterance uses the first
        U_b columns. float64 for float64 logits, else float32. 0 in the padding and where there is no path; NaN at the frames
        of an utterance with a NaN or +inf among its logits. Not differentiable.

    Raises:
        TypeError, ValueError: an argument is invalid.

    Examples:
        >>> logits, targets = torch.randn(4, 50, 30), torch.randint(1, 30, (4, 10))
        >>> ctc_posteriors(logits, targets).shape
        torch.Size([4, 50, 10])
    """
    (_, found), unbatched = _call(
        "posteriors", logits, targets, logit_lengths, target_lengths, blank, from_log_probs, label_prior, star
    )
    return found.squeeze(0) if unbatched else found


def _call(
    name: str,
    logits: Tensor,
    targets: object,
    logit_lengths: object,
    target_lengths: object,
    blank: object,
    from_log_probs: object,
    label_prior: object,
    star: object,
) -> tuple[tuple[Tensor, ...], bool]:
    """What the operator returns, and whether the input was one utterance without a batch axis."""
    logits = check_logits(logits)
    settings = check_settings(classes=logits.shape[-1], blank=blank, star=star, from_log_probs=from_log_probs)
    inputs, unbatched = check_inputs(logits, targets, logit_lengths, target_lengths, label_prior)
    try:
        with naming_arguments():
            return autograd.untracked(name, inputs, settings), unbatched
    except ValueError as error:
        frames, classes = inputs.logits.shape[1:]
        raise explained(error, settings, frames, classes, inputs.targets.shape[-1]) from None
