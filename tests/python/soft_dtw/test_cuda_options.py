"""Every option on a GPU, next to the float64 reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import warpalign
from tests.python.helpers import captured
from tests.python.soft_dtw.option_cases import CASES, SMOOTH, placed, series
from tests.python.soft_dtw.reference import alignments, values
from tests.python.soft_dtw.reference_series import cost_table, soft_dtw64, subsequence64, values_of_costs

pytestmark = pytest.mark.gpu

CPU = torch.device("cpu")
# Errors of gradients, relative to their norm. float32: 160 steps of the recursion, each with a few roundings of 2^-24.
# float64: the error of the kernel's exp and log (reference.gradient_tolerance).
TOLERANCE = {torch.float32: 5e-5, torch.float64: 1e-9}


def step(
    function: Callable[..., Tensor], x: Tensor, y: Tensor, options: dict[str, Any], device: torch.device
) -> list[Tensor]:
    x, y = x.detach().to(device).requires_grad_(), y.detach().to(device).requires_grad_()
    options = placed(options, device, x.dtype)
    value = function(x, y, **options)
    leaves = [x, y] + [v for v in options.values() if isinstance(v, Tensor) and v.requires_grad]
    return [value.detach(), *torch.autograd.grad((value * torch.arange(1, 4, device=device)).sum(), leaves)]


def assert_close(got: list[Tensor], expected: list[Tensor], tolerance: float, floor: float = 1e-10) -> None:
    """The floor is for the cosine of numbers, which is a sign: its slope is 0, and rounding (up to 3e-11) in the reference."""
    for a, b in zip(got, expected, strict=True):
        assert (a.cpu().double() - b.double()).norm() <= tolerance * b.double().norm() + floor


@pytest.mark.parametrize("d", [1, 3, 20])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients(cuda: torch.device, case: str, dtype: torch.dtype, d: int) -> None:
    x, y = series(d, dtype)
    if dtype == torch.float32 and case == "missing" and d == 1:
        pytest.skip("ties of many steps, in float64 alone")
    got = step(warpalign.soft_dtw, x, y, CASES[case], cuda)
    expected = step(soft_dtw64, x.double(), y.double(), CASES[case], CPU)
    assert_close(got, expected, TOLERANCE[dtype])


@pytest.mark.parametrize("d", [1, 3, 20])
@pytest.mark.parametrize(
    "options",
    [
        {"bandwidth": 30},
        {"bandwidth": 2, "band": "slanted", "step_penalty": 0.3},
        {"band": "itakura", "max_slope": 2.5},
        {"step_penalty": 0.3},
    ],
    ids=str,
)
def test_few_long_pairs_from_both_ends(cuda: torch.device, options: dict[str, Any], d: int) -> None:
    """Several blocks sweep a pair from both ends, and every run gives bitwise identical results."""
    generator = torch.Generator().manual_seed(d)
    x, y = torch.randn(3, 300, d, generator=generator), torch.randn(3, 620, d, generator=generator)
    expected = step(soft_dtw64, x.double(), y.double(), options, CPU)
    first = step(warpalign.soft_dtw, x, y, options, cuda)
    # Sums of 920 steps, three times as many as above.
    assert_close(first, expected, 3 * TOLERANCE[torch.float32])
    for _ in range(5):
        again = step(warpalign.soft_dtw, x, y, options, cuda)
        assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))


@pytest.mark.parametrize("case", ["sakoe_chiba", "penalty", "hard", "gammas", "euclidean"])
def test_cost_matrices_and_alignments(cuda: torch.device, case: str) -> None:
    x, y = series(6, torch.float64)
    costs = torch.cdist(x, y)

    options = placed(CASES[case], cuda, torch.float64)
    alignment = warpalign.soft_dtw_alignment(x.to(cuda), y.to(cuda), **options)[1]
    table = costs.to(cuda).requires_grad_()
    cost = options.pop("cost", "sqeuclidean")
    value = warpalign.soft_dtw_cost(table, **options)
    (gradient,) = torch.autograd.grad(value.sum(), table)

    case_options = {name: value for name, value in CASES[case].items() if name != "cost"}

    def expected(costs: Tensor) -> list[Tensor]:
        leaf = costs.requires_grad_()
        value = values_of_costs(leaf, **placed(case_options, CPU, torch.float64))
        return [value.detach(), *torch.autograd.grad(value.sum(), leaf)]

    assert_close([alignment], expected(cost_table(x, y, cost))[1:], TOLERANCE[torch.float64])
    assert_close([value.detach(), gradient], expected(costs), TOLERANCE[torch.float64])


def test_hard_paths(cuda: torch.device) -> None:
    x, y = (t.round() for t in series(2, torch.float32))  # ties, and exact sums
    value, expected = alignments(cost_table(x.double(), y.double()), 0.0)
    assert torch.equal(warpalign.dtw(x.to(cuda), y.to(cuda)).cpu(), value.float())
    got = warpalign.dtw_path(x.to(cuda), y.to(cuda))
    assert torch.equal(got.value.cpu(), value.float())
    for path, cells in zip(got.paths, expected, strict=True):
        assert torch.equal(path.cpu(), cells.nonzero())


@pytest.mark.parametrize("gamma", [0.0, 0.3])
def test_subsequences(cuda: torch.device, gamma: float) -> None:
    x, y = series(3, torch.float64)
    query = x[:, :20]
    lengths = torch.tensor([90, 40, 77])

    options: dict[str, Any] = {"gamma": gamma, "step_penalty": 0.1}
    leaf = query.to(cuda).requires_grad_()
    found = warpalign.soft_dtw_subsequence(
        leaf, y.to(cuda), series_lengths=lengths.to(cuda), with_match=True, **options
    )
    (gradient,) = torch.autograd.grad(found.value.sum(), leaf)
    query.requires_grad_()
    value, ends = subsequence64(query, y, series_lengths=lengths, **options)
    (expected,) = torch.autograd.grad(value.sum(), query)
    assert torch.equal(found.end_values.isinf().cpu(), ends.isinf())
    got = [found.value, found.end_values.masked_fill(found.end_values.isinf(), 0.0), gradient]
    assert_close(
        [t.detach() for t in got],
        [value.detach(), ends.detach().masked_fill(ends.isinf(), 0.0), expected],
        TOLERANCE[torch.float64],
    )
    # The best match: where the best path of hard DTW begins and ends.
    _, hard = subsequence64(query.detach(), y, gamma=0.0, step_penalty=0.1, series_lengths=lengths)
    assert found.match is not None and torch.equal(found.match[:, 1].cpu(), hard.argmin(1))
    for b, (first, last) in enumerate(found.match.tolist()):
        part = cost_table(query[b : b + 1].detach(), y[b : b + 1, first : last + 1])
        best = values(part, 0.0, penalty=0.1)
        torch.testing.assert_close(best[0], hard[b].min(), rtol=1e-12, atol=0.0)


@pytest.mark.parametrize("d", [1, 9, 40])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("case", SMOOTH)
def test_hessian_vector_products(cuda: torch.device, case: str, dtype: torch.dtype, d: int) -> None:
    x, y = series(d, dtype)
    directions = [torch.randn(t.shape, generator=torch.Generator().manual_seed(7)) for t in (x, y)]

    def products(function: Callable[..., Tensor], device: torch.device, wide: torch.dtype) -> list[Tensor]:
        leaves = [t.to(device, wide).detach().requires_grad_() for t in (x, y)]
        value = function(*leaves, **placed(CASES[case], device, wide))
        first = torch.autograd.grad(value.sum(), leaves, create_graph=True)
        along = sum((g * v.to(device, wide)).sum() for g, v in zip(first, directions, strict=True))
        return list(torch.autograd.grad(along, leaves))

    expected = products(soft_dtw64, CPU, torch.float64)
    # Products are computed in float64 whatever the dtype; their result, and the first gradients, are rounded to it.
    tolerance = 2e-6 if dtype == torch.float32 else TOLERANCE[dtype]
    # The cosine of numbers has no curvature: both sides are rounding, which a second derivative divides by lengths.
    floor = 1e-8 if case == "cosine" and d == 1 else 1e-10
    assert_close(products(warpalign.soft_dtw, cuda, dtype), expected, tolerance, floor)


@pytest.mark.parametrize("cost", ["l1", "huber", "euclidean"])
def test_hessian_vector_products_of_integers(cuda: torch.device, cost: str) -> None:
    """Equal features, and differences of exactly 1, which a slope of l1 equals too."""
    # Halves beside huber's kinks at 1, where either side's second derivative is right.
    x, y = (t.mul(2).round().div(2 if cost != "huber" else 2.5) for t in series(3, torch.float64))

    def product(function: Callable[..., Tensor], device: torch.device) -> list[Tensor]:
        leaves = [t.to(device).detach().requires_grad_() for t in (x, y)]
        value = function(*leaves, cost=cost, gamma=0.7)
        first = torch.autograd.grad(value.sum(), leaves, create_graph=True)
        return list(torch.autograd.grad(sum(g.sum() for g in first) + first[0].square().sum(), leaves))

    assert_close(product(warpalign.soft_dtw, cuda), product(soft_dtw64, CPU), TOLERANCE[torch.float64])


@pytest.mark.parametrize("gammas", [False, True])
def test_hessian_vector_products_of_costs(cuda: torch.device, gammas: bool) -> None:
    x, y = series(3, torch.float64)
    table, direction = torch.cdist(x, y), torch.randn(3, 70, 90, dtype=torch.float64)

    def product(function: Callable[..., Tensor], device: torch.device) -> list[Tensor]:
        gamma = torch.tensor([0.1, 1.0, 5.0], dtype=torch.float64, device=device) if gammas else 0.5
        leaf = table.to(device).detach().requires_grad_()
        value = function(leaf, gamma=gamma, bandwidth=12, step_penalty=0.3)
        (first,) = torch.autograd.grad(value.sum(), leaf, create_graph=True)
        return list(torch.autograd.grad((first * direction.to(device)).sum(), leaf))

    expected = product(values_of_costs, CPU)
    assert_close(product(warpalign.soft_dtw_cost, cuda), expected, TOLERANCE[torch.float64])


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
