"""Entropic optimal transport by Sinkhorn's algorithm."""

from __future__ import annotations

from typing import NamedTuple, get_args

from torch import Tensor

from warpalign._core.checks import Precision, naming_arguments
from warpalign._core.costs import Cost, CostFunction
from warpalign._core.series import Lengths
from warpalign._transport import autograd
from warpalign._transport.checks import check_settings
from warpalign._transport.convergence import has_converged, warn_unless_converged
from warpalign._transport.costs import CostNormalization
from warpalign._transport.options import Annealing
from warpalign._transport.plan import TransportPlan
from warpalign._transport.problem import problem
from warpalign._transport.settings import Reference, Storage, Updates
from warpalign._transport.storage import with_storage


class SinkhornResult(NamedTuple):
    """What :func:`sinkhorn` returns; without the batch axis for unbatched input."""

    value: Tensor
    """(B,): the whole objective, in units of the cost."""
    linear: Tensor
    """(B,): the transport cost ⟨C, P⟩."""
    f: Tensor
    """(B, N): potentials of the rows, in units of the cost."""
    g: Tensor
    """(B, M): potentials of the columns."""
    plan: TransportPlan
    """P (B, N, M), which is not stored."""
    converged: Tensor
    """(B,) bool: whether the error is at most tol, up to rounding."""
    error: Tensor
    """(B,): how far another update would move a potential, over epsilon. On a side whose marginal is exact it is
    max \\|ln(marginal / weight)\\|. inf or NaN where the value is not finite."""
    iterations: Tensor
    """(B,) int32: iterations at the final epsilon."""


