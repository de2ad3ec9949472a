"""Groups of options mean the same wherever they are taken."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.python.transport.clouds import spiral, swiss_roll
from tests.python.transport.gromov import solve_exact, solve_sampled
from warpalign import GromovTransport, SinkhornTransport
from warpalign.transport import (
    Annealing,
    Geodesic,
    SinkhornDivergence,
    knn_graph,
    shortest_paths,
    sinkhorn,
    sinkhorn_divergence,
)

X, Y = spiral(30, 0).double(), spiral(25, 1).double()
FACTORS = {
    "sinkhorn": (
        0.5,
        lambda annealing: sinkhorn(X, Y, epsilon=0.05, annealing=annealing, max_iter=3, tol=0).f,
    ),
    "divergence": (
        0.5,
        lambda annealing: sinkhorn_divergence(X, Y, epsilon=0.05, annealing=annealing, max_iter=3, tol=0),
    ),
    "module": (0.5, lambda annealing: SinkhornDivergence(0.05, annealing=annealing, max_iter=3, tol=0)(X, Y)),
    "estimator": (
        0.5,
        lambda annealing: SinkhornTransport(annealing=annealing, max_iter=3, tol=0).fit(X, Xt=Y).plan_.f,
    ),
    "exact": (0.9, lambda annealing: solve_exact(X, Y, annealing=annealing, max_iter=4).plan.f),
    "sampled": (0.9, lambda annealing: solve_sampled(X, Y, annealing=annealing, max_iter=4).plan.f),
    "GromovTransport": (
        0.9,
        lambda annealing: GromovTransport(annealing=annealing, max_iter=4).fit(X, Xt=Y).plan_.f,
    ),
}


@pytest.mark.filterwarnings("ignore:")
@pytest.mark.parametrize("name", FACTORS)
def test_annealing_is_spelled_alike_everywhere(name: str) -> None:
    factor, solve = FACTORS[name]
    of_number = solve(2.0)
    assert torch.equal(solve(Annealing(start=2.0)), of_number)
    assert torch.equal(solve(Annealing(start=2.0, factor=factor)), of_number)
    assert not torch.equal(solve(Annealing(start=2.0, factor=0.3)), of_number)
    assert not torch.equal(solve(None), of_number)


@pytest.mark.parametrize("annealing", [Annealing(start=2.0, factor=0.7), 2.0])
def test_annealing_under_compile(annealing: Annealing | float) -> None:
    def value(x: Tensor, y: Tensor) -> Tensor:
        return sinkhorn(x, y, epsilon=0.5, annealing=annealing).value

    compiled = torch.compile(value, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(X, Y), value(X, Y))


def test_options_are_constants_with_readable_names() -> None:
    assert repr(Annealing(start=0.5)) == "Annealing(start=0.5, factor=None)"
    assert repr(Geodesic(k=5)) == "Geodesic(k=5, n_landmarks=None)"
    assert hash(Geodesic(k=5)) == hash(Geodesic(k=5)) and Geodesic(k=5) != Geodesic(k=6)
    with pytest.raises(FrozenInstanceError):
        Geodesic().k = 3  # type: ignore[misc]
    with pytest.raises(TypeError):
        Geodesic(5)  # type: ignore[misc]


def test_geometries_of_each_side() -> None:
    """A pair has a geometry per side, of which "auto" goes by what is given."""
    x, y = spiral(30, 0), swiss_roll(25, 1)
    paths = [shortest_paths(knn_graph(z, k)) for z, k in ((x, 4), (y, 6))]
    expected = solve_exact(distances=(paths[0], paths[1]), epsilon=5e-3).plan.to_dense()
    forms: list[dict[str, Any]] = [
        {"x": x, "y": y, "geometry": (Geodesic(k=4), Geodesic(k=6))},
        {"x": x, "distances": (None, paths[1]), "geometry": (Geodesic(k=4), "auto")},
        {"y": y, "graphs": (knn_graph(x, 4), None), "geometry": ("auto", Geodesic(k=6))},
        {"y": y, "graphs": (knn_graph(x, 4), None), "geometry": ("geodesic", Geodesic(k=6))},
    ]
    for form in forms:
        assert torch.equal(
            solve_exact(**{"x": None, "y": None, "epsilon": 5e-3} | form).plan.to_dense(), expected
        )
