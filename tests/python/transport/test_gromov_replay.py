"""Steps of exact Gromov-Wasserstein solves in CUDA graphs: the bits of those whose kernels are launched one by one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.python.transport.clouds import spiral, swiss_roll
from warpalign._transport import gromov_solver
from warpalign.transport import gromov_wasserstein, sinkhorn_low_rank

pytestmark = pytest.mark.filterwarnings("ignore::warpalign.ConvergenceWarning")
Seen = list[tuple[int, Tensor, Tensor]]


@pytest.mark.gpu
@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize(
    "options",
    [
        {"max_iter": 40},
        {"tol": 0.0, "max_iter": 21, "step": 0.7, "annealing": None},
        {"rho_b": 0.1, "max_iter": 17},
        {"mass": 0.7, "max_iter": 12},
        {"max_iter": 3},
    ],
)
def test_steps_of_an_exact_solve(
    options: dict[str, Any], batch: tuple[int, ...], cuda: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = (of.expand(*batch, -1, -1).to(cuda) for of in (spiral(90, 0), swiss_roll(70, 1)))
    if batch:  # problems that end at different steps
        x = x * torch.tensor([1.0, 3.0], device=cuda)[:, None, None] + x.square()

    def solved() -> tuple[Any, Seen]:
        seen: Seen = []
        result = gromov_wasserstein(x, y, epsilon=5e-3, callback=lambda *of: seen.append(of), **options)
        return result, seen

    result, seen = solved()
    monkeypatch.setattr(gromov_solver, "can_capture", lambda device: False)
    expected, expected_seen = solved()
    for one, other in (
        (result.plan.f, expected.plan.f),
        (result.plan.g, expected.plan.g),
        (result.value, expected.value),
        (result.history, expected.history),
        (result.iterations, expected.iterations),
        (result.converged, expected.converged),
    ):
        assert torch.equal(one, other)
    assert len(seen) == len(expected_seen)
    for (step, *of_step), (expected_step, *of_expected) in zip(seen, expected_seen, strict=True):
        assert step == expected_step and all(map(torch.equal, of_step, of_expected))


@pytest.mark.gpu
def test_a_callback_may_have_graphs_of_its_own(cuda: torch.device) -> None:
    x, y = spiral(90, 0).to(cuda), swiss_roll(70, 1).to(cuda)
    options: dict[str, Any] = {"epsilon": 5e-3, "max_iter": 30, "tol": 0.0}
    expected = gromov_wasserstein(x, y, **options)

    def solves(step: int, epsilon: Tensor, moved: Tensor) -> None:
        if step % 7 == 0:
            sinkhorn_low_rank(x, x, rank=3, max_iter=30, tol=0.0, generator=0)

    assert torch.equal(gromov_wasserstein(x, y, callback=solves, **options).plan.f, expected.plan.f)
