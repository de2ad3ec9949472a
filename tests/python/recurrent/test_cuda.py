"""The LSTM on CUDA: against the CPU path, which tests without a GPU hold to the reference."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.python.recurrent.reference import Tf32Product, plain_lstm, relative_error, rounded_tf32
from warpalign.recurrent import LSTM, LSTMWeights, lstm

pytestmark = pytest.mark.gpu


def results_of(module: LSTM, x: Tensor, hx: tuple[Tensor, Tensor], **given: Any) -> list[Tensor]:
    """All results and gradients, in float64 on the CPU."""
    leaves = [t.detach().clone().requires_grad_() for t in (x, *hx)]
    torch.manual_seed(3)  # the masks' seed
    y, (h_n, c_n), (h_all, c_all) = module(leaves[0], tuple(leaves[1:]), **given)
    torch.manual_seed(4)
    values = [y, h_n, c_n, h_all, c_all]
    factors = [torch.randn(v.shape, dtype=torch.float64).to(v) for v in values]
    loss = sum((v * factor).sum() for v, factor in zip(values, factors, strict=True))
    gradients = torch.autograd.grad(loss, [*leaves, *module.parameters()])
    # Without its graph: a graph that lives on ties its parameters to the default stream, which no capture allows.
    return [t.detach().double().cpu() for t in (*values, *gradients)]


CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "stack": {"num_layers": 3, "bidirectional": True},
    "projection": {"num_layers": 2, "proj_size": 9, "activation": "hard"},
    "layer norm": {"layer_norm": True, "bidirectional": True},
    "all": {"num_layers": 2, "proj_size": 9, "layer_norm": True, "zoneout": (0.2, 0.1)},
}


@pytest.mark.parametrize("name", CASES)
def test_both_devices_agree(cuda: torch.device, name: str) -> None:
    torch.manual_seed(1)
    module = LSTM(13, 37, dtype=torch.float64, return_all_states=True, **CASES[name]).eval()
    x = torch.randn(9, 11, 13, dtype=torch.float64)
    cells = module.num_layers * (1 + module.bidirectional)
    hx = tuple(torch.randn(cells, 11, size, dtype=torch.float64) for size in (module.proj_size or 37, 37))
    lengths, resets = torch.arange(11) % 10, torch.rand(9, 11) < 0.2
    expected = results_of(module, x, hx, input_lengths=lengths, resets=resets)
    theirs = copy.deepcopy(module).to(cuda)
    hx = tuple(s.to(cuda) for s in hx)
    is_ = results_of(theirs, x.to(cuda), hx, input_lengths=lengths.to(cuda), resets=resets.to(cuda))
    for a, b in zip(is_, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("hidden", "dtype"), [(40, torch.float64), (40, torch.float16), (136, torch.float16)]
)
def test_layers_at_once(cuda: torch.device, hidden: int, dtype: torch.dtype) -> None:
    """Stacks of enough steps run on streams of their own: eager, in a graph, and beside a busy stream."""
    torch.manual_seed(1)
    module = LSTM(13, hidden, 4, dtype=dtype, return_all_states=True, batch_invariant=True).eval()
    x, lengths = torch.randn(70, 5, 13).to(dtype), torch.tensor([70, 0, 33, 69, 12])
    hx = torch.randn(4, 5, hidden).to(dtype), torch.randn(4, 5, hidden).to(dtype)
    expected = results_of(module.double(), x.double(), tuple(s.double() for s in hx), input_lengths=lengths)  # type: ignore[arg-type]
    theirs = module.to(dtype).to(cuda)
    of_device = x.to(cuda), (hx[0].to(cuda), hx[1].to(cuda))
    is_ = results_of(theirs, *of_device, input_lengths=lengths.to(cuda))
    for a, b in zip(is_, expected, strict=True):
        assert relative_error(a, b) <= {torch.float64: 1e-11, torch.float16: 1e-2}[dtype]

    def step() -> list[Tensor]:
        leaf = of_device[0].detach().requires_grad_()
        y = theirs(leaf, of_device[1])[0]
        return [y.detach(), *torch.autograd.grad(y.square().sum(), [leaf, *theirs.parameters()])]

    first, other, side = step(), torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.stream(other):
        torch.cuda._sleep(20_000_000)
        busy = torch.ones(1 << 24, device=cuda).cumsum(0)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        again = step()
    torch.cuda.synchronize()
    assert busy[-1] == 1 << 24 and all(map(torch.equal, again, first))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    assert all(map(torch.equal, captured, first))


@pytest.mark.parametrize(
    ("dtype", "batch", "hidden"),
    [(torch.float64, 300, 72), (torch.float32, 1024, 132), (torch.bfloat16, 520, 520)],
)
def test_layers_at_once_by_products(cuda: torch.device, dtype: torch.dtype, batch: int, hidden: int) -> None:
    """Large batches: the products of a layer's steps are on its own stream, eager, on another stream and in a graph."""
    torch.manual_seed(4)
    exact = nn.LSTM(24, hidden, 2, dtype=torch.float64, device=cuda)
    module = LSTM(24, hidden, 2, dtype=dtype, device=cuda)
    exact.load_state_dict({name: w.double() for name, w in module.state_dict().items()})
    x = torch.randn(36, batch, 24, device=cuda).to(dtype)

    def step(of: nn.Module, leaf: Tensor) -> list[Tensor]:
        leaf = leaf.detach().requires_grad_()
        y = of(leaf)[0]
        return [y.detach(), *torch.autograd.grad(y.square().sum(), [leaf, *of.parameters()])]

    expected, eager = step(exact, x.double()), step(module, x)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        beside = step(module, x)
        assert torch.cuda.current_stream() == side  # what the products' streams give back
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step(module, x)
    graph.replay()
    with torch.no_grad():
        without_tape = module(x)[0]
    limit = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 5e-2}[dtype]
    for results in (eager, beside, captured, [without_tape]):
        for a, b in zip(results, expected, strict=False):
            assert relative_error(a, b) <= limit


