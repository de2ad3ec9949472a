"""Gromov-Wasserstein transport of arrays is that of the PyTorch function, up to the rounding of products."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
import torch  # noqa: E402

import warpalign.jax as wj  # noqa: E402
from tests.python.helpers import randn  # noqa: E402
from tests.python.jax.cases import DEVICE  # noqa: E402
from warpalign.transport import gromov_wasserstein  # noqa: E402

RANDOM = np.random.default_rng(3)
X, Y = RANDOM.normal(size=(2, 12, 2)), RANDOM.normal(size=(2, 15, 3))
A, B = np.full((2, 12), 1 / 12), np.full((2, 15), 1 / 15)
FEATURES = RANDOM.random((2, 12, 15))
DISTANCES = [np.abs(RANDOM.normal(size=(2, size, size))) for size in (12, 15)]
LINES = [np.abs(z[..., :1] - z[..., :1].swapaxes(1, 2)) for z in (X, Y)]
SPECIAL = {"x", "y", "distances", "feature_cost"}
CASES: dict[str, dict[str, Any]] = {
    "points": {"x": X, "y": Y, "epsilon": 0.01},
    "squares, unbalanced": {
        "x": X,
        "y": Y,
        "epsilon": 0.05,
        "geometry": "sqeuclidean",
        "rho_a": 0.5,
        "rho_b": 1.0,
    },
    "partial": {"x": X, "y": Y, "epsilon": 0.05, "mass": 0.6, "cost_normalization": "common"},
    "semi-relaxed": {"x": X, "y": Y, "epsilon": 0.05, "rho_b": 0.0, "annealing": None, "init": "product"},
    "fused": {"x": X, "y": Y, "epsilon": 0.01, "feature_cost": FEATURES, "feature_weight": 0.3, "step": 0.8},
    "features alone": {"x": X, "y": Y, "epsilon": 0.05, "feature_cost": FEATURES, "feature_weight": 1.0},
    "given distances": {"distances": LINES, "epsilon": 0.05, "cost_normalization": "mean", "annealing": 0.1},
    "asymmetric distances": {"distances": DISTANCES, "epsilon": 0.1, "cost_normalization": None},
    "points and distances": {"x": X, "distances": (None, DISTANCES[1]), "epsilon": 0.1},
}


def given(of: str, case: dict[str, Any], dtype: str, wants_grad: bool = False) -> dict[str, Any]:
    """The arguments as arrays or as tensors."""

    def one(array: Any) -> Any:
        if array is None:
            return None
        if of == "jax":
            return jnp.asarray(array, dtype)
        return torch.tensor(array, dtype=getattr(torch, dtype), device=DEVICE, requires_grad=wants_grad)

    def convert(name: str, value: Any) -> Any:
        if name not in SPECIAL:
            return value
        return tuple(map(one, value)) if name == "distances" else one(value)

    return {name: convert(name, value) for name, value in case.items()} | {"a": one(A), "b": one(B)}


def arrays_of(arguments: dict[str, Any]) -> list[Any]:
    """Those that are differentiated, flat."""
    return [leaf for name in sorted(SPECIAL & arguments.keys()) for leaf in jax.tree.leaves(arguments[name])]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_results_and_gradients_are_those_of_torch(name: str) -> None:
    tensors = given("torch", CASES[name], "float64", True)
    wanted = gromov_wasserstein(**tensors)
    leaves = arrays_of(tensors)
    weights = torch.tensor([1.0, 2.0], dtype=torch.float64, device=DEVICE)
    of_torch = torch.autograd.grad((wanted.value * weights).sum(), leaves, allow_unused=True)
    with jax.enable_x64(True):
        arguments = given("jax", CASES[name], "float64")

        def solve(special: dict[str, Any]) -> Any:
            found = wj.gromov_wasserstein(**{**arguments, **special})
            return (found.value * jnp.array([1.0, 2.0])).sum(), found

        special = {key: value for key, value in arguments.items() if key in SPECIAL}
        (_, found), gradients = jax.jit(jax.value_and_grad(solve, has_aux=True))(special)
        for field in ("value", "distortion", "error"):
            np.testing.assert_allclose(
                getattr(found, field), getattr(wanted, field).detach().cpu(), rtol=1e-6, atol=1e-9
            )
        for field in ("converged", "iterations"):
            np.testing.assert_array_equal(getattr(found, field), getattr(wanted, field).cpu())
        plan = wanted.plan.to_dense().detach().cpu()
        np.testing.assert_allclose(found.plan.to_dense(), plan, atol=1e-9)
        for one, other in zip(arrays_of(gradients), of_torch, strict=True):
            np.testing.assert_allclose(one, 0 * one if other is None else other.cpu(), rtol=1e-5, atol=1e-9)


def test_single_problems_batches_and_vmap() -> None:
    """A batch gives what its problems give alone; the loop ends on the device."""
    x, y = jnp.asarray(X, "float32"), jnp.asarray(Y, "float32")
    solve = lambda u, v: wj.gromov_wasserstein(u, v, epsilon=0.01)  # noqa: E731
    batch = solve(x, y)
    mapped = jax.jit(
        jax.vmap(lambda u, v: (lambda r: (r.value, r.iterations, r.plan.to_dense()))(solve(u, v)))
    )(x, y)
    for k in range(2):
        alone = solve(x[k], y[k])
        assert alone.value.shape == () and alone.plan.shape == (12, 15)
        assert int(alone.iterations) == int(batch.iterations[k]) == int(mapped[1][k])
        for found in (batch.plan.to_dense()[k], mapped[2][k]):
            np.testing.assert_allclose(found, alone.plan.to_dense(), atol=1e-6)
    again = wj.gromov_wasserstein(x, y, epsilon=0.01, init=batch.plan.to_dense(), annealing=None)
    assert again.converged.all()
    np.testing.assert_allclose(again.value, batch.value, rtol=1e-4)


@pytest.mark.parametrize("normalization", [None, "max", "mean", "common"])
@pytest.mark.parametrize("points", [0, slice(None)])
@pytest.mark.filterwarnings("ignore::warpalign.ConvergenceWarning")
def test_nan_does_not_converge(normalization: Any, points: Any) -> None:
    """As in torch: a distance to NaN is NaN, not 0."""
    x, y = X[0].astype("float32"), Y[0].astype("float32")
    x[points, 0] = np.nan
    found = wj.gromov_wasserstein(
        jnp.asarray(x), jnp.asarray(y), epsilon=0.1, cost_normalization=normalization
    )
    wanted = gromov_wasserstein(
        torch.tensor(x, device=DEVICE),
        torch.tensor(y, device=DEVICE),
        epsilon=0.1,
        cost_normalization=normalization,
    )
    for one in (found, wanted):
        assert np.isnan(float(one.value)) and not bool(one.converged)


def test_a_plan_whose_sums_are_wrong_has_not_converged() -> None:
    """The steps have ended; the error of the last problem is above 0.1, the bound of the torch function."""
    x, y = (jnp.asarray(randn(*shape, seed=seed).numpy()) for shape, seed in (((6, 2), 0), ((7, 3), 1)))
    found = wj.gromov_wasserstein(x, y, epsilon=0.01, cost_normalization=None)
    assert found.iterations < 200 and 0.1 < found.error < 1 and not bool(found.converged)


def test_second_derivatives_raise() -> None:
    x, y = jnp.asarray(X, "float32"), jnp.asarray(Y, "float32")
    value = lambda u: wj.gromov_wasserstein(u, y, epsilon=0.05).value.sum()  # noqa: E731
    for call in (
        lambda: jax.jvp(jax.grad(value), (x,), (x,)),
        lambda: jax.grad(lambda u: (jax.grad(value)(u) ** 2).sum())(x),
    ):
        with pytest.raises(NotImplementedError, match="second derivatives of gromov_wasserstein's value"):
            call()
