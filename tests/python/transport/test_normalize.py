"""sinkhorn_normalize against the loop that it replaces, and as a citizen of torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.python.helpers import assert_tensors_equal, captured, no_synchronisation, randn
from warpalign.transport import SinkhornNormalize, sinkhorn, sinkhorn_normalize

ORDERS = ("rows_first", "columns_first")


def loop(logits: Tensor, iterations: int, axis_order: str) -> Tensor:
    axes = (-1, -2) if axis_order == "rows_first" else (-2, -1)
    for _ in range(iterations):
        for axis in axes:
            logits = logits - logits.logsumexp(axis, keepdim=True)
    return logits.exp()


def with_gradient(run: Callable[[Tensor], Tensor], logits: Tensor, factor: Tensor) -> tuple[Tensor, Tensor]:
    """The plan, and the gradient with respect to the logits of the sum of factor times the plan."""
    given = logits.detach().requires_grad_()
    plan = run(given)
    (gradient,) = torch.autograd.grad((plan * factor.to(plan.dtype)).sum(), given)
    return plan.detach(), gradient


def relative(found: Tensor, exact: Tensor) -> float:
    return float((found.double() - exact).norm() / exact.norm())


@pytest.mark.parametrize("axis_order", ORDERS)
@pytest.mark.parametrize(
    "shape", [(40, 4, 4), (7, 3, 5), (2, 3, 16, 16), (33, 8, 8), (3, 40, 64), (12, 1), (1, 1, 1)]
)
def test_it_is_the_loop_in_float64(shape: tuple[int, ...], axis_order: Any, device: torch.device) -> None:
    """Tolerance: the roundings of 40 normalisations of numbers up to 1."""
    logits = 4 * randn(*shape, seed=1, device=device, dtype=torch.float64)
    factor = randn(*shape, seed=2, device=device, dtype=torch.float64)
    for iterations in (1, 3, 20):
        found = with_gradient(
            lambda x, t=iterations: sinkhorn_normalize(x, t, axis_order=axis_order), logits, factor
        )
        expected = with_gradient(lambda x, t=iterations: loop(x, t, axis_order), logits, factor)
        torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("scale", [0.1, 1.0, 5.0, 20.0, 100.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_errors_are_at_most_twice_the_loop_s(dtype: torch.dtype, scale: float, device: torch.device) -> None:
    """Half types: against the loop of the widened logits, whose result is rounded once. Two roundings besides."""
    logits = (scale * randn(200, 8, 8, seed=3, device=device)).to(dtype)
    factor = randn(200, 8, 8, seed=4, device=device, dtype=torch.float64)
    factor = factor.to(dtype).double()
    exact = with_gradient(lambda x: loop(x, 20, "rows_first"), logits.double(), factor)
    naive = with_gradient(lambda x: loop(x.float(), 20, "rows_first").to(dtype), logits, factor)
    found = with_gradient(sinkhorn_normalize, logits, factor)
    floor = 2 * torch.finfo(torch.float32).eps
    for one, other, true in zip(found, naive, exact, strict=True):
        assert relative(one, true) <= 2 * relative(other, true) + floor


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_dtypes_and_shapes(dtype: torch.dtype, device: torch.device) -> None:
    logits = randn(2, 0, 3, 5, seed=5, device=device).to(dtype)
    assert sinkhorn_normalize(logits).shape == logits.shape
    logits = randn(2, 3, 4, 5, 6, seed=5, device=device).to(dtype)
    plan = sinkhorn_normalize(logits, 5)
    assert plan.dtype == dtype
    assert plan.shape == logits.shape
    assert torch.equal(plan[1, 2, 3], sinkhorn_normalize(logits[1, 2, 3], 5))
    assert torch.equal(plan, SinkhornNormalize(5)(logits))


def test_strides_do_not_matter(device: torch.device) -> None:
    logits = randn(6, 9, 5, 7, seed=6, device=device)
    factor = randn(6, 9, 5, 7, seed=7, device=device)
    expected = with_gradient(sinkhorn_normalize, logits, factor)
    turned = logits.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0)
    assert_tensors_equal(with_gradient(sinkhorn_normalize, turned, factor), expected)
    one = logits[:1, :1].expand(6, 9, 5, 7)
    assert_tensors_equal(
        with_gradient(sinkhorn_normalize, one, factor),
        with_gradient(sinkhorn_normalize, one.contiguous(), factor),
    )


def test_orders_are_each_other_s_transpose(device: torch.device) -> None:
    logits, factor = (randn(20, 5, 7, seed=seed, device=device) for seed in (8, 9))
    rows = with_gradient(sinkhorn_normalize, logits, factor)
    columns = with_gradient(lambda x: sinkhorn_normalize(x.mT, axis_order="columns_first").mT, logits, factor)
    assert_tensors_equal(rows, columns)
    torch.testing.assert_close(rows[0].sum(-2), torch.ones(20, 7, device=device))


def test_infinities_forbid_and_nan_stays_in_its_matrix(device: torch.device) -> None:
    logits = randn(4, 3, 4, seed=10, device=device)
    logits[0, 1] = -torch.inf
    logits[1, 0, 2] = -torch.inf
    logits[2, 2, 2] = torch.nan
    plan, gradient = with_gradient(sinkhorn_normalize, logits, torch.ones_like(logits).cumsum(1))
    assert not plan[0, 1].any()
    assert not gradient[0, 1].any()
    torch.testing.assert_close(plan[0].sum(0), torch.ones(4, device=device))
    assert plan[1, 0, 2] == 0
    assert gradient[1, 0, 2] == 0
    assert plan[2].isnan().all()
    assert gradient[2].isnan().all()
    assert plan[[0, 1, 3]].isfinite().all()
    assert gradient[[0, 1, 3]].isfinite().all()


def test_it_converges_to_sinkhorn(device: torch.device) -> None:
    """The remedy of the error about larger matrices. 500 iterations and tol=1e-12 are both converged to 1e-9."""
    logits = randn(3, 12, 12, seed=11, device=device, dtype=torch.float64)
    solved = sinkhorn(cost_matrix=-logits, epsilon=1.0, tol=1e-12).plan.to_dense()
    torch.testing.assert_close(sinkhorn_normalize(logits, 500), 12 * solved, rtol=1e-9, atol=1e-12)


def test_gradcheck(device: torch.device) -> None:
    logits = randn(2, 3, 4, seed=12, device=device, dtype=torch.float64, grad=True)
    for axis_order in ORDERS:
        assert torch.autograd.gradcheck(
            lambda x, order=axis_order: sinkhorn_normalize(x, 4, axis_order=order), logits
        )


def test_opcheck(device: torch.device) -> None:
    logits, grad = (randn(2, 3, 4, seed=seed, device=device) for seed in (13, 14))
    torch.library.opcheck(torch.ops.warpalign.sinkhorn_normalize.default, (logits, 5, False))
    torch.library.opcheck(torch.ops.warpalign.sinkhorn_normalize_gradient.default, (logits, grad, 5, True))


def test_compile(device: torch.device) -> None:
    logits, factor = (randn(3, 2, 4, 4, seed=seed, device=device) for seed in (15, 16))
    compiled = torch.compile(sinkhorn_normalize, fullgraph=True, backend="aot_eager")
    assert_tensors_equal(
        with_gradient(compiled, logits, factor), with_gradient(sinkhorn_normalize, logits, factor)
    )


def test_vmap_is_a_larger_batch(device: torch.device) -> None:
    logits, factor = (randn(5, 3, 4, 6, seed=seed, device=device) for seed in (17, 18))
    expected = with_gradient(sinkhorn_normalize, logits, factor)
    for axis in (0, 2):
        moved = logits.movedim(0, axis)
        assert torch.equal(torch.func.vmap(sinkhorn_normalize, in_dims=axis)(moved), expected[0])

    def value(x: Tensor, weights: Tensor) -> Tensor:
        return (sinkhorn_normalize(x) * weights).sum()

    assert torch.equal(torch.func.vmap(torch.func.grad(value))(logits, factor), expected[1])
    whole = torch.func.grad(lambda x: torch.func.vmap(value)(x, factor).sum())(logits)
    assert torch.equal(whole, expected[1])


def test_jacobian_by_vmapped_backwards(device: torch.device) -> None:
    logits = randn(3, 3, seed=19, device=device, dtype=torch.float64)
    whole = torch.autograd.functional.jacobian(sinkhorn_normalize, logits, vectorize=True)
    torch.testing.assert_close(whole, torch.func.jacrev(sinkhorn_normalize)(logits))
    torch.testing.assert_close(
        whole, torch.autograd.functional.jacobian(lambda x: loop(x, 20, "rows_first"), logits)
    )


def test_second_derivatives_are_refused(device: torch.device) -> None:
    logits = randn(3, 3, seed=20, device=device, grad=True)
    (gradient,) = torch.autograd.grad(sinkhorn_normalize(logits)[0, 0], logits, create_graph=True)
    with pytest.raises(NotImplementedError, match="second derivatives of sinkhorn_normalize"):
        gradient.sum().backward()


def test_forward_mode_is_refused(device: torch.device) -> None:
    logits = randn(3, 3, seed=21, device=device)
    with pytest.raises(NotImplementedError, match="forward-mode derivatives of sinkhorn_normalize are"):
        torch.func.jvp(sinkhorn_normalize, (logits,), (logits,))


def test_autocast_takes_logits_as_they_are(device: torch.device) -> None:
    logits, factor = (randn(3, 4, 4, seed=seed, device=device) for seed in (22, 23))
    expected = with_gradient(sinkhorn_normalize, logits, factor)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        assert_tensors_equal(with_gradient(sinkhorn_normalize, logits, factor), expected)


def test_threads_do_not_matter() -> None:
    logits, factor = (randn(300, 5, 5, seed=seed) for seed in (24, 25))
    threads = torch.get_num_threads()
    expected = with_gradient(sinkhorn_normalize, logits, factor)
    try:
        torch.set_num_threads(3)
        assert_tensors_equal(with_gradient(sinkhorn_normalize, logits, factor), expected)
    finally:
        torch.set_num_threads(threads)


def test_module() -> None:
    module = SinkhornNormalize(7, axis_order="columns_first")
    assert repr(module) == "SinkhornNormalize(7, axis_order='columns_first')"
    logits = randn(4, 4, seed=26)
    assert torch.equal(module(logits), sinkhorn_normalize(logits, 7, axis_order="columns_first"))
    found = torch.export.export(module, (logits,)).module()(logits)
    assert torch.equal(found, module(logits))


@pytest.mark.gpu
@pytest.mark.usefixtures("cuda")
@pytest.mark.parametrize("shape", [(300, 4, 4), (9, 16, 16), (2, 64, 50)])
def test_a_step_in_a_cuda_graph(shape: tuple[int, ...]) -> None:
    logits, factor = (randn(*shape, seed=seed, device="cuda") for seed in (27, 28))
    logits.requires_grad_()

    def step() -> tuple[Tensor, Tensor]:
        plan = sinkhorn_normalize(logits)
        (gradient,) = torch.autograd.grad(plan, logits, factor)
        return plan.detach(), gradient

    graph, outputs = captured(step)
    for scale in (1.0, 0.5):
        with torch.no_grad():
            logits.mul_(scale)
        graph.replay()
        assert_tensors_equal(outputs, step())
    with no_synchronisation():
        step()
    cpu = with_gradient(sinkhorn_normalize, logits.detach().cpu(), factor.cpu())
    torch.testing.assert_close(tuple(t.cpu() for t in outputs), cpu, rtol=1e-5, atol=1e-6)
