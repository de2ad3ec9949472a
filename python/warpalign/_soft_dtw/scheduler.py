"""Gamma during a training."""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

from torch import Tensor, nn

from warpalign._core.checks import check_count, check_number
from warpalign._soft_dtw.modules import SoftDTW

Curve = Literal["linear", "cosine", "exponential"]


class GammaScheduler:
    """Changes the gamma of a loss during a training, as torch's schedulers change a learning rate.

    Large gammas have few local minima, small ones give sharp series. After t steps, 0 <= t <= `steps`, gamma is

        "exponential": start (end / start)^(t / steps)
        "linear":      start + (end - start) t / steps
        "cosine":      end + (start - end) (1 + cos(pi t / steps)) / 2

    and `end` from then on. The constructor sets the first gamma.

    Args:
        loss: a :class:`SoftDTW` whose gamma is a number or a buffer. A buffer is changed in place, which a captured CUDA graph sees;
            a number in a captured graph stays what it was.
        end: the last gamma, finite and >= 0, above 0 for "exponential" and for buffers.
        steps: after how many calls of :meth:`step` it is reached, >= 1.
        start: the first gamma. None: the gamma of the loss.
        curve: "exponential" (the default), "linear" or "cosine".
        last_epoch: how many steps have been made less 1, as in torch: -1 (the default) begins, another number resumes, where start
            has to be given.

    Raises:
        TypeError, ValueError: an argument is invalid, or the loss learns its gamma.

    Examples:
        >>> loss = SoftDTW(gamma=1.0, reduction="mean")
        >>> scheduler = GammaScheduler(loss, end=0.01, steps=100)
        >>> for _ in range(50):
        ...     scheduler.step()
        >>> round(loss.gamma, 6)
        0.1
    """

    def __init__(
        self,
        loss: SoftDTW,
        *,
        end: float,
        steps: int,
        start: float | None = None,
        curve: Curve = "exponential",
        last_epoch: int = -1,
    ) -> None:
        if not isinstance(loss, SoftDTW):
            raise TypeError(f"loss: expected a SoftDTW, got {type(loss).__name__}")
        gamma = loss.gamma
        if isinstance(gamma, nn.Parameter):
            raise ValueError(
                "loss: expected a gamma that is a number or a buffer, got a parameter, which an optimizer changes"
            )
        if isinstance(gamma, Tensor) and gamma.dim() > 0:
            raise ValueError(
                f"loss: expected one gamma for all pairs, got a buffer of shape {tuple(gamma.shape)}"
            )
        if curve not in get_args(Curve):
            raise ValueError(f'curve: expected "linear", "cosine" or "exponential", got {curve!r}')
        self.last_epoch = check_count(last_epoch, "last_epoch", -1)
        if start is None and self.last_epoch > -1:
            raise ValueError(
                f"start: expected a number with last_epoch = {last_epoch}, got None: the loss has a later gamma"
            )
        least = None if curve == "exponential" or isinstance(gamma, Tensor) else 0
        self._loss, self._curve, self._steps = loss, curve, check_count(steps, "steps")
        self._start = check_number(float(gamma) if start is None else start, "start", least)
        self._end = check_number(end, "end", least)
        self.step()

    def step(self) -> None:
        """Goes on to the next gamma; after an epoch, or after every batch, as `steps` counts them."""
        self.last_epoch += 1
        self._set()

    def get_last_gamma(self) -> float:
        """The gamma that the loss has now, in float64."""
        share = min(self.last_epoch / self._steps, 1.0)
        if self._curve == "linear":
            return self._start + (self._end - self._start) * share
        if self._curve == "cosine":
            return self._end + (self._start - self._end) * (1 + math.cos(math.pi * share)) / 2
        gamma: float = self._start ** (1 - share) * self._end**share
        return gamma

    def state_dict(self) -> dict[str, Any]:
        """All but the loss: for a checkpoint, beside the state dicts of model and optimizer."""
        return {
            "last_epoch": self.last_epoch,
            "start": self._start,
            "end": self._end,
            "steps": self._steps,
            "curve": self._curve,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resumes: sets the gamma of the loss too, since a number is not in the state dict of the loss.

        Args:
            state_dict: what :meth:`state_dict` returned.
        """
        self.last_epoch = state_dict["last_epoch"]
        self._start, self._end = state_dict["start"], state_dict["end"]
        self._steps, self._curve = state_dict["steps"], state_dict["curve"]
        self._set()

    def _set(self) -> None:
        if isinstance(self._loss.gamma, Tensor):
            self._loss.gamma.fill_(self.get_last_gamma())
        else:
            self._loss.gamma = self.get_last_gamma()