@pytest.mark.parametrize("batch", [6, 40])  # single tiles of rows; and several, whose blocks share units
@pytest.mark.parametrize("given", ["all steps", "lengths", "masks"])
def test_two_layers_at_a_time(cuda: torch.device, given: str, batch: int) -> None:
    """A chunk of steps of each in a launch: beside layers in turn, which resets ask for; eager, and in a graph."""
    torch.manual_seed(6)
    options: dict[str, Any] = {"dropout": 0.2, "zoneout": 0.1} if given == "masks" else {}
    module = LSTM(24, 520, 3, dtype=torch.float16, device=cuda, **options)
    exact = LSTM(24, 520, 3, dtype=torch.float64, device=cuda, **options)
    exact.load_state_dict(module.state_dict())
    x = torch.randn(140, batch, 24, device=cuda).half()
    more = (
        {"input_lengths": torch.arange(batch, device=cuda) * 140 // (batch - 1)} if given == "lengths" else {}
    )
    no_resets = torch.zeros(140, batch, dtype=torch.bool, device=cuda)

    def step(of: LSTM, leaf: Tensor, **given: Any) -> list[Tensor]:
        torch.manual_seed(3)
        return step_of_seed(of, leaf, **given)

    def step_of_seed(of: LSTM, leaf: Tensor, **given: Any) -> list[Tensor]:
        leaf = leaf.detach().requires_grad_()
        y, (h_n, c_n) = of(leaf, **given)
        loss = y.float().square().sum() + h_n.sum() + c_n.sum()
        return [y.detach(), h_n.detach(), c_n.detach(), *torch.autograd.grad(loss, [leaf, *of.parameters()])]

    expected = step(exact, x.double(), **more)
    in_turn = step(module, x, resets=no_resets, **more)
    eager = step(module, x, **more)
    for ours, theirs, right in zip(eager, in_turn, expected, strict=True):
        assert relative_error(ours, right) <= 2 * relative_error(theirs, right) + 2**-11
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step_of_seed(module, x, **more)
    torch.cuda.synchronize()  # see test_a_graph_replays_with_new_masks()
    torch.manual_seed(3)
    graph.replay()
    with torch.no_grad():
        torch.manual_seed(3)
        without_tape = module(x, **more)[0]
    assert all(map(torch.equal, captured, eager)) and torch.equal(without_tape, eager[0])


def test_masks_are_the_cpus(cuda: torch.device) -> None:
    torch.manual_seed(2)
    inputs = torch.randn(6, 5, 4, dtype=torch.float64)
    weights = [LSTMWeights(*(torch.randn(48, n, dtype=torch.float64) for n in (w, 12))) for w in (4, 12)]
    flat = [t for w in weights for t in w if t is not None]
    settings = {"bias": False, "training": True, "dropout": 0.3, "weight_dropout": 0.2}
    settings |= {"zoneout_hidden": 0.3, "zoneout_cell": 0.2}

    def run(device: torch.device) -> list[Tensor]:
        seed = torch.tensor(1234567, device=device)
        of_device = [t.to(device) for t in flat]
        nothing = (None,) * 5
        out = torch.ops.warpalign.lstm(
            inputs.to(device), of_device, *nothing, seed, None, True, False, **settings
        )
        return [t.cpu() for t in out[:5]]

    for a, b in zip(run(cuda), run(torch.device("cpu")), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "shape",
    [
        (40, 4, 20, 33),
        (12, 9, 64, 136),
        (30, 8, 128, 512),
        (10, 33, 64, 256),
        (10, 40, 32, 768),  # clusters that share units
        (6, 456, 32, 512),  # a product for each step
        (20, 300, 16, 90),  # single blocks of four rows
    ],
)
@pytest.mark.parametrize("normalised", [False, True])
def test_error_is_at_most_twice_the_plain_loops(
    cuda: torch.device, dtype: torch.dtype, shape: tuple[int, int, int, int], normalised: bool
) -> None:
    torch.manual_seed(5)
    steps, batch, size, hidden = shape
    weights = [torch.randn(4 * hidden, n, dtype=torch.float64) / n**0.5 for n in (size, hidden)]
    leaves = [
        torch.randn(steps, batch, size, dtype=torch.float64),
        *(torch.randn(1, batch, hidden, dtype=torch.float64) for _ in range(2)),
        *weights,
    ]
    if normalised:
        leaves += [torch.rand(n, dtype=torch.float64) + 0.5 for n in (4 * hidden, 4 * hidden, hidden)]
        leaves += [torch.randn(hidden, dtype=torch.float64) / 4]
    leaves = [leaf.to(cuda, dtype) for leaf in leaves]
    factor = torch.randn(steps, batch, hidden, dtype=torch.float64, device=cuda)

    def run(function: Any, dtype: torch.dtype) -> list[Tensor]:
        x, h0, c0, ih, hh, *ln = given = [leaf.detach().to(dtype).requires_grad_() for leaf in leaves]
        w = LSTMWeights(ih, hh)
        if ln:
            w = w._replace(ln_ih=ln[0], ln_hh=ln[1], ln_cell=ln[2], ln_cell_bias=ln[3])
        y, h_n, c_n = function(x, [w], h0, c0)
        loss = (y * factor.to(dtype)).sum() + h_n.sum() + c_n.sum()
        return [y, h_n, c_n, *torch.autograd.grad(loss, given)]

    expected = run(plain_lstm, torch.float64)
    is_ = run(lambda x, w, h0, c0: lstm(x, w, (h0, c0))[:3], dtype)
    floor = {torch.float32: 1e-6, torch.float16: 2**-11, torch.bfloat16: 2**-8}[dtype]
    for ours, naive, exact in zip(is_, run(plain_lstm, dtype), expected, strict=True):
        assert relative_error(ours, exact) <= 2 * relative_error(naive, exact) + floor


@pytest.mark.parametrize("precision", ["highest", "high", "medium"])
@pytest.mark.parametrize("hidden", [72, 1024, 1536])
def test_steps_by_tf32(cuda: torch.device, precision: str, hidden: int) -> None:
    """With "medium" steps of streams and of calls round factors to TF32, but those of one row."""
    torch.manual_seed(7)
    module = LSTM(40, hidden, 2, device=cuda, precision=precision).eval()
    weights = [
        LSTMWeights(*(getattr(module, f"{name}_l{k}") for name in ("weight_ih", "weight_hh")))
        for k in range(2)
    ]
    biases = [
        {f"bias_{n}": getattr(module, f"bias_{n}_l{k}").double() for n in ("ih", "hh")} for k in range(2)
    ]
    for batch in (1, 2, 9, 17, 40, 64):
        x, h0, c0 = (torch.randn(shape, device=cuda) for shape in ((1, batch, 40), *[(2, batch, hidden)] * 2))

        def run(
            change: Callable[[Tensor], Tensor], given: tuple[Tensor, Tensor, Tensor]
        ) -> tuple[Tensor, ...]:
            x, h0, c0 = given
            changed = [
                LSTMWeights(change(w.ih).double(), change(w.hh).double())._replace(**bias)
                for w, bias in zip(weights, biases, strict=True)
            ]
            return plain_lstm(change(x).double(), changed, change(h0).double(), c0.double())

        with torch.no_grad():
            exact = run(lambda t: t, (x, h0, c0))
            is_rounded = precision == "medium" and batch > 1
            naive = run(rounded_tf32, (x, h0, c0)) if is_rounded else exact
            stream = module.stream(batch)
            stream.h.copy_(h0), stream.c.copy_(c0)
            y = stream.step(x[0])
            for is_ in ((y[None], stream.h, stream.c), (module(x, (h0, c0))[0], *module(x, (h0, c0))[1][:2])):
                for ours, plain, expected in zip(is_, naive, exact, strict=True):
                    error = relative_error(ours, expected)
                    assert error <= 2 * relative_error(plain, expected) + 2e-6
                    assert error > 2e-6 or not is_rounded


@pytest.mark.parametrize("by_torch", [False, True])
@pytest.mark.parametrize(
    ("steps", "batch", "hidden", "layers", "output", "normalised"),
    [
        (12, 40, 264, 1, 264, False),  # small tiles forward
        (12, 24, 516, 1, 516, False),
        (9, 300, 200, 2, 140, False),
        (9, 300, 132, 1, 132, True),
        (20, 64, 516, 1, 516, False),
        (9, 200, 260, 2, 260, False),  # larger tiles
        (9, 300, 520, 1, 520, False),  # a product for each step, as torch makes it
    ],
)
def test_tf32_error_is_at_most_twice_that_of_rounded_factors(
    cuda: torch.device,
    monkeypatch: pytest.MonkeyPatch,
    steps: int,
    batch: int,
    hidden: int,
    layers: int,
    output: int,
    normalised: bool,
    by_torch: bool,
) -> None:
    """Steps by one product of TF32, asked for by torch and for its own products too, or of these steps alone."""
    torch.manual_seed(6)
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", by_torch)
    sizes = [32] + [output] * (layers - 1)
    weights = [
        LSTMWeights(
            *(torch.randn(4 * hidden, n, device=cuda) / n**0.5 for n in (size, output)),
            hr=torch.randn(output, hidden, device=cuda) / hidden**0.5 if output < hidden else None,
            ln_ih=torch.rand(4 * hidden, device=cuda) + 0.5 if normalised else None,
            ln_hh=torch.rand(4 * hidden, device=cuda) + 0.5 if normalised else None,
            ln_cell=torch.rand(hidden, device=cuda) + 0.5 if normalised else None,
            ln_cell_bias=torch.randn(hidden, device=cuda) / 4 if normalised else None,
        )
        for size in sizes
    ]
    x = torch.randn(steps, batch, sizes[0], device=cuda)
    states = [torch.randn(layers, batch, n, device=cuda) for n in (output, hidden)]
    factor = torch.randn(steps, batch, output, device=cuda)

    def run(function: Any, dtype: torch.dtype) -> list[Tensor]:
        leaf, h0, c0 = leaves = [t.detach().to(dtype).requires_grad_() for t in (x, *states)]
        own = [
            LSTMWeights(*(None if t is None else t.detach().to(dtype).requires_grad_() for t in w))
            for w in weights
        ]
        y, h_n, c_n = function(leaf, own, h0, c0)
        loss = (y * factor.to(dtype)).sum() + h_n.sum() + c_n.sum()
        leaves += [t for w in own for t in w if t is not None]
        return [y, h_n, c_n, *torch.autograd.grad(loss, leaves)]

    precision: Any = None if by_torch else "medium"
    is_ = run(lambda x, w, h0, c0: lstm(x, w, (h0, c0), precision=precision)[:3], torch.float32)
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)
    rounded = run(partial(plain_lstm, product=Tf32Product.apply), torch.float32)
    exact = run(plain_lstm, torch.float64)
    for ours, naive, expected in zip(is_, rounded, exact, strict=True):
        assert relative_error(ours, expected) <= 2 * relative_error(naive, expected) + 1e-6
    if by_torch or hidden < 520:  # the steps have no more bits than that either
        assert relative_error(is_[0], exact[0]) >= relative_error(rounded[0], exact[0]) / 4


