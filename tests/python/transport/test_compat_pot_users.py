"""POT's drop-in where its users' code goes beyond recorded answers: metrics, gradients of weights, slices, warnings, rounding."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from warpalign.compat import pot

distance = pytest.importorskip("scipy.spatial.distance")

RANDOM = np.random.RandomState(3)
X, Y = RANDOM.rand(6, 4), RANDOM.rand(5, 4)
BINARY = RANDOM.rand(6, 4) > 0.5, RANDOM.rand(5, 4) > 0.5


@pytest.mark.parametrize("use_tensor", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("p", [1, 1.5, 3])
def test_minkowski(p: float, weighted: bool, use_tensor: bool) -> None:
    w = np.array([0.1, 2.0, 1.0, 0.5]) if weighted else None
    expected = distance.cdist(X, Y, "minkowski", p=p, w=w)
    np.testing.assert_allclose(
        pot.dist(X, Y, "minkowski", p=p, w=w, use_tensor=use_tensor), expected, rtol=1e-12
    )
    given = [torch.from_numpy(one) if one is not None else None for one in (X, Y, w)]
    got = pot.dist(given[0], given[1], "minkowski", p=p, w=given[2], use_tensor=use_tensor)
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize(
    "metric", ["sqeuclidean", "euclidean", "cityblock", "cosine", "correlation", "minkowski"]
)
def test_metrics_of_tensors(metric: str) -> None:
    expected = distance.cdist(X, Y, metric)
    x, y = torch.from_numpy(X).requires_grad_(), torch.from_numpy(Y)
    costs = pot.dist(x, y, metric)
    np.testing.assert_allclose(costs.detach().numpy(), expected, rtol=1e-9, atol=1e-12)
    assert torch.autograd.grad(costs.sum(), x)[0].isfinite().all()
    own = pot.dist(x, metric=metric)  # equal points: no NaN
    assert torch.autograd.grad(own.sum(), x)[0].isfinite().all()
    by_scipy = pot.dist(x, y, metric, backend="scipy")
    assert isinstance(by_scipy, Tensor) and not by_scipy.requires_grad
    np.testing.assert_allclose(by_scipy.numpy(), expected)


@pytest.mark.parametrize(
    "metric", ["braycurtis", "canberra", "chebyshev", "hamming", "jaccard", "dice", "yule"]
)
def test_metrics_of_scipy(metric: str) -> None:
    pair = BINARY if metric in ("jaccard", "dice", "yule") else (X, Y)
    np.testing.assert_allclose(pot.dist(*pair, metric=metric), distance.cdist(*pair, metric), rtol=1e-12)
    own = pot.dist(pair[0], metric=metric, backend="scipy")
    np.testing.assert_allclose(own, distance.cdist(pair[0], pair[0], metric), rtol=1e-12)


def test_a_function_as_a_metric() -> None:
    def largest(x: Any, y: Any) -> float:
        return float(np.abs(x - y).max())

    np.testing.assert_allclose(pot.dist(X, Y, largest), distance.cdist(X, Y, "chebyshev"), rtol=1e-12)


def two_matrices(n: int, m: int) -> tuple[Any, Any, Any]:
    random = np.random.RandomState(n + m)
    x, y = random.randn(n, 2), random.randn(m, 2)
    return distance.cdist(x, x), distance.cdist(y, y), random.rand(n, m)


def leaves(*arrays: Any) -> list[Tensor]:
    return [torch.tensor(array, dtype=torch.float64, requires_grad=True) for array in arrays]


def losses() -> dict[str, tuple[Callable[..., Any], int]]:
    """Functions of M, C1, C2, p, q, alpha, and the columns' number for 8 rows."""
    gw = pot.gromov
    return {
        "gw": (lambda M, C1, C2, p, q, alpha, **o: gw.gromov_wasserstein2(C1, C2, p, q, **o), 8),
        "fgw": (
            lambda M, C1, C2, p, q, alpha, **o: gw.fused_gromov_wasserstein2(
                M, C1, C2, p, q, alpha=alpha, **o
            ),
            8,
        ),
        "srgw": (lambda M, C1, C2, p, q, alpha, **o: gw.semirelaxed_gromov_wasserstein2(C1, C2, p, **o), 5),
        "srfgw": (
            lambda M, C1, C2, p, q, alpha, **o: gw.semirelaxed_fused_gromov_wasserstein2(
                M, C1, C2, p, alpha=alpha, **o
            ),
            5,
        ),
    }


