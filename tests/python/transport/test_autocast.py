"""Within torch.autocast transport keeps the digits that torch's products would round: the same bits as without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import warpalign
from tests.python.transport.gromov import solve_exact, solve_sampled
from warpalign.compat import pot

pytestmark = pytest.mark.filterwarnings("ignore::warpalign.transport.ConvergenceWarning")
Result = list[Tensor]


def sets(device: torch.device) -> tuple[Tensor, Tensor]:
    draws = torch.Generator().manual_seed(0)
    x, y = torch.randn(40, 3, generator=draws), torch.randn(30, 2, generator=draws)
    return x.to(device).requires_grad_(), y.to(device).requires_grad_()


def exact(device: torch.device, **options: Any) -> Result:
    x, y = sets(device)
    result = solve_exact(x, y, epsilon=0.05, **options)
    return [
        result.value,
        result.distortion,
        result.plan.to_dense(),
        *torch.autograd.grad(result.value, (x, y)),
    ]


def of_distances(device: torch.device) -> Result:
    x, y = (torch.cdist(points, points) for points in sets(device))
    result = solve_exact(distances=(x, y), epsilon=0.05)
    return [result.value, *torch.autograd.grad(result.value, (x, y))]


def sampled(device: torch.device, **options: Any) -> Result:
    result = solve_sampled(*sets(device), epsilon=0.05, generator=0, **options)
    return [result.value, result.distortion, result.plan.to_dense()]


def embedded(device: torch.device) -> Result:
    x, y = (points.detach() for points in sets(device))
    plan = torch.rand(30, 40, device=device, generator=torch.Generator(device).manual_seed(1))
    return list(warpalign.joint_embedding({"x": x, "y": y}, {"y": plan.T / plan.sum()}, anchor="x").values())


def cosine(device: torch.device) -> Result:
    x, _ = sets(device)
    return [warpalign.sinkhorn_divergence(x, x.flip(1), epsilon=0.1, cost="cosine")]


CALLS: dict[str, Callable[[torch.device], Result]] = {
    "gromov_wasserstein": exact,
    "gromov_wasserstein of distances": of_distances,
    "gromov_wasserstein, unbalanced": lambda device: exact(device, rho_a=1.0, rho_b=1.0),
    "gromov_wasserstein, multiscale": lambda device: exact(device, init="multiscale", generator=0),
    "gromov_wasserstein_sampled": sampled,
    "gromov_wasserstein_sampled, sqeuclidean": lambda device: sampled(device, geometry="sqeuclidean"),
    "joint_embedding": embedded,
    "sinkhorn_divergence of a cosine": cosine,
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_results_are_those_without_autocast(
    call: Callable[[torch.device], Result], dtype: torch.dtype, device: torch.device
) -> None:
    expected = call(device)
    with torch.autocast(device.type, dtype=dtype):
        torch.testing.assert_close(call(device), expected, rtol=0, atol=0)


def gromov_of_pot(name: str, **options: Any) -> Callable[[], Any]:
    x, y = (points.detach() for points in sets(torch.device("cpu")))
    tables = torch.cdist(x, x), torch.cdist(y, y)
    M = (torch.cdist(x, torch.ones(30, 3)),) if "fused" in name and "unbalanced" not in name else ()
    weights = () if "unbalanced" in name else (torch.full((40,), 1 / 40),)
    return lambda: getattr(pot.gromov, name)(*M, *tables, *weights, **options)


OF_POT: dict[str, Callable[[], Any]] = {
    "entropic_gromov_wasserstein2": gromov_of_pot("entropic_gromov_wasserstein2", epsilon=0.1),
    "entropic_fused_gromov_wasserstein": gromov_of_pot("entropic_fused_gromov_wasserstein", epsilon=0.1),
    "entropic_partial_gromov_wasserstein": gromov_of_pot("entropic_partial_gromov_wasserstein", reg=1.0),
    "semirelaxed_gromov_wasserstein2": gromov_of_pot("semirelaxed_gromov_wasserstein2"),
    "fused_unbalanced_gromov_wasserstein2": gromov_of_pot(
        "fused_unbalanced_gromov_wasserstein2", reg_marginals=1.0, epsilon=1.0, unbalanced_solver="sinkhorn"
    ),
    "dist": lambda: pot.dist(
        *(points.detach()[:, :2] for points in sets(torch.device("cpu"))), metric="cosine"
    ),
}


@pytest.mark.parametrize("call", OF_POT.values(), ids=OF_POT)
def test_the_drop_in_for_pot(call: Callable[[], Any]) -> None:
    expected = call()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = call()
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
