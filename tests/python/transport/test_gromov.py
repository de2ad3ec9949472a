"""gromov_wasserstein next to POT, its objective's derivatives, and its properties."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.python.helpers import Array
from tests.python.transport import pot_gromov
from tests.python.transport.clouds import spiral, swiss_roll
from tests.python.transport.gromov import solve_exact, solve_sampled
from warpalign.transport import (
    Geodesic,
    GromovResult,
    knn_graph,
    shortest_paths,
    sinkhorn,
)

ANSWERS = pot_gromov.recorded()
# As POT solves it: no division, no annealing, from the product of the weights, inner problems until they have converged.
PLAIN: dict[str, Any] = {
    "cost_normalization": None,
    "annealing": None,
    "init": "product",
    "sinkhorn_iters": 2000,
}


def tensor(array: Array, device: torch.device) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array)).to(device)


def solve(of: pot_gromov.Given, device: torch.device, **options: Any) -> GromovResult:
    """With as many steps as POT takes; the result's plan is the last of them."""
    features = None if of.features is None else tensor(of.features, device)
    return solve_exact(
        distances=(tensor(of.cx, device), tensor(of.cy, device)),
        feature_cost=features,
        feature_weight=of.weight,
        epsilon=of.epsilon,
        **PLAIN | {"max_iter": max(of.steps - 1, 1), "tol": 0.0, "polish_iters": 20000} | options,
    )


def value_of_pot(result: GromovResult, of: pot_gromov.Given) -> float:
    plan = result.plan.to_dense().cpu().numpy()
    features = 0.0 if of.features is None else float((of.features * plan).sum())
    return (1 - of.weight) * float(result.distortion) + of.weight * features


@pytest.mark.parametrize("name", pot_gromov.PROBLEMS)
def test_plans_and_values_of_pot(name: str, device: torch.device) -> None:
    of = pot_gromov.PROBLEMS[name]
    result = solve(of, device, **({"max_iter": 200, "tol": 1e-9} if of.steps == 30 else {}))
    expected = torch.tensor(ANSWERS[name]["plan"], dtype=torch.float64)
    plan = result.plan.to_dense().cpu()
    # POT's inner problems of the smallest epsilon end before they have converged.
    tolerance = 1e-4 if name == "gauss" else 1e-6
    torch.testing.assert_close(plan, expected, rtol=0, atol=tolerance * float(expected.max()))
    assert value_of_pot(result, of) == pytest.approx(ANSWERS[name]["value"], rel=10 * tolerance, abs=1e-9)
    if name == "gauss":
        assert plan.argmax(1).tolist() == list(range(9, -1, -1))
        assert float((plan.sum(0) - 0.1).abs().max()) <= 1e-4


def test_reverse_order_at_a_small_epsilon(device: torch.device) -> None:
    cx, cy = (tensor(c, device) for c in pot_gromov.gauss(20, 1))
    result = solve_exact(
        distances=(cx, cy), epsilon=1e-5, annealing=0.1, cost_normalization=None, max_iter=400
    )
    expected = torch.eye(20, dtype=torch.float64).flip(0) / 20
    torch.testing.assert_close(result.plan.to_dense().cpu(), expected, rtol=0, atol=1e-4)
    assert bool(result.converged)


def geodesics(x: Tensor) -> Tensor:
    """Shortest paths on the graph of 5 neighbours, in float64, divided by the largest."""
    graph = knn_graph(x, 5)
    lengths = shortest_paths(graph._replace(weights=graph.weights.double()))
    return lengths / lengths.max()


