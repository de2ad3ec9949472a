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
        all: blank, big_blanks, sigma, fastemit_lambda, delay_penalty, eos_id, eos_penalty,
            star_id, star_penalty, clamp, zero_infinity, from_log_probs, packed, inplace_grad and reduction are as in
            :func:`warpalign.transducer_loss`.

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
        delay_penalty: float = 0.0,
        eos_id: int | None = None,
        eos_penalty: float = 0.0,
        star_id: int | None = None,
        star_penalty: float = 1.0,
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
        """logits (B, T, U+1, V), targets (B, U), lengths (B,) -> 0-d, or (B,) with reduction "none"."""
        return transducer_loss(logits, targets, logit_lengths, target_lengths, **self._options)


class TDTLoss(_Loss):
    """:func:`warpalign.tdt_loss` with fixed settings.

    Args:
        all: durations, blank, sigma, omega, generator, fastemit_lambda, delay_penalty, eos_id, eos_penalty, clamp,
            zero_infinity, from_log_probs, packed, inplace_grad and reduction are as in :func:`warpalign.tdt_loss`. In
            evaluation mode omega is 0.

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
        delay_penalty: float = 0.0,
        eos_id: int | None = None,
        eos_penalty: float = 0.0,
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
        """Logits (B, T, U+1, V) and (B, T, U+1, D), targets (B, U), lengths (B,) -> 0-d, or (B,) with reduction "none"."""
        options = self._options if self.training else self._options | {"omega": 0.0}
        return tdt_loss(label_logits, duration_logits, targets, logit_lengths, target_lengths, **options)
