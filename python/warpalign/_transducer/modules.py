"""The losses of the transducer family as modules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from warpalign._core.randomness import check_generator_of_module
from warpalign._core.series import Lengths
from warpalign._transducer.checks import check_reduction
from warpalign._transducer.functional import tdt_loss, transducer_loss
from warpalign._transducer.penalties import TransducerPenalties
from warpalign._transducer.settings import BigBlanks, TransducerReduction


class _Loss(nn.Module):
    """Fixed keyword arguments of a function; its defaults are not shown."""

    def __init__(self, defaults: dict[str, Any], options: dict[str, Any]) -> None:
        super().__init__()
        check_reduction(options["reduction"])
        self._options = options
        self._defaults = defaults

    def extra_repr(self) -> str:
        missing = object()
        changed = {k: v for k, v in self._options.items() if v != self._defaults.get(k, missing)}
        return ", ".join(f"{name}={value!r}" for name, value in changed.items())


class TransducerLoss(_Loss):
    """:func:`warpalign.transducer_loss` with fixed settings.

    Args:
        blank: the blank's column; below 0 it counts from V.
        big_blanks: the frames that each big blank consumes, in the columns blank−1, blank−2, ..., or {column: frames}.
        sigma: logit under-normalisation: subtracted from every arc's log-probability.
        fastemit_lambda: FastEmit: the gradient of label arcs is scaled by 1 + lambda.
        penalties: for late labels, the end of an utterance and unknown labels. None: no penalty.
        clamp: every entry of the gradient of a loss is clipped to [−clamp, clamp]. None: not clipped.
        zero_infinity: the loss of an utterance without any path is 0 instead of inf.
        from_log_probs: True: the logits are log-probabilities.
        packed: logits are rows (N, V) without padding.
        inplace_grad: the gradient is written into the logits' memory in the backward pass.
        reduction: "none", "sum", "mean", "mean_target", "mean_volume" or "mean_frame".

    Raises:
        ValueError: no such reduction; a call raises what :func:`warpalign.transducer_loss` raises.

    Examples:
        >>> loss = TransducerLoss(blank=0, big_blanks={1: 2, 2: 4}, sigma=0.05)
        >>> logits = torch.randn(4, 50, 11, 30, requires_grad=True)
        >>> loss(logits, torch.randint(3, 30, (4, 10))).backward()
    """

    def __init__(
        self,
        *,
        blank: int = -1,
        big_blanks: BigBlanks = (),
        sigma: float = 0.0,
        fastemit_lambda: float = 0.0,
        penalties: TransducerPenalties | None = None,
        clamp: float | None = None,
        zero_infinity: bool = False,
        from_log_probs: bool = False,
        packed: bool = False,
        inplace_grad: bool = False,
        reduction: TransducerReduction = "mean",
    ) -> None:
        options = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        super().__init__(transducer_loss.__kwdefaults__ or {}, options)

    def forward(
        self,
        logits: Tensor,
        targets: Tensor,
        logit_lengths: Lengths | None = None,
        target_lengths: Lengths | None = None,
    ) -> Tensor:
        """The loss: 0-d, or (B,) with reduction "none".

        Args:
            logits: (B, T, U+1, V), (T, U+1, V), or with ``packed`` (N, V).
            targets: (B, U) labels, (U,), or (sum U_b,).
            logit_lengths: (B,) true numbers of frames, 0 to T. None: all T.
            target_lengths: (B,) true numbers of labels, 0 to U. None: all U.
        """
        return transducer_loss(logits, targets, logit_lengths, target_lengths, **self._options)


class TDTLoss(_Loss):
    """:func:`warpalign.tdt_loss` with fixed settings.

    Args:
        durations: D different numbers of frames, 0 to 64, one of them above 0; at most 16.
        blank: the blank's column; below 0 it counts from V.
        sigma: logit under-normalisation: subtracted from every arc's log-probability.
        omega: the probability that the loss of an utterance is the RNN-T loss of its label logits. 0 in evaluation mode.
        generator: draws omega. None: torch's own generator.
        fastemit_lambda: FastEmit: the gradient of label arcs is scaled by 1 + lambda.
        penalties: for late labels and the end of an utterance. None: no penalty.
        clamp: every entry of a loss's gradient with respect to the label logits is clipped to [−clamp, clamp]. None: not
            clipped.
        zero_infinity: the loss of an utterance without any path is 0 instead of inf.
        from_log_probs: True: the logits are log-probabilities.
        packed: logits are rows (N, V) and (N, D) without padding.
        inplace_grad: the gradient is written into the logits' memory in the backward pass.
        reduction: "none", "sum", "mean", "mean_target", "mean_volume" or "mean_frame".

    Raises:
        ValueError: no such reduction; a call raises what :func:`warpalign.tdt_loss` raises.

    Examples:
        >>> loss = TDTLoss(durations=(0, 1, 2, 3, 4), sigma=0.05, omega=0.1)
        >>> logits = torch.randn(4, 50, 11, 35, requires_grad=True)
        >>> loss(logits, None, torch.randint(0, 29, (4, 10))).backward()
    """

    def __init__(
        self,
        *,
        durations: Sequence[int],
        blank: int = -1,
        sigma: float = 0.0,
        omega: float = 0.0,
        generator: torch.Generator | None = None,
        fastemit_lambda: float = 0.0,
        penalties: TransducerPenalties | None = None,
        clamp: float | None = None,
        zero_infinity: bool = False,
        from_log_probs: bool = False,
        packed: bool = False,
        inplace_grad: bool = False,
        reduction: TransducerReduction = "mean",
    ) -> None:
        options = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        check_generator_of_module(generator)
        super().__init__(tdt_loss.__kwdefaults__ or {}, options)

    def forward(
        self,
        label_logits: Tensor,
        duration_logits: Tensor | None,
        targets: Tensor,
        logit_lengths: Lengths | None = None,
        target_lengths: Lengths | None = None,
    ) -> Tensor:
        """The loss: 0-d, or (B,) with reduction "none".

        Args:
            label_logits: (B, T, U+1, V), (T, U+1, V), or with ``packed`` (N, V).
            duration_logits: the same with D columns. None: they are the last D columns of ``label_logits``.
            targets: (B, U) labels, (U,), or (sum U_b,).
            logit_lengths: (B,) true numbers of frames, 0 to T. None: all T.
            target_lengths: (B,) true numbers of labels, 0 to U. None: all U.
        """
        options = self._options if self.training else self._options | {"omega": 0.0}
        return tdt_loss(label_logits, duration_logits, targets, logit_lengths, target_lengths, **options)
