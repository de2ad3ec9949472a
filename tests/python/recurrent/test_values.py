"""The LSTM's values and gradients: against torch.nn.LSTM, and against float64 next to the plain loop."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tests.python.recurrent.reference import plain_lstm, relative_error
from warpalign.recurrent import LSTM, HardLSTM, LSTMCell, LSTMWeights, lstm


def results_of(module: nn.Module, x: Any, hx: tuple[Tensor, Tensor], factors: list[Tensor]) -> list[Tensor]:
    """y, h_n, c_n, and the gradients by x, hx and all weights."""
    leaf = (x.data if isinstance(x, nn.utils.rnn.PackedSequence) else x).detach().clone().requires_grad_()
    state = tuple(s.clone().requires_grad_() for s in hx)
    given = x._replace(data=leaf) if isinstance(x, nn.utils.rnn.PackedSequence) else leaf
    y, (h_n, c_n) = module(given, state)
    y = y.data if isinstance(y, nn.utils.rnn.PackedSequence) else y
    loss = sum((s * factor).sum() for s, factor in zip((y, h_n, c_n), factors, strict=True))
    return [y, h_n, c_n, *torch.autograd.grad(loss, [leaf, *state, *module.parameters()])]


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("projection", [0, 4])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("form", ["padded", "batch_first", "packed", "packed_unsorted"])
def test_parity_with_torch(layers: int, bidirectional: bool, projection: int, bias: bool, form: str) -> None:
    torch.manual_seed(layers)
    arguments: dict[str, Any] = {
        "bias": bias,
        "batch_first": form == "batch_first",
        "bidirectional": bidirectional,
        "proj_size": projection,
        "dtype": torch.float64,
    }
    theirs, ours = (kind(5, 7, layers, **arguments) for kind in (nn.LSTM, LSTM))
    ours.load_state_dict(theirs.state_dict(), strict=True)
    x: Any = torch.randn(6, 3, 5, dtype=torch.float64)
    cells, width = layers * (1 + bidirectional), projection or 7
    hx = tuple(torch.randn(cells, 3, size, dtype=torch.float64) for size in (width, 7))
    rows: tuple[int, ...] = (6, 3)
    if form == "batch_first":
        x, rows = x.transpose(0, 1), (3, 6)
    if form.startswith("packed"):
        lengths = [6, 3, 1] if form == "packed" else [2, 6, 3]
        x = pack_padded_sequence(x, torch.tensor(lengths), enforce_sorted=form == "packed")
        rows = (sum(lengths),)
    factors = [
        torch.randn(*rows, width * (1 + bidirectional)),
        torch.randn_like(hx[0]),
        torch.randn_like(hx[1]),
    ]
    for is_, expected in zip(*(results_of(m, x, hx, factors) for m in (ours, theirs)), strict=True):
        torch.testing.assert_close(is_, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("activation", ["soft", "hard"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("steps", "batch", "size", "hidden", "directions", "projected"),
    [
        (40, 4, 20, 33, 1, False),
        (12, 9, 64, 130, 2, False),
        (100, 1, 8, 64, 1, False),
        (20, 3, 30, 50, 1, True),
    ],
)
def test_error_is_at_most_twice_the_plain_loops(
    activation: Any,
    dtype: torch.dtype,
    steps: int,
    batch: int,
    size: int,
    hidden: int,
    directions: int,
    projected: bool,
) -> None:
    torch.manual_seed(steps)
    output = hidden // 2 if projected else hidden

    def drawn(*shape: int) -> Tensor:
        return (torch.randn(shape, dtype=torch.float64) / shape[-1] ** 0.5).to(dtype)

    weights = [
        LSTMWeights(
            drawn(4 * hidden, size),
            drawn(4 * hidden, output),
            drawn(4 * hidden),
            drawn(4 * hidden),
            drawn(output, hidden) if projected else None,
        )
        for _ in range(directions)
    ]
    leaves = [
        torch.randn(steps, batch, size).to(dtype),
        torch.randn(directions, batch, output).to(dtype),
        torch.randn(directions, batch, hidden).to(dtype),
        *(t for w in weights for t in w if t is not None),
    ]
    factors = [
        torch.randn(steps, batch, output * directions),
        torch.randn(directions, batch, output),
        torch.randn(directions, batch, hidden),
    ]

    def run(function: Any, dtype: torch.dtype) -> list[Tensor]:
        given = [leaf.to(dtype).requires_grad_() for leaf in leaves]
        rest = iter(given[3:])
        of_weights = [LSTMWeights(*(None if t is None else next(rest) for t in w)) for w in weights]
        values = function(*given[:3], of_weights)
        loss = sum((v * f.to(dtype)).sum() for v, f in zip(values, factors, strict=True))
        return [*values, *torch.autograd.grad(loss, given)]

    def ours(x: Tensor, h0: Tensor, c0: Tensor, w: Any) -> Any:
        return lstm(x, w, (h0, c0), activation=activation, bidirectional=directions == 2)[:3]

    def plain(x: Tensor, h0: Tensor, c0: Tensor, w: Any) -> Any:
        return plain_lstm(x, w, h0, c0, hard=activation == "hard", directions=directions)

    expected = run(plain, torch.float64)
    floor = {torch.float32: 1e-6, torch.float16: 2**-11, torch.bfloat16: 2**-8}[dtype]
    for is_, naive, exact in zip(run(ours, dtype), run(plain, dtype), expected, strict=True):
        assert is_.dtype == dtype
        assert relative_error(is_, exact) <= 2 * relative_error(naive, exact) + floor


@pytest.mark.parametrize("options", [{}, {"layer_norm": True, "activation": "hard"}, {"proj_size": 4}])
def test_lengths_are_packed_sequences(options: dict[str, Any]) -> None:
    torch.manual_seed(1)
    module = LSTM(5, 7, 2, bidirectional=True, **options)
    x, lengths = torch.randn(6, 4, 5), torch.tensor([3, 6, 1, 4])
    y, (h_n, c_n) = module(x, input_lengths=lengths)
    packed, states = module(pack_padded_sequence(x, lengths, enforce_sorted=False))
    assert torch.equal(pad_packed_sequence(packed, total_length=6)[0], y)
    assert torch.equal(states[0], h_n) and torch.equal(states[1], c_n)
    poisoned = x.clone()
    poisoned[3:, 0] = torch.nan
    assert torch.equal(module(poisoned, input_lengths=lengths)[0], y)
    assert not y[3:, 0].any()


def test_length_zero_hands_the_state_on() -> None:
    module, x = LSTM(5, 7), torch.randn(3, 2, 5)
    hx = torch.randn(1, 2, 7, requires_grad=True), torch.randn(1, 2, 7, requires_grad=True)
    y, (h_n, c_n) = module(x, hx, input_lengths=torch.tensor([0, 3]))
    assert not y[:, 0].any()
    assert torch.equal(h_n[:, 0], hx[0][:, 0]) and torch.equal(c_n[:, 0], hx[1][:, 0])
    by_h, by_c = torch.autograd.grad((h_n * 2 + c_n * 3).sum(), hx)
    assert (by_h[:, 0] == 2).all() and (by_c[:, 0] == 3).all()


@pytest.mark.parametrize("batch_first", [False, True])
def test_resets_cut_the_sequence(batch_first: bool) -> None:
    torch.manual_seed(2)
    module = LSTM(5, 7, 2, batch_first=batch_first)
    x, hx = torch.randn(6, 3, 5), (torch.randn(2, 3, 7), torch.randn(2, 3, 7))
    resets = torch.zeros(6, 3, dtype=torch.bool)
    resets[4, 1] = True

    def run(x: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
        y, (h_n, _) = module(x.transpose(0, 1) if batch_first else x, hx, **options)
        return y.transpose(0, 1) if batch_first else y, h_n

    y, h_n = run(x, resets=resets.T if batch_first else resets)
    whole, tail = run(x)[0], run(x[4:])[0]
    assert torch.equal(y[:4], whole[:4]) and torch.equal(y[:, 0], whole[:, 0])
    assert torch.equal(y[4:, 1], tail[:, 1])
    assert torch.equal(h_n[-1, 1], tail[-1, 1])


def test_one_sequence_without_a_batch() -> None:
    for kind in (nn.LSTM, LSTM):
        torch.manual_seed(3)
        module, x = kind(5, 7, 2, bidirectional=True), torch.randn(6, 5)
        y, (h_n, c_n) = module(x, (torch.ones(4, 7), torch.ones(4, 7)))
        if kind is nn.LSTM:
            expected = y, h_n, c_n
    for is_, value in zip((y, h_n, c_n), expected, strict=True):
        torch.testing.assert_close(is_, value)
    resets = torch.tensor([False, False, True, False, False, False])
    cut = module(x, resets=resets)[0][2:, :7]
    assert torch.equal(LSTM.forward(module, x[:, None], resets=resets[:, None])[0][2:, 0, :7], cut)


def test_all_states() -> None:
    module = LSTM(5, 7, 2, bidirectional=True, return_all_states=True)
    y, (h_n, c_n), (h_all, c_all) = module(torch.randn(6, 3, 5))
    assert h_all.shape == (4, 6, 3, 7) and c_all.shape == (4, 6, 3, 7)
    assert torch.equal(torch.cat([h_all[2], h_all[3]], -1), y)
    for cell in range(4):
        last = 0 if cell % 2 else -1
        assert torch.equal(h_all[cell, last], h_n[cell]) and torch.equal(c_all[cell, last], c_n[cell])
    one = module(torch.randn(6, 5))
    assert one[2][0].shape == (4, 6, 7)


def test_cell_is_torchs() -> None:
    torch.manual_seed(4)
    theirs, ours = (kind(5, 7, dtype=torch.float64) for kind in (nn.LSTMCell, LSTMCell))
    ours.load_state_dict(theirs.state_dict(), strict=True)
    x, hx = torch.randn(3, 5).double(), (torch.randn(3, 7).double(), torch.randn(3, 7).double())
    for given in ((x, hx), (x, None), (x[0], (hx[0][0], hx[1][0]))):
        for is_, expected in zip(ours(*given), theirs(*given), strict=True):
            torch.testing.assert_close(is_, expected, rtol=1e-12, atol=1e-13)
    sequence = HardLSTM(5, 7).double()
    cell = LSTMCell(5, 7, activation="hard").double()
    cell.load_state_dict({name.removesuffix("_l0"): value for name, value in sequence.state_dict().items()})
    assert torch.equal(cell(x, hx)[0], sequence(x[None], tuple(s[None] for s in hx))[0][0])


def test_masks_follow_the_generator() -> None:
    module = LSTM(5, 16, 2, dropout=0.3, rw_dropout=0.2, zoneout=(0.3, 0.1))
    x = torch.randn(6, 3, 5)
    torch.manual_seed(5)
    first, second = module(x)[0], module(x)[0]
    torch.manual_seed(5)
    assert torch.equal(module(x)[0], first)
    assert not torch.equal(first, second)
    module.eval()
    state = torch.get_rng_state()
    assert torch.equal(module(x)[0], module(x)[0])
    assert torch.equal(torch.get_rng_state(), state)
    # What is kept: h[t] = h[t-1] for 0.3 of the units.
    kept = LSTM(5, 1000, zoneout=(0.3, 0.0))
    y = kept(torch.randn(2, 40, 5))[0]
    assert abs((y[0] == y[1]).float().mean() - 0.3) < 0.012  # five standard deviations of 40000 draws


def test_state_dtype() -> None:
    for dtype in (torch.float16, torch.bfloat16):
        x = torch.randn(6, 3, 5).to(dtype)
        for state_dtype, expected in ((None, dtype), (dtype, dtype), (torch.float32, torch.float32)):
            y, (h_n, c_n) = LSTM(5, 7, dtype=dtype, state_dtype=state_dtype)(x)
            assert (y.dtype, h_n.dtype, c_n.dtype) == (dtype, dtype, expected)
        hx = torch.zeros(1, 3, 7, dtype=dtype), torch.zeros(1, 3, 7)
        assert LSTM(5, 7, dtype=dtype)(x, hx)[1][1].dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("batch_first", [False, True])
def test_stream_is_one_call(dtype: torch.dtype, batch_first: bool) -> None:
    torch.manual_seed(6)
    module = HardLSTM(
        5,
        40,
        3,
        batch_first=batch_first,
        zoneout=0.1,
        proj_size=9,
        dtype=dtype,
        state_dtype=torch.float32 if dtype == torch.bfloat16 else None,
    ).eval()
    x = torch.randn(7, 2, 5).to(dtype)

    def of_module(time_first: Tensor) -> Tensor:
        return time_first.transpose(0, 1) if batch_first else time_first

    stream = module.stream(2)
    h, c = stream.h, stream.c
    y, (h_n, c_n) = module(of_module(x))
    expected = of_module(y)
    # Two steps of two rows fit both orders of the axes.
    steps = [stream.step(x[t]) for t in range(4)]
    steps += [*of_module(stream.step(of_module(x[4:6]))), *of_module(stream.step(of_module(x[6:])))]
    assert torch.equal(torch.stack(steps), expected)
    assert torch.equal(stream.h, h_n) and torch.equal(stream.c, c_n)
    assert h is stream.h and c is stream.c
    stream.reset(torch.tensor([True, False]))
    again = stream.step(x[0])
    assert torch.equal(again[0], expected[0, 0]) and not torch.equal(again[1], expected[0, 1])
    stream.reset()
    assert torch.equal(stream.step(x[0]), expected[0])


def test_the_state_of_a_stream_stays_in_its_place() -> None:
    """References to it see every step, as a CUDA graph does; and gradients do not take a new state for an old one."""
    torch.manual_seed(7)
    module, x = LSTM(5, 7, 2).eval(), torch.randn(6, 3, 5)
    stream = module.stream(3)
    h, c = stream.h, stream.c
    places = h.data_ptr(), c.data_ptr()
    for t in range(6):
        stream.step(x[t])
        _, (h_n, c_n) = module(x[: t + 1])
        torch.testing.assert_close((h, c), (h_n, c_n))
    saved = h.clone(), c.clone()
    again = copy.deepcopy(stream)
    stream.reset(torch.tensor([False, True, False]))
    assert not h[:, 1].any() and not c[:, 1].any() and torch.equal(h[:, ::2], saved[0][:, ::2])
    stream.reset(torch.tensor([-1, 0], dtype=torch.int32))
    assert not h.any() and not c.any()
    assert torch.equal(again.h, saved[0])  # a copy has a state of its own
    stream.h, stream.c = saved  # values are copied
    saved[0].zero_()
    assert torch.equal(stream.step(x[0]), again.step(x[0]))
    stream.reset()
    assert not h.any() and not c.any()
    assert (stream.h.data_ptr(), stream.c.data_ptr()) == (h.data_ptr(), c.data_ptr()) == places
    scale = torch.ones(1, requires_grad=True)
    loss = (stream.h * scale).sum()
    stream.step(x[0])
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_streams_of_inference_mode_go_on_outside() -> None:
    module, x = LSTM(5, 7).eval(), torch.randn(6, 3, 5)
    with torch.inference_mode():
        stream = module.stream(3)
        first = stream.step(x[0])
    stream.step(x[1])
    stream.reset()
    assert torch.equal(stream.step(x[0]), first)


@pytest.mark.parametrize("kind", [list, tuple, np.array, lambda n: torch.tensor(n, dtype=torch.uint8)])
def test_lengths_of_any_kind(kind: Any) -> None:
    module, x = LSTM(5, 7), torch.randn(6, 3, 5)
    expected, _ = module(x, input_lengths=torch.tensor([4, 0, 6]))
    assert torch.equal(module(x, input_lengths=kind([4, 0, 6]))[0], expected)


def test_strides_and_empty_batches() -> None:
    module = LSTM(5, 7)
    x = torch.randn(5, 3, 12)[:, :, ::2][:, :, :5].transpose(0, 1)
    assert torch.equal(module(x)[0], module(x.contiguous())[0])
    broadcast = torch.randn(6, 1, 5).expand(6, 4, 5)
    assert torch.equal(module(broadcast)[0], module(broadcast.contiguous())[0])
    y, (h_n, c_n) = module(torch.randn(6, 0, 5))
    assert y.shape == (6, 0, 7) and h_n.shape == c_n.shape == (1, 0, 7)
    gradient = torch.autograd.grad(y.sum(), module.weight_ih_l0)[0]
    assert not gradient.any()


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_change_no_bit(threads: int) -> None:
    module, x = LSTM(40, 200, 2, bidirectional=True), torch.randn(9, 8, 40)
    before = torch.get_num_threads()
    try:
        results = []
        for count in (1, threads):
            torch.set_num_threads(count)
            y = module(x)[0]
            results.append([y, *torch.autograd.grad(y.square().sum(), list(module.parameters()))])
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_a_generator_decides_the_masks(device: torch.device) -> None:
    """An int seeds a new generator for the call; a generator goes on from where it is."""
    x = torch.randn(6, 3, 5, device=device)
    weights = [LSTMWeights(torch.randn(16, 5, device=device), torch.randn(16, 4, device=device))]

    def output(generator: Any) -> Tensor:
        found = lstm(x, weights, zoneout=0.4, training=True, generator=generator).output
        assert isinstance(found, Tensor)
        return found

    own = torch.Generator(device).manual_seed(3)
    first = output(own)
    assert torch.equal(output(3), first)
    assert not torch.equal(output(own), first)
    assert not torch.equal(output(4), first)
