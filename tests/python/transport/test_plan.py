"""What is read off a TransportPlan against the same on its dense entries, and the implicit gradients of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.python.helpers import randn
from tests.python.transport import reference
from tests.python.transport.gradchecks import gradcheck, gradgradcheck, one_on_cuda
from tests.python.transport.test_autograd import EXACT, kept_balanced, problem
from tests.python.transport.test_values import MARGINALS, weights
from warpalign.transport import TransportPlan, sinkhorn


def solved(device: torch.device, *, points: bool = True, **options: Any) -> TransportPlan:
    """Two problems in float64; the second one has padding, of which NaN must not be seen."""
    tensors: dict[str, Any] = {"device": device, "dtype": torch.float64}
    x, y = randn(2, 9, 3, seed=1, **tensors), randn(2, 7, 3, seed=2, **tensors)
    x[1, 6:] = torch.nan
    given: dict[str, Any] = {"x": x, "y": y}
    if not points:
        given = {"cost_matrix": torch.stack([reference.costs(p, q, "l1") for p, q in zip(x, y, strict=True)])}
    a = weights(9, 3, **tensors).expand(2, -1).clone()
    a[:, 2] = 0
    return sinkhorn(
        **given, a=a, epsilon=0.5, rho_a=1.0, rho_b=2.0, x_lengths=[9, 6], y_lengths=[7, 4], **options
    ).plan


PLANS: dict[str, Callable[[torch.device], TransportPlan]] = {
    "points": solved,
    "costs": lambda device: solved(device, points=False),
    "counting": lambda device: solved(device, reference="counting"),
    "transposed": lambda device: solved(device).T,
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", MARGINALS)
def test_dense_is_the_optimal_plan(name: str, dtype: torch.dtype, device: torch.device) -> None:
    options = MARGINALS[name]
    x, y = randn(33, 3, seed=1, dtype=dtype), randn(17, 3, seed=2, dtype=dtype)
    a, b = weights(33, 3, dtype=dtype), weights(17, 4, dtype=dtype)
    table = reference.costs(x.double(), y.double(), "sqeuclidean")
    truth = reference.solve(table, a.double(), b.double(), 0.5, **options).plan.to(device)
    x, y, a, b = (t.to(device) for t in (x, y, a, b))
    plan = sinkhorn(x, y, a=a, b=b, epsilon=0.5, tol=0, max_iter=500, **options).plan
    dense = plan.to_dense()
    assert dense.dtype == dtype and plan.to_dense(torch.float16).dtype == torch.float16
    # float32: logits of some 60 are rounded to 4e-6.
    tolerance = 1e-9 if dtype == torch.float64 else 1e-5
    large = truth > 1e-6 * truth.max()
    torch.testing.assert_close(dense.double()[large], truth[large], rtol=tolerance, atol=0)


@pytest.mark.parametrize("name", PLANS)
def test_every_operation_is_that_of_the_dense_plan(name: str, device: torch.device) -> None:
    plan = PLANS[name](device)
    dense = plan.to_dense()
    _, n, m = plan.shape
    close = torch.testing.assert_close
    assert dense.shape == plan.shape and bool(dense.isfinite().all())
    v = randn(2, m, 3, seed=5, device=device, dtype=torch.float64)
    u = randn(2, n, seed=6, device=device, dtype=torch.float64)
    close(plan.apply(v), dense @ v)
    close(plan.apply(v[..., 0]), (dense @ v)[..., 0])
    close(plan.apply(u, transpose=True), (dense.transpose(1, 2) @ u[..., None])[..., 0])
    close(plan.marginal(1), dense.sum(2))
    close(plan.marginal(0), dense.sum(1))
    close(plan.mass(), dense.sum((1, 2)))
    close(plan.T.to_dense(), dense.transpose(1, 2))
    mass = dense.sum(2, keepdim=True)
    close(plan.barycentric_map(v), (dense @ v) / mass.where(mass > 0, 1.0))
    labels = torch.randint(0, 3, (2, n), device=device)
    shares = dense.transpose(1, 2) @ torch.nn.functional.one_hot(labels, 3).double()
    close(
        plan.transfer_labels(labels),
        shares / shares.sum(2, keepdim=True).where(shares.sum(2, keepdim=True) > 0, 1.0),
    )
    for dim in (0, 1):
        values, indices = plan.topk(3, dim)
        along = dense if dim == 1 else dense.transpose(1, 2)
        close(values, along.topk(3, -1).values)
        close(along.gather(-1, indices), values)
        assert torch.equal(plan.argmax(dim), indices[..., 0])
    index = [3, 0, 3]
    close(plan.rows(index), dense[:, index])
    close(plan.columns(torch.tensor(index, device=device)), dense[:, :, index])


def test_sparse_plans(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warpalign._transport.costs._MOST_ENTRIES", 50)  # several blocks
    plan = sinkhorn(randn(9, 2, seed=1, device=device), randn(20, 2, seed=2, device=device), epsilon=0.1).plan
    dense = plan.to_dense()
    kept = plan.to_sparse(threshold=1e-3)
    assert kept.layout == torch.sparse_csr and kept.shape == (9, 20)
    torch.testing.assert_close(kept.to_dense(), dense.where(dense > 1e-3, 0.0))
    top = plan.T.to_sparse(k=2).to_dense()
    assert ((top > 0).sum(1) == 2).all()
    torch.testing.assert_close(top.sum(1), dense.T.topk(2).values.sum(1))


def test_samples_follow_the_plan(device: torch.device) -> None:
    plan = solved(device)
    pairs = plan.sample(40000, generator=7)
    assert torch.equal(pairs, plan.sample(40000, generator=7))
    assert torch.equal(plan.T.sample(5, generator=7), pairs[:, :5].flip(-1))
    for b in range(2):
        counts = torch.zeros(9, 7, device=device, dtype=torch.float64)
        counts.index_put_(tuple(pairs[b].T), torch.ones(40000, device=device).double(), accumulate=True)
        share = plan.to_dense()[b] / plan.mass()[b]
        # Standard deviations of binomial counts; the largest of 63 stays below 5 of them.
        deviation = (counts - 40000 * share) / (40000 * share * (1 - share)).sqrt().clamp(min=1)
        assert float(deviation.abs().max()) < 5


@one_on_cuda("name", MARGINALS)
def test_gradcheck_of_what_is_read_off(name: str, device: torch.device) -> None:
    options, of = MARGINALS[name], problem(device)
    target = randn(2, 4, 2, seed=8, device=device, dtype=torch.float64, grad=True)

    def read(target: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        given = dict(zip(of, tensors, strict=True))
        a, b = kept_balanced(given, options)
        plan = sinkhorn(given["x"], given["y"], a=a, b=b, epsilon=given["epsilon"], **EXACT, **options).plan
        return plan.barycentric_map(target), plan.T.rows([1, 0]), plan.to_dense()[:, 1]

    assert gradcheck(read, (target, *of.values()))


def test_gradcheck_of_costs_and_a_fixed_epsilon(device: torch.device) -> None:
    table = torch.rand(5, 4, device=device, dtype=torch.float64, requires_grad=True)
    v = torch.rand(5, device=device, dtype=torch.float64, requires_grad=True)

    def read(table: Tensor, v: Tensor) -> Tensor:
        plan = sinkhorn(cost_matrix=table, epsilon=0.3, cost_scale=1.5, **EXACT).plan
        return plan.apply(v, transpose=True)

    assert gradcheck(read, (table, v))


def test_second_derivatives_are_refused_but_in_the_vector(device: torch.device) -> None:
    of = problem(device)
    v = randn(2, 4, seed=8, device=device, dtype=torch.float64, grad=True)
    plan = sinkhorn(of["x"], of["y"], epsilon=0.5).plan
    (by_x,) = torch.autograd.grad(plan.apply(v).square().sum(), of["x"], create_graph=True)
    with pytest.raises(NotImplementedError, match="not available"):
        torch.autograd.grad(by_x.sum(), of["x"])
    fixed = sinkhorn(of["x"].detach(), of["y"].detach(), epsilon=0.5).plan
    assert gradgradcheck(lambda v: fixed.apply(v).square(), v)


def arguments(device: torch.device, points: bool) -> tuple[list[Any], dict[str, Any]]:
    x, y = randn(2, 5, 3, seed=1, device=device), randn(2, 4, 3, seed=2, device=device)
    tables = (x, y, None) if points else (None, None, randn(2, 5, 4, seed=3, device=device))
    a, b = torch.full((2, 5), 0.2, device=device), torch.full((2, 4), 0.25, device=device)
    lengths = [torch.tensor(n, dtype=torch.int32, device=device) for n in ([5, 3], [2, 4])]
    epsilons = torch.tensor([0.5, 0.7], device=device)
    tensors = [
        *tables,
        a,
        b,
        epsilons,
        *lengths,
        torch.zeros(2, 5, device=device),
        torch.zeros(2, 4, device=device),
    ]
    return tensors, {"rho_a": 1.0, "rho_b": float("inf")}


@pytest.mark.parametrize("points", [True, False])
def test_opcheck(points: bool, device: torch.device) -> None:
    tensors, keywords = arguments(device, points)
    u, v, w = (randn(2, *s, seed=4, device=device) for s in ((5, 2), (4, 2), (5, 4)))
    needs = (points, points, not points)
    ops = torch.ops.warpalign
    check = torch.library.opcheck
    check(ops.transport_apply.default, (*tensors, v, False), keywords)
    check(ops.transport_apply.default, (*tensors, u, True), keywords)
    check(ops.transport_gradient.default, (*tensors, None, u, v, *needs), keywords)
    check(ops.transport_gradient.default, (*tensors, w, None, None, False, False, False), keywords)
    check(ops.transport_topk.default, (*tensors, 3, True), keywords)
    check(ops.transport_sample.default, (*tensors, 6, 1), keywords)
    check(ops.transport_dense.default, tuple(tensors), keywords)


def test_compile_and_vmap(device: torch.device) -> None:
    x, y = randn(3, 5, 2, seed=1, device=device), randn(3, 4, 2, seed=2, device=device)

    def moved(x: Tensor, y: Tensor) -> Tensor:
        return sinkhorn(x, y, epsilon=0.5).plan.barycentric_map(y)

    plain = moved(x, y)
    torch._dynamo.reset()
    compiled = torch.compile(moved, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, y), plain)
    torch.testing.assert_close(torch.func.vmap(moved)(x, y), plain)
    grads = []
    for function in (moved, compiled, torch.func.vmap(moved)):
        leaf = x.clone().requires_grad_()
        grads.append(torch.autograd.grad(function(leaf, y).square().sum(), leaf)[0])
    torch.testing.assert_close(grads[1], grads[0])
    torch.testing.assert_close(grads[2], grads[0])


def test_compiled_code_that_reads_values_of_a_plan(device: torch.device) -> None:
    """The plan is carried over a graph break."""
    x, y = randn(5, 2, seed=1, device=device), randn(4, 2, seed=2, device=device)
    labels = torch.tensor([0, 2, 1, 0, 2], device=device)
    functions: list[Callable[[TransportPlan], Tensor]] = [
        lambda plan: plan.to_sparse(k=2).values(),
        lambda plan: plan.to_sparse(threshold=0.01).values(),
        lambda plan: plan.transfer_labels(labels),
    ]
    for function in functions:

        def of(x: Tensor, y: Tensor, read: Callable[[TransportPlan], Tensor] = function) -> Tensor:
            return read(sinkhorn(x, y, epsilon=0.5).plan)

        torch._dynamo.reset()
        torch.testing.assert_close(torch.compile(of, backend="eager")(x, y), of(x, y))


def test_a_plan_says_what_it_is(device: torch.device) -> None:
    result = sinkhorn(randn(5, 2, seed=1, device=device), randn(4, 2, seed=2, device=device), epsilon=0.5)
    plan = result.plan
    assert repr(plan.T) == "TransportPlan(shape=(4, 5), epsilon=0.5)"
    assert torch.equal(plan.f, result.f) and torch.equal(plan.T.f, result.g)
    again = sinkhorn(
        randn(5, 2, seed=1, device=device),
        randn(4, 2, seed=2, device=device),
        epsilon=torch.tensor(0.5, device=device),
    )
    assert float(again.plan.epsilon) == 0.5
