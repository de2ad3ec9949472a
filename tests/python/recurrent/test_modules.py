"""The LSTM's modules as citizens of torch: checkpoints, copies, gradcheck, opcheck, compile, autocast."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from tests.python.helpers import OPCHECK_OF_SAVED
from tests.python.recurrent.models import Model
from warpalign.recurrent import LSTM, HardLSTM, LSTMCell, LSTMWeights, lstm, replace_lstm

DOUBLE: dict[str, Any] = {"dtype": torch.float64}


@pytest.mark.parametrize("projection", [0, 3])
@pytest.mark.parametrize("bias", [False, True])
def test_checkpoints_go_both_ways(projection: int, bias: bool) -> None:
    arguments: dict[str, Any] = {"bias": bias, "bidirectional": True, "proj_size": projection}
    modules = []
    for kind in (nn.LSTM, LSTM, HardLSTM):
        torch.manual_seed(1)
        modules.append(kind(5, 7, 2, **arguments))
    theirs, *ours = modules
    for module in ours:  # the same initial values from the same seed
        assert list(module.state_dict()) == list(theirs.state_dict())
        assert all(torch.equal(a, b) for a, b in zip(module.parameters(), theirs.parameters(), strict=True))
    other = nn.LSTM(5, 7, 2, **arguments)
    other.load_state_dict(ours[0].state_dict(), strict=True)
    ours[0].load_state_dict(nn.LSTM(5, 7, 2, **arguments).state_dict(), strict=True)


def test_layer_norm_has_parameters() -> None:
    module: Any = LSTM(5, 7, 2, bidirectional=True, layer_norm=True, forget_bias=2.0)
    shapes = {name: tuple(p.shape) for name, p in module.named_parameters() if "ln" in name}
    ends = ("l0", "l0_reverse", "l1", "l1_reverse")
    sizes = {"weight_ln_ih": (28,), "weight_ln_hh": (28,), "weight_ln_c": (7,), "bias_ln_c": (7,)}
    assert shapes == {f"{name}_{end}": size for end in ends for name, size in sizes.items()}
    assert (module.weight_ln_ih_l1 == 1).all() and not module.bias_ln_c_l0.any()
    assert (module.bias_ih_l0[7:14] == 2).all() and not module.bias_hh_l1_reverse[7:14].any()
    module.reset_parameters()
    assert (module.weight_ln_hh_l0 == 1).all() and (module.bias_ih_l0[7:14] == 2).all()
    cell = LSTMCell(5, 7, layer_norm=True, forget_bias=1)
    assert cell.weight_ln_c.shape == (7,) and (cell.bias_ih[7:14] == 1).all()
    cell.reset_parameters()
    assert (cell.weight_ln_ih == 1).all() and cell(torch.randn(2, 5))[0].shape == (2, 7)


def test_what_is_shown() -> None:
    assert repr(LSTM(5, 7, 2)) == "LSTM(5, 7, num_layers=2)"
    module = LSTM(5, 7, bidirectional=True, activation="hard", zoneout=(0.1, 0.2))
    assert repr(module) == "LSTM(5, 7, bidirectional=True, activation='hard', zoneout=(0.1, 0.2))"
    assert repr(HardLSTM(5, 7, hard_slope=0.2)) == "HardLSTM(5, 7, hard_slope=0.2)"
    assert repr(LSTMCell(5, 7, zoneout=0.1)) == "LSTMCell(5, 7, zoneout=0.1)"


CASES: dict[str, dict[str, Any]] = {
    "soft": {},
    "hard": {"activation": "hard"},
    "bidirectional": {"bidirectional": True, "num_layers": 2},
    "projection": {"proj_size": 2, "activation": "hard"},
    "layer_norm": {"layer_norm": True, "hidden_size": 5},
    "zoneout": {"zoneout": (0.3, 0.2)},
    "no_bias": {"bias": False},
}


@pytest.mark.parametrize("name", CASES)
def test_gradcheck(name: str) -> None:
    torch.manual_seed(3)
    options = {"input_size": 2, "hidden_size": 3} | CASES[name]
    module = LSTM(**options, return_all_states=True, **DOUBLE).eval()
    names = [n for n, _ in module.named_parameters()]
    cells, width = module.num_layers * (1 + module.bidirectional), module.proj_size or module.hidden_size
    inputs = [
        torch.randn(4, 2, 2, **DOUBLE),
        torch.randn(cells, 2, width, **DOUBLE),
        torch.randn(cells, 2, module.hidden_size, **DOUBLE),
        *(p.detach().clone() for p in module.parameters()),
    ]
    resets = torch.zeros(4, 2, dtype=torch.bool)
    resets[2, 0] = True

    def call(x: Tensor, h0: Tensor, c0: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
        given = dict(zip(names, weights, strict=True))
        options = {"input_lengths": torch.tensor([4, 3]), "resets": resets}
        y, last, states = torch.func.functional_call(module, given, (x, (h0, c0)), options)
        return y, *last, *states

    assert torch.autograd.gradcheck(call, [t.requires_grad_() for t in inputs])


def test_gradients_at_the_rails_are_zero() -> None:
    # z = 4 exactly: s' = 0; one step below it is the slope.
    weights = [
        LSTMWeights(
            torch.tensor([[1.0], [0.0], [0.0], [0.0]]),
            torch.zeros(4, 1),
            torch.tensor([0, 0, 0.5, 0]),
            torch.zeros(4),
        )
    ]
    for z, is_inside in ((4.0, False), (-4.0, False), (4 - 2**-21, True), (-4 + 2**-21, True)):
        x = torch.tensor([[[z]]], requires_grad=True)
        (gradient,) = torch.autograd.grad(lstm(x, weights, activation="hard").c_n.sum(), x)
        assert gradient.item() == (0.0625 if is_inside else 0)


def test_gradients_of_some_inputs() -> None:
    module: Any = LSTM(5, 7, 2)
    x = torch.randn(6, 3, 5)
    y = module(x)[0].square().sum()
    every = torch.autograd.grad(y, list(module.parameters()), retain_graph=True)
    again = torch.autograd.grad(y, list(module.parameters()), retain_graph=True)
    assert all(torch.equal(a, b) for a, b in zip(every, again, strict=True))
    module.requires_grad_(False)
    module.weight_hh_l0.requires_grad_()
    (one,) = torch.autograd.grad(module(x)[0].square().sum(), module.weight_hh_l0)
    assert torch.equal(one, every[1])
    assert not module.requires_grad_(False)(x)[0].requires_grad
    leaf = x.clone().requires_grad_()
    assert torch.autograd.grad(module(leaf)[1][0].sum(), leaf)[0].any()
    # Both biases have the same gradient, in memory of their own.
    module.requires_grad_()(x)[0].sum().backward()
    assert torch.equal(module.bias_ih_l1.grad, module.bias_hh_l1.grad)
    assert module.bias_ih_l1.grad.data_ptr() != module.bias_hh_l1.grad.data_ptr()


def test_checkpointing_and_second_derivatives() -> None:
    from torch.utils.checkpoint import checkpoint

    module, x = LSTM(5, 7, zoneout=0.2), torch.randn(6, 3, 5, requires_grad=True)
    torch.manual_seed(4)
    (expected,) = torch.autograd.grad(module(x)[0].sum(), x)
    torch.manual_seed(4)
    (gradient,) = torch.autograd.grad(checkpoint(lambda x: module(x)[0], x, use_reentrant=False).sum(), x)
    assert torch.equal(gradient, expected)
    (first,) = torch.autograd.grad(module(x)[0].sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="second derivatives of the LSTM with zoneout in training"):
        first.sum().backward()
    with pytest.raises(NotImplementedError, match="transforms and forward mode"):
        torch.func.grad(lambda x: module(x)[0].sum())(x)
    with pytest.raises(NotImplementedError, match="transforms and forward mode"):
        torch.func.jvp(lambda x: module(x)[0], (x.detach(),), (x.detach(),))


def op_arguments(**changed: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    torch.manual_seed(5)
    h, cells = 4, 4
    weights = [
        w
        for cell in range(cells)
        for w in (
            torch.randn(4 * h, 3 if cell < 2 else 2 * h),
            torch.randn(4 * h, h),
            torch.randn(4 * h),
            torch.randn(4 * h),
        )
    ]
    weights = [w.requires_grad_() for w in weights]
    x = torch.randn(5, 2, 3, requires_grad=True)
    states = [torch.randn(cells, 2, h, requires_grad=True) for _ in range(2)]
    lengths, resets = torch.tensor([5, 3], dtype=torch.int32), torch.zeros(5, 2, dtype=torch.bool)
    return (x, weights, *states, lengths, None, resets, torch.tensor(7), None), {
        "bidirectional": True,
        **changed,
    }


def test_opcheck() -> None:
    ops = torch.ops.warpalign
    for changed in ({}, {"activation": 1, "training": True, "dropout": 0.3, "zoneout_cell": 0.2}):
        inputs, settings = op_arguments(**changed)
        plain = [
            inputs[0].detach(),
            [w.detach() for w in inputs[1]],
            *(t.detach() if t is not None else None for t in inputs[2:]),
        ]
        torch.library.opcheck(ops.lstm.default, (*plain, True, False), settings)
        torch.library.opcheck(ops.lstm.default, (*inputs, True, True), settings, test_utils=OPCHECK_OF_SAVED)
        *outputs, tape = (t.detach() for t in ops.lstm(*inputs, True, True, **settings))
        flags = (True, True, True, True)
        kept = (outputs[0], tape)
        torch.library.opcheck(ops.lstm_backward.default, (*plain[:-1], *kept, *outputs, *flags), settings)
        flags = (False, True, False, False)
        torch.library.opcheck(
            ops.lstm_backward.default,
            (*plain[:-1], *kept, None, *outputs[1:3], None, None, *flags),
            settings,
        )


@pytest.mark.parametrize("options", [{}, {"layer_norm": True}, {"projection": True}])
def test_opcheck_of_packed_weights(options: dict[str, Any]) -> None:
    ops, h, p = torch.ops.warpalign, 21, 5 if "projection" in options else 21
    weights = []
    for width in (3, p, p):
        weights += [torch.randn(4 * h, width), torch.randn(4 * h, p), torch.randn(4 * h), torch.randn(4 * h)]
        weights += [torch.randn(p, h)] if "projection" in options else []
        weights += [torch.ones(s) for s in (4 * h, 4 * h, h, h)] if "layer_norm" in options else []
    torch.library.opcheck(ops.lstm_pack.default, (weights,), options)
    packed = ops.lstm_pack(weights, **options)
    inputs = (torch.randn(4, 2, 3), weights, *(None,) * 6)
    expected = ops.lstm(*inputs, None, False, False, **options)
    assert torch.equal(ops.lstm(*inputs, packed, False, False, **options)[0], expected[0])
    with pytest.raises(RuntimeError, match="packed: expected a contiguous tensor of shape"):
        ops.lstm(*inputs, packed[1:].clone(), False, False, **options)
    states = torch.zeros(3, 2, p), torch.zeros(3, 2, h)
    checks = ("test_schema", "test_faketensor")
    stream = ops.lstm_stream_.default
    torch.library.opcheck(stream, (inputs[0], weights, *states, packed), options, test_utils=checks)
    states = torch.zeros(3, 2, p), torch.zeros(3, 2, h)
    assert torch.equal(stream(inputs[0], weights, *states, packed, **options), expected[0])
    assert torch.equal(states[0], expected[1]) and torch.equal(states[1], expected[2])


def test_compiled_steps_advance_a_stream() -> None:
    torch._dynamo.reset()
    module, x = LSTM(5, 7, 2).eval(), torch.randn(3, 2, 5)
    eager, stream = module.stream(2), module.stream(2)
    step = torch.compile(lambda frame: stream.step(frame) * 2, backend="aot_eager", fullgraph=True)
    for frame in x:
        torch.testing.assert_close(step(frame), eager.step(frame) * 2)
        torch.testing.assert_close((stream.h, stream.c), (eager.h, eager.c))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("options", [{}, {"layer_norm": True}, {"proj_size": 3}])
def test_tapes_have_the_size_that_fake_tensors_are_told(dtype: torch.dtype, options: dict[str, Any]) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    def tape_of(module: LSTM, x: Tensor) -> int:
        # The tape is the only saved tensor of bytes.
        y = module(x)[0]
        saved = [t for t in y.grad_fn.saved_tensors if t is not None and t.dtype == torch.uint8]
        return saved[0].numel()

    for hidden in (5, 16, 33):
        real = tape_of(LSTM(5, hidden, 2, dtype=dtype, **options), torch.randn(7, 3, 5).to(dtype))
        with FakeTensorMode():
            fake = tape_of(LSTM(5, hidden, 2, dtype=dtype, **options), torch.randn(7, 3, 5).to(dtype))
        assert real == fake


def test_h_of_the_last_layer_is_kept_once() -> None:
    """As y. The tape has gates and c of each row, and h of the layers below."""
    for layers in (1, 2):
        y = LSTM(16, 16, layers, bidirectional=True)(torch.randn(12, 8, 16))[0]
        saved = [t for t in y.grad_fn.saved_tensors if t is not None]
        assert any(t.data_ptr() == y.data_ptr() and t.shape == y.shape for t in saved)
        tape = next(t for t in saved if t.dtype == torch.uint8)
        assert tape.numel() == (5 * layers + layers - 1) * y.nbytes
        with torch.no_grad():
            y.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


@pytest.mark.parametrize("dynamic", [False, True])
def test_compile(dynamic: bool) -> None:
    torch._dynamo.reset()
    module = LSTM(5, 7, 2, bidirectional=True, batch_first=True, layer_norm=True, zoneout=0.1).eval()

    def step(x: Tensor, lengths: Tensor) -> Tensor:
        y, (h_n, c_n) = module(x * 2, input_lengths=lengths)
        return y.square().sum() + h_n.sum() - c_n.sum()

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for steps in (5, 6, 7):
        x, lengths = torch.randn(3, steps, 5), torch.tensor([steps, 2, 0])
        results = []
        for function in (step, compiled):
            leaf = x.clone().requires_grad_()
            value = function(leaf, lengths)
            results.append([value, *torch.autograd.grad(value, [leaf, *module.parameters()])])
        torch.testing.assert_close(*results)
    training = torch.compile(module.train(), fullgraph=True, backend="aot_eager")
    first, second = (training(torch.ones(2, 4, 5))[0] for _ in range(2))
    assert not torch.equal(first, second)  # the masks are drawn in every call


def test_packed_input_within_compiled_code() -> None:
    torch._dynamo.reset()
    module, packed = LSTM(5, 7, 2), pack_padded_sequence(torch.randn(6, 3, 5), torch.tensor([6, 4, 1]))

    def step(packed: PackedSequence) -> Tensor:
        rows, (_, c_n) = module(packed)
        return rows.data.sum() + c_n.sum()

    torch.testing.assert_close(torch.compile(step, backend="eager")(packed), step(packed))


class Packing(nn.Module):
    """As code of torch.nn.LSTM is written: packs, sweeps, pads, with layers before and after."""

    def __init__(self, kind: type[nn.Module], batch_first: bool = False) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(5, 5), nn.Linear(7, 3)
        self.lstm = kind(5, 7, 2, batch_first=batch_first)
        self.batch_first = batch_first

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        rows = pack_padded_sequence(self.first(x), lengths, self.batch_first, enforce_sorted=False)
        rows, (h_n, _) = self.lstm(rows)
        padded, _ = pad_packed_sequence(rows, self.batch_first)
        y: Tensor = self.last(padded)
        return y + h_n.sum()


@pytest.mark.parametrize(("batch_first", "grad"), [(False, True), (True, False)])
def test_packing_and_padding_within_compiled_code(batch_first: bool, grad: bool) -> None:
    torch._dynamo.reset()
    torch.manual_seed(9)
    module, theirs = Packing(LSTM, batch_first).double(), Packing(nn.LSTM, batch_first).double()
    theirs.load_state_dict(module.state_dict())
    compiled = torch.compile(module, backend="aot_eager")
    for lengths in ([4, 6, 1], [2, 3, 5]):
        n = torch.tensor(lengths)
        x = torch.randn(*((3, 6) if batch_first else (6, 3)), 5, dtype=torch.float64)
        with torch.set_grad_enabled(grad):
            found, expected = compiled(x, n), theirs(x, n)
        torch.testing.assert_close(found, expected)
        if grad:
            of_ours = torch.autograd.grad(found.square().sum(), list(module.parameters()))
            of_theirs = torch.autograd.grad(expected.square().sum(), list(theirs.parameters()))
            torch.testing.assert_close(of_ours, of_theirs)


def test_compiled_cells_and_exported_modules() -> None:
    torch._dynamo.reset()
    cell, x = LSTMCell(5, 7), torch.randn(6, 3, 5)
    found = torch.compile(cell, fullgraph=True, backend="aot_eager")(x[0])
    torch.testing.assert_close(found, cell(x[0]))
    model = replace_lstm(nn.Sequential(nn.LSTM(5, 7, 2))).eval()
    exported = torch.export.export(model, (x,)).module()
    torch.testing.assert_close(exported(x)[0], model(x)[0])


def test_autocast() -> None:
    module, x = LSTM(5, 7), torch.randn(6, 3, 5, requires_grad=True)
    hx = torch.randn(1, 3, 7), torch.randn(1, 3, 7)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, (h_n, c_n) = module(x, hx)
        assert (y.dtype, h_n.dtype, c_n.dtype) == (torch.bfloat16, torch.bfloat16, torch.float32)
        assert module(x)[1][1].dtype == torch.bfloat16
    y.float().sum().backward()
    assert x.grad is not None and x.grad.dtype == module.weight_hh_l0.grad.dtype == torch.float32
    torch.testing.assert_close(y.float(), module(x, hx)[0], rtol=0.05, atol=0.02)


def test_copies_and_replacements_of_weights() -> None:
    module: Any = LSTM(5, 7, 2, activation="hard", layer_norm=True, zoneout=0.1).eval()
    x = torch.randn(6, 3, 5)
    expected = module(x)[0]
    buffer = io.BytesIO()
    torch.save(module, buffer)
    buffer.seek(0)
    for other in (
        copy.deepcopy(module),
        pickle.loads(pickle.dumps(module)),
        torch.load(buffer, weights_only=False),
    ):
        assert torch.equal(other(x)[0], expected) and other._options == module._options
    halved = {name: p / 2 for name, p in module.named_parameters()}
    swapped = torch.func.functional_call(module, halved, (x,))[0]
    assert not torch.equal(swapped, expected)
    module.load_state_dict({name: p.detach() for name, p in halved.items()})
    assert torch.equal(module(x)[0], swapped)
    parametrizations.weight_norm(module, "weight_hh_l0")
    torch.testing.assert_close(module(x)[0], swapped)
    module.parametrizations.weight_hh_l0.original0.data.mul_(3)
    assert not torch.allclose(module(x)[0], swapped)
    module.flatten_parameters()
    assert module.to(torch.float64)(x.double())[0].dtype == torch.float64


def test_replace_lstm_trains_a_model_on() -> None:
    torch.manual_seed(7)
    model, x = Model().eval(), torch.randn(3, 6, 5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    twin = copy.deepcopy(model)
    expected = model(x)
    parameters = list(model.parameters())
    assert replace_lstm(model) is model
    assert isinstance(model.encoder, LSTM) and isinstance(model.inner[0], LSTM)
    assert all(a is b for a, b in zip(model.parameters(), parameters, strict=True))
    torch.testing.assert_close(model(x), expected)
    other = torch.optim.SGD(twin.parameters(), lr=0.1)
    for _ in range(3):
        for one, steps in ((model, optimizer), (twin, other)):
            steps.zero_grad()
            one(x).square().sum().backward()
            steps.step()
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(a, b)
    twin.load_state_dict(model.state_dict(), strict=True)
    before = model.encoder._options
    hard = replace_lstm(copy.deepcopy(twin), activation="hard", layer_norm=True)
    assert hard.encoder._options["activation"] == "hard" and hard.encoder.weight_ln_c_l1_reverse.shape == (7,)
    assert replace_lstm(model, activation="hard").encoder._options is before  # ours stay as they are
    alone = nn.LSTM(5, 7)
    assert type(replace_lstm(alone)) is LSTM
    normed = parametrizations.weight_norm(nn.LSTM(5, 7), "weight_hh_l0")
    assert isinstance(replace_lstm(normed), nn.LSTM)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize(
    "options", [{}, {"bias": False, "proj_size": 3}, {"layer_norm": True, "zoneout": 0.1}]
)
def test_calls_without_gradients_are_those_with_them(batch_first: bool, options: dict[str, Any]) -> None:
    module = LSTM(5, 7, 2, bidirectional=True, batch_first=batch_first, activation="hard", **options)
    x = torch.randn(3, 4, 5)
    batch = 3 if batch_first else 4
    hx = torch.randn(4, batch, module.proj_size or 7), torch.randn(4, batch, 7)
    module.eval()
    for state in (None, hx, list(hx)):
        expected, (h_n, c_n) = module(x, state)
        with torch.no_grad():
            output, states = module(x, state)
        torch.testing.assert_close(output, expected, rtol=0, atol=0)
        torch.testing.assert_close(states, (h_n.detach(), c_n.detach()), rtol=0, atol=0)
    cell = LSTMCell(5, 7, layer_norm=options.get("layer_norm", False))
    pair = torch.randn(3, 7), torch.randn(3, 7)
    with torch.no_grad():
        found = cell(x[:, 0], pair)
    torch.testing.assert_close(found, tuple(s.detach() for s in cell(x[:, 0], pair)), rtol=0, atol=0)


def test_calls_without_gradients_see_changed_weights_and_masks() -> None:
    module, x = LSTM(5, 7, 2), torch.randn(1, 4, 5)
    with torch.no_grad():
        before = module(x)[0]
        module.weight_ih_l0.data.mul_(2)  # changes no version counter
        after = module(x)[0]
        assert not torch.equal(before, after)
        module.load_state_dict({name: w * 0 for name, w in module.state_dict().items()})
        assert not module(x)[0].any()
        other = {name: torch.ones_like(w) for name, w in module.named_parameters()}
        assert torch.func.functional_call(module, other, (x,))[0].all()
        module.load_state_dict(other)
        module.dropout = 0.9
        assert not torch.equal(module.train()(x)[0], module.eval()(x)[0])


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (lambda m, x: m(x[..., :4]), r"input: expected 5 features"),
        (lambda m, x: m(x, (torch.zeros(1, 4, 7), None)), r"hx\[1\]: expected a torch.Tensor"),
        (lambda m, x: m(x, (torch.zeros(1, 3, 7), torch.zeros(1, 4, 7))), r"hx\[0\]: expected shape"),
        (lambda m, x: m(x.double()), r"input: expected the dtype of the module"),
        (lambda m, x: m(x[0, 0]), r"input: expected 3 axes"),
    ],
)
def test_bad_calls_without_gradients_name_the_argument(bad: Any, message: str) -> None:
    with torch.no_grad(), pytest.raises((TypeError, ValueError), match=message):
        bad(LSTM(5, 7), torch.randn(2, 4, 5))


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory."), RuntimeError("CUDA error: an illegal access")]
)
def test_what_no_argument_causes_is_raised_at_once(
    monkeypatch: pytest.MonkeyPatch, grad: bool, error: RuntimeError
) -> None:
    """A second call would wait for the same memory, or hide the first error behind the next one."""
    calls: list[None] = []

    def fail(*_arguments: object, **_settings: object) -> None:
        calls.append(None)
        raise error

    monkeypatch.setattr("warpalign._recurrent.ops.lstm", fail)
    module = LSTM(3, 4)
    with torch.set_grad_enabled(grad), pytest.raises(type(error), match=str(error)):
        module(torch.zeros(2, 1, 3))
    assert len(calls) == 1
