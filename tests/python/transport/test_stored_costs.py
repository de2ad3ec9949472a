"""storage="full": a solve iterates on stored costs of points, and ends with iterations on the points themselves.

A CPU takes no notice of it, and does here what a GPU does.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.python.helpers import assert_tensors_equal, randn
from warpalign._core.costs import COSTS
from warpalign._transport.costs import pair_costs, stored_costs
from warpalign.transport import SinkhornDivergence, SinkhornResult, sinkhorn, sinkhorn_divergence

KINDS = range(len(COSTS))
PROBLEMS: dict[str, dict[str, Any]] = {
    "balanced": {},
    "symmetric": {"updates": "symmetric"},
    "mixed": {"updates": "mixed"},
    "unbalanced": {"rho_a": 0.7, "rho_b": 1.5},
    "semi-relaxed": {"rho_b": 0.0},
    "counting": {"rho_a": 0.7, "rho_b": 0.7, "reference": "counting"},
    "annealing": {"annealing": 10.0},
    "scaled": {"cost_scale": 0.5, "cost_normalization": "mean"},
}


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warpalign._transport.storage._is_served", lambda x: True)


def points(device: torch.device, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    x, y = (randn(3, count, 9, seed=count) for count in (17, 23))
    return x.to(device, dtype), y.to(device, dtype)


@pytest.mark.parametrize("kind", KINDS, ids=COSTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_costs_are_those_of_float64(kind: int, dtype: torch.dtype, device: torch.device) -> None:
    """To half a unit in the last place if they are products; sums of differences are as exact as they are in this dtype."""
    is_product = COSTS[kind] in ("sqeuclidean", "euclidean", "cosine") and dtype == torch.float32
    for offset in (0.0, 1e4):  # whose squares have no digits of the differences in float32
        x, y = (z + offset for z in points(device, dtype))
        x[0, 3] = y[0, 5]
        y[1, 0] = 1e8  # an outlier, which the others' costs are not relative to
        expected = pair_costs(kind, x.double(), y.double())
        unit = torch.finfo(dtype).eps * float(expected[0].max())
        found = stored_costs(kind, x, y).double()
        atol = unit / 2 if is_product else 2 * unit
        rtol = torch.finfo(dtype).eps * (0.5 if is_product else 2)
        torch.testing.assert_close(found, expected, rtol=rtol, atol=atol)


def test_costs_of_points_that_are_not_finite(device: torch.device) -> None:
    x, y = points(device)
    x[0, 3, 1], y[1, 5, 2], y[2, 4, 0] = torch.inf, -torch.inf, torch.nan
    for name in ("sqeuclidean", "euclidean", "l1", "huber"):
        kind = COSTS.index(name)
        expected = pair_costs(kind, x, y)
        torch.testing.assert_close(stored_costs(kind, x, y), expected, rtol=1e-5, atol=1e-5, equal_nan=True)


def test_a_point_at_infinity_without_weight(device: torch.device) -> None:
    x, y = points(device)
    y[:, 0] = torch.inf
    b = torch.ones(23, device=device)
    b[0] = 0
    found, expected = (sinkhorn(x, y, epsilon=0.5, b=b / 22, storage=storage) for storage in ("full", None))
    assert found.converged.all()
    torch.testing.assert_close(found.value, expected.value, rtol=1e-5, atol=1e-5)


def test_a_cpu_takes_no_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    x, y = points(torch.device("cpu"))
    found, expected = (sinkhorn(x, y, epsilon=0.5, storage=storage) for storage in ("full", None))
    assert_tensors_equal(found[:4], expected[:4])


@pytest.mark.parametrize("kind", KINDS, ids=COSTS)
def test_costs_are_made_in_blocks(kind: int, device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = points(device)
    whole = stored_costs(kind, x, y)
    monkeypatch.setattr("warpalign._transport.costs._MOST_ENTRIES", 3 * 23 * 2)
    torch.testing.assert_close(stored_costs(kind, x, y), whole, rtol=2e-7, atol=1e-7)


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("cost", COSTS)
def test_a_converged_solve_is_the_one_without(name: str, cost: Any, device: torch.device) -> None:
    x, y = points(device)
    options: dict[str, Any] = {"epsilon": 0.5, "cost": cost, **PROBLEMS[name]}
    if cost in ("cosine", "huber"):
        options.pop("cost_normalization", None)
    found, expected = (sinkhorn(x, y, storage=storage, **options) for storage in ("full", None))
    assert found.converged.all()
    for one, other in zip(found[:4], expected[:4], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    assert (found.iterations - expected.iterations).abs().max() <= 10
    torch.testing.assert_close(found.plan.to_dense(), expected.plan.to_dense(), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("iterations", [2, 5, 28, 29, 40])
@pytest.mark.parametrize("name", PROBLEMS)
def test_an_error_after_fixed_iterations(name: str, iterations: int, device: torch.device) -> None:
    """Against the same iterations in float64: at most twice that without a storage."""
    x, y = points(device)
    options: dict[str, Any] = {"epsilon": 0.3, "max_iter": iterations, "tol": 0.0, **PROBLEMS[name]}
    reference = sinkhorn(x.double(), y.double(), **options)
    full, without = (sinkhorn(x, y, storage=storage, **options) for storage in ("full", None))
    assert torch.equal(full.iterations, without.iterations)
    for one, other, exact in zip(full[:4], without[:4], reference[:4], strict=True):
        floor = 1e-6 * float(exact.abs().max())
        assert (one - exact).abs().max() <= 2 * (other - exact).abs().max() + floor


def test_gradients_are_those_without(device: torch.device) -> None:
    def gradients(**storage: Any) -> tuple[Tensor, ...]:
        x, y = (z.requires_grad_() for z in points(device, torch.float64))
        epsilon = torch.tensor(0.5, dtype=torch.float64, device=device, requires_grad=True)
        found = sinkhorn(x, y, epsilon=epsilon, tol=1e-12, max_iter=5000, **storage)
        first = torch.autograd.grad(found.value.sum(), (x, y, epsilon), create_graph=True)
        second = torch.autograd.grad(first[0].square().sum(), (x, y), retain_graph=True)
        of_f = torch.autograd.grad(found.f.square().sum(), (x, y))
        return (*(g.detach() for g in first), *second, *of_f)

    for one, other in zip(gradients(storage="full"), gradients(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-10)


def test_one_iteration_needs_no_costs(device: torch.device) -> None:
    x, y = points(device)
    found, expected = (
        sinkhorn(x, y, epsilon=0.5, max_iter=1, tol=0.0, storage=storage) for storage in ("full", None)
    )
    assert_tensors_equal(found[:4], expected[:4])


def test_given_costs_are_stored_already(device: torch.device) -> None:
    x, y = points(device)
    for given in (
        {"cost_matrix": torch.cdist(x, y)},
        {"x": x, "y": y, "cost": lambda x, y: torch.cdist(x, y)},
    ):
        found, expected = (sinkhorn(**given, epsilon=0.5, storage=storage) for storage in ("full", None))  # type: ignore[arg-type]
        assert_tensors_equal(found[:4], expected[:4])


def test_padding_is_ignored(device: torch.device) -> None:
    x, y = points(device)
    x_lengths, y_lengths = [17, 5, 1], [23, 1, 8]
    for z, lengths in ((x, x_lengths), (y, y_lengths)):
        for problem, length in enumerate(lengths):
            z[problem, length:] = torch.nan
    found = sinkhorn(x, y, epsilon=0.5, x_lengths=x_lengths, y_lengths=y_lengths, storage="full")
    for problem in range(3):
        alone = sinkhorn(
            x[problem, : x_lengths[problem]], y[problem, : y_lengths[problem]], epsilon=0.5, storage="full"
        )
        torch.testing.assert_close(found.value[problem], alone.value, rtol=1e-5, atol=1e-6)


def test_a_problem_with_nan_alone_is_nan(device: torch.device) -> None:
    x, y = points(device)
    x[1, 2, 0] = torch.nan
    with pytest.warns(Warning, match="finite result") if device.type == "cpu" else torch.no_grad():
        found = sinkhorn(x, y, epsilon=0.5, storage="full")
    assert found.value.isfinite().tolist() == found.converged.tolist() == [True, False, True]


def test_costs_far_above_epsilon_converge(device: torch.device) -> None:
    """Their rounding moves potentials by more than the tolerance allows, which further iterations on the points mend."""
    x, y = (randn(150, 768, seed=seed).to(device) + 3 for seed in (1, 2))
    found = sinkhorn(x, y, epsilon=20.0, storage="full")
    assert found.converged and found.iterations < 100


def test_a_set_with_itself_has_the_divergence_0(device: torch.device) -> None:
    x = randn(17, 9, seed=1).to(device)
    weights = torch.rand(17, generator=torch.Generator().manual_seed(2)).to(device)
    options: tuple[dict[str, Any], ...] = (
        {"a": weights, "b": weights},
        {"cost_normalization": "max"},
        {"rho": 0.5},
    )
    for given in options:
        assert sinkhorn_divergence(x, x, epsilon=0.5, storage="full", **given) == 0
    lengths = [9, 17]
    batch = torch.stack([x, 2 * x])
    value = sinkhorn_divergence(
        batch, batch, epsilon=0.5, x_lengths=lengths, y_lengths=lengths, storage="full"
    )
    assert (value == 0).all()


@pytest.mark.parametrize("shape", [(3, 17, 9), (17, 9)])
def test_the_divergence(shape: tuple[int, ...], device: torch.device) -> None:
    x, y = randn(*shape, seed=1).to(device), randn(*shape, seed=2).to(device) + 0.3
    gradients = []
    for storage in (None, "full"):
        given = x.clone().requires_grad_()
        result = sinkhorn_divergence(given, y, epsilon=2.0, storage=storage, return_result=True)
        assert result.converged.all()
        gradients.append((result.value.detach(), *torch.autograd.grad(result.value.sum(), given)))
    torch.testing.assert_close(gradients[1][0], gradients[0][0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(gradients[1][1], gradients[0][1], rtol=1e-3, atol=1e-5)
    loss = SinkhornDivergence(2.0, storage="full")
    assert "storage='full'" in repr(loss)
    torch.testing.assert_close(loss(x, y), gradients[1][0])
    same = x.clone().requires_grad_()
    assert (loss(x, x) == 0).all() and (loss(same, same) == 0).all()


def test_transforms(device: torch.device) -> None:
    x, y = points(device)

    def value(x: Tensor, y: Tensor) -> Tensor:
        return sinkhorn(x, y, epsilon=0.5, storage="full").value

    expected = value(x, y)
    torch.testing.assert_close(torch.func.vmap(value)(x, y), expected, rtol=1e-5, atol=1e-6)
    torch._dynamo.reset()
    compiled = torch.compile(value, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, y), expected, rtol=1e-5, atol=1e-6)
    _, along = torch.func.jvp(lambda x: value(x, y), (x,), (torch.ones_like(x),))
    gradient = torch.func.grad(lambda x: value(x, y).sum())(x)
    torch.testing.assert_close(along, gradient.sum((1, 2)), rtol=1e-4, atol=1e-4)
    with torch.autocast(device.type, torch.bfloat16):
        assert torch.equal(value(x, y), expected)


@pytest.mark.gpu
def test_a_cuda_graph(cuda: torch.device) -> None:
    x, y = points(cuda)

    def solved() -> SinkhornResult:
        return sinkhorn(x, y, epsilon=0.5, max_iter=30, tol=0.0, storage="full")

    expected = solved()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = solved()
    graph.replay()
    assert_tensors_equal(found[:4], expected[:4])


@pytest.mark.gpu
def test_memory_is_that_of_one_matrix(cuda: torch.device) -> None:
    x, y = (randn(4000, 128, seed=seed).to(cuda) for seed in (1, 2))
    options: dict[str, Any] = {"epsilon": 20.0, "max_iter": 3, "tol": 0.0, "storage": "full"}
    sinkhorn_divergence(x, y, **options)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    sinkhorn_divergence(x, y, **options)
    matrix = 4 * 4000 * 4000
    blocks = 2 * 8 * (1 << 22)  # float64, of which two are there at once
    assert matrix <= torch.cuda.max_memory_allocated() - before <= 1.5 * matrix + blocks
