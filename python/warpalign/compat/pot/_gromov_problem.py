"""Problems of ot.gromov, and how they are solved: by the descent behind :func:`warpalign.transport.gromov_wasserstein`."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from warpalign._core.transforms import no_autocast
from warpalign._transport.gromov_solver import Schedule, State, solve
from warpalign._transport.gromov_start import product_plan
from warpalign._transport.settings import Inputs, Settings
from warpalign.compat.pot._common import Kind, kind_of, tolerance_of, warn_at_caller, weights_of

LOSSES = ("square_loss", "kl_loss")
_TINY = 1e-18  # POT's, within logarithms


class Objective(NamedTuple):
    """alpha Σ L(C1[i, k], C2[j, l]) T[i, j] T[k, l] + (1 − alpha) ⟨M, T⟩ with L(a, b) = f1(a) + f2(b) − h1(a) h2(b).

    Source: Peyré, Cuturi & Solomon, "Gromov-Wasserstein averaging of kernel and distance matrices", ICML 2016, section 3.1.
    """

    f1: Tensor
    """(B, n, n)"""
    h1: Tensor
    f2: Tensor
    """(B, m, m)"""
    h2: Tensor
    symmetric: bool
    features: Tensor | None
    """M (B, n, m)"""
    alpha: float | Tensor
    """A tensor, where the caller asks for its gradient; the descent takes its number."""

    @no_autocast()
    def _tensor_product(self, plan: Tensor, *, transposed: bool = False) -> Tensor:
        f1, h1, f2, h2 = (t.mT if transposed else t for t in (self.f1, self.h1, self.f2, self.h2))
        rows, columns = f1 @ plan.sum(2)[..., None], f2 @ plan.sum(1)[..., None]
        return rows + columns.mT - h1 @ plan @ h2.mT

    def quadratic(self, plan: Tensor) -> Tensor:
        """(B,): the sum of L alone, without alpha."""
        return (self._tensor_product(plan) * plan).sum((1, 2))

    def linear(self, plan: Tensor) -> Tensor:
        """(B,): ⟨M, T⟩, without its factor."""
        return plan.new_zeros(len(plan)) if self.features is None else (self.features * plan).sum((1, 2))

    def value(self, plan: Tensor) -> Tensor:
        """(B,)"""
        return self.alpha * self.quadratic(plan) + (1 - self.alpha) * self.linear(plan)

    def cost(self, plan: Tensor) -> Tensor:
        """(B, n, m): the derivative with respect to T."""
        first = self._tensor_product(plan)
        second = first if self.symmetric else self._tensor_product(plan, transposed=True)
        cost = self.alpha * (first + second)
        return cost if self.features is None else cost + (1 - self.alpha) * self.features

    def detached(self) -> Objective:
        features = None if self.features is None else self.features.detach()
        alpha = self.alpha.item() if isinstance(self.alpha, Tensor) else self.alpha
        f1, h1, f2, h2 = (t.detach() for t in (self.f1, self.h1, self.f2, self.h2))
        return Objective(f1, h1, f2, h2, self.symmetric, features, alpha)


class Problem(NamedTuple):
    """What all functions are given, as tensors."""

    kind: Kind
    of: Objective
    p: Tensor
    """(1, n)"""
    q: Tensor
    """(1, m)"""
    names: tuple[str, ...] = ("C1", "C2", "M", "p", "q")
    """What the caller's function calls the two matrices, the costs and the weights."""

    def is_finite(self, plan: Tensor) -> bool:
        """Whether a plan has no NaN. Of a GPU nothing is read."""
        return self.kind.device.type != "cpu" or bool(plan.isfinite().all())

    def not_finite(self) -> str:
        """Which argument is the reason why a plan is not finite."""
        given = (self.of.f1, self.of.f2, self.of.features, self.p, self.q)
        for name, numbers in zip(self.names, given, strict=True):
            if numbers is not None and not bool(numbers.isfinite().all()):
                kl = (
                    ", and none below 0 with the KL loss"
                    if numbers is self.of.f1 or numbers is self.of.f2
                    else ""
                )
                return f"{name}: expected finite numbers{kl}, got {float(numbers[~numbers.isfinite()][0]):g}"
        c1, c2 = self.names[:2]
        return (
            f"{c1}, {c2}: expected costs within the range of the dtype, got an overflow: write {c1} and {c2} divided by their "
            "largest entry"
        )


