"""NeMo's Numba losses, RNNTLossNumba, MultiblankRNNTLossNumba and TDTLossNumba, and its ForwardSumLoss.

"mean" is the mean over the batch and "sum" its sum, both of shape (1,). Under FastEmit the value is 1 + lambda times the
loss. omega decides once per call, for the whole batch. What differs: results are float32 for half types, the CPU has all
three, and no call waits for the GPU.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from torch import Tensor, nn

from warpalign.ctc import forward_sum_loss
from warpalign.transducer import tdt_loss, transducer_loss


class _Loss(nn.Module):
    def __init__(self, blank: int, reduction: str, fastemit_lambda: float, clamp: float) -> None:
        super().__init__()
        self.blank = blank
        self.reduction = reduction
        self.fastemit_lambda = fastemit_lambda
        self.clamp = float(clamp) if clamp > 0 else 0.0

    def _reduced(self, losses: Tensor) -> Tensor:
        # The gradient has its factor already.
        losses = losses + self.fastemit_lambda * losses.detach()
        if self.reduction == "sum":
            return losses.sum().unsqueeze(-1)
        return losses.mean().unsqueeze(-1) if self.reduction == "mean" else losses


class RNNTLossNumba(_Loss):
    """RNN-T loss of logits (B, T, U+1, V)."""

    def __init__(
        self, blank: int = 0, reduction: str = "mean", fastemit_lambda: float = 0.0, clamp: float = -1
    ) -> None:
        super().__init__(blank, reduction, fastemit_lambda, clamp)

    def forward(self, acts: Tensor, labels: Tensor, act_lens: Tensor, label_lens: Tensor) -> Tensor:
        losses = transducer_loss(
            acts,
            labels,
            act_lens,
            label_lens,
            blank=self.blank,
            fastemit_lambda=self.fastemit_lambda,
            clamp=self.clamp or None,
            reduction="none",
        )
        return self._reduced(losses)


class MultiblankRNNTLossNumba(_Loss):
    """Multi-blank loss of logits (B, T, U+1, V); the big blanks come before the blank, the last duration first."""

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

    def forward(self, acts: Tensor, labels: Tensor, act_lens: Tensor, label_lens: Tensor) -> Tensor:
        losses = transducer_loss(
            acts,
            labels,
            act_lens,
            label_lens,
            blank=self.blank,
            big_blanks=self.big_blank_durations,
            sigma=self.sigma,
            fastemit_lambda=self.fastemit_lambda,
            clamp=self.clamp or None,
            reduction="none",
        )
        return self._reduced(losses)


class TDTLossNumba(_Loss):
    """TDT loss of logits (B, T, U+1, V + D), the durations' in the last D columns."""

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

    def forward(self, acts: Tensor, labels: Tensor, act_lens: Tensor, label_lens: Tensor) -> Tensor:
        losses = tdt_loss(
            acts,
            None,
            labels,
            act_lens,
            label_lens,
            durations=self.durations,
            blank=self.blank,
            sigma=self.sigma,
            omega=1.0 if random.uniform(0, 1) < self.omega else 0.0,
            fastemit_lambda=self.fastemit_lambda,
            clamp=self.clamp or None,
            reduction="none",
        )
        return self._reduced(losses)


class ForwardSumLoss(nn.Module):
    """The loss of an aligner's attention (B, 1, T, S); in_lens: lengths of texts, out_lens: of frames."""

    def __init__(self, blank_logprob: float = -1) -> None:
        super().__init__()
        self.blank_logprob = blank_logprob

    def forward(self, attn_logprob: Tensor, in_lens: Tensor, out_lens: Tensor) -> Tensor:
        return forward_sum_loss(attn_logprob, in_lens, out_lens, self.blank_logprob)
