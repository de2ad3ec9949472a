"""Drop-in for ot.bregman: balanced problems. All methods find the same plan; here all of them are computed in the log domain."""

from warpalign.compat.pot._empirical import (
    empirical_sinkhorn,
    empirical_sinkhorn2,
    empirical_sinkhorn_divergence,
)
from warpalign.compat.pot._matrix import (
    greenkhorn,
    sinkhorn,
    sinkhorn2,
    sinkhorn_epsilon_scaling,
    sinkhorn_knopp,
    sinkhorn_log,
    sinkhorn_stabilized,
)

__all__ = [
    "empirical_sinkhorn",
    "empirical_sinkhorn2",
    "empirical_sinkhorn_divergence",
    "greenkhorn",
    "sinkhorn",
    "sinkhorn2",
    "sinkhorn_epsilon_scaling",
    "sinkhorn_knopp",
    "sinkhorn_log",
    "sinkhorn_stabilized",
]
