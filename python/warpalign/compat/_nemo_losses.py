"""What NeMo's three Numba losses share: settings, reductions, and the loss of logits or of a joint network."""

from __future__ import annotations

import random
from collections.abc import Sequence

from torch import Tensor, nn

from warpalign.transducer import JointWeights, tdt_loss, transducer_loss, transducer_loss_from_joint


class TransducerLossModule(nn.Module):
    """RNN-T loss, multi-blank with `big_blank_durations`, TDT with `durations`."""

    big_blank_durations: Sequence[int] = ()
    durations: Sequence[int] | None = None
    sigma = 0.0
    omega = 0.0

    def __init__(self, blank: int, reduction: str, fastemit_lambda: float, clamp: float) -> None:
        super().__init__()
        self.blank = blank
        self.reduction = reduction
        self.fastemit_lambda = fastemit_lambda
        self.clamp = float(clamp) if clamp > 0 else 0.0

    def forward(self, acts: Tensor, labels: Tensor, act_lens: Tensor, label_lens: Tensor) -> Tensor:
        """The loss of logits.

        Args:
            acts: (B, T, U+1, V) logits or log-probabilities; of a TDT model (B, T, U+1, V + D).
            labels: (B, U) labels.
            act_lens: (B,) numbers of frames.
            label_lens: (B,) numbers of labels.
        """
        lengths, clamp = (labels, act_lens, label_lens), self.clamp or None
        if self.durations is not None:
            losses = tdt_loss(
                acts,
                None,
                *lengths,
                durations=self.durations,
                blank=self.blank,
                sigma=self.sigma,
                omega=self._omega_of_call(),
                fastemit_lambda=self.fastemit_lambda,
                clamp=clamp,
                reduction="none",
            )
        else:
            losses = transducer_loss(
                acts,
                *lengths,
                blank=self.blank,
                big_blanks=self.big_blank_durations,
                sigma=self.sigma,
                fastemit_lambda=self.fastemit_lambda,
                clamp=clamp,
                reduction="none",
            )
        return self._reduced(losses)

    def of_joint(
        self,
        encoder_out: Tensor,
        predictor_out: Tensor,
        labels: Tensor,
        joint: JointWeights,
        encoder_lengths: Tensor,
        label_lengths: Tensor,
        *,
        dropout: float,
    ) -> Tensor:
        """(B,) losses of a joint network, whose columns this module knows."""
        losses = transducer_loss_from_joint(
            encoder_out,
            predictor_out,
            labels,
            joint._replace(
                blank=self.blank, durations=self.durations, big_blanks=tuple(self.big_blank_durations)
            ),
            encoder_lengths,
            label_lengths,
            sigma=self.sigma,
            omega=self._omega_of_call(),
            dropout=dropout,
            fastemit_lambda=self.fastemit_lambda,
            clamp=self.clamp or None,
            reduction="none",
        )
        return self._with_fastemit(losses)

    def _omega_of_call(self) -> float:
        # One draw decides for the whole batch.
        return 1.0 if self.omega > 0 and random.uniform(0, 1) < self.omega else 0.0

    def _with_fastemit(self, losses: Tensor) -> Tensor:
        # The gradient has its factor already.
        return losses + self.fastemit_lambda * losses.detach()

    def _reduced(self, losses: Tensor) -> Tensor:
        losses = self._with_fastemit(losses)
        if self.reduction == "sum":
            return losses.sum().unsqueeze(-1)
        return losses.mean().unsqueeze(-1) if self.reduction == "mean" else losses