def test_a_graph_replays_with_new_masks(cuda: torch.device) -> None:
    module = LSTM(8, 24, 2, dropout=0.5, zoneout=0.1, device=cuda)
    x = torch.randn(7, 3, 8, device=cuda, requires_grad=True)

    def step() -> Tensor:
        x.grad = None
        y = module(x)[0]
        y.square().sum().backward()
        return y

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    x.grad = None
    with torch.cuda.graph(graph):
        y = module(x)[0]
        y.square().sum().backward()
    # The beginning of a capture writes the generator's seed on the capture's stream, and a replay writes it on this one.
    # PyTorch does not order the two: on a busy GPU the first replay would draw with the seed of the capture.
    torch.cuda.synchronize()
    results: list[tuple[Tensor, ...]] = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        graph.replay()
        assert x.grad is not None
        results.append((y.clone(), x.grad.clone()))
    assert torch.equal(results[0][0], results[1][0]) and torch.equal(results[0][1], results[1][1])
    assert not torch.equal(results[0][0], results[2][0])
    assert torch.isfinite(results[2][1]).all()


@pytest.mark.parametrize(
    ("hidden", "projection", "dtype"),
    [(40, 0, torch.bfloat16), (136, 0, torch.bfloat16), (272, 136, torch.bfloat16), (72, 0, torch.float32)],
)
def test_a_row_has_its_bits_in_every_batch(
    cuda: torch.device, hidden: int, projection: int, dtype: torch.dtype
) -> None:
    module = LSTM(16, hidden, 2, proj_size=projection, batch_invariant=True, device=cuda, dtype=dtype)
    x = torch.randn(6, 19, 16, device=cuda, dtype=dtype)
    y = module(x)[0]
    for b in (0, 7, 18):
        assert torch.equal(module(x[:, b : b + 1])[0], y[:, b : b + 1])


