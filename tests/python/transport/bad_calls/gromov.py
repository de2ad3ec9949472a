"""Gromov-Wasserstein transport."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tests.python.bad_calls import BadCall, BadCalls, Given
from tests.python.transport.bad_calls.functional import made
from warpalign.transport import (
    Annealing,
    Geodesic,
    gromov_wasserstein,
    gromov_wasserstein_sampled,
    knn_graph,
)


def bad(
    *, error: type[BaseException] = ValueError, message: str, cpu_only: bool = False, **changed: Any
) -> BadCall:
    """gromov_wasserstein of good arguments but for those named."""

    def call(given: Given) -> object:
        return gromov_wasserstein(**{"x": given.x, "y": given.y, "epsilon": 1e-3} | made(given, changed))

    return BadCall(call, error, message, cpu_only)


def zeros(*shape: int, **options: Any) -> Callable[[Given], torch.Tensor]:
    return lambda given: torch.zeros(*shape, device=given.device, **options)


def of_matrices(
    first: Callable[[Given], object], second: Callable[[Given], object], **others: Any
) -> BadCall:
    return bad(x=None, y=None, distances=lambda given: (first(given), second(given)), **others)


CALLS: BadCalls = {
    "gromov_wasserstein: no points": bad(
        x=None, message='x: expected points with the geometry "euclidean", got None'
    ),
    "gromov_wasserstein: points in a list": bad(
        y=[[1.0]],
        error=TypeError,
        message="y: expected a torch.Tensor, got list: write torch.as_tensor(y)",
    ),
    "gromov_wasserstein: one set beside a batch": bad(
        y=zeros(6, 2), message="y: expected as many axes as x, which gives (3, 5, 5), got (6, 6)"
    ),
    "gromov_wasserstein: another batch": bad(
        y=zeros(2, 6, 2), message="y: expected a batch of 3, as x, or of 1, got shape (2, 6, 6)"
    ),
    "gromov_wasserstein: another dtype": bad(
        y=zeros(3, 6, 2, dtype=torch.float64),
        error=TypeError,
        message="y: expected torch.float32 on DEVICE, as x, got torch.float64 on DEVICE",
    ),
    "gromov_wasserstein: an unknown precision": bad(
        precision="low",
        message='precision: expected one of "highest", "high", "medium", or None, got \'low\'',
    ),
    "gromov_wasserstein: an unknown geometry": bad(
        geometry="l1",
        message='geometry: expected "auto", "euclidean", "sqeuclidean", "geodesic", a Geodesic, or a pair of them, got \'l1\'',
    ),
    "gromov_wasserstein: one matrix of distances": bad(
        distances=zeros(5, 5),
        error=TypeError,
        message="distances: expected a pair, one for x and one for y, got Tensor",
    ),
    "gromov_wasserstein: a graph alone": bad(
        graphs=lambda given: knn_graph(torch.zeros(5, 2), 2),
        error=TypeError,
        message="graphs: expected a pair, one for x and one for y, got NeighborGraph",
    ),
    "gromov_wasserstein: points beside distances": of_matrices(
        zeros(5, 5), zeros(6, 6), message="x: expected None beside distances[0], got Tensor"
    )._replace(
        call=lambda given: gromov_wasserstein(
            given.x, epsilon=1.0, distances=(torch.zeros(5, 5), torch.zeros(6, 6))
        )
    ),
    "gromov_wasserstein: distances that are not square": of_matrices(
        zeros(5, 5), zeros(6, 7), message="distances[1]: expected a square matrix (N, N), got shape (6, 7)"
    ),
    "gromov_wasserstein: no matrix for a side": of_matrices(
        zeros(5, 5),
        lambda given: None,
        message='y: expected points with the geometry "euclidean", got None',
    ),
    "gromov_wasserstein: distances with another geometry": of_matrices(
        zeros(5, 5),
        zeros(6, 6),
        geometry="euclidean",
        message='distances[0]: expected None with the geometry "euclidean", got Tensor',
    ),
    "gromov_wasserstein: a graph with another geometry": bad(
        x=None,
        graphs=lambda given: (knn_graph(torch.zeros(5, 2), 2), None),
        geometry="euclidean",
        message='graphs[0]: expected None with the geometry "euclidean", got NeighborGraph',
    ),
    "gromov_wasserstein: geodesics of nothing": bad(
        x=None, geometry="geodesic", message='x: expected points with the geometry "geodesic", got None'
    ),
    "gromov_wasserstein: points beside a graph": bad(
        x=zeros(5, 2),
        graphs=lambda given: (knn_graph(torch.zeros(5, 2), 2), None),
        geometry="geodesic",
        message="x: expected None beside graphs[0], got Tensor",
    ),
    "gromov_wasserstein: a graph of two parts": bad(
        x=None,
        graphs=lambda given: (knn_graph(torch.tensor([[0.0], [0.0], [9.0], [9.0]]), 1, stitch=False), None),
        message="graphs[0]: expected a graph with a path between all nodes, got 2 components: write knn_graph with more neighbours k "
        "or stitch=True, or match each component alone",
    ),
    "gromov_wasserstein: distances of two parts": of_matrices(
        lambda given: (
            torch.block_diag(*[torch.ones(2, 2, device=given.device)] * 2).log().neg().expand(3, 4, 4)
        ),
        zeros(3, 5, 5),
        message="distances[0]: expected finite distances, got infinite ones between 2 components of 4 points in problem 0: write "
        "shortest_paths(knn_graph(points, k)) with more neighbours k, which joins them, or match each component alone",
    ),
    "gromov_wasserstein: an unknown scale": bad(
        cost_normalization="median",
        message='cost_normalization: expected "max", "mean", "common" or None, got \'median\'',
    ),
    "gromov_wasserstein: epsilon of 0": bad(
        epsilon=0.0, message="epsilon: expected a finite number > 0, got 0.0"
    ),
    "gromov_wasserstein: annealing from 0": bad(
        annealing=0.0, message="annealing: expected a finite number > 0, got 0.0"
    ),
    "gromov_wasserstein: weights of other points": bad(
        a=zeros(6), message="a: expected shape (5,) or (3, 5), one number per point, got (6,)"
    ),
    "gromov_wasserstein: weights in a list of strings": bad(
        b=["1"],
        error=TypeError,
        message="b: expected a torch.Tensor, an array or a list of numbers, or None, got list",
    ),
    "gromov_wasserstein: features without a weight for them": bad(
        feature_weight=1.5, message="feature_weight: expected a number from 0 to 1, got 1.5"
    ),
    "gromov_wasserstein: a weight without features": bad(
        feature_weight=0.5,
        message="features: expected a pair (N, F) and (M, F), or a feature_cost (N, M), with feature_weight = 0.5, got None",
    ),
    "gromov_wasserstein: features whose weight is unknown": bad(
        feature_cost=zeros(3, 5, 6),
        message="feature_weight: expected a number with feature_cost, got None: write feature_weight=0.5, or leave feature_cost away",
    ),
    "gromov_wasserstein: features of other points": bad(
        feature_cost=zeros(3, 5, 5),
        feature_weight=0.5,
        message="feature_cost: expected shape (3, 5, 6) or (5, 6), got (3, 5, 5)",
    ),
    "gromov_wasserstein: features of a set of other points": bad(
        features=lambda given: (given.x, given.x),
        feature_weight=0.5,
        message="features[1]: expected shape (6, 2) or (3, 6, 2), got (3, 5, 2)",
    ),
    "gromov_wasserstein: features of another batch": bad(
        features=lambda given: (given.x[:2], given.y),
        feature_weight=0.5,
        message="features[0]: expected shape (5, F) or (3, 5, F), got (2, 5, 2)",
    ),
    "gromov_wasserstein: progress as a number": bad(
        progress=1, error=TypeError, message="progress: expected a bool, got int"
    ),
    "gromov_wasserstein: features on another device": bad(
        feature_cost=lambda given: torch.zeros(3, 5, 6, device="meta"),
        feature_weight=0.5,
        message="feature_cost: expected the device of x, DEVICE, got meta",
    ),
    "gromov_wasserstein: weights of other sums": bad(
        a=lambda given: torch.ones(5, device=given.device),
        message="a: expected the sum of b (write a / a.sum(), or give rho_a or rho_b), got 5 at index 0",
        cpu_only=True,
    ),
    "gromov_wasserstein: rho below 0": bad(
        rho_a=-1.0, message="rho_a: expected a finite number >= 0, got -1.0"
    ),
    "gromov_wasserstein: rho with mass": bad(
        rho_b=1.0, mass=0.5, message="rho_b: expected None with mass, which ties both sides, got 1.0"
    ),
    "gromov_wasserstein: more mass than there is": bad(
        mass=2.0, message="mass: expected at most the smaller sum of weights, got 2 at index 0", cpu_only=True
    ),
    "gromov_wasserstein: an unknown start": bad(
        init="random",
        message='init: expected "eccentricity", "product", "multiscale" or a plan (N, M), got \'random\'',
    ),
    "gromov_wasserstein: a start of other sizes": bad(
        init=zeros(5, 5), message="init: expected a plan (5, 6) or (3, 5, 6), got (5, 5)"
    ),
    "gromov_wasserstein: a start of another dtype": bad(
        init=zeros(5, 6, dtype=torch.float64),
        error=TypeError,
        message="init: expected torch.float32 on DEVICE, got torch.float64 on DEVICE",
    ),
    "gromov_wasserstein: no start": bad(restarts=0, message="restarts: expected at least 1, got 0"),
    "gromov_wasserstein: a seed below 0": bad(
        generator=-1, message="generator: expected a seed from 0 to 2^63 − 1, got -1"
    ),
    "gromov_wasserstein: a first plan below 0": bad(
        init=lambda given: zeros(5, 6)(given) - 1,
        cpu_only=True,
        message="init: expected a plan of finite numbers >= 0 with a positive sum, got -1",
    ),
    "gromov_wasserstein: a first plan without mass": bad(
        init=zeros(5, 6),
        cpu_only=True,
        message="init: expected a plan of finite numbers >= 0 with a positive sum, got a sum of 0",
    ),
    "gromov_wasserstein: NaN in the first plan": bad(
        init=lambda given: torch.full((5, 6), torch.nan),
        cpu_only=True,
        message="init: expected a plan of finite numbers >= 0 with a positive sum, got nan",
    ),
    "gromov_wasserstein: a step of 0": bad(step=0.0, message="step: expected a finite number > 0, got 0.0"),
    "gromov_wasserstein: a step too far": bad(
        step=1.5, message="step: expected a number above 0 and at most 1, got 1.5"
    ),
    "gromov_wasserstein: no steps": bad(max_iter=0, message="max_iter: expected at least 1, got 0"),
    "gromov_wasserstein: no inner iterations": bad(
        sinkhorn_iters=0, message="sinkhorn_iters: expected at least 1, got 0"
    ),
    "gromov_wasserstein: no last iterations": bad(
        polish_iters=0, message="polish_iters: expected at least 1, got 0"
    ),
    "gromov_wasserstein: a tolerance below 0": bad(
        tol=-1.0, message="tol: expected a finite number >= 0, got -1.0"
    ),
    "gromov_wasserstein: a number for a callback": bad(
        callback=20, error=TypeError, message="callback: expected a function or None, got int"
    ),
}


def bad_sampled(*, error: type[BaseException] = ValueError, message: str, **changed: Any) -> BadCall:
    """gromov_wasserstein_sampled of good arguments but for those named."""

    def call(given: Given) -> object:
        return gromov_wasserstein_sampled(
            **{"x": given.x[0], "y": given.y[0], "epsilon": 1e-3} | made(given, changed)
        )

    return BadCall(call, error, message, True)


SAMPLED: BadCalls = {
    "an unknown normalisation": bad_sampled(
        cost_normalization="median",
        message='cost_normalization: expected "max", "mean", "common" or None, got \'median\'',
    ),
    "a batch": bad_sampled(
        x=zeros(3, 5, 2), message="x: expected one set without a batch, got shape (3, 5, 2)"
    ),
    "no points": bad_sampled(y=None, message='y: expected points with the geometry "euclidean", got None'),
    "another dtype": bad_sampled(
        y=zeros(6, 2, dtype=torch.float64),
        error=TypeError,
        message="y: expected torch.float32 on DEVICE, as x, got torch.float64 on DEVICE",
    ),
    "progress as a number": bad_sampled(
        progress=1, error=TypeError, message="progress: expected a bool, got int"
    ),
    "epsilon of 0": bad_sampled(epsilon=0.0, message="epsilon: expected a finite number > 0, got 0.0"),
    "weights of other points": bad_sampled(
        a=zeros(6), message="a: expected shape (5,) or (1, 5), one number per point, got (6,)"
    ),
    "weights in a list": bad_sampled(
        b=["1"],
        error=TypeError,
        message="b: expected a torch.Tensor, an array or a list of numbers, or None, got list",
    ),
    "an unknown geometry": bad_sampled(
        geometry="l1",
        message='geometry: expected "auto", "euclidean", "sqeuclidean", "geodesic", a Geodesic, or a pair of them, got \'l1\'',
    ),
    "one matrix of distances": bad_sampled(
        distances=zeros(5, 5),
        error=TypeError,
        message="distances: expected a pair, one for x and one for y, got Tensor",
    ),
    "a graph alone": bad_sampled(
        graphs=lambda given: knn_graph(torch.zeros(5, 2), 2),
        error=TypeError,
        message="graphs: expected a pair, one for x and one for y, got NeighborGraph",
    ),
    "features of one set": bad_sampled(
        features=zeros(5, 2),
        feature_weight=0.5,
        error=TypeError,
        message="features: expected a pair, one for x and one for y, got Tensor",
    ),
    "features of other points": bad_sampled(
        features=lambda given: (given.x[0], given.x[0]),
        feature_weight=0.5,
        message="features[1]: expected shape (6, 2), got (5, 2)",
    ),
    "features on another device": bad_sampled(
        features=lambda given: (given.x[0], given.y[0].to("meta")),
        feature_weight=0.5,
        message="features[1]: expected a tensor on DEVICE, got one on meta",
    ),
    "distances of two parts": bad_sampled(
        x=None,
        y=None,
        distances=lambda given: (torch.block_diag(*[torch.ones(2, 2)] * 2).log().neg(), torch.zeros(5, 5)),
        message="distances[0]: expected finite distances, got infinite ones between 2 components of 4 points: write "
        "shortest_paths(knn_graph(points, k)) with more neighbours k, which joins them, or match each component alone",
    ),
    "features whose weight is unknown": bad_sampled(
        features=lambda given: (given.x[0], given.y[0]),
        message="feature_weight: expected a number with features, got None: write feature_weight=0.5, or leave features away",
    ),
    "weights of other sums": bad_sampled(
        b=lambda given: torch.ones(6, device=given.device),
        message="b: expected the sum of a (write b / b.sum(), or give rho_a or rho_b), got 6 at index 0",
    ),
    "a weight without features": bad_sampled(
        feature_weight=0.5,
        message="features: expected a pair (N, F) and (M, F), or a feature_cost (N, M), with feature_weight = 0.5, got None",
    ),
    "features alone": bad_sampled(
        feature_weight=1.0, message="feature_weight: expected a number from 0 to below 1, got 1.0"
    ),
    "rho below 0": bad_sampled(rho_a=-1.0, message="rho_a: expected a finite number >= 0, got -1.0"),
    "rho with mass": bad_sampled(
        rho_b=1.0, mass=0.5, message="rho_b: expected None with mass, which ties both sides, got 1.0"
    ),
    "more mass than there is": bad_sampled(
        mass=2.0, message="mass: expected at most the smaller sum of weights, got 2 at index 0"
    ),
    "no anchors": bad_sampled(n_anchors=0, message="n_anchors: expected at least 1, got 0"),
    "annealing from 0": bad_sampled(
        annealing=0.0, message="annealing: expected a finite number > 0, got 0.0"
    ),
    "a step too far": bad_sampled(step=1.5, message="step: expected a number above 0 and at most 1, got 1.5"),
    "no steps": bad_sampled(max_iter=0, message="max_iter: expected at least 1, got 0"),
    "no inner iterations": bad_sampled(
        sinkhorn_iters=0, message="sinkhorn_iters: expected at least 1, got 0"
    ),
    "no last iterations": bad_sampled(polish_iters=0, message="polish_iters: expected at least 1, got 0"),
    "no patience": bad_sampled(patience=0, message="patience: expected at least 1, got 0"),
    "a seed below 0": bad_sampled(
        generator=-1, message="generator: expected a seed from 0 to 2^63 − 1, got -1"
    ),
    "fewer than one step": bad_sampled(min_iter=0, message="min_iter: expected at least 1, got 0"),
    "a number for a callback": bad_sampled(
        callback=20, error=TypeError, message="callback: expected a function or None, got int"
    ),
    "a table beside features": bad_sampled(
        features=lambda given: (given.x[0], given.y[0]),
        feature_cost=zeros(5, 6),
        feature_weight=0.5,
        message="features: expected None beside feature_cost, got both",
    ),
    "a table of features of other points": bad_sampled(
        feature_cost=zeros(5, 5),
        feature_weight=0.5,
        message="feature_cost: expected shape (5, 6), got (5, 5)",
    ),
    "an unknown start": bad_sampled(
        init="random",
        message='init: expected "eccentricity", "product", "multiscale" or a plan (N, M), got \'random\'',
    ),
    "no restart": bad_sampled(restarts=0, message="restarts: expected at least 1, got 0"),
    "restarts of one start": bad_sampled(
        restarts=3, message='restarts: expected 1 without init = "multiscale", got 3'
    ),
    "a first plan without mass": bad_sampled(
        init=zeros(5, 6),
        message="init: expected a plan of finite numbers >= 0 with a positive sum, got a sum of 0",
    ),
    "a start of other sizes": bad_sampled(
        init=zeros(5, 5), message="init: expected shape (5, 6), got (5, 5)"
    ),
    "a plan of other sizes to start from": bad_sampled(
        init=lambda given: gromov_wasserstein(given.x[0], given.x[0], epsilon=1.0, max_iter=1).plan,
        message="init: expected a plan (5, 6), got one of shape (5, 5)",
    ),
}
CALLS |= {f"gromov_wasserstein_sampled: {name}": call for name, call in SAMPLED.items()}
CALLS["gromov_wasserstein: distances under vmap and grad"] = BadCall(
    lambda given: torch.func.vmap(
        torch.func.grad(lambda c: gromov_wasserstein(distances=(c, c), epsilon=1.0).value.sum())
    )(torch.ones(2, 3, 3, device=given.device)),
    NotImplementedError,
    "warpalign: gromov_wasserstein is not available under torch.func.vmap: call it with a batch, or for each sample",
)

CALLS |= {
    f"{name}: {wrong}": BadCall(lambda given, make=make, options=options: make(**options), error, message)  # type: ignore[misc]
    for name, make, wrong, options, error, message in (
        (
            "Annealing",
            Annealing,
            "from 0",
            {"start": 0.0},
            ValueError,
            "start: expected a finite number > 0, got 0.0",
        ),
        (
            "Annealing",
            Annealing,
            "from a name",
            {"start": "1"},
            TypeError,
            "start: expected a float, got str",
        ),
        (
            *("Annealing", Annealing, "that grows", {"start": 1.0, "factor": 1.5}, ValueError),
            "factor: expected a number above 0 and below 1, got 1.5",
        ),
        ("Geodesic", Geodesic, "no neighbours", {"k": 0}, ValueError, "k: expected at least 1, got 0"),
        (
            *("Geodesic", Geodesic, "no landmarks", {"n_landmarks": 0}, ValueError),
            "n_landmarks: expected at least 1, got 0",
        ),
    )
}
