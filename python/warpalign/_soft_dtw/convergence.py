"""The warning of barycenters whose search has not converged."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from warpalign._core.convergence import warn_of_convergence


class Search(Protocol):
    """How barycenters were sought."""

    @property
    def method(self) -> str: ...
    @property
    def max_iter(self) -> int: ...
    @property
    def tol(self) -> float: ...
    @property
    def lr(self) -> float: ...


def warn_unless_converged(losses: Tensor, converged: Tensor, dtype: torch.dtype, search: Search) -> None:
    """Says what is wrong with groups of losses (k, iterations + 1) and converged (k,), both on the CPU."""
    last = losses[:, -1]
    broken = ~last.isfinite()
    if bool(broken.any()):
        kind, wider = str(dtype).removeprefix("torch."), "" if dtype == torch.float64 else "X.double(), "
        warn_of_convergence(
            f"soft_dtw_barycenter: expected finite losses, got {float(last[broken][0]):g}{_of_groups(broken)}: values of X are too "
            f"large for {kind}, or the band leaves a pair no path: write {wider}X divided by its largest value, or a wider band"
        )
        return
    if bool(converged.all()) or search.max_iter == 0 or search.tol == 0:
        return
    iterations = losses.shape[1] - 1
    if search.method == "lbfgs" and iterations < search.max_iter:
        got = f"a line search that finds no lower loss after {iterations} iterations"
        remedy = "X.double() or a larger tol"
    else:
        got = f"larger relative changes after max_iter = {search.max_iter} iterations"
        step = f"a smaller lr than {search.lr:g}, " if search.method == "adam" else ""
        remedy = f"{step}a larger max_iter or tol, or tol=0 for at most max_iter iterations"
    warn_of_convergence(
        f"soft_dtw_barycenter: expected losses whose relative change is at most tol = {search.tol:g}, got {got}{_of_groups(~converged)}: "
        f"write {remedy}"
    )


def _of_groups(failed: Tensor) -> str:
    """How many of the groups (k,), if there are several."""
    return "" if len(failed) == 1 else f" ({int(failed.sum())} of {len(failed)} groups)"