@pytest.mark.parametrize(
    ("epsilon", "distortion"),
    [(0.005, 0.0035720084), (0.01, 0.00595192), (0.02, 0.01068800), (0.05, 0.02488720)],
)
def test_spiral_and_swiss_roll(epsilon: float, distortion: float) -> None:
    """POT's values, to the digits that were recorded; ranks along the spiral are kept, not mirrored."""
    cx, cy = geodesics(spiral(400, 0)), geodesics(swiss_roll(500, 1))
    assert float(cx.sum()) == pytest.approx(53786.26640, abs=1e-3)
    assert float(cy.sum()) == pytest.approx(89293.21822, abs=1e-3)
    of_plan = epsilon == 0.005
    result = solve_exact(
        distances=(cx, cy), epsilon=epsilon, **PLAIN | {"sinkhorn_iters": 100}, max_iter=100,
        tol=1e-9 if of_plan else 1e-6, polish_iters=2000,
    )  # fmt: skip
    assert bool(result.converged)
    assert float(result.distortion) == pytest.approx(distortion, rel=2e-6)
    places = result.plan.barycentric_map(torch.arange(500.0, dtype=torch.float64)[:, None])[:, 0]
    ranks = places.argsort().argsort().double()
    assert float(torch.corrcoef(torch.stack([ranks, torch.arange(400.0).double()]))[0, 1]) >= 0.998
    if of_plan:
        # Table A1: rows of POT's plan, as densities by the weights' product.
        expected = torch.tensor(ANSWERS["spiral"]["rows"], dtype=torch.float64)
        rows = result.plan.rows(pot_gromov.SPIRAL_ROWS)
        assert float((rows - expected).abs().max()) * 400 * 500 <= 1e-5


def test_annealing_finds_the_good_basin(device: torch.device) -> None:
    cx, cy = (geodesics(z).float().to(device) for z in (spiral(400, 0), swiss_roll(500, 1)))
    result = solve_exact(distances=(cx, cy))
    assert bool(result.converged)
    assert float(result.distortion) <= 2.0e-3
    rows, columns = result.plan.marginal(1), result.plan.marginal(0)
    assert float((rows * 400 - 1).abs().max()) <= 1e-3
    assert float((columns * 500 - 1).abs().max()) <= 1e-3


def random_sides(seed: int, batch: int, n: int, m: int, *, symmetric: bool = True) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    cx, cy = (torch.rand(batch, s, s, generator=generator, dtype=torch.float64) for s in (n, m))
    return (cx + cx.mT, cy + cy.mT) if symmetric else (cx, cy)


def weights(seed: int, batch: int, n: int) -> Tensor:
    state = np.random.RandomState(seed)
    return torch.from_numpy(state.dirichlet(np.full(n, 5.0), batch))


KINDS: dict[str, dict[str, Any]] = {
    "balanced": {},
    "unbalanced": {"rho_a": 0.5, "rho_b": 2.0},
    "semi-relaxed": {"rho_b": 0.0},
    "partial": {"mass": 0.6},
    "fused": {"feature_weight": 0.4},
    "features alone": {"feature_weight": 1.0},
}


