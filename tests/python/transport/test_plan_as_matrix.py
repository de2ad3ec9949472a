"""A plan in the place of the matrix it stands for: products, entries, arrays, sparse matrices. No warning of torch comes with them."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.python.helpers import randn
from tests.python.transport.gradchecks import gradcheck
from tests.python.transport.test_plan import solved
from warpalign.transport import TransportPlan, sinkhorn


def one_plan(device: torch.device, *, transposed: bool = False) -> TransportPlan:
    """(9, 7)"""
    x, y = (
        randn(n, 3, seed=n, device=device, dtype=torch.float64) for n in ((7, 9) if transposed else (9, 7))
    )
    plan = sinkhorn(x, y, epsilon=0.5).plan
    return plan.T if transposed else plan


@pytest.mark.parametrize("transposed", [False, True])
def test_products_with_tensors_and_arrays(transposed: bool, device: torch.device) -> None:
    plan = one_plan(device, transposed=transposed)
    dense = plan.to_dense()
    assert plan.shape == dense.shape and len(plan) == 9
    for given, expected in (
        (randn(7, 2, seed=1, device=device, dtype=torch.float64), lambda y: (plan @ y, dense @ y)),
        (randn(7, seed=2, device=device, dtype=torch.float64), lambda y: (plan @ y, dense @ y)),
        (randn(2, 9, seed=3, device=device, dtype=torch.float64), lambda u: (u @ plan, u @ dense)),
        (randn(9, seed=4, device=device, dtype=torch.float64), lambda u: (u @ plan, u @ dense)),
    ):
        torch.testing.assert_close(*expected(given))
    array = np.arange(14.0, dtype=np.float32).reshape(7, 2)
    tensor = torch.from_numpy(array).to(dense)
    torch.testing.assert_close(plan @ array, dense @ tensor)
    torch.testing.assert_close(array.T @ plan.T, tensor.T @ dense.T)
    torch.testing.assert_close(plan.barycentric_map(array), plan.barycentric_map(tensor))


def test_products_of_a_batch(device: torch.device) -> None:
    plan = solved(device)
    dense = plan.to_dense()
    y = randn(2, 7, 3, seed=5, device=device, dtype=torch.float64)
    torch.testing.assert_close(plan @ y, dense @ y)
    u = randn(2, 4, 9, seed=6, device=device, dtype=torch.float64)
    torch.testing.assert_close(u @ plan, u @ dense)
    torch.testing.assert_close(u[:, 0] @ plan, (u @ dense)[:, 0])


INDICES: dict[str, Any] = {
    "an int": 3,
    "a negative int": -2,
    "a NumPy int": np.int64(4),
    "all": slice(None),
    "all by an ellipsis": Ellipsis,
    "every second": slice(1, None, 2),
    "backwards": slice(None, None, -3),
    "none": slice(4, 4),
    "a tensor": torch.tensor([5, 0, -1, 5]),
    "an array": np.array([1, 2], dtype=np.int32),
    "a list": [0, 6],
    "an empty list": [],
    "a mask": torch.tensor([True, False, True, True, False, False, False, False, True]),
    "an array as a mask": np.arange(9) > 6,
    "a pair of ints": (2, -1),
    "a column": (slice(None), 4),
    "columns": (slice(None), [1, 0]),
    "columns by a mask": (slice(2, 5), np.arange(7) % 2 == 0),
    "a row's columns": (1, slice(0, 3)),
    "rows of a column": (np.array([3, 3, 1]), -7),
    "the last column": (Ellipsis, -1),
}


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("index", INDICES)
def test_entries_are_those_of_the_dense_plan(index: str, transposed: bool, device: torch.device) -> None:
    plan, chosen = one_plan(device, transposed=transposed), INDICES[index]
    expected = (
        plan.to_dense()
        .cpu()
        .numpy()[
            tuple(np.asarray(one) if isinstance(one, (Tensor, list)) and len(one) else one for one in chosen)
            if isinstance(chosen, tuple)
            else chosen.numpy()
            if isinstance(chosen, Tensor)
            else chosen
        ]
    )
    got = plan[chosen]
    assert got.shape == expected.shape and got.device.type == device.type
    np.testing.assert_allclose(got.cpu().numpy(), expected, rtol=1e-12)


def test_entries_are_differentiable(device: torch.device) -> None:
    x = randn(5, 2, seed=1, device=device, dtype=torch.float64, grad=True)
    y = randn(4, 2, seed=2, device=device, dtype=torch.float64)
    v = randn(4, 2, seed=3, device=device, dtype=torch.float64, grad=True)

    def read(x: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        plan = sinkhorn(x, y, epsilon=0.5, tol=1e-14, max_iter=5000).plan
        return plan[1], plan[::2, [0, 3]], plan @ v, (plan.T[2] @ x).sum()

    assert gradcheck(read, (x, v))


def test_a_batch_is_indexed_by_its_problems(device: torch.device) -> None:
    plan = solved(device)
    assert [one.shape for one in plan] == [(9, 7), (9, 7)]
    for k, one in enumerate(plan):
        torch.testing.assert_close(one.to_dense(), plan.to_dense()[k])
        torch.testing.assert_close(plan.T[k].to_dense(), plan.to_dense()[k].T)
        torch.testing.assert_close(one[2], plan.rows([2])[k, 0])
        torch.testing.assert_close(one.f, plan.f[k])
        torch.testing.assert_close(one.to_sparse().to_dense(), plan.to_dense()[k])
    assert repr(plan[-1]).startswith("TransportPlan(shape=(9, 7)")
    epsilons = torch.tensor([0.3, 2.0], device=device)
    many = sinkhorn(
        randn(2, 4, 2, seed=1, device=device), randn(2, 3, 2, seed=2, device=device), epsilon=epsilons
    )
    torch.testing.assert_close(many.plan[1].to_dense(), many.plan.to_dense()[1])
    assert float(many.plan[1].epsilon) == 2.0


def test_arrays(device: torch.device) -> None:
    plan = one_plan(device)
    array = np.asarray(plan)
    assert array.dtype == np.float64 and np.asarray(plan, dtype=np.float32).dtype == np.float32
    np.testing.assert_array_equal(array, plan.to_dense().cpu().numpy())
    assert np.asarray(solved(device)).shape == (2, 9, 7)
    np.testing.assert_allclose(np.asarray(plan).sum(1), plan.marginal(1).cpu(), rtol=1e-12)
    leaf = randn(4, 2, seed=1, device=device, grad=True)
    assert np.asarray(sinkhorn(leaf, leaf.detach(), epsilon=0.5).plan).shape == (4, 4)  # detached


def test_scipy(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    sparse = pytest.importorskip("scipy.sparse")
    monkeypatch.setattr("warpalign._transport.costs._MOST_ENTRIES", 20)  # several blocks
    plan = one_plan(device)
    dense = np.asarray(plan)
    for got in (plan.to_scipy(), plan.to_scipy(k=2), plan.to_scipy(threshold=1e-3), plan.T.to_scipy(k=1).T):
        assert sparse.issparse(got) and got.shape == (9, 7) and got.dtype == np.float64
    assert plan.to_scipy().format == "csr" and plan.to_scipy().has_canonical_format
    np.testing.assert_allclose(plan.to_scipy().toarray(), dense, rtol=1e-12)
    kept = np.where(dense > 1e-3, dense, 0)
    np.testing.assert_allclose(plan.to_scipy(threshold=1e-3).toarray(), kept, rtol=1e-12)
    np.testing.assert_allclose(plan.to_scipy(k=2).sum(1), np.sort(dense, 1)[:, -2:].sum(1), rtol=1e-12)


def test_sparse_plans_keep_nan(device: torch.device) -> None:
    """A plan without a value does not turn into one without entries."""
    cost = torch.zeros(2, 3, device=device)
    cost[0, 1] = torch.nan
    assert sinkhorn(cost_matrix=cost, epsilon=0.5).plan.to_sparse().values().isnan().any()


def test_torch_says_nothing_of_sparse_tensors() -> None:
    """torch warns once in a process: so in a new one."""
    code = (
        "import warnings; warnings.simplefilter('error'); import torch; from warpalign.transport import sinkhorn\n"
        "plan = sinkhorn(torch.rand(4, 2), torch.rand(3, 2), epsilon=0.5).plan\n"
        "plan.to_sparse(k=1).to_dense(); plan.to_sparse(); print('quiet')\n"
        "from warpalign.compat import pot\n"
        "print(pot.solve(torch.rand(4, 3), reg=1.0).sparse_plan.layout)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, env=environment
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == ["quiet", "torch.sparse_csr"]
