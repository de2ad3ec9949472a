"""Entropic optimal transport: soft matchings of weighted point sets."""

from warpalign._transport.functional import SinkhornResult, sinkhorn

__all__ = ["SinkhornResult", "sinkhorn"]