def objective(
    cx: Tensor, cy: Tensor, features: Tensor | None, w: float, a: Tensor, b: Tensor, epsilon: Tensor, plan: Tensor,
    rho: tuple[float | None, float | None],
) -> Tensor:  # fmt: skip
    """The objective of a dense plan, by its definition."""
    differences = (cx[:, :, None, :, None] - cy[:, None, :, None, :]).square()
    value = (1 - w) * torch.einsum("bijkl,bij,bkl->b", differences, plan, plan)
    if features is not None:
        value = value + w * (features * plan).sum((1, 2))

    def kl(p: Tensor, q: Tensor) -> Tensor:
        return (torch.special.xlogy(p, p) - torch.special.xlogy(p, q) - p + q).flatten(1).sum(1)

    value = value + epsilon * kl(plan, a[:, :, None] * b[:, None, :])
    for strength, sums, given in ((rho[0], plan.sum(2), a), (rho[1], plan.sum(1), b)):
        if strength is not None:
            value = value + strength * kl(sums, given)
    return value


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_value_is_the_objective_and_its_gradient_that_of_the_minimum(kind: str, symmetric: bool) -> None:
    """The value's derivatives are differences of the value at plans that were found again."""
    options = KINDS[kind]
    w = options.get("feature_weight", 0.0)
    cx, cy = random_sides(1, 1, 6, 7, symmetric=symmetric)
    inputs = {
        "cx": cx,
        "cy": cy,
        "features": torch.rand(1, 6, 7, dtype=torch.float64),
        "a": weights(2, 1, 6),
        "b": weights(3, 1, 7),
        "epsilon": torch.tensor([0.3], dtype=torch.float64),
    }

    def found(of: dict[str, Tensor]) -> GromovResult:
        return solve_exact(
            distances=(of["cx"], of["cy"]),
            feature_cost=of["features"],
            a=of["a"],
            b=of["b"],
            epsilon=of["epsilon"],
            **PLAIN | {"feature_weight": w, "tol": 1e-13, "max_iter": 400, "polish_iters": 20000} | options,
        )

    leaves = {name: t.clone().requires_grad_() for name, t in inputs.items()}
    result = found(leaves)
    assert bool(result.converged)
    expected = objective(
        cx, cy, inputs["features"], w, inputs["a"], inputs["b"], inputs["epsilon"], result.plan.to_dense().detach(),
        (options.get("rho_a"), options.get("rho_b")),
    )  # fmt: skip
    torch.testing.assert_close(result.value.detach(), expected, rtol=1e-9, atol=1e-12)
    gradients = torch.autograd.grad(result.value.sum(), list(leaves.values()), allow_unused=True)
    # Weights of both sides keep equal sums, and matrices stay symmetric, where the problem asks for that.
    generator = torch.Generator().manual_seed(5)
    for (name, t), gradient in zip(inputs.items(), gradients, strict=True):
        direction = torch.randn(t.shape, generator=generator, dtype=torch.float64)
        if name in ("a", "b"):
            direction = direction - direction.mean()
        if name in ("cx", "cy") and symmetric:
            direction = direction + direction.mT
        step = 1e-4
        values = [found(inputs | {name: t + s * step * direction}).value for s in (-1, 1)]
        numeric = float((values[1] - values[0]) / (2 * step))
        analytic = 0.0 if gradient is None else float((gradient * direction).sum())
        assert analytic == pytest.approx(numeric, rel=2e-6, abs=2e-8), name


def test_second_derivatives_are_refused() -> None:
    cx, cy = random_sides(1, 1, 4, 5)
    cx.requires_grad_()
    value = solve_exact(distances=(cx, cy), epsilon=0.1).value
    (gradient,) = torch.autograd.grad(value.sum(), cx, create_graph=True)
    with pytest.raises(NotImplementedError, match="second derivatives of gromov_wasserstein's value are not"):
        gradient.sum().backward()


def test_forward_mode_is_refused() -> None:
    """A tangent would be lost: the steps are not differentiated."""
    x, y = torch.randn(8, 2), torch.randn(9, 2)
    with pytest.raises(NotImplementedError, match="forward-mode derivatives of gromov_wasserstein"):
        torch.func.jvp(lambda x: solve_exact(x, y, max_iter=2).value, (x,), (x,))


def test_within_compiled_code() -> None:
    torch._dynamo.reset()
    x, y = random_sides(1, 1, 6, 7)

    def values(x: Tensor, y: Tensor) -> Tensor:
        whole = solve_exact(distances=(2 * x, y), epsilon=0.1)
        sampled = solve_sampled(distances=(2 * x[0], y[0]), epsilon=0.1, max_iter=5)
        return torch.stack([whole.value[0], sampled.distortion]) + 1

    torch.testing.assert_close(torch.compile(values, backend="eager")(x, y), values(x, y))