def objective(
    C1: Tensor, C2: Tensor, M: Tensor | None, loss_fun: str, symmetric: bool | None, alpha: float | Tensor
) -> Objective:
    """The objective on batches C1 (B, n, n), C2 (B, m, m) and M (B, n, m)."""
    if loss_fun not in LOSSES:
        raise ValueError(f"Unknown `loss_fun='{loss_fun}'`. Use one of: {LOSSES}.")
    if symmetric is None:
        symmetric = all(torch.allclose(c, c.mT, atol=1e-10) for c in (C1, C2))
    if loss_fun == "square_loss":
        parts = (C1.square(), C1, C2.square(), 2 * C2)
    else:
        parts = (C1 * (C1 + _TINY).log() - C1, C1, C2, (C2 + _TINY).log())
    return Objective(*parts, symmetric, M, alpha)


def problem(
    C1: Any, C2: Any, p: Any, q: Any, loss_fun: str, symmetric: bool | None, M: Any = None, alpha: Any = 1.0
) -> Problem:
    kind = kind_of(*(one for one in (C1, C2, M, p, q) if one is not None))
    first, second = kind.tensor(C1), kind.tensor(C2)
    features = None if M is None else kind.tensor(M)[None]
    share = alpha if isinstance(alpha, Tensor) and alpha.requires_grad and kind.is_torch else float(alpha)
    of = objective(first[None], second[None], features, loss_fun, symmetric, share)
    return Problem(kind, of, weights_of(p, len(first), kind)[None], weights_of(q, len(second), kind)[None])


def descend(
    given: Problem,
    epsilon: float,
    G0: Any,
    max_iter: float,
    tol: float,
    *,
    proximal: bool = False,
    rho_b: float = math.inf,
    mass: float = 0.0,
    inner_iterations: int = 1000,
    inner_tolerance: float = 1e-9,
) -> State:
    """Steps of projected (or proximal) gradient descent from G0 (n, m), by default from the product of the weights.

    Args:
        tol: steps end when less than this share of the mass moves.
        mass: of partial transport, whose entropy is relative to the counting measure, as POT's; 0: balanced.
    """
    kind = given.kind
    if not epsilon > 0:
        raise NotImplementedError(f"epsilon: expected a number > 0, got {epsilon}")
    weights = Inputs(None, None, None, given.p.detach(), given.q.detach(), *(None,) * 5)
    settings = Settings(
        rho_b=rho_b,
        mass=mass,
        reference=int(mass > 0),
        max_iterations=max(int(inner_iterations), 1),
        tolerance=tolerance_of(inner_tolerance, kind),
    )
    schedule = Schedule(
        given.p.detach().new_full(given.p.shape[:1], float(epsilon)),
        0.0,
        1.0,
        1.0,
        proximal,
        max(int(max_iter), 1),
        max(float(tol), 32 * torch.finfo(kind.dtype).eps),
    )
    start = product_plan(weights, mass) if G0 is None else kind.tensor(G0).detach()
    with torch.no_grad():
        state = solve(
            given.of.detached(), weights, start if start.dim() == 3 else start[None], schedule, settings
        )
    if not given.is_finite(state.plan):
        warn_at_caller(f"Numerical errors: the plan is not finite. {given.not_finite()}")
    return state


def errors(state: State, kind: Kind) -> list[Any]:
    """For each step, the share of the mass that moved."""
    return [kind.out(one[0]) for one in state.moved]