def sinkhorn(
    x: Tensor | None = None,
    y: Tensor | None = None,
    *,
    epsilon: float | Tensor,
    cost: Cost | CostFunction = "sqeuclidean",
    cost_matrix: Tensor | None = None,
    cost_scale: float = 1.0,
    cost_normalization: CostNormalization | None = None,
    a: Tensor | None = None,
    b: Tensor | None = None,
    x_lengths: Lengths | None = None,
    y_lengths: Lengths | None = None,
    annealing: Annealing | float | None = None,
    rho_a: float | None = None,
    rho_b: float | None = None,
    mass: float | None = None,
    reference: Reference = "product",
    updates: Updates = "alternating",
    init: SinkhornResult | tuple[Tensor, Tensor] | None = None,
    max_iter: int = 1000,
    tol: float = 1e-5,
    storage: Storage | None = None,
    precision: Precision | None = None,
    batch_invariant: bool = False,
) -> SinkhornResult:
    """Entropic optimal transport between weighted point sets, or from a matrix of costs.

    The plan P (N, M) minimises ⟨C, P⟩ + epsilon KL(P | R) + D_a(P 1) + D_b(Pᵀ 1) over P >= 0, where KL(p | q) is
    sum p ln(p / q) − p + q. Supports balanced, unbalanced, semi-relaxed and partial transport: D_a ties the row marginals P 1 to the
    weights a, D_b the column marginals Pᵀ 1 to b, exactly (balanced), by rho KL(marginals | weights) (unbalanced), or not at all
    (semi-relaxed, rho = 0). With ``mass``, marginals are at most the weights, and the plan has this mass (partial). P is
    R exp((f + g − C) / epsilon).

    By default, a GPU computes the costs between points in every iteration and stores no N × M matrix, unless the costs are given or
    computed by the caller's function; see also ``storage``. A CPU stores the exponentials if max_iter is at least 8 and they fit in
    256 MiB (8000 × 8000 in float32), and the costs of points with 16 features or more if both fit in 256 MiB together.
    Otherwise it recomputes them in every iteration.

    Sources: Cuturi, "Sinkhorn distances", NIPS 2013; Chizat et al., "Scaling algorithms for unbalanced optimal transport
    problems", Math. Comp. 2018; Benamou et al., "Iterative Bregman projections", SISC 2015, section 5 (partial).

    Args:
        x: (B, N, D) or (N, D) points, float64, float32, float16 or bfloat16. Half types are converted to float32. A batch of
            1 is repeated. None with a cost_matrix.
        y: (B, M, D) or (M, D) points of the dtype of x.
        epsilon: the regularisation strength, POT's ``reg``, in units of the cost: a number > 0, or a tensor () or
            (B,), which may require a gradient. Below about 1e-11 of the largest cost in float32, and 1e-15 in float64,
            exponents C / epsilon have no digits left: the result's error is then large, inf or NaN.
        cost: C[i, j] of two points: "sqeuclidean", "euclidean", "l1", "cosine" or "huber", as in :func:`warpalign.soft_dtw`,
            or a function of x (B, N, D) and y (B, M, D) that returns (B, N, M).
        cost_matrix: (B, N, M) or (N, M) costs, in place of x and y, of the dtypes of x. inf forbids a pair.
        cost_scale: a factor > 0 of the cost. geomloss has 0.5.
        cost_normalization: "max" or "mean" divides the costs of each problem by the largest or the mean of its finite costs,
            which is a constant for gradients. epsilon, rho and all results are in units of the normalised costs. None: costs
            are used as they are. Of the named costs, "sqeuclidean", "euclidean" and "l1" can be normalised.
        a: (N,) or (B, N) weights >= 0 of the rows; None: 1 / N each. Numbers of any kind and arrays are accepted where no
            gradient is required. Weights are not normalised: with rho_a, rho_b and mass None (balanced transport) the sums of a
            and b must agree within 1e-4 of the larger one, which rounding in float32 stays below. float16 and bfloat16 weights,
            whose rounding is larger, are divided by the ratio of their sums. On a GPU the host does not read sums: a
            problem with other sums becomes NaN, with ``converged`` False.
        b: (M,) or (B, M) weights >= 0 of the columns; None: 1 / M each.
        x_lengths: (B,) true numbers of points in x, from 1 to N, as a tensor, list or array of integers; None: all N. Padding is ignored.
        y_lengths: (B,) true numbers of points in y, from 1 to M; None: all M.
        annealing: an :class:`Annealing`, or a number > 0 as short for Annealing(start=number): iterations begin with this larger
            epsilon, in units of the cost, which shrinks to epsilon. None: all iterations have epsilon.
        rho_a: the strength of the KL penalty on the row marginals, >= 0, in units of the cost. None: they equal a; 0: they are free.
        rho_b: the strength of the KL penalty on the column marginals, as rho_a.
        mass: partial transport of this mass, above 0 and at most the smaller sum of weights; without rho_a and rho_b.
        reference: the measure R: "product" of the weights, or "counting", 1 everywhere. Balanced plans do not depend on it. Their value
            differs by a term that depends on weights alone.
        updates: "alternating" updates the columns' potentials, then the rows', whose marginals are exact at the end. "symmetric" updates
            both at once and averages them with the old ones, which converges fast between a set and itself. "mixed" is "symmetric" for
            the first 4 + log2(1 / tol) iterations, at most 28, then "alternating"; if x and y are one tensor, all are "symmetric".
        init: a SinkhornResult, or potentials (f, g) of shapes (B, N) and (B, M), to start from. No gradient
            flows to them. Their absolute values must be at most epsilon / torch.finfo(dtype).eps. None: 0.
        max_iter: the maximum number of iterations at the final epsilon, at least 1.
        tol: iterations end when no potential moves by more than tol · epsilon; >= 0. 0: they end at max_iter.
        storage: how costs are stored. "full": a GPU computes the costs of points once and stores them in an N × M matrix while the call
            iterates, which can save time if points have hundreds of features. The last iterations and all results are computed from
            the points. It implies the precision "highest"; mass, batch_invariant=True and other precisions are errors. It has no
            effect on a CPU, nor on costs that are given or computed by a function. "half": costs are rounded to float16 and stored as such. All results are
            exactly those of the rounded costs, in float32, and gradients pass through the rounding. A float16 cost_matrix is used as
            it is, and no float32 matrix is stored. A finite cost of 65520 or more makes its problem NaN; ``cost_normalization``
            scales costs into range. Not available for a named cost of points, nor for float64. None: as described above.
        precision: the precision of float32 products on a GPU, as in :func:`warpalign.soft_dtw`: "highest", "high", "medium", or None for
            torch's setting. It has an effect for "sqeuclidean" with five features or more, except for some small sets. "highest" has
            about the accuracy of float32, and uses products of matrices from nine features on. It has no effect on a CPU.
        batch_invariant: True: a problem's results are bitwise identical whatever else is in the batch. On a CPU they always are.

    Returns:
        SinkhornResult(value, linear, f, g, plan, converged, error, iterations); float64 for float64 input, else float32.
        value, linear, f and g are differentiable with respect to points, costs, weights and epsilon, the value twice. Gradients use
        implicit differentiation instead of backpropagating through the iterations: the value's comes with it (envelope theorem); the
        others, and second derivatives, solve a linear system by conjugate gradients, in at most max_iter steps and without an N × M matrix.
        Potentials of balanced transport are determined up to a constant; their gradients are those of the pair with equal means. The
        potential of a point without weight has no gradient. NaN among the costs of a problem makes only its results NaN. Where a point
        with weight reaches nothing, the value is inf.

    Warns:
        ConvergenceWarning: on a CPU, where problems have not converged, or their result is not finite; once per line that
            calls, outside of torch.compile and torch.func. On a GPU look at ``converged``.

    Raises:
        TypeError: an argument is of the wrong type, dtype or layout.
        ValueError: shapes, devices, values or combinations do not fit. Messages name the argument, what was expected and
            what came. Values of tensors on a GPU are not read.
        NotImplementedError: for third derivatives of the value, and second derivatives of linear, f and g.

    Examples:
        >>> x = torch.randn(8, 100, 3, requires_grad=True)
        >>> y = torch.randn(8, 120, 3)
        >>> result = sinkhorn(x, y, epsilon=0.1)
        >>> result.value.mean().backward()
        >>> x.grad.shape
        torch.Size([8, 100, 3])
    """
    settings = check_settings(
        cost_scale=cost_scale,
        annealing=annealing,
        rho_a=rho_a,
        rho_b=rho_b,
        mass=mass,
        reference=reference,
        updates=updates,
        max_iter=max_iter,
        tol=tol,
        precision=precision,
        batch_invariant=batch_invariant,
    )
    settings = with_storage(settings, storage, precision, *get_args(Storage))
    of = problem(
        x,
        y,
        cost_matrix,
        cost=cost,
        a=a,
        b=b,
        x_lengths=x_lengths,
        y_lengths=y_lengths,
        epsilon=epsilon,
        init=init,
        settings=settings,
        cost_normalization=cost_normalization,
    )
    with naming_arguments():
        s = autograd.sinkhorn(of.of, of.settings)
    converged = has_converged(s.error, of.settings)
    warn_unless_converged("sinkhorn", converged, s.error, s.value, of.settings, of.of.epsilons)
    value, linear, f, g, iterations, error, converged = map(
        of.squeezed, (s.value, s.linear, s.f, s.g, s.iterations, s.error, converged)
    )
    return SinkhornResult(value, linear, f, g, TransportPlan(of, s.f, s.g), converged, error, iterations)