def test_gradient_by_points(device: torch.device) -> None:
    """Through Euclidean geometries; a plan of features is differentiable through its cost."""
    x = torch.randn(12, 2, dtype=torch.float64, device=device, requires_grad=True)
    y = torch.randn(15, 3, dtype=torch.float64, device=device, requires_grad=True)
    result = solve_exact(x, y, epsilon=0.05, geometry=("euclidean", "sqeuclidean"))
    result.value.backward()
    assert x.grad is not None and float(x.grad.norm()) > 0
    assert y.grad is not None and float(y.grad.norm()) > 0
    # The divisor is a constant: the value changes like the squared distances.
    assert float(torch.autograd.grad(solve_exact(x, x.detach(), epsilon=0.05).value, x)[0].sum().abs()) < 1e-9


def test_plan_of_features_alone_is_that_of_sinkhorn(device: torch.device) -> None:
    cx, cy = (c[0].to(device) for c in random_sides(1, 1, 8, 9))
    features = torch.rand(8, 9, dtype=torch.float64, device=device, requires_grad=True)
    result = solve_exact(
        distances=(cx, cy), feature_cost=features, feature_weight=1.0, epsilon=0.1, polish_iters=20000
    )
    expected = sinkhorn(cost_matrix=features, epsilon=0.1, tol=1e-9, max_iter=20000)
    torch.testing.assert_close(result.plan.to_dense(), expected.plan.to_dense(), rtol=1e-5, atol=0)
    along = torch.rand(8, 9, dtype=torch.float64, device=device)
    gradients = [
        torch.autograd.grad((plan.to_dense() * along).sum(), features)[0]
        for plan in (result.plan, expected.plan)
    ]
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_is_its_problems(kind: str, device: torch.device) -> None:
    cx, cy = (c.to(device) for c in random_sides(0, 3, 8, 11))
    features = torch.rand(3, 8, 11, dtype=torch.float64, device=device)
    a, b = weights(2, 3, 8).to(device), weights(3, 3, 11).to(device)
    options: dict[str, Any] = {"epsilon": 0.05, "restarts": 2, "max_iter": 25, "feature_weight": 0.5} | KINDS[
        kind
    ]
    given: dict[str, Any] = {"distances": (cx, cy), "feature_cost": features, "a": a, "b": b}
    together = solve_exact(**given, **options)
    single = solve_exact(**given, **options | {"restarts": 1})
    for k in range(3):
        alone = solve_exact(
            distances=(cx[k], cy[k]), feature_cost=features[k], a=a[k], b=b[k], **options | {"restarts": 1}
        )
        assert float(together.value[k]) <= float(alone.value) + 1e-9
        # A batch's sums may have another order.
        torch.testing.assert_close(single.plan.to_dense()[k], alone.plan.to_dense(), rtol=1e-9, atol=1e-12)
        assert int(single.iterations[k]) == int(alone.iterations)


def test_semi_relaxed_finds_blocks() -> None:
    """A graph of two blocks of 30 and 15 nodes onto two nodes: their weights are found."""
    state = np.random.RandomState(0)
    sizes, chances = (30, 15), np.array([[0.8, 0.1], [0.1, 1.0]])
    labels = np.repeat([0, 1], sizes)
    edges = np.triu(state.rand(45, 45) < chances[labels[:, None], labels[None]], 1).astype(float)
    cx, cy = torch.from_numpy(edges + edges.T), torch.from_numpy(chances)
    result = solve_exact(
        distances=(cx, cy), rho_b=0.0, epsilon=1e-3, annealing=1.0, cost_normalization=None, restarts=4
    )
    sums = result.plan.marginal(0)
    torch.testing.assert_close(sums, torch.tensor([2 / 3, 1 / 3], dtype=torch.float64), rtol=0, atol=1e-2)
    assert float(result.plan.marginal(1).sub(1 / 45).abs().max()) < 1e-9


