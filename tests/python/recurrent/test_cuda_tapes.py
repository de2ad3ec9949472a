"""Tapes of the LSTM on CUDA, which the last backward pass may write to; rows with lengths."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.python.recurrent.reference import relative_error
from warpalign.recurrent import LSTM

pytestmark = pytest.mark.gpu


def own_peak(module: LSTM, x: Tensor, factor: Tensor) -> int:
    """A step's peak above inputs and outputs, in bytes. A captured step has to give the same bits."""

    def step() -> list[Tensor]:
        y = module(x)[0]
        return [y.detach(), *torch.autograd.grad(y, [x, *module.parameters()], factor)]

    first = step()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    results = step()
    own = torch.cuda.max_memory_allocated() - before - sum(r.nbytes for r in results)
    del results
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    graph.replay()
    assert all(map(torch.equal, captured, first))
    return own


def results_of(module: LSTM, x: Tensor, **given: Any) -> list[Tensor]:
    leaf = x.detach().requires_grad_()
    torch.manual_seed(3)  # the masks' seed
    y, (h_n, c_n) = module(leaf, **given)
    torch.manual_seed(4)
    factor = torch.randn(y.shape, dtype=torch.float64).to(y)
    gradients = torch.autograd.grad((y * factor).sum() + c_n.sum(), [leaf, *module.parameters()])
    return [t.detach().double().cpu() for t in (y, h_n, c_n, *gradients)]


@pytest.mark.parametrize("hidden", [64, 136, 512])
def test_lengths_and_both_directions(cuda: torch.device, hidden: int) -> None:
    """Against the CPU path in float64."""
    torch.manual_seed(1)
    module = LSTM(13, hidden, 2, bidirectional=True, dtype=torch.float16)
    x, lengths = torch.randn(70, 9, 13).half(), torch.tensor([70, 0, 33, 69, 12, 1, 70, 50, 41])
    expected = results_of(module.double(), x.double(), input_lengths=lengths)
    theirs = module.half().to(cuda)
    for a, b in zip(results_of(theirs, x.to(cuda), input_lengths=lengths.to(cuda)), expected, strict=True):
        assert relative_error(a, b) <= 1e-2


def test_a_kept_graph_keeps_its_tape(cuda: torch.device) -> None:
    """The last backward pass writes to the tape. The others do not."""
    torch.manual_seed(1)
    module = LSTM(20, 64, 2, bidirectional=True, device=cuda, dtype=torch.bfloat16)
    x = torch.randn(12, 9, 20, device=cuda, dtype=torch.bfloat16, requires_grad=True)
    loss = module(x)[0].float().square().sum()
    leaves = [x, *module.parameters()]
    first, second, last = (
        torch.autograd.grad(loss, leaves, retain_graph=keeps) for keeps in (True, True, False)
    )
    assert all(map(torch.equal, first, second)) and all(map(torch.equal, first, last))
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(loss, leaves)


def test_memory_and_graphs(cuda: torch.device) -> None:
    """A step's peak above inputs and outputs, in arrays of (T, B, H); a captured step gives the same bits."""
    steps, batch, hidden = 512, 16, 256
    x = torch.randn(steps, batch, 64, device=cuda, dtype=torch.bfloat16, requires_grad=True)
    factor = torch.randn(steps, batch, hidden, device=cuda, dtype=torch.bfloat16)
    torch.manual_seed(1)
    module = LSTM(64, hidden, device=cuda, dtype=torch.bfloat16)

    assert own_peak(module, x, factor) <= 6 * factor.nbytes  # of them 5 in the tape: h is y


@pytest.mark.parametrize("hidden", [64, 136, 520])
@pytest.mark.parametrize("given", ["all steps", "lengths", "masks", "layer norm", "both directions"])
def test_recompute(cuda: torch.device, hidden: int, given: str) -> None:
    """Against float64, and beside the same module with a tape. 520 units are more than clusters have."""
    torch.manual_seed(1)
    options: dict[str, Any] = {"bidirectional": given == "both directions", "device": cuda}
    if given == "masks":  # float64 draws the same ones
        options |= {"dropout": 0.2, "zoneout": 0.1, "rw_dropout": 0.1}
    half, floor = torch.float16, 2**-11
    if given == "layer norm":  # whose gradients are beyond float16
        options["layer_norm"] = True
        half, floor = torch.bfloat16, 2**-8
    module = LSTM(13, hidden, 2, dtype=half, recompute=True, **options)
    exact, with_tape = (LSTM(13, hidden, 2, dtype=dtype, **options) for dtype in (torch.float64, half))
    for other in (exact, with_tape):
        other.load_state_dict(module.state_dict())
    x = torch.randn(140, 9, 13, device=cuda).to(half)
    lengths = torch.tensor([140, 0, 33, 69, 12, 1, 139, 100, 41], device=cuda)
    more = {"input_lengths": lengths} if given == "lengths" else {}
    results = (results_of(m, x.to(next(m.parameters()).dtype), **more) for m in (module, with_tape, exact))
    for ours, plain, expected in zip(*results, strict=True):
        assert relative_error(ours, expected) <= 2 * relative_error(plain, expected) + floor


def test_recompute_in_memory_and_graphs(cuda: torch.device) -> None:
    """A step's peak above inputs and outputs, in arrays of (T, B, H); a captured step gives the same bits."""
    steps, batch, hidden = 512, 16, 256
    x = torch.randn(steps, batch, 64, device=cuda, dtype=torch.bfloat16, requires_grad=True)
    factor = torch.randn(steps, batch, hidden, device=cuda, dtype=torch.bfloat16)
    module = LSTM(64, hidden, recompute=True, device=cuda, dtype=torch.bfloat16)

    assert own_peak(module, x, factor) <= 2 * factor.nbytes  # 5 of a quarter of the steps, and the weights
