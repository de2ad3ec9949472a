"""The LSTM with `recompute=True`: the same values and gradients without a tape between the passes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from tests.python.recurrent.reference import relative_error
from warpalign.recurrent import LSTM

T, B, WIDTH, H = 70, 3, 4, 6  # three chunks on a GPU, the last one not full
CASES: dict[str, dict[str, Any]] = {
    "stack": {"num_layers": 2, "activation": "hard", "bias": False},
    "batch_first": {"batch_first": True, "layer_norm": True, "zoneout": 0.2},
    "projection": {"num_layers": 2, "proj_size": 2, "rw_dropout": 0.3},
    "bidirectional": {"bidirectional": True},
    "dropout": {"num_layers": 2, "dropout": 0.3},
}


def modules(dtype: torch.dtype = torch.float64, **options: Any) -> list[LSTM]:
    """Without and with recompute, and the same weights."""
    torch.manual_seed(1)
    both = [
        LSTM(WIDTH, H, return_all_states=True, recompute=r, dtype=dtype, **options) for r in (False, True)
    ]
    both[1].load_state_dict(both[0].state_dict())
    return both


def results_of(module: LSTM, x: Any, hx: Any, **given: Any) -> tuple[list[Tensor], list[Tensor]]:
    """All results, and the gradients by x, hx and all weights."""
    leaf = (x.data if isinstance(x, PackedSequence) else x).detach().clone().requires_grad_()
    states = tuple(s.clone().requires_grad_() for s in hx)
    torch.manual_seed(2)  # the masks
    y, (h_n, c_n), (h_all, c_all) = module(
        x._replace(data=leaf) if isinstance(x, PackedSequence) else leaf, states, **given
    )
    values = [y.data if isinstance(y, PackedSequence) else y, h_n, c_n, h_all, c_all]
    torch.manual_seed(3)
    loss = sum((v * torch.randn(v.shape)).sum() for v in values)
    return values, list(torch.autograd.grad(loss, [leaf, *states, *module.parameters()]))


def states_of(module: LSTM, batch: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    cells = module.num_layers * (1 + module.bidirectional)
    return (
        torch.randn(cells, batch, module.proj_size or H, dtype=dtype),
        torch.randn(cells, batch, H, dtype=dtype),
    )


@pytest.mark.parametrize("given", ["all steps", "lengths", "resets", "packed"])
@pytest.mark.parametrize("name", CASES)
def test_results_are_those_with_a_tape(name: str, given: str) -> None:
    with_tape, without = modules(**CASES[name])
    training = name in ("dropout", "projection")
    x: Any = torch.randn(T, B, WIDTH, dtype=torch.float64)
    hx, lengths = states_of(with_tape, B), torch.tensor([T, 33, 0])
    options: dict[str, Any] = {}
    if given == "lengths":
        options["input_lengths"] = lengths
    if given == "resets":
        options["resets"] = torch.rand((B, T) if with_tape.batch_first else (T, B)) < 0.1
    if given == "packed":
        x = pack_padded_sequence(x, torch.tensor([T, 32, 3]))
    elif with_tape.batch_first:
        x = x.transpose(0, 1)
    found = []
    for module in (with_tape, without):
        found.append(results_of(module.train(training), x, hx, **options))
    assert all(map(torch.equal, found[1][0], found[0][0]))
    for is_, expected in zip(found[1][1], found[0][1], strict=True):
        torch.testing.assert_close(is_, expected, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_smaller_types(dtype: torch.dtype) -> None:
    bound = {torch.float32: 1e-6, torch.float16: 2**-9, torch.bfloat16: 2**-6}[dtype]
    with_tape, without = modules(dtype, num_layers=2)
    x = torch.randn(T, B, WIDTH).to(dtype)
    for cell_dtype in {dtype, torch.float32}:
        h0, c0 = states_of(with_tape, B)
        hx = h0.to(dtype), c0.to(cell_dtype)
        (values, gradients), (others, expected) = (results_of(m, x, hx) for m in (without, with_tape))
        assert [v.dtype for v in (*values, *gradients)] == [v.dtype for v in (*others, *expected)]
        assert all(map(torch.equal, values, others))
        for is_, value in zip(gradients, expected, strict=True):
            assert relative_error(is_, value.double()) <= bound


def test_what_is_kept_between_the_passes() -> None:
    kept: list[int] = []
    for module in modules(torch.float32, num_layers=2):
        x, known = torch.randn(T, 16, WIDTH), {p.data_ptr() for p in module.parameters()}
        known.add(x.data_ptr())
        sizes: dict[int, int] = {}

        def keep(t: Tensor, known: set[int] = known, sizes: dict[int, int] = sizes) -> Tensor:
            if t.data_ptr() not in known:
                sizes[t.data_ptr()] = t.numel() * t.element_size()
            return t

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
            y = module(x)[0]
        kept.append(sum(sizes.values()))
        y.sum().backward()
    assert 0 < kept[1] < 0.05 * kept[0]


def test_opcheck() -> None:
    torch.manual_seed(4)
    weights = [torch.randn(4 * H, n).requires_grad_() for n in (WIDTH, H)]
    x, hx = torch.randn(T, B, WIDTH), [torch.randn(1, B, H) for _ in range(2)]
    given = (x, weights, *hx, torch.tensor([T, 40, 2], dtype=torch.int32), None, None, None)
    op, settings = torch.ops.warpalign.lstm.default, {"bias": False, "recompute": True}
    torch.library.opcheck(op, (*given, None, True, True), settings)
    results = [t.detach() for t in op(*given, None, True, True, **settings)]
    plain = (x, [w.detach() for w in weights], *given[2:], results[0], results[-1])
    back = torch.ops.warpalign.lstm_backward.default
    torch.library.opcheck(back, (*plain, *results[:5], True, True, True, True), settings)


def test_compile_and_bad_lengths() -> None:
    torch._dynamo.reset()
    module = LSTM(WIDTH, H, recompute=True, dtype=torch.float64)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    x = torch.randn(T, B, WIDTH, dtype=torch.float64)
    gradients = [
        torch.autograd.grad(m(x)[0].square().sum(), list(module.parameters())) for m in (module, compiled)
    ]
    torch.testing.assert_close(*gradients)
    for wrong in (-1, T + 1):
        with pytest.raises(
            ValueError, match=f"input_lengths: expected lengths from 0 to T = \\d+, got {wrong} at index 1"
        ):
            module(x, input_lengths=torch.tensor([T, wrong, 1]))
    x.requires_grad_()
    second = []
    for recompute in (True, False):
        module._options["recompute"] = recompute
        first = torch.autograd.grad(module(x)[0].square().sum(), x, create_graph=True)[0]
        second.append(torch.autograd.grad(first.square().sum(), x)[0])
    torch.testing.assert_close(*second)
