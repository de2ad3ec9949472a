"""What only a GPU can show of sinkhorn: CUDA graphs with changing inputs, streams, that nothing waits for the GPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from tests.python.helpers import assert_tensors_equal, captured, no_synchronisation, randn
from warpalign.transport import sinkhorn

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cuda")]

Inputs = tuple[Tensor, ...]


def costs(batch: int, n: int, m: int) -> Inputs:
    """Given costs, epsilons and lengths: each problem has its own."""
    table = randn(batch, n, m, seed=n, device="cuda").square().requires_grad_()
    lengths = torch.arange(n, n - batch, -1, device="cuda", dtype=torch.int32)
    return table, torch.linspace(0.1, 0.5, batch, device="cuda"), lengths


def points(batch: int, n: int, m: int) -> Inputs:
    x, y = (randn(batch, size, 3, seed=size, device="cuda", grad=True) for size in (n, m))
    return x, y, torch.linspace(0.3, 0.9, batch, device="cuda")


def step_of_costs(table: Tensor, epsilon: Tensor, lengths: Tensor) -> Inputs:
    found = sinkhorn(cost_matrix=table, epsilon=epsilon, x_lengths=lengths, rho_b=1.0, max_iter=7, tol=0.0)
    (gradient,) = torch.autograd.grad(found.value.sum(), table)
    return found.value.detach(), found.f.detach(), found.iterations, gradient


def step_of_half_costs(table: Tensor, epsilon: Tensor, lengths: Tensor) -> Inputs:
    options = {"epsilon": epsilon, "x_lengths": lengths, "rho_b": 1.0, "max_iter": 7, "tol": 0.0}
    found = sinkhorn(cost_matrix=table, storage="half", **options)  # type: ignore[arg-type]
    (gradient,) = torch.autograd.grad(found.value.sum(), table)
    return found.value.detach(), found.f.detach(), found.plan.marginal(0).detach(), gradient


def step_of_points(x: Tensor, y: Tensor, epsilon: Tensor) -> Inputs:
    found = sinkhorn(x, y, epsilon=epsilon, mass=0.6, max_iter=7, tol=0.0)
    ends = found.plan.apply(y.detach()).detach(), found.plan.argmax(1)
    return found.value.detach(), *ends, *torch.autograd.grad(found.value.sum() + found.g.sum(), (x, y))


# Problems of one block, of a team of blocks, whose costs stay on the chip, and of teams that share all blocks.
CASES: dict[str, Callable[[], Callable[[], Inputs]]] = {
    "small": lambda: partial(step_of_costs, *costs(3, 40, 50)),
    "resident": lambda: partial(step_of_costs, *costs(1, 500, 900)),
    "large": lambda: partial(step_of_costs, *costs(2, 3000, 2500)),
    "half": lambda: partial(step_of_half_costs, *costs(2, 700, 1301)),
    "points": lambda: partial(step_of_points, *points(2, 150, 90)),
}


@pytest.fixture(params=CASES)
def run(request: pytest.FixtureRequest) -> Callable[[], Inputs]:
    return CASES[request.param]()


def test_a_step_in_a_cuda_graph(run: partial[Inputs]) -> None:
    graph, outputs = captured(run)
    for factor in (1.0, 0.7):
        with torch.no_grad():
            for given in run.args:
                if given.is_floating_point():
                    given.mul_(factor)
                else:
                    given.sub_(3)
        graph.replay()
        assert_tensors_equal(outputs, run())


def test_two_streams_at_once() -> None:
    """Teams of several blocks wait for each other in shared counters: each call needs its own."""
    runs = [make() for make in CASES.values()]
    expected = [run() for run in runs]
    graphs = [captured(run) for run in runs]
    streams = [torch.cuda.Stream() for _ in runs]
    torch.cuda.synchronize()
    for _ in range(5):
        eager = []
        for stream, run, (graph, outputs) in zip(streams, runs, graphs, strict=True):
            with torch.cuda.stream(stream):
                for output in outputs:
                    output.zero_()
                graph.replay()
                eager.append(run())
        torch.cuda.synchronize()
        for got, (_, outputs), wanted in zip(eager, graphs, expected, strict=True):
            assert_tensors_equal(got, wanted)
            assert_tensors_equal(outputs, wanted)


def test_the_current_stream_is_used_and_nothing_waits(run: partial[Inputs]) -> None:
    """Inputs that arrive late on a side stream: work on any other stream would see the zeros before them."""
    expected = run()
    late = [torch.zeros_like(given).requires_grad_(given.requires_grad) for given in run.args]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side), no_synchronisation():
        torch.cuda._sleep(20_000_000)
        with torch.no_grad():
            for to, given in zip(late, run.args, strict=True):
                to.copy_(given)
        got = run.func(*late)
    torch.cuda.synchronize()
    assert_tensors_equal(got, expected)