@pytest.mark.parametrize("loss_fun", ["square_loss", "kl_loss"])
@pytest.mark.parametrize("name", losses())
def test_gradients_of_gromov_wasserstein(name: str, loss_fun: str) -> None:
    call, m = losses()[name]
    C1, C2, M = two_matrices(8, m)
    given = leaves(M, C1 + 0.1, C2 + 0.1, np.full(8, 1 / 8), np.full(m, 1 / m), 0.3)
    value, log = call(*given, loss_fun=loss_fun, log=True)
    value.backward()
    M1, first, second, p, q, alpha = given
    plan = log["T"]
    shifted = [one.detach().clone().requires_grad_() for one in (first, second)]
    features, share = (1 - 0.3, 0.3) if "f" in name else (0.0, 1.0)
    if loss_fun == "square_loss":
        terms = (shifted[0][:, None, :, None] - shifted[1][None, :, None, :]).square()
    else:
        a, b = shifted[0][:, None, :, None], shifted[1][None, :, None, :]
        terms = a * (a / b).log() - a + b
    quadratic = torch.einsum("ijkl,ij,kl->", terms, plan, plan)
    expected = share * quadratic + features * (M1.detach() * plan).sum()
    torch.testing.assert_close(value.detach(), expected.detach(), rtol=1e-9, atol=1e-12)
    by_first, by_second = torch.autograd.grad(share * quadratic, shifted)
    torch.testing.assert_close(first.grad, by_first, rtol=1e-7, atol=1e-12)
    torch.testing.assert_close(second.grad, by_second, rtol=1e-7, atol=1e-12)
    if features:
        torch.testing.assert_close(M1.grad, features * plan)
        difference = quadratic.detach() - (M1.detach() * plan).sum()
        torch.testing.assert_close(alpha.grad, difference, rtol=1e-7, atol=1e-12)
    # Potentials u, v of the problem that is linear at the plan: feasible, tight where there is mass, and of mean 0.
    leaf = plan.detach().clone().requires_grad_()
    at_plan = (
        share * torch.einsum("ijkl,ij,kl->", terms.detach(), leaf, leaf)
        + features * (M1.detach() * leaf).sum()
    )
    (cost,) = torch.autograd.grad(at_plan, leaf)
    v = torch.zeros(m, dtype=torch.float64) if q.grad is None else q.grad
    assert (q.grad is None) == name.startswith("sr")
    slack = cost - p.grad[:, None] - v
    assert float(slack.std()) > 0 and float((slack - slack.min())[plan > 0].abs().max()) < 1e-9
    assert abs(float(p.grad.mean())) < 1e-12 and abs(float(v.mean())) < 1e-12


def test_potentials_are_a_derivative() -> None:
    """Of a linear problem, whose value at other weights SciPy's linear program gives."""
    linprog = pytest.importorskip("scipy.optimize").linprog
    n = 6
    M = np.random.RandomState(1).rand(n, n)
    p, q = leaves(np.full(n, 1 / n), np.full(n, 1 / n))
    zeros = torch.zeros(n, n, dtype=torch.float64)
    pot.gromov.fused_gromov_wasserstein2(torch.from_numpy(M), zeros, zeros, p, q, alpha=0.0).backward()

    def value(a: Any, b: Any) -> float:
        rows, columns = np.kron(np.eye(n), np.ones(n)), np.kron(np.ones(n), np.eye(n))
        return float(linprog(M.ravel(), A_eq=np.vstack([rows, columns]), b_eq=np.concatenate([a, b])).fun)

    uniform = np.full(n, 1 / n)
    for seed in range(4):  # convex in the weights: a subgradient lies below
        moved = np.random.RandomState(seed).dirichlet(np.full(n, 5.0), 2)
        slope = float((p.grad.numpy() @ (moved[0] - uniform)) + q.grad.numpy() @ (moved[1] - uniform))
        assert value(*moved) >= value(uniform, uniform) + slope - 1e-9


def test_slices_of_lazy_plans() -> None:
    result = pot.solve_sample(X, Y, reg=0.5, lazy=True)
    plan = np.asarray(result.plan)
    np.testing.assert_allclose(result.lazy_plan[:], plan)
    np.testing.assert_allclose(result.lazy_plan[1:3], plan[1:3])
    np.testing.assert_allclose(result.lazy_plan[2, ::2], plan[2, ::2])
    np.testing.assert_allclose(result.sparse_plan.toarray(), plan)