def test_partial_and_relaxed_sides(device: torch.device) -> None:
    cx, cy = (c.to(device) for c in random_sides(3, 2, 10, 12))
    partial = solve_exact(distances=(cx, cy), mass=0.7, epsilon=0.02)
    torch.testing.assert_close(
        partial.plan.mass().cpu(), torch.full((2,), 0.7, dtype=torch.float64), rtol=1e-5, atol=0
    )
    assert float(partial.plan.marginal(1).max()) <= 0.1 * (1 + 1e-6)
    options: dict[str, Any] = {"distances": (cx, cy), "epsilon": 0.02, "sinkhorn_iters": 100, "max_iter": 40}
    balanced = solve_exact(**options)
    for rho, near in ((1e5, True), (0.01, False)):
        relaxed = solve_exact(rho_a=rho, rho_b=rho, **options)
        same = torch.allclose(relaxed.plan.to_dense(), balanced.plan.to_dense(), rtol=0, atol=1e-4)
        assert same == near


def test_invariances(device: torch.device) -> None:
    """Scales of distances change nothing, permutations commute, transposed sides give the transposed plan."""
    cx, cy = (geodesics(z).to(device) for z in (spiral(60, 0), swiss_roll(70, 1)))
    first = solve_exact(distances=(cx, cy)).plan.to_dense()
    scaled = solve_exact(distances=(1e6 * cx, 1e-6 * cy)).plan.to_dense()
    torch.testing.assert_close(scaled, first, rtol=1e-6, atol=1e-12)
    order = torch.randperm(60, device=device)
    permuted = solve_exact(distances=(cx[order][:, order], cy)).plan.to_dense()
    torch.testing.assert_close(permuted, first[order], rtol=1e-6, atol=1e-9)
    again, same = (
        solve_exact(distances=(cx, cy), restarts=2, generator=4, max_iter=10).plan.to_dense()
        for _ in range(2)
    )
    assert torch.equal(again, same)


def test_equal_spaces_have_a_value_that_goes_to_0_with_epsilon() -> None:
    x = torch.randn(40, 2, dtype=torch.float64)
    turned = x.flip(0) @ torch.tensor([[0.6, 0.8], [-0.8, 0.6]], dtype=torch.float64)
    values = [float(solve_exact(x, turned, epsilon=e, max_iter=400).distortion) for e in (1e-2, 1e-3, 1e-4)]
    assert values[0] > values[1] > values[2]
    assert values[2] < 1e-4


def test_geometries() -> None:
    x, y = spiral(50, 0), swiss_roll(55, 1)
    graphs = (knn_graph(x, 6), knn_graph(y, 6))
    by_graph = solve_exact(graphs=graphs)
    by_points = solve_exact(x, y, geometry=Geodesic(k=6))
    by_matrix = solve_exact(distances=(shortest_paths(graphs[0]), shortest_paths(graphs[1])))
    assert torch.equal(by_graph.plan.to_dense(), by_points.plan.to_dense())
    assert torch.equal(by_graph.plan.to_dense(), by_matrix.plan.to_dense())
    distances = torch.cdist(y, y, compute_mode="donot_use_mm_for_euclid_dist")
    mixed = solve_exact(x, None, distances=(None, distances), geometry=("euclidean", "auto"))
    both = solve_exact(x, y)
    torch.testing.assert_close(mixed.plan.to_dense(), both.plan.to_dense(), rtol=1e-4, atol=1e-7)
    for scale in (None, "mean"):
        solve_exact(x, y, cost_normalization=scale)


def test_rounded_distances_are_symmetric() -> None:
    """As products make them. Their mean with the transposes is what counts; larger differences are asymmetry."""
    points = spiral(60, 0), swiss_roll(50, 1)
    cx, cy = (torch.cdist(z, z, compute_mode="use_mm_for_euclid_dist") for z in points)
    noise = 1e-4 * float(cx.max()) * torch.rand(60, 60)
    options: dict[str, Any] = {"epsilon": 0.01, "max_iter": 20}
    found = solve_exact(distances=(cx + noise, cy), **options)
    assert found._measures.of.symmetric
    noise = (noise + noise.mT) / 2
    even = solve_exact(distances=(cx + noise, (cy + cy.mT) / 2), **options)
    torch.testing.assert_close(found.plan.to_dense(), even.plan.to_dense(), rtol=1e-3, atol=1e-6)
    assert not solve_exact(distances=(cx + 0.1 * torch.rand(60, 60), cy), **options)._measures.of.symmetric


