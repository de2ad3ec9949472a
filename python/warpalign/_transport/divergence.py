"""Sinkhorn divergences: entropic transport without its bias, as a function and as a module."""

from __future__ import annotations

from functools import reduce
from typing import Any, Literal, NamedTuple, overload

import torch
from torch import Tensor, nn

from warpalign._core.checks import (
    DTYPES,
    Precision,
    Reduction,
    check_flag,
    check_number,
    check_reduction,
    naming_arguments,
)
from warpalign._core.costs import Cost, CostFunction, check_cost
from warpalign._core.series import Lengths
from warpalign._transport import autograd
from warpalign._transport.checks import check_normalization, check_settings, check_strength, without_padding
from warpalign._transport.convergence import has_converged, warn_unless_converged
from warpalign._transport.costs import CostNormalization
from warpalign._transport.options import Annealing
from warpalign._transport.problem import Problem, problem
from warpalign._transport.settings import Settings, Updates, of_equal_sets
from warpalign._transport.storage import with_storage


class SinkhornDivergenceResult(NamedTuple):
    """What :func:`sinkhorn_divergence` returns with ``return_result=True``; without the batch axis for unbatched input."""

    value: Tensor
    """(B,): the divergences, or their mean or sum."""
    converged: Tensor
    """(B,) bool: whether all transport problems of a divergence have converged."""
    error: Tensor
    """(B,): the largest error of these problems, as in :class:`SinkhornResult`."""
    iterations: Tensor
    """(B,) int32: the largest number of iterations of these problems."""


