"""Entropic optimal transport: soft matchings of weighted point sets."""

from warpalign._transport.divergence import SinkhornDivergence, sinkhorn_divergence
from warpalign._transport.functional import SinkhornResult, sinkhorn
from warpalign._transport.plan import PlanTop, TransportPlan

__all__ = [
    "PlanTop",
    "SinkhornDivergence",
    "SinkhornResult",
    "TransportPlan",
    "sinkhorn",
    "sinkhorn_divergence",
]