def test_stream_autocast_and_compile(cuda: torch.device) -> None:
    module = LSTM(16, 40, 2, device=cuda).eval()
    x = torch.randn(6, 3, 16, device=cuda)
    expected = module(x)[0]
    stream = module.stream(3)
    y = torch.stack([stream.step(frame) for frame in x])
    torch.testing.assert_close(y, expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(torch.compile(module, fullgraph=True)(x)[0], expected, rtol=1e-5, atol=1e-6)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        half = module(x)[0]
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), expected, rtol=5e-2, atol=5e-2)


@pytest.mark.parametrize("batch", [1, 3, 40])
@pytest.mark.parametrize(
    ("hidden", "options"),
    [
        (24, {}),
        (264, {}),
        (18, {}),
        (40, {"layer_norm": True}),
        (40, {"proj_size": 16}),
        (256, {"batch_invariant": True}),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("steps", [1, 4])
def test_a_graph_of_a_step_advances_the_stream(
    cuda: torch.device, batch: int, hidden: int, options: dict[str, Any], dtype: torch.dtype, steps: int
) -> None:
    """A step in one launch for each layer, by other launches, and pieces of several steps."""
    torch.manual_seed(8)
    module = LSTM(16, hidden, 2, device=cuda, dtype=dtype, **options).eval()
    x = torch.randn(6, steps, batch, 16, device=cuda, dtype=dtype)
    eager, stream = module.stream(batch), module.stream(batch)
    rows = torch.arange(batch, device=cuda) % 2 == 0
    piece = x[0].clone()

    def step() -> Tensor:
        return stream.step(piece if steps > 1 else piece[0])

    step()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # what is captured has run before: loading a kernel can end a capture
        step(), stream.reset(rows)
    torch.cuda.current_stream().wait_stream(side)
    graph, resets = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = step()
    with torch.cuda.graph(resets):
        stream.reset(rows)
    stream.reset()

    def check(t: int, graph: torch.cuda.CUDAGraph = graph, y: Tensor = y) -> None:
        expected = eager.step(x[t] if steps > 1 else x[t, 0])
        piece.copy_(x[t])
        graph.replay()
        assert torch.equal(y, expected)
        assert torch.equal(stream.h, eager.h) and torch.equal(stream.c, eager.c)

    for t in range(6):
        check(t)
    stream.reset(rows), eager.reset(rows)
    check(0)
    resets.replay()
    eager.reset(rows.nonzero()[:, 0])
    check(1)
    stream.reset(), eager.reset()
    check(2)
    del graph, resets, y, check
    torch.cuda.empty_cache()
    found, expected = (s.step(x[3] if steps > 1 else x[3, 0]) for s in (stream, eager))
    assert torch.equal(found, expected) and torch.equal(stream.h, eager.h) and torch.equal(stream.c, eager.c)


@pytest.mark.parametrize("options", [{}, {"layer_norm": True}, {"proj_size": 3}])
def test_fake_tensors_know_the_tape(cuda: torch.device, options: dict[str, Any]) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    def tape_of() -> int:
        module = LSTM(5, 21, 2, dtype=torch.bfloat16, device=cuda, **options)
        y = module(torch.randn(7, 3, 5, device=cuda, dtype=torch.bfloat16))[0]
        return next(t.numel() for t in y.grad_fn.saved_tensors if t is not None and t.dtype == torch.uint8)

    real = tape_of()
    with FakeTensorMode():
        assert tape_of() == real


def test_parity_with_torch_and_a_checkpoint(cuda: torch.device) -> None:
    theirs = nn.LSTM(11, 33, 2, bidirectional=True, dtype=torch.float64, device=cuda)
    ours = LSTM(11, 33, 2, bidirectional=True, dtype=torch.float64, device=cuda)
    ours.load_state_dict(theirs.state_dict(), strict=True)
    x = torch.randn(8, 5, 11, dtype=torch.float64, device=cuda)
    gradients = []
    for module in (ours, theirs):
        y = module(x)[0]
        y.square().sum().backward()
        gradients.append([y, *(p.grad for p in module.parameters())])
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)
