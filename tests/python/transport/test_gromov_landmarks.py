"""Landmarks of both sides, and the parts of a sampled solve that a GPU replays from CUDA graphs."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.python.helpers import randn
from tests.python.transport.clouds import spiral, swiss_roll
from warpalign._transport import gromov_landmarks, mixing
from warpalign._transport.gromov_geometry import largest_differences
from warpalign._transport.gromov_landmarks import paths_of_graphs, paths_to_landmarks
from warpalign.transport import Geodesic, farthest_landmarks, gromov_wasserstein_sampled, knn_graph


@pytest.mark.gpu
def test_a_sampled_solve(cuda: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = spiral(300, 0).to(cuda), swiss_roll(350, 1).to(cuda)

    def solved() -> tuple[Tensor, Tensor]:
        found = gromov_wasserstein_sampled(
            x, y, epsilon=1e-3, geometry=Geodesic(k=5, n_landmarks=50), generator=0
        )
        return found.plan.f, found.value

    results = solved()
    for module in (gromov_landmarks, mixing):
        monkeypatch.setattr(module, "can_capture", lambda device: False)
    assert all(map(torch.equal, results, solved()))


@pytest.mark.parametrize("count", [1, 18, 19, 45])
def test_landmarks_of_two_graphs_are_those_of_each(count: int, device: torch.device) -> None:
    graphs = [
        knn_graph(points.to(device), 5) for points in (spiral(90, 0), swiss_roll(130, 1), spiral(20, 2))
    ]
    counts = [min(count, 20) if k == 2 else count for k in range(3)]
    for graph, of_graph, together in zip(graphs, counts, paths_of_graphs(graphs, counts), strict=True):
        alone = paths_to_landmarks(graph, of_graph)
        assert torch.equal(together.indices, alone.indices)
        assert torch.equal(together.distances, alone.distances)
        assert len(set(together.indices.tolist())) == of_graph
    first = farthest_landmarks(graphs[0], count)
    assert torch.equal(paths_to_landmarks(graphs[0], 1).distances[0], first.distances[0])


@pytest.mark.parametrize(("n", "m", "dim"), [(1, 1, 1), (5, 40, 50), (70, 33, 7), (0, 4, 2), (4, 0, 2)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_largest_differences(n: int, m: int, dim: int, dtype: torch.dtype, device: torch.device) -> None:
    x, y = (randn(count, dim, seed=count, dtype=dtype).to(device) for count in (n, m))
    for one, other in ((x, y), (x, y.T.contiguous().T)):
        assert torch.equal(largest_differences(one, other), torch.cdist(x, y, p=torch.inf))
    leaf = x.clone().requires_grad_()
    assert largest_differences(leaf, y).requires_grad


def test_largest_differences_refuse_what_they_cannot_take() -> None:
    operator = torch.ops.warpalign.largest_differences
    x = torch.zeros(3, 2)
    for bad in ((x.half(), x.half()), (x, x.double()), (x[None], x), (x, torch.zeros(3, 5)), (x, x.mT)):
        with pytest.raises(RuntimeError, match=r"warpalign: [xy]: expected "):
            operator(*bad)