def test_extremes(device: torch.device) -> None:
    """One point, weights of 0, many more points on one side, NaN in one problem, float32 and half types."""
    one = torch.zeros(1, 1, device=device)
    assert solve_exact(one, one).plan.to_dense().tolist() == [[1.0]]
    x = torch.randn(100, 2, device=device)
    torch.testing.assert_close(solve_exact(x, one).plan.to_dense(), torch.full((100, 1), 0.01, device=device))
    a = torch.full((100,), 1 / 60, device=device)
    a[60:] = 0
    padded = solve_exact(x, x[:30], a=a, epsilon=0.01).plan.to_dense()
    alone = solve_exact(x[:60], x[:30], epsilon=0.01, cost_normalization=None, annealing=None).plan.to_dense()
    assert (
        float(padded[60:].abs().max()) == 0 and bool(padded.isfinite().all()) and bool(alone.isfinite().all())
    )
    cx, cy = (c.to(device) for c in random_sides(0, 2, 6, 7))
    cx[1, 0, 0] = torch.nan
    result = solve_exact(distances=(cx, cy), cost_normalization=None, epsilon=0.1)
    assert bool(result.plan.to_dense()[0].isfinite().all()) and bool(result.value[1].isnan())
    single = solve_exact(distances=(cx[0], cy[0]), cost_normalization=None, epsilon=0.1)
    torch.testing.assert_close(result.plan.to_dense()[0], single.plan.to_dense(), rtol=1e-9, atol=1e-12)
    assert not bool(result.converged[1])
    assert solve_exact(x.half(), x.half()).plan.to_dense().dtype == torch.float32
    with torch.no_grad():
        start = solve_exact(x, x, epsilon=0.01)
    warm = solve_exact(x, x, epsilon=0.01, annealing=None, init=start.plan)
    assert int(warm.iterations) <= int(start.iterations)


def test_steps_leave_the_given_plan_as_it_is(device: torch.device) -> None:
    x, y = spiral(30, 0).to(device), swiss_roll(25, 1).to(device)
    given = torch.full((30, 25), 1 / 750, device=device)
    before = given.clone()
    found = solve_exact(x, y, epsilon=0.01, init=given)
    assert torch.equal(given, before) and not torch.equal(found.plan.to_dense(), before)


def test_a_block_of_forbidden_pairs(device: torch.device) -> None:
    x, y = spiral(30, 0).to(device), swiss_roll(25, 1).to(device)
    features = torch.zeros(30, 25, device=device)
    features[:12, 5:] = torch.inf
    options: dict[str, Any] = {"feature_cost": features, "feature_weight": 0.1, "epsilon": 0.01, "rho_b": 0.0}
    for solve_one in (solve_exact, solve_sampled):
        plan = solve_one(x, y, max_iter=30, **options).plan.to_dense()
        assert float(plan[:12, 5:].abs().max()) == 0
        # Sums of float32 rows.
        torch.testing.assert_close(plan.sum(1), torch.full((30,), 1 / 30, device=device), rtol=1e-4, atol=0)


def test_callback() -> None:
    seen: list[tuple[int, float, float]] = []
    result = solve_exact(
        spiral(30, 0),
        swiss_roll(25, 1),
        callback=lambda *of: seen.append((of[0], float(of[1]), float(of[2]))),
    )
    assert [of[0] for of in seen] == list(range(1, int(result.iterations) + 1))
    assert seen[0][1] == pytest.approx(1e-2) and seen[-1][1] == pytest.approx(1e-3)
    assert [of[2] for of in seen] == result.history.tolist()
