"""CTC's losses as modules."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from warpalign._core.labels import check_reduction
from warpalign._core.reduction import BatchReduction
from warpalign._core.series import Lengths
from warpalign._ctc.forward_sum import forward_sum_loss
from warpalign._ctc.functional import ctc_loss


def _changed(options: dict[str, Any], defaults: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in options.items() if value != defaults.get(name))


class CTCLoss(nn.Module):
    """:func:`warpalign.ctc_loss` with fixed settings.

    Args:
        blank: the class of the blank; a negative number counts from C.
        from_log_probs: True: the logits are log-probabilities.
        zero_infinity: the loss of an utterance without any path is 0 instead of inf.
        star: a label that matches any class but blank.
        reduction: "none", "sum", "mean", "mean_target", "mean_volume" or "mean_frame".
        inplace_grad: the gradient takes the logits' memory.
        batch_invariant: an utterance's results are bitwise identical whatever else is in the batch.

    Raises:
        ValueError: no such reduction; a call raises what :func:`warpalign.ctc_loss` raises.

    Examples:
        >>> loss = CTCLoss(blank=0, zero_infinity=True)
        >>> logits = torch.randn(4, 50, 30, requires_grad=True)
        >>> loss(logits, torch.randint(1, 30, (4, 10))).backward()
    """

    def __init__(
        self,
        *,
        blank: int = 0,
        from_log_probs: bool = False,
        zero_infinity: bool = False,
        star: int | None = None,
        reduction: BatchReduction = "mean",
        inplace_grad: bool = False,
        batch_invariant: bool = False,
    ) -> None:
        super().__init__()
        check_reduction(reduction)
        self.options: dict[str, Any] = {
            "blank": blank,
            "from_log_probs": from_log_probs,
            "zero_infinity": zero_infinity,
            "star": star,
            "reduction": reduction,
            "inplace_grad": inplace_grad,
            "batch_invariant": batch_invariant,
        }

    def extra_repr(self) -> str:
        return _changed(self.options, ctc_loss.__kwdefaults__ or {})

    def forward(
        self,
        logits: Tensor,
        targets: Tensor,
        logit_lengths: Lengths | None = None,
        target_lengths: Lengths | None = None,
        label_prior: Tensor | None = None,
    ) -> Tensor:
        """The loss: 0-d, or (B,) with reduction "none".

        Args:
            logits: (B, T, C) or (T, C).
            targets: (B, U) labels, (U,) for one utterance, or (sum U_b,), all labels one after the other.
            logit_lengths: (B,) true numbers of frames, 0 to T. None: all T.
            target_lengths: (B,) true numbers of labels, 0 to U. None: all U.
            label_prior: (C,) logarithms of priors of the classes, which are subtracted. None: none.
        """
        return ctc_loss(
            logits, targets, logit_lengths, target_lengths, label_prior=label_prior, **self.options
        )


class ForwardSumLoss(nn.Module):
    """:func:`warpalign.forward_sum_loss` with fixed settings.

    Args:
        blank_logprob: the logit of blank at every frame.
        reduction: "none", "sum", "mean", "mean_target", "mean_volume" or "mean_frame".

    Raises:
        ValueError: no such reduction; a call raises what :func:`warpalign.forward_sum_loss` raises.

    Examples:
        >>> loss = ForwardSumLoss()
        >>> loss(torch.randn(2, 60, 20, requires_grad=True), [20, 15], [60, 50]).backward()
    """

    def __init__(self, blank_logprob: float = -1.0, *, reduction: BatchReduction = "mean_target") -> None:
        super().__init__()
        check_reduction(reduction)
        self.blank_logprob = blank_logprob
        self.reduction: BatchReduction = reduction

    def extra_repr(self) -> str:
        return f"blank_logprob={self.blank_logprob}, reduction={self.reduction!r}"

    def forward(
        self,
        attention_logprob: Tensor,
        text_lengths: Lengths | None = None,
        frame_lengths: Lengths | None = None,
    ) -> Tensor:
        """The loss: 0-d, or (B,) with reduction "none".

        Args:
            attention_logprob: (B, T, S) or (B, 1, T, S), logarithm of the attention that frame t pays to position s.
            text_lengths: (B,) true numbers of positions, 0 to S. None: all S.
            frame_lengths: (B,) true numbers of frames, 0 to T. None: all T.
        """
        return forward_sum_loss(
            attention_logprob, text_lengths, frame_lengths, self.blank_logprob, reduction=self.reduction
        )
