"""Every option gives on a GPU what it gives on the CPU, which the other tests hold to the float64 reference."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import warpalign
from tests.python.helpers import captured

pytestmark = pytest.mark.gpu

MISSING = torch.arange(70) % 5 == 1
LENGTHS = {"x_lengths": torch.tensor([70, 1, 33]), "y_lengths": torch.tensor([90, 64, 2])}
CASES: dict[str, dict[str, Any]] = {
    "sakoe_chiba": {"bandwidth": 7},
    "sakoe_chiba of lengths": {"bandwidth": 3, **LENGTHS},
    "slanted": {"bandwidth": 2, "band": "slanted"},
    "abs": {"bandwidth": 25, "band": "abs"},
    "itakura": {"band": "itakura", "max_slope": 1.7},
    "penalty": {"step_penalty": 0.4},
    "euclidean": {"cost": "euclidean"},
    "l1": {"cost": "l1", **LENGTHS},
    "cosine": {"cost": "cosine", **LENGTHS},
    "huber": {"cost": "huber", "bandwidth": 11},
    "missing": {"x_mask": MISSING, **LENGTHS},
    "missing in y": {"y_mask": torch.arange(90) % 4 == 0, "cost": "cosine"},
    "gammas": {"gamma": torch.tensor([0.1, 1.0, 20.0])},
    "one gamma as a tensor": {"gamma": torch.tensor(0.7), "step_penalty": 0.1, "bandwidth": 20},
    "hard": {"gamma": 0.0},
    "hard with all": {
        "gamma": 0.0,
        "bandwidth": 9,
        "step_penalty": 0.2,
        "cost": "l1",
        "x_mask": MISSING,
        **LENGTHS,
    },
    "normalize": {"normalize": True, "cost": "huber", **LENGTHS},
}


def series(d: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(d)
    x, y = (torch.randn(3, length, d, generator=generator, dtype=torch.float64) for length in (70, 90))
    return x.to(dtype), y.to(dtype)


def placed(options: dict[str, Any], device: torch.device, dtype: torch.dtype) -> dict[str, Any]:
    """The options for this device; a gamma that is a tensor gets a gradient."""
    moved = {name: v.to(device) if isinstance(v, Tensor) else v for name, v in options.items()}
    if isinstance(moved.get("gamma"), Tensor):
        moved["gamma"] = moved["gamma"].to(dtype).requires_grad_()
    return moved


def step(x: Tensor, y: Tensor, options: dict[str, Any], device: torch.device) -> list[Tensor]:
    x, y = x.detach().to(device).requires_grad_(), y.detach().to(device).requires_grad_()
    options = placed(options, device, x.dtype)
    value = warpalign.soft_dtw(x, y, **options)
    leaves = [x, y] + [v for v in options.values() if isinstance(v, Tensor) and v.requires_grad]
    return [value.detach(), *torch.autograd.grad((value * torch.arange(1, 4, device=device)).sum(), leaves)]


def assert_close(got: list[Tensor], expected: list[Tensor], tolerance: float) -> None:
    for a, b in zip(got, expected, strict=True):
        error = (a.cpu().double() - b.double()).norm() / b.double().norm().clamp_min(1e-30)
        assert error <= tolerance


@pytest.mark.parametrize("d", [1, 3, 20])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("case", CASES)
def test_as_on_the_cpu(cuda: torch.device, case: str, dtype: torch.dtype, d: int) -> None:
    x, y = series(d, dtype)
    if dtype == torch.float32 and case == "missing" and d == 1:
        pytest.skip("ties of many steps, in float64 alone")
    got = step(x, y, CASES[case], cuda)
    expected = step(x.double(), y.double(), CASES[case], torch.device("cpu"))
    assert_close(got, expected, 5e-5 if dtype == torch.float32 else 1e-9)


@pytest.mark.parametrize("case", ["sakoe_chiba", "penalty", "hard", "gammas", "euclidean"])
def test_cost_matrices_and_alignments(cuda: torch.device, case: str) -> None:
    x, y = series(6, torch.float64)
    costs = torch.cdist(x, y)

    def results(device: torch.device) -> list[Tensor]:
        options = placed(CASES[case], device, torch.float64)
        alignment = warpalign.soft_dtw_alignment(x.to(device), y.to(device), **options)[1]
        options.pop("cost", None)
        table = costs.to(device).requires_grad_()
        value = warpalign.soft_dtw_cost(table, **options)
        return [t.detach() for t in (alignment, value, *torch.autograd.grad(value.sum(), table))]

    assert_close(results(cuda), results(torch.device("cpu")), 1e-9)


def test_hard_paths(cuda: torch.device) -> None:
    x, y = (t.round() for t in series(2, torch.float32))  # ties
    assert torch.equal(warpalign.dtw(x.to(cuda), y.to(cuda)).cpu(), warpalign.dtw(x, y))
    got, expected = warpalign.dtw_path(x.to(cuda), y.to(cuda)), warpalign.dtw_path(x, y)
    assert torch.equal(got.value.cpu(), expected.value)
    for path, other in zip(got.paths, expected.paths, strict=True):
        assert torch.equal(path.cpu(), other)


@pytest.mark.parametrize("gamma", [0.0, 0.3])
def test_subsequences(cuda: torch.device, gamma: float) -> None:
    x, y = series(3, torch.float64)
    query = x[:, :20]
    lengths = torch.tensor([90, 40, 77])

    def find(device: torch.device) -> list[Tensor]:
        leaf = query.to(device).detach().requires_grad_()
        found = warpalign.soft_dtw_subsequence(
            leaf,
            y.to(device),
            gamma=gamma,
            step_penalty=0.1,
            series_lengths=lengths.to(device),
            with_match=True,
        )
        gradient = torch.autograd.grad(found.value.sum(), leaf)[0]
        ends = found.end_values.masked_fill(found.end_values.isinf(), 0.0)
        return [t.detach() for t in (found.value, ends, found.match.double(), gradient)]

    assert_close(find(cuda), find(torch.device("cpu")), 1e-9)


SMOOTH = [case for case in CASES if not case.startswith("hard") and "gamma" not in CASES[case]]


@pytest.mark.parametrize("d", [1, 9, 40])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("case", SMOOTH)
def test_hessian_vector_products(cuda: torch.device, case: str, dtype: torch.dtype, d: int) -> None:
    x, y = series(d, dtype)
    directions = [torch.randn(t.shape, generator=torch.Generator().manual_seed(7)) for t in (x, y)]

    def products(device: torch.device, wide: torch.dtype) -> list[Tensor]:
        leaves = [t.to(device, wide).detach().requires_grad_() for t in (x, y)]
        value = warpalign.soft_dtw(*leaves, **placed(CASES[case], device, wide))
        first = torch.autograd.grad(value.sum(), leaves, create_graph=True)
        along = sum((g * v.to(device, wide)).sum() for g, v in zip(first, directions, strict=True))
        return list(torch.autograd.grad(along, leaves))

    expected = products(torch.device("cpu"), torch.float64)
    assert_close(products(cuda, dtype), expected, 2e-6 if dtype == torch.float32 else 1e-9)


@pytest.mark.parametrize("cost", ["l1", "huber", "euclidean"])
def test_hessian_vector_products_of_integers(cuda: torch.device, cost: str) -> None:
    """Equal features, and differences of exactly 1, which a slope of l1 equals too."""
    # Halves beside huber's kinks at 1, where either side's second derivative is right.
    x, y = (t.mul(2).round().div(2 if cost != "huber" else 2.5) for t in series(3, torch.float64))

    def product(device: torch.device) -> list[Tensor]:
        leaves = [t.to(device).detach().requires_grad_() for t in (x, y)]
        value = warpalign.soft_dtw(*leaves, cost=cost, gamma=0.7)
        first = torch.autograd.grad(value.sum(), leaves, create_graph=True)
        return list(torch.autograd.grad(sum(g.sum() for g in first) + first[0].square().sum(), leaves))

    assert_close(product(cuda), product(torch.device("cpu")), 1e-9)


@pytest.mark.parametrize("gammas", [False, True])
def test_hessian_vector_products_of_costs(cuda: torch.device, gammas: bool) -> None:
    x, y = series(3, torch.float64)
    table, direction = torch.cdist(x, y), torch.randn(3, 70, 90, dtype=torch.float64)

    def product(device: torch.device) -> list[Tensor]:
        gamma = torch.tensor([0.1, 1.0, 5.0], dtype=torch.float64, device=device) if gammas else 0.5
        leaf = table.to(device).detach().requires_grad_()
        value = warpalign.soft_dtw_cost(leaf, gamma=gamma, bandwidth=12, step_penalty=0.3)
        (first,) = torch.autograd.grad(value.sum(), leaf, create_graph=True)
        return list(torch.autograd.grad((first * direction.to(device)).sum(), leaf))

    assert_close(product(cuda), product(torch.device("cpu")), 1e-9)


def test_gradgradcheck(cuda: torch.device) -> None:
    x, y = (t[:2, :6].to(cuda).requires_grad_() for t in series(2, torch.float64))
    for cost in ("sqeuclidean", "euclidean", "cosine", "huber"):
        assert torch.autograd.gradgradcheck(
            lambda x, y, cost=cost: warpalign.soft_dtw(x, y, cost=cost, gamma=0.7), (x, y)
        )
    table = torch.rand(2, 5, 7, dtype=torch.float64, device=cuda).requires_grad_()
    assert torch.autograd.gradgradcheck(lambda c: warpalign.soft_dtw_cost(c, bandwidth=3), (table,))


def test_a_hessian_vector_product_keeps_no_table(cuda: torch.device) -> None:
    x, y = (torch.randn(4, 1500, 3, device=cuda).requires_grad_() for _ in range(2))
    others = torch.cuda.memory_allocated()  # what other tests have not given back yet
    (first,) = torch.autograd.grad(warpalign.soft_dtw(x, y).sum(), x, create_graph=True)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    torch.autograd.grad(first.square().sum(), (x, y))
    table = 4 * 1500 * 1500 * 4
    assert before - others < table / 4 and torch.cuda.max_memory_allocated() - before < table


@pytest.mark.parametrize("case", ["sakoe_chiba", "cosine", "hard with all", "gammas"])
def test_in_a_cuda_graph_and_always_the_same_bits(cuda: torch.device, case: str) -> None:
    x, y = (t.to(cuda) for t in series(5, torch.float32))
    options = placed(CASES[case], cuda, torch.float32)
    x.requires_grad_()

    def run() -> list[Tensor]:
        value = warpalign.soft_dtw(x, y, **options)
        return [value.detach(), *torch.autograd.grad(value.sum(), x)]

    first = run()
    graph, replayed = captured(run)
    graph.replay()
    torch.cuda.synchronize()
    for repeat in (replayed, *(run() for _ in range(100))):
        assert all(torch.equal(a, b) for a, b in zip(repeat, first, strict=True))


def test_no_path_for_one_pair(cuda: torch.device) -> None:
    x, y = (t.to(cuda).requires_grad_() for t in series(3, torch.float32))
    lengths = torch.tensor([70, 9, 60], device=cuda)
    value = warpalign.soft_dtw(x, y, x_lengths=lengths, bandwidth=30, band="abs")
    gradients = torch.autograd.grad(value[value.isfinite()].sum(), (x, y))
    assert value.isinf().tolist() == [False, True, False]
    assert all(not gradient[1].any() and gradient.isfinite().all() for gradient in gradients)


def test_a_gamma_that_is_not_positive_gives_nan(cuda: torch.device) -> None:
    x, y = (t.to(cuda) for t in series(3, torch.float32))
    value = warpalign.soft_dtw(x, y, gamma=torch.tensor([1.0, -1.0, 0.0], device=cuda))
    assert value.isnan().tolist() == [False, True, True]