@overload
def sinkhorn_divergence(
    x: Tensor, y: Tensor, *, epsilon: float | Tensor, return_result: Literal[False] = ..., **options: Any
) -> Tensor: ...
@overload
def sinkhorn_divergence(
    x: Tensor, y: Tensor, *, epsilon: float | Tensor, return_result: Literal[True], **options: Any
) -> SinkhornDivergenceResult: ...
def sinkhorn_divergence(  # type: ignore[misc]  # what is in **options above stands here one by one
    x: Tensor,
    y: Tensor,
    *,
    epsilon: float | Tensor,
    rho: float | None = None,
    debias: bool = True,
    cost: Cost | CostFunction = "sqeuclidean",
    cost_scale: float = 1.0,
    cost_normalization: CostNormalization | None = None,
    a: Tensor | None = None,
    b: Tensor | None = None,
    x_lengths: Lengths | None = None,
    y_lengths: Lengths | None = None,
    annealing: Annealing | float | None = None,
    updates: Updates = "mixed",
    max_iter: int = 1000,
    tol: float = 1e-5,
    reduction: Reduction = "none",
    storage: Literal["full"] | None = None,
    precision: Precision | None = None,
    batch_invariant: bool = False,
    return_result: bool = False,
) -> Tensor | SinkhornDivergenceResult:
    """Sinkhorn divergence between weighted point sets: OT(x, y) − OT(x, x)/2 − OT(y, y)/2, and ε/2 (Σa − Σb)² with rho.

    OT is the value of :func:`warpalign.transport.sinkhorn`, which is not minimal for equal sets. The divergence is 0
    for equal sets, exactly so where they are one tensor, and >= 0 where exp(−C / epsilon) is a positive kernel
    ("sqeuclidean", "euclidean", "l1"). It solves three problems, of which the two of a set with itself converge fast.

    Sources: Feydy et al., "Interpolating between optimal transport and MMD using Sinkhorn divergences", AISTATS 2019,
    equation 3; Séjourné et al., "Sinkhorn divergences for unbalanced optimal transport", arXiv 1910.12958, equation 9 (rho).

    Args:
        x: (B, N, D) or (N, D) points, float64, float32, float16 or bfloat16. Half types are converted to float32. A batch of
            1 is repeated.
        y: (B, M, D) or (M, D) points of the dtype of x.
        epsilon: the regularisation strength in units of the cost, a number > 0, or a tensor () or (B,), which may require a gradient.
            geomloss: blur^p, with cost_scale=0.5.
        rho: the strength of the KL penalty on the marginals of both sides, >= 0, in units of the cost. None: they equal the weights.
            geomloss: reach^p.
        debias: False: OT(x, y) alone.
        cost: C[i, j] of two points: "sqeuclidean", "euclidean", "l1", "cosine" or "huber", or a function of x (B, N, D) and y (B, M, D)
            that returns (B, N, M).
        cost_scale: a factor > 0 of the cost. geomloss has 0.5.
        cost_normalization: "max" or "mean" divides the costs of all three problems by the largest or the mean finite cost between x and y,
            which is a constant for gradients. epsilon, rho and all results are in units of the normalised costs. None: costs are used as
            they are. Of the named costs, "sqeuclidean", "euclidean" and "l1" can be normalised.
        a: (N,) or (B, N) weights >= 0 of x; None: 1 / N each. Without rho the sums of a and b must agree within 1e-4 of the larger one.
        b: (M,) or (B, M) weights >= 0 of y; None: 1 / M each.
        x_lengths: (B,) true numbers of points in x, from 1 to N, as a tensor, list or array of integers; None: all N. Padding is ignored.
        y_lengths: (B,) true numbers of points in y, from 1 to M; None: all M.
        annealing: an :class:`Annealing`, or a number > 0 as short for Annealing(start=number): iterations begin with this larger
            epsilon, in units of the cost, which shrinks to epsilon. None: all iterations have epsilon.
        updates: "mixed", "symmetric" or "alternating", as in :func:`warpalign.transport.sinkhorn`. "mixed" converges fast both between
            different sets and between a set and itself.
        max_iter: the maximum number of iterations of each problem at the final epsilon, at least 1.
        tol: iterations end when no potential moves by more than tol · epsilon; >= 0. 0: they end at max_iter.
        reduction: "none" for one value per problem, or their "mean" or "sum".
        storage: "full" or None, as in :func:`warpalign.transport.sinkhorn`. The three problems are solved one after the other, and one
            matrix is stored at a time.
        precision: the precision of float32 products on a GPU, as in :func:`warpalign.transport.sinkhorn`.
        batch_invariant: True: a problem's results are bitwise identical whatever else is in the batch. On a CPU they always are.
        return_result: True: a SinkhornDivergenceResult with errors and iterations.

    Returns:
        (B,) values; 0-d for unbatched input or with a reduction; float64 for float64 input, else float32. Differentiable
        twice with respect to points, weights and epsilon. With return_result SinkhornDivergenceResult(value, converged, error, iterations).

    Warns:
        ConvergenceWarning: as :func:`warpalign.transport.sinkhorn`, once for the three problems.

    Raises:
        TypeError, ValueError, NotImplementedError: as :func:`warpalign.transport.sinkhorn`.

    Examples:
        >>> x = torch.randn(8, 100, 3, requires_grad=True)
        >>> y = torch.randn(8, 120, 3)
        >>> sinkhorn_divergence(x, y, epsilon=0.5).mean().backward()
    """
    reduction = check_reduction(reduction)
    with_itself = check_flag(debias, "debias")
    of = problem(
        x,
        y,
        None,
        cost=cost,
        a=a,
        b=b,
        x_lengths=x_lengths,
        y_lengths=y_lengths,
        epsilon=epsilon,
        init=None,
        cost_normalization=cost_normalization,
        settings=_settings(
            rho=rho,
            cost_scale=cost_scale,
            annealing=annealing,
            updates=updates,
            max_iter=max_iter,
            tol=tol,
            storage=storage,
            precision=precision,
            batch_invariant=batch_invariant,
        ),
    )
    full = check_flag(return_result, "return_result")
    with naming_arguments():
        solutions = [autograd.sinkhorn(of.of, of.settings)]
        if with_itself:
            own = (of.with_itself(side) for side in (0, 1))
            solutions += [autograd.sinkhorn(one.of, of_equal_sets(one.settings)) for one in own]
    value = solutions[0].value
    if with_itself:
        value = value - (solutions[1].value + solutions[2].value) / 2
    if with_itself and rho is not None:
        value = value + _of_masses(of)
    error, iterations = (
        reduce(torch.maximum, (getattr(one, name) for one in solutions)) for name in ("error", "iterations")
    )
    converged = has_converged(error, of.settings)
    warn_unless_converged("sinkhorn_divergence", converged, error, value, of.settings, of.of.epsilons)
    value = of.squeezed(value)
    if reduction != "none":
        value = value.mean() if reduction == "mean" else value.sum()
    if not full:
        return value
    return SinkhornDivergenceResult(value, *map(of.squeezed, (converged, error, iterations)))


def _settings(*, rho: object, storage: object, precision: object, **options: Any) -> Settings:
    check_strength(rho, "rho")
    settings = check_settings(rho_a=rho, rho_b=rho, precision=precision, **options)
    return with_storage(settings, storage, precision, "full")


def _of_masses(of: Problem) -> Tensor:
    """(B,): epsilon / 2 (sum a − sum b)²; uniform weights sum to 1."""
    first = of.of.first
    masses = [
        first.new_ones(first.shape[0]) if weights is None else without_padding(weights, lengths).sum(1)
        for weights, lengths in ((of.of.a, of.of.x_lengths), (of.of.b, of.of.y_lengths))
    ]
    epsilon = of.settings.epsilon if of.of.epsilons is None else of.of.epsilons
    return epsilon / 2 * (masses[0] - masses[1]).square()


