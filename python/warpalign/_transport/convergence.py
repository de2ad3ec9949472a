"""Whether iterations have converged, and the warning where they have not."""

from __future__ import annotations

import torch
from torch import Tensor

from warpalign._core.checks import can_be_read
from warpalign._core.convergence import warn_of_convergence
from warpalign._transport.settings import Settings

_ROUNDING = 64  # units in the last place: what rounding may add to an error


def has_converged(error: Tensor, settings: Settings) -> Tensor:
    """(B,) bool, for errors (B,). NaN and infinity have not."""
    return error <= settings.tolerance + _ROUNDING * torch.finfo(error.dtype).eps


def warn_unless_converged(
    function: str,
    converged: Tensor,
    error: Tensor,
    value: Tensor,
    settings: Settings,
    epsilons: Tensor | None,
) -> None:
    """Says on a CPU what is wrong with problems (B,). Without a tolerance iterations are to end at max_iter: all is well.

    After few iterations a marginal can be 0, and the error infinite, while the value is finite.
    """
    if not is_known(converged) or bool(converged.all()):
        return
    failed = error.detach()[~converged]
    worst = float(failed[failed.argmax()])  # argmax takes NaN for the largest
    counts = of_problems(~converged)
    epsilon = settings.epsilon if epsilons is None else float(epsilons.min())
    if bool(failed.isnan().any()) or not bool(value.detach()[~converged].isfinite().all()):
        kind = str(error.dtype).removeprefix("torch.")
        warn_of_convergence(
            f"{function}: expected a finite result, got error {worst:g}{counts}: costs contain NaN or forbid every pair of a "
            f"point with weight, or epsilon = {epsilon:g} is too small or too large for {kind} beside these costs: write an "
            "epsilon nearer to the mean cost"
        )
    elif settings.tolerance > 0:
        warn_of_convergence(
            f"{function}: expected error <= tol = {settings.tolerance:g}, got {worst:.3g} after max_iter = "
            f"{settings.max_iterations} iterations{counts}: write a larger max_iter or epsilon, annealing=, "
            "or tol=0 for a fixed number of iterations"
        )


def of_problems(failed: Tensor) -> str:
    """How many of the problems (B,), if there are several."""
    return "" if len(failed) == 1 else f" ({int(failed.sum())} of {len(failed)} problems)"


def is_known(tensor: Tensor) -> bool:
    """Whether values can be looked at. A fake tensor, which torch.compile and torch.export trace with, has none."""
    return type(tensor) is Tensor and can_be_read(tensor)
