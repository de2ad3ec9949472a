"""PackedSequences: as the operator's packed rows, and padded, as on a GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from warpalign._recurrent import packed as packed_rows
from warpalign.recurrent import LSTM

STEPS, BATCH, INPUT, HIDDEN = 6, 4, 5, 7


def packed_of(
    lengths: list[int], enforce_sorted: bool = False, **options: Any
) -> tuple[PackedSequence, Tensor]:
    x = torch.randn(STEPS, BATCH, INPUT, **options, requires_grad=True)
    return pack_padded_sequence(x, torch.tensor(lengths), enforce_sorted=enforce_sorted), x


def results(module: nn.Module, lengths: list[int], hx: Any) -> list[Tensor]:
    """Outputs and gradients with fixed inputs and factors."""
    torch.manual_seed(3)
    rows, x = packed_of(lengths, dtype=torch.float64)
    y, states, *every = module(rows, hx)
    assert torch.equal(y.batch_sizes, rows.batch_sizes)
    outputs = [y.data, *states, *(every[0] if every else ())]
    value = sum((o * torch.randn_like(o)).sum() for o in outputs)
    return [*outputs, *torch.autograd.grad(value, [x, *hx, *module.parameters()])]


@pytest.mark.parametrize("lengths", [[6, 3, 5, 1], [4, 4, 2, 4], [6, 6, 6, 6], [1, 1, 1, 1]])
@pytest.mark.parametrize(
    "options",
    [{}, {"bidirectional": True, "num_layers": 2}, {"return_all_states": True}, {"layer_norm": True}],
    ids=str,
)
def test_padded_rows_are_packed_rows(
    monkeypatch: pytest.MonkeyPatch, lengths: list[int], options: dict[str, Any]
) -> None:
    torch.manual_seed(2)
    module = LSTM(INPUT, HIDDEN, **options, dtype=torch.float64)
    cells = module.num_layers * (2 if module.bidirectional else 1)
    hx = tuple(torch.randn(cells, BATCH, HIDDEN, dtype=torch.float64, requires_grad=True) for _ in range(2))
    expected = results(module, lengths, hx)
    monkeypatch.setattr(packed_rows, "_is_padded", lambda x: True)
    torch.testing.assert_close(results(module, lengths, hx), expected)
    if set(options) <= {"bidirectional", "num_layers"}:
        theirs = nn.LSTM(INPUT, HIDDEN, **options, dtype=torch.float64)
        theirs.load_state_dict(module.state_dict())
        torch.testing.assert_close(results(theirs, lengths, hx), expected)


@pytest.mark.parametrize("lengths", [[6, 5, 3, 1], [4, 4, 4, 2], [5, 1, 1, 1], [3, 3, 3, 3], [2]])
def test_lengths_and_places_of_packed_rows(lengths: list[int]) -> None:
    x = torch.arange(float(max(lengths) * len(lengths))).view(max(lengths), len(lengths))
    rows = pack_padded_sequence(x, torch.tensor(lengths))
    found = packed_rows.lengths_of(rows.batch_sizes)
    assert found.tolist() == lengths
    places = packed_rows.places_of(found.int(), x.shape[0], rows.data.shape[0])
    assert torch.equal(x.flatten()[places], rows.data)


def test_rows_of_one_length_are_a_batch_as_they_are() -> None:
    rows, x = packed_of([4, 4, 4, 4])
    given = packed_rows.rows_of(rows, rows.data)
    assert given.x.shape == (4, 4, INPUT) and given.x.data_ptr() == rows.data.data_ptr()
    assert given.row_starts is None and given.lengths is None
    assert torch.equal(given.x, x[:4])


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("enforce_sorted", [False, True])
def test_packed_rows_on_a_gpu(cuda: torch.device, dtype: torch.dtype, enforce_sorted: bool) -> None:
    torch.manual_seed(4)
    lengths = [6, 5, 5, 1] if enforce_sorted else [2, 6, 3, 6]
    module = LSTM(INPUT, 64, 2).to(cuda, dtype)
    rows, x = packed_of(lengths, enforce_sorted, device=cuda, dtype=dtype)
    y, states = module(rows)
    padded, _ = pad_packed_sequence(y, total_length=STEPS)
    expected, expected_states = module(x, input_lengths=torch.tensor(lengths, device=cuda))
    assert torch.equal(padded, expected)
    assert all(torch.equal(a, b) for a, b in zip(states, expected_states, strict=True))
    factors = torch.randn_like(expected)
    parameters = [x, *module.parameters()]
    torch.testing.assert_close(
        torch.autograd.grad((padded * factors).sum(), parameters),
        torch.autograd.grad((expected * factors).sum(), parameters),
    )


@pytest.mark.gpu
def test_packed_rows_do_not_wait_for_the_gpu(cuda: torch.device) -> None:
    module = LSTM(INPUT, 64, device=cuda)
    rows = packed_of([6, 5, 5, 1], True, device=cuda)[0]
    module(rows)
    torch.cuda.set_sync_debug_mode("error")
    try:
        y, _ = module(rows)
        y.data.sum().backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
@pytest.mark.parametrize("training", [False, True])
def test_packed_rows_in_a_cuda_graph(cuda: torch.device, training: bool) -> None:
    """The lengths are the capture's, as with torch.nn.LSTM; the rows may change between replays."""
    torch.manual_seed(5)
    module = LSTM(INPUT, 64, 2, device=cuda)
    rows = packed_of([6, 5, 5, 1], True, device=cuda)[0]
    rows = PackedSequence(rows.data.detach().clone(), rows.batch_sizes)

    def step() -> tuple[Tensor, ...]:
        with torch.set_grad_enabled(training):
            y, (h_n, c_n) = module(rows)
            of_weights = torch.autograd.grad(y.data.square().sum(), module.parameters()) if training else ()
        return y.data, h_n, c_n, *of_weights

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = step()
    for _ in range(3):
        rows.data.normal_()
        graph.replay()
        torch.testing.assert_close(tuple(t.detach() for t in found), tuple(t.detach() for t in step()))
