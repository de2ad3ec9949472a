"""Entropic optimal transport: soft matchings of weighted point sets, and the graphs whose distances they compare."""

from warpalign._core.convergence import ConvergenceWarning
from warpalign._transport.annotated import AnnDataTensors, from_anndata
from warpalign._transport.divergence import (
    SinkhornDivergence,
    SinkhornDivergenceResult,
    sinkhorn_divergence,
)
from warpalign._transport.embedding import joint_embedding
from warpalign._transport.functional import SinkhornResult, sinkhorn
from warpalign._transport.graphs import (
    Landmarks,
    NeighborGraph,
    connected_components,
    farthest_landmarks,
    knn_graph,
    shortest_paths,
)
from warpalign._transport.gromov import gromov_wasserstein
from warpalign._transport.gromov_result import GromovResult
from warpalign._transport.gromov_sampled import gromov_wasserstein_sampled
from warpalign._transport.low_rank.functional import LowRankResult, sinkhorn_low_rank
from warpalign._transport.low_rank.gromov import gromov_wasserstein_low_rank
from warpalign._transport.low_rank.plan import LowRankPlan
from warpalign._transport.normalize import SinkhornNormalize, sinkhorn_normalize
from warpalign._transport.options import Annealing, Geodesic
from warpalign._transport.plan import TransportPlan
from warpalign._transport.plan_checks import PlanTop

__all__ = [
    "AnnDataTensors",
    "Annealing",
    "ConvergenceWarning",
    "Geodesic",
    "GromovResult",
    "Landmarks",
    "LowRankPlan",
    "LowRankResult",
    "NeighborGraph",
    "PlanTop",
    "SinkhornDivergence",
    "SinkhornDivergenceResult",
    "SinkhornNormalize",
    "SinkhornResult",
    "TransportPlan",
    "connected_components",
    "farthest_landmarks",
    "from_anndata",
    "gromov_wasserstein",
    "gromov_wasserstein_low_rank",
    "gromov_wasserstein_sampled",
    "joint_embedding",
    "knn_graph",
    "shortest_paths",
    "sinkhorn",
    "sinkhorn_divergence",
    "sinkhorn_low_rank",
    "sinkhorn_normalize",
]
