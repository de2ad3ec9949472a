"""The linear metric as a cost: whatever takes a cost computes squared distances of the factor's features."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import warpalign
from tests.python.soft_dtw.reference import pair, randn

F64 = torch.float64
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "soft_dtw": warpalign.soft_dtw,
    "divergence": lambda x, y, **o: warpalign.soft_dtw(x, y, normalize=True, **o),
    "soft_dtw_alignment": warpalign.soft_dtw_alignment,
    "dtw": warpalign.dtw,
    "dtw_path": lambda x, y, **o: warpalign.dtw_path(x, y, **o).value,
    "soft_dtw_sample": lambda x, y, **o: warpalign.soft_dtw_sample(x, y, 3, generator=1, **o),
    "soft_dtw_subsequence": lambda x, y, **o: warpalign.soft_dtw_subsequence(x, y, **o),
    "SoftDTW": lambda x, y, **o: warpalign.SoftDTW(**o)(x, y),
    "cdist_soft_dtw": lambda x, y, **o: warpalign.cdist_soft_dtw(x, y, **o),
    "cdist_soft_dtw, one set": lambda x, y, **o: warpalign.cdist_soft_dtw(x, normalize=True, **o),
}


def results(found: Any) -> list[Tensor]:
    return [found] if isinstance(found, Tensor) else list(found)


@pytest.mark.parametrize("columns", [2, 5])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_equals_squared_distances_of_features(device: torch.device, name: str, columns: int) -> None:
    x, y = (t.to(device) for t in pair(3, 12, 9, 4, dtype=F64))
    factor = randn(4, columns, seed=3, dtype=F64, device=device)
    found = FUNCTIONS[name](x, y, cost=warpalign.Mahalanobis(factor))
    expected = FUNCTIONS[name](x @ factor, y @ factor)
    for got, wanted in zip(results(found), results(expected), strict=True):
        assert torch.equal(got, wanted)


def test_given_matrix() -> None:
    """The distance that its name means: (x - y)^T M (x - y) with M = L L^T."""
    x, y = pair(2, 7, 6, 3, dtype=F64)
    factor = randn(3, 3, seed=3, dtype=F64)
    difference = x[:, :, None] - y[:, None]
    costs = torch.einsum("bijd,de,bije->bij", difference, factor @ factor.T, difference)
    cost = warpalign.Mahalanobis(factor)
    torch.testing.assert_close(cost(x, y), costs)
    torch.testing.assert_close(warpalign.soft_dtw(x, y, cost=cost), warpalign.soft_dtw_cost(costs))
    plan = warpalign.sinkhorn(x, y, epsilon=1.0, cost=cost, max_iter=50, tol=0)
    assert torch.isfinite(plan.value).all()


def test_gradcheck(device: torch.device) -> None:
    x, y = pair(2, 5, 4, 3, dtype=F64, device=device, grad=True)
    factor = nn.Parameter(randn(3, 2, seed=3, dtype=F64, device=device))
    lengths = torch.tensor([5, 3], device=device)

    def value(x: Tensor, y: Tensor, factor: Tensor) -> Tensor:
        return warpalign.soft_dtw(x, y, cost=warpalign.Mahalanobis(factor), x_lengths=lengths)

    assert torch.autograd.gradcheck(value, (x, y, factor))
    assert torch.autograd.gradgradcheck(value, (x, y, factor))

    def table(x: Tensor, factor: Tensor) -> Tensor:
        return warpalign.cdist_soft_dtw(x, y.detach(), cost=warpalign.Mahalanobis(factor))

    assert torch.autograd.gradcheck(table, (x, factor))


def test_what_is_hidden_does_not_reach_the_factor() -> None:
    x, y = pair(2, 6, 5, 3)
    x[0, 4:] = torch.nan
    y[1, 2] = torch.nan
    mask = torch.zeros(2, 5, dtype=torch.bool)
    mask[1, 2] = True
    cost = warpalign.Mahalanobis(nn.Parameter(torch.eye(3)))
    warpalign.soft_dtw(x, y, x_lengths=torch.tensor([4, 6]), y_mask=mask, cost=cost).sum().backward()
    assert cost.factor.grad is not None and cost.factor.grad.isfinite().all()
    cost.factor.grad = None
    warpalign.cdist_soft_dtw(x, cost=cost).sum().backward()
    assert cost.factor.grad.isfinite().all()


def test_the_module_has_its_parameters() -> None:
    loss = warpalign.SoftDTW(cost=warpalign.Mahalanobis(nn.Parameter(torch.eye(3, 2))), reduction="mean")
    assert [name for name, _ in loss.named_parameters()] == ["cost.factor"]
    assert list(warpalign.SoftDTW(cost=warpalign.Mahalanobis(torch.eye(3))).state_dict()) == ["cost.factor"]
    x, y = pair(4, 10, 9, 3)
    before = loss(x, y)
    loss.load_state_dict({"cost.factor": 2 * torch.eye(3, 2)})
    torch.testing.assert_close(
        loss.double()(x.double(), y.double()).float(),
        warpalign.soft_dtw(2 * x[..., :2], 2 * y[..., :2]).mean(),
    )
    assert loss.cost.factor.dtype == F64 and before.dtype == torch.float32


def test_half_types_and_autocast() -> None:
    x, y = pair(2, 10, 9, 3)
    factor = randn(3, 4, seed=1)
    expected = warpalign.soft_dtw(x, y, cost=warpalign.Mahalanobis(factor))
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(warpalign.soft_dtw(x, y, cost=warpalign.Mahalanobis(factor)), expected)
    half = warpalign.soft_dtw(x.half(), y.half(), cost=warpalign.Mahalanobis(factor))
    torch.testing.assert_close(half, expected, rtol=1e-2, atol=0.1)
    both = warpalign.soft_dtw(x.half(), y.half(), cost=warpalign.Mahalanobis(factor.half()))
    torch.testing.assert_close(both, expected, rtol=1e-2, atol=0.1)


def test_transforms(device: torch.device) -> None:
    x, y = (t.to(device) for t in pair(3, 8, 7, 3, dtype=F64))
    factor = randn(3, 2, seed=1, dtype=F64, device=device)

    def value(factor: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return warpalign.soft_dtw(x, y, cost=warpalign.Mahalanobis(factor))

    one_by_one = torch.stack([torch.func.grad(value)(factor, x[b], y[b]) for b in range(3)])
    mapped = torch.func.vmap(torch.func.grad(value), (None, 0, 0))(factor, x, y)
    torch.testing.assert_close(mapped, one_by_one)
    compiled = torch.compile(
        warpalign.SoftDTW(cost=warpalign.Mahalanobis(factor)), fullgraph=True, backend="aot_eager"
    )
    torch.testing.assert_close(compiled(x, y), value(factor, x, y))


def test_estimators_and_barycenters() -> None:
    x = randn(6, 12, 3, seed=5, dtype=F64)
    factor = torch.diag(torch.tensor([2.0, 1.0, 0.0], dtype=F64))
    cost = warpalign.Mahalanobis(factor)
    found = warpalign.soft_dtw_barycenter(x, cost=cost, max_iter=20)
    assert found.losses[-1] < found.losses[0]
    neighbors = pytest.importorskip("sklearn.base").clone(
        warpalign.SoftDTWKNeighborsClassifier(n_neighbors=2, metric_params={"cost": cost})
    )
    labels = [0, 1, 0, 1, 0, 1]
    there = warpalign.SoftDTWKNeighborsClassifier(n_neighbors=2).fit((x @ factor).numpy(), labels)
    here = neighbors.fit(x.numpy(), labels)
    assert (
        here.kneighbors(x.numpy(), return_distance=False)
        == there.kneighbors((x @ factor).numpy(), return_distance=False)
    ).all()