@pytest.mark.parametrize("n", [3, 30, 49, 1000])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_all_mass_of_uniform_weights(n: int, dtype: Any) -> None:
    """Weights 1 / n add up to less or more than 1 by rounding."""
    p, M = pot.unif(n).astype(dtype), np.random.RandomState(0).rand(n, n).astype(dtype)
    plan = pot.partial.entropic_partial_wasserstein(p, p, M, 1.0, m=1, numItermax=20)
    assert float(np.sum(plan, dtype=np.float64)) == pytest.approx(1, abs=1e-3)
    if n <= 49:
        plan = pot.gromov.entropic_partial_gromov_wasserstein(
            M + M.T, M + M.T, p, p, reg=1.0, m=1, numItermax=2
        )
        assert plan.shape == (n, n)


def test_integers_are_warned_of() -> None:
    C1, C2, M = two_matrices(6, 6)
    whole = np.round(10 * C1).astype(np.int32)
    expected = pot.gromov.gromov_wasserstein(whole.astype(float), C2)
    with pytest.warns(UserWarning, match="C1: expected floating-point numbers, got torch.int32") as said:
        got = pot.gromov.gromov_wasserstein(whole, C2)
    assert said[0].filename == __file__
    np.testing.assert_array_equal(got, expected)
    with pytest.warns(UserWarning, match="M: expected floating-point numbers, got torch.int64"):
        pot.gromov.fused_gromov_wasserstein2(torch.arange(36).view(6, 6), C1, C2)


def test_warnings_as_those_of_pot() -> None:
    C1, C2, M = two_matrices(6, 5)
    with pytest.warns(UserWarning, match='divergence: expected "kl"') as said:
        l2 = pot.gromov.fused_unbalanced_gromov_wasserstein(
            C1, C2, reg_marginals=1.0, epsilon=1.0, divergence="l2", unbalanced_solver="sinkhorn"
        )[0]
    assert said[0].filename == __file__
    kl = pot.gromov.fused_unbalanced_gromov_wasserstein(
        C1, C2, reg_marginals=1.0, epsilon=1.0, unbalanced_solver="sinkhorn"
    )[0]
    np.testing.assert_array_equal(l2, kl)
    a, b = np.full(6, 1 / 6), np.full(5, 1 / 5)
    for function in (pot.sinkhorn_unbalanced, pot.sinkhorn_unbalanced2):
        with pytest.warns(UserWarning, match="not implemented") as said:
            function(a, b, M, 1.0, 1.0, method="sinkhorn_reg_scaling")
        assert said[0].filename == __file__
    broken = M.copy()
    broken[0, 0] = np.nan
    for call in (
        lambda: pot.sinkhorn2(a, b, broken, 1.0, warn=False),
        lambda: pot.sinkhorn(a, b, broken, 1.0),
        lambda: pot.sinkhorn_unbalanced(a, b, broken, 1.0, 1.0),
    ):
        with pytest.warns(UserWarning, match="Numerical errors") as said:
            call()
        assert [one.filename for one in said] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pot.sinkhorn2(a, b, M, 1.0)
        pot.sinkhorn_unbalanced(a, b, M, 1.0, 1.0)


@pytest.mark.parametrize("method", ["mm", "sinkhorn", "sinkhorn_log"])
def test_problems_whose_kernel_underflows(method: str) -> None:
    """Where every entry of exp(−M / reg) is 0, POT warns and returns zeros; in the log domain it is the matching."""
    random = np.random.RandomState(0)
    x = random.randn(5, 2)
    M = 1 + distance.cdist(x, x[::-1], "sqeuclidean")
    weights = np.full(5, 1 / 5)
    assert not np.exp(-M / 1e-3).any()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = pot.solve(
            M, weights, weights, reg=1e-3, reg_type="kl", unbalanced=1e6, method=method, max_iter=5, tol=1e-7
        )
    np.testing.assert_allclose(found.plan, np.eye(5)[::-1] / 5, atol=1e-6)


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam])
def test_a_mean_found_by_gradients_of_dist(optimizer: Any) -> None:
    """Descent by float32 costs ends at the minimum, far from 0, too: gradients are differences of points."""
    ends = torch.tensor([[101.0], [102.0]])
    mean = torch.tensor([[101.2]], requires_grad=True)
    descent = optimizer([mean], lr=2e-2)
    for _ in range(1000):
        descent.zero_grad()
        pot.dist(mean, ends).sum().backward()
        descent.step()
    assert mean.item() == pytest.approx(101.5, abs=1e-4)
