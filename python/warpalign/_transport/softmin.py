"""A single update of potentials, for what lies on top of the solver: maps of new points, and schedules of other packages."""

from __future__ import annotations

import torch
from torch import Tensor

from warpalign._core.checks import naming_arguments
from warpalign._transport import ops
from warpalign._transport.plan import TransportPlan
from warpalign._transport.problem import Problem
from warpalign._transport.settings import UPDATES, as_keywords


def updated(of: Problem, f: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """Both potentials (B, N) and (B, M), each made from the other one, without a gradient.

    The row potential is −epsilon log Σ_j b[j] exp((g[j] − C[i, j]) / epsilon), times rho / (rho + epsilon) where the side is
    relaxed. A symmetric step returns the mean of the old potential and this one.
    """
    tensors = of.of._replace(f0=f.contiguous(), g0=g.contiguous())
    settings = of.settings._replace(
        updates=UPDATES.index("symmetric"), max_iterations=1, tolerance=0.0, epsilon_start=0.0
    )
    with naming_arguments(), torch.no_grad():
        _, _, mean_f, mean_g, *_ = ops.sinkhorn(*tensors, False, False, False, **as_keywords(settings))
    return 2 * mean_f - f, 2 * mean_g - g


def mapped(of: Problem, g: Tensor, values: Tensor) -> Tensor:
    """(B, N, K): what the rows of `of` get of values (B, M, K) of its columns, whose potentials g (B, M) are known.

    The weights of row i are b[j] exp((g[j] − C[i, j]) / epsilon), divided by their sum (entropic map: Pooladian & Niles-Weed,
    arXiv 2109.12004, equation 2).
    """
    # The columns' potentials stay as they are. On a free side the sums of weights need not agree.
    hard = of._replace(settings=of.settings._replace(rho_a=float("inf"), rho_b=0.0, mass=0.0))
    f, _ = updated(hard, g.new_zeros(hard.of.first.shape[0], hard.of.sizes[0]), g)
    with torch.no_grad():
        return TransportPlan(hard, f, g).barycentric_map(values)
