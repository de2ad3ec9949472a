"""The drop-in for torchgw, and the embedding of matched sets."""

from __future__ import annotations

from typing import Any

import torch

from tests.python.bad_calls import BadCall, BadCalls
from tests.python.transport.bad_calls.graphs import graph_of
from warpalign.compat import torchgw
from warpalign.transport import joint_embedding

X, Y = torch.randn(5, 2), torch.randn(6, 3)


def of_sampled_gw(message: str, **changed: Any) -> BadCall:
    return BadCall(lambda given: torchgw.sampled_gw(X, Y, k=2, **changed), ValueError, message, cpu_only=True)


def of_low_rank(message: str, error: type[BaseException] = ValueError, **changed: Any) -> BadCall:
    return BadCall(
        lambda given: torchgw.sampled_lowrank_gw(
            **{"X_source": X, "X_target": Y, "k": 2, "rank": 2, "max_iter": 2, **changed}
        ),
        error,
        message,
        cpu_only=True,
    )


def embedded(message: str, error: type[BaseException] = ValueError, **changed: Any) -> BadCall:
    good: dict[str, Any] = {"data": {"x": X, "y": Y}, "plans": {"y": torch.ones(5, 6)}, "anchor": "x"}
    return BadCall(lambda given: joint_embedding(**good | changed), error, message, cpu_only=True)


CALLS: BadCalls = {
    "sampled_gw: distance_mode": of_sampled_gw(
        "distance_mode: expected one of dijkstra, precomputed, landmark, got 'geodesic'",
        distance_mode="geodesic",
    ),
    "sampled_gw: fgw_alpha": of_sampled_gw(
        "fgw_alpha: expected a number from 0 to 1, got 1.5", fgw_alpha=1.5
    ),
    "sampled_gw: no costs": of_sampled_gw(
        "C_linear: expected costs (N, K) with fgw_alpha = 0.5, got None", fgw_alpha=0.5
    ),
    "sampled_gw: s_shared": of_sampled_gw("s_shared: expected from 1 to 5 points, got 6", s_shared=6),
    "sampled_gw: relaxed and partial": of_sampled_gw(
        "rho_a: expected None with mass, which ties both sides, got 2.0", s_shared=4, rho=1.0
    ),
    "sampled_lowrank_gw: fgw_alpha": of_low_rank(
        "fgw_alpha: expected 0.0 for a plan of low rank, got 0.5: write sampled_gw(..., fgw_alpha=...)",
        NotImplementedError,
        fgw_alpha=0.5,
    ),
    "sampled_lowrank_gw: C_linear": of_low_rank(
        "C_linear: expected None for a plan of low rank, got Tensor: write sampled_gw(..., C_linear=...)",
        NotImplementedError,
        C_linear=torch.rand(5, 6),
    ),
    "sampled_lowrank_gw: points": of_low_rank(
        'X_target: expected an array with distance_mode="landmark", got None',
        TypeError,
        X_target=None,
        distance_mode="landmark",
    ),
    "sampled_lowrank_gw: lr_max_iter": of_low_rank("lr_max_iter: expected at least 1, got 0", lr_max_iter=0),
    "sampled_lowrank_gw: lr_dykstra_max_iter": of_low_rank(
        "lr_dykstra_max_iter: expected at least 2, got 1", lr_dykstra_max_iter=1
    ),
    "sampled_lowrank_gw: a name": of_low_rank(
        "ranks: expected an argument of sampled_lowrank_gw or sampled_gw, got another name",
        TypeError,
        ranks=2,
    ),
    "sampled_lowrank_gw: distance_mode": of_low_rank(
        "distance_mode: expected one of dijkstra, precomputed, landmark, got 'geodesic'",
        distance_mode="geodesic",
    ),
    "sampled_lowrank_gw: rank": of_low_rank(
        "rank: expected at most the smaller number of points, 5, got 6", rank=6
    ),
    "torchgw: a distance provider": BadCall(
        lambda given: torchgw.PrecomputedProvider,
        ImportError,
        "module 'warpalign.compat.torchgw' has no attribute 'PrecomputedProvider': expected a distance_mode in place of a distance "
        'provider: write sampled_gw(..., distance_mode="precomputed", "dijkstra" or "landmark")',
        cpu_only=True,
    ),
    "torchgw: a name": BadCall(
        lambda given: torchgw.lowrank,
        AttributeError,
        "module 'warpalign.compat.torchgw' has no attribute 'lowrank'",
        cpu_only=True,
    ),
    "joint_embedding: data": embedded(
        "data: expected a dict of features (N, D) by name, got list", TypeError, data=[X, Y]
    ),
    "joint_embedding: data of one set": embedded(
        "data: expected two sets or more, got 1", data={"x": X}, plans={}
    ),
    "joint_embedding: a batch": embedded(
        "data['y']: expected one set (N, D), got shape (2, 6, 3)", data={"x": X, "y": torch.zeros(2, 6, 3)}
    ),
    "joint_embedding: data with NaN": embedded(
        "data['y']: expected finite numbers, got nan", data={"x": X, "y": Y.clone().fill_(torch.nan)}
    ),
    "joint_embedding: points that are the same": embedded(
        "data['x']: expected points that differ, got 5 that are the same",
        data={"x": torch.ones(5, 2), "y": Y},
    ),
    "joint_embedding: a plan of NaN": embedded(
        "plans['y']: expected finite numbers with a sum > 0, got the sum nan: solve the problem with a larger epsilon, or leave "
        "points without a match out",
        plans={"y": torch.full((5, 6), torch.nan)},
    ),
    "joint_embedding: anchor": embedded("anchor: expected one of 'x', 'y', got 'z'", anchor="z"),
    "joint_embedding: plans": embedded(
        "plans: expected a dict of plans by name, got Tensor", TypeError, plans=torch.ones(5, 6)
    ),
    "joint_embedding: plans of other sets": embedded(
        "plans: expected those of ['y'], got those of ['x']", plans={"x": torch.ones(5, 6)}
    ),
    "joint_embedding: no plan": embedded(
        "plans['y']: expected a TransportPlan or a torch.Tensor, got NoneType", TypeError, plans={"y": None}
    ),
    "joint_embedding: a plan of other points": embedded(
        "plans['y']: expected shape (5, 6), got (6, 5)", plans={"y": torch.ones(6, 5)}
    ),
    "joint_embedding: graphs": embedded(
        "graphs: expected a dict of graphs by name, got NeighborGraph", TypeError, graphs=graph_of()
    ),
    "joint_embedding: graphs of other sets": embedded(
        "graphs: expected names of data, got 'z'", graphs={"z": graph_of()}
    ),
    "joint_embedding: a graph of other points": embedded(
        "graphs['x']: expected 5 nodes, got 2", graphs={"x": graph_of()}
    ),
    "joint_embedding: reg": embedded("reg: expected a finite number >= 0, got -1.0", reg=-1.0),
    "joint_embedding: dim": embedded("dim: expected at least 1, got 0", dim=0),
}
