"""Steps of a loop in a CUDA graph: each call takes the state on, and a graph whose memory is used again is refused."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from warpalign._core.replay import Replayed, can_capture


def step(state: Tensor) -> tuple[Tensor, Tensor]:
    return state + 1, state * 2


def captured(device: torch.device) -> Replayed:
    state = torch.zeros(3, device=device)
    step(state)
    return Replayed(step, state, device)


@pytest.mark.gpu
def test_each_call_goes_on_from_the_state_before(cuda: torch.device) -> None:
    replayed = captured(cuda)
    made = [replayed() for _ in range(3)]
    for at, value in enumerate(made):
        assert torch.equal(value, torch.full((3,), 2.0 * at, device=cuda))
    assert torch.equal(replayed.state, torch.full((3,), 3.0, device=cuda))


@pytest.mark.gpu
def test_only_the_last_graph_may_be_called(cuda: torch.device) -> None:
    first = captured(cuda)
    assert first.is_last
    second = captured(cuda)
    assert not first.is_last and second.is_last
    with pytest.raises(RuntimeError, match="expected the thread's last CUDA graph, got one before it"):
        first()
    second()


@pytest.mark.gpu
def test_a_stream_that_captures_cannot_capture_again(cuda: torch.device) -> None:
    x = torch.zeros(3, device=cuda)
    assert can_capture(cuda)
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        x.add_(1)  # PyTorch warns of an empty graph
        inside = can_capture(cuda)
    assert not inside


def test_a_cpu_has_no_graphs() -> None:
    assert not can_capture(torch.device("cpu"))