class SinkhornDivergence(nn.Module):
    """:func:`warpalign.transport.sinkhorn_divergence` as a loss with fixed settings.

    Args:
        epsilon: the regularisation strength in units of the cost, a number > 0, or a tensor () or (B,), which becomes a buffer and moves
            with the module.
        rho: the strength of the KL penalty on the marginals of both sides, >= 0, in units of the cost. None: they equal the weights.
            geomloss: reach^p.
        debias: False: OT(x, y) alone.
        cost: C[i, j] of two points: "sqeuclidean", "euclidean", "l1", "cosine" or "huber", or a function of x (B, N, D) and y (B, M, D)
            that returns (B, N, M).
        cost_scale: a factor > 0 of the cost. geomloss has 0.5.
        cost_normalization: "max" or "mean" divides the costs of all three problems by the largest or the mean finite cost between x and y,
            which is a constant for gradients. epsilon, rho and all results are in units of the normalised costs. None: costs are used as
            they are. Of the named costs, "sqeuclidean", "euclidean" and "l1" can be normalised.
        annealing: an :class:`Annealing`, or a number > 0 as short for Annealing(start=number): iterations begin with this larger
            epsilon, in units of the cost, which shrinks to epsilon. None: all iterations have epsilon.
        updates: "mixed", "symmetric" or "alternating", as in :func:`warpalign.transport.sinkhorn`. "mixed" converges fast both between
            different sets and between a set and itself.
        max_iter: the maximum number of iterations of each problem at the final epsilon, at least 1.
        tol: iterations end when no potential moves by more than tol · epsilon; >= 0. 0: they end at max_iter.
        reduction: "none" for one value per problem, or their "mean" or "sum".
        storage: "full" or None, as in :func:`warpalign.transport.sinkhorn`. The three problems are solved one after the other, and one
            matrix is stored at a time.
        precision: the precision of float32 products on a GPU, as in :func:`warpalign.transport.sinkhorn`.
        batch_invariant: True: a problem's results are bitwise identical whatever else is in the batch. On a CPU they always are.

    Raises:
        TypeError, ValueError: an argument is invalid; a call raises what
            :func:`warpalign.transport.sinkhorn_divergence` raises.

    Examples:
        >>> loss = SinkhornDivergence(epsilon=0.1, reduction="mean")
        >>> points = torch.randn(8, 100, 3, requires_grad=True)
        >>> loss(points, torch.randn(8, 120, 3)).backward()
    """

    epsilon: float | Tensor

    def __init__(
        self,
        epsilon: float | Tensor,
        *,
        rho: float | None = None,
        debias: bool = True,
        cost: Cost | CostFunction = "sqeuclidean",
        cost_scale: float = 1.0,
        cost_normalization: CostNormalization | None = None,
        annealing: Annealing | float | None = None,
        updates: Updates = "mixed",
        max_iter: int = 1000,
        tol: float = 1e-5,
        reduction: Reduction = "none",
        storage: Literal["full"] | None = None,
        precision: Precision | None = None,
        batch_invariant: bool = False,
    ) -> None:
        super().__init__()
        checked: dict[str, Any] = {
            "rho": rho,
            "cost_scale": cost_scale,
            "annealing": annealing,
            "updates": updates,
            "max_iter": max_iter,
            "tol": tol,
            "storage": storage,
            "precision": precision,
            "batch_invariant": batch_invariant,
        }
        _settings(**checked)
        check_cost(cost)
        own = {
            "debias": check_flag(debias, "debias"),
            "cost": cost,
            "cost_normalization": check_normalization(cost_normalization),
            "reduction": check_reduction(reduction),
        }
        self.options = own | checked
        if isinstance(epsilon, Tensor):
            if epsilon.dtype not in DTYPES:
                raise TypeError(
                    f"epsilon: expected dtype float64, float32, float16 or bfloat16, got {epsilon.dtype}"
                )
            self.register_buffer("epsilon", epsilon)
        else:
            self.epsilon = check_number(epsilon, "epsilon", None)

    def forward(
        self,
        x: Tensor,
        y: Tensor,
        a: Tensor | None = None,
        b: Tensor | None = None,
        x_lengths: Lengths | None = None,
        y_lengths: Lengths | None = None,
    ) -> Tensor:
        """The divergences (B,), or 0-d for unbatched input or with a reduction.

        Args:
            x: (B, N, D) or (N, D) points.
            y: (B, M, D) or (M, D) points.
            a: (N,) or (B, N) weights >= 0 of the points of x. None: 1 / N each.
            b: (M,) or (B, M) weights of the points of y.
            x_lengths: (B,) true numbers of points in x, from 1 to N. None: all N.
            y_lengths: (B,) true numbers of points in y. None: all M.
        """
        return sinkhorn_divergence(
            x,
            y,
            epsilon=self.epsilon,
            a=a,
            b=b,
            x_lengths=x_lengths,
            y_lengths=y_lengths,
            **self.options,
        )

    def extra_repr(self) -> str:
        defaults = sinkhorn_divergence.__kwdefaults__ or {}
        changed = {name: value for name, value in self.options.items() if value != defaults[name]}
        return ", ".join(f"{name}={value!r}" for name, value in {"epsilon": self.epsilon, **changed}.items())
