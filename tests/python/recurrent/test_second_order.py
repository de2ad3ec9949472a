"""Second derivatives and batches of gradients: against torch.nn.LSTM, the plain loop, and finite differences."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import grad, gradgradcheck
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from tests.python.recurrent.reference import plain_lstm
from warpalign.recurrent import LSTM, LSTMCell, LSTMWeights

DOUBLE: dict[str, Any] = {"dtype": torch.float64}
CASES: dict[str, dict[str, Any]] = {
    "soft": {},
    "hard": {"activation": "hard", "hard_slope": 0.2, "hard_offset": 0.4},
    "bidirectional": {"bidirectional": True, "num_layers": 2},
    "projection": {"proj_size": 2, "hidden_size": 3},
    "layer_norm": {"layer_norm": True, "hidden_size": 4, "activation": "hard"},
    "zoneout": {"zoneout": (0.3, 0.2)},
    "no_bias": {"bias": False},
    "recompute": {"recompute": True},
}


def leaves_of(module: Any, steps: int = 3, batch: int = 2) -> list[Tensor]:
    cells, width = module.num_layers * (1 + module.bidirectional), module.proj_size or module.hidden_size
    inputs = [
        torch.randn(steps, batch, module.input_size, **DOUBLE),
        torch.randn(cells, batch, width, **DOUBLE),
        torch.randn(cells, batch, module.hidden_size, **DOUBLE),
        *(p.detach().clone() for p in module.parameters()),
    ]
    return [t.requires_grad_() for t in inputs]


@pytest.mark.parametrize(("name", "cut"), [*((name, True) for name in CASES), ("soft", False)])
def test_gradgradcheck(name: str, cut: bool) -> None:
    torch.manual_seed(3)
    options = {"input_size": 2, "hidden_size": 2} | CASES[name]
    module = LSTM(**options, return_all_states=True, **DOUBLE).eval()
    names = [n for n, _ in module.named_parameters()]
    resets = torch.zeros(3, 2, dtype=torch.bool)
    resets[1, 0] = True
    given = {"input_lengths": torch.tensor([3, 2]), "resets": resets} if cut else {}

    def call(x: Tensor, h0: Tensor, c0: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
        parameters = dict(zip(names, weights, strict=True))
        y, last, states = torch.func.functional_call(module, parameters, (x, (h0, c0)), given)
        return y, *last, *states

    assert gradgradcheck(call, leaves_of(module), fast_mode=True)  # random projections: seconds less


def second_order(values: tuple[Tensor, ...], leaves: list[Tensor]) -> list[Tensor]:
    """Gradients of the squared norm of the gradients of a function of all values."""
    loss = sum((v.sin() * (n + 1)).sum() for n, v in enumerate(values))
    first = grad(loss, leaves, create_graph=True)  # type: ignore[arg-type]
    return list(grad(sum(g.square().sum() for g in first), leaves))  # type: ignore[arg-type]


@pytest.mark.parametrize("form", ["padded", "packed", "packed_unsorted", "batch_first", "no_states"])
@pytest.mark.parametrize(
    "options", [{}, {"num_layers": 2, "bidirectional": True}, {"proj_size": 3, "bias": False}]
)
def test_second_derivatives_are_those_of_torch(form: str, options: dict[str, Any]) -> None:
    torch.manual_seed(4)
    theirs, ours = (
        kind(5, 7, batch_first=form == "batch_first", **options, **DOUBLE) for kind in (nn.LSTM, LSTM)
    )
    ours.load_state_dict(theirs.state_dict())
    found = []
    x, h0, c0, *_ = leaves_of(ours, 6, 3)
    for module in (ours, theirs):
        given: Any = x.transpose(0, 1) if form == "batch_first" else x
        if form.startswith("packed"):
            lengths = torch.tensor([6, 3, 1] if form == "packed" else [2, 6, 3])
            given = pack_padded_sequence(x, lengths, enforce_sorted=form == "packed")
        states = None if form == "no_states" else (h0, c0)
        y, (h_n, c_n) = module(given, states)
        y = y.data if isinstance(y, PackedSequence) else y
        leaves = [x, *(() if states is None else states), *module.parameters()]
        found.append(second_order((y, h_n, c_n), leaves))
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-11)


def test_second_derivatives_are_those_of_the_plain_loop() -> None:
    """With hard activations and layer norm, which torch.nn.LSTM does not have; and a third derivative."""
    torch.manual_seed(5)
    module: Any = LSTM(5, 6, activation="hard", layer_norm=True, **DOUBLE)
    x, h0, c0, *_ = leaves_of(module, 4, 3)
    fields = (
        "weight_ih",
        "weight_hh",
        "bias_ih",
        "bias_hh",
        None,
        "weight_ln_ih",
        "weight_ln_hh",
        "weight_ln_c",
        "bias_ln_c",
    )
    weights = LSTMWeights(*(name and getattr(module, f"{name}_l0") for name in fields))
    leaves = [x, h0, c0, *module.parameters()]
    y, (h_n, c_n) = module(x, (h0, c0))
    plain = plain_lstm(x, [weights], h0, c0, hard=True)
    torch.testing.assert_close(
        second_order((y, h_n, c_n), leaves), second_order(plain, leaves), rtol=1e-9, atol=1e-11
    )
    cell, pair = LSTMCell(2, 2, **DOUBLE), [torch.randn(2, 2, **DOUBLE, requires_grad=True) for _ in range(3)]
    assert gradgradcheck(lambda x, h, c: cell(x, (h, c)), pair, fast_mode=True)

    def third(y: Tensor) -> Tensor:
        (first,) = grad(y.sin().sum(), x, create_graph=True)
        (second,) = grad(first.square().sum(), x, create_graph=True)
        return grad(second.square().sum(), module.weight_hh_l0)[0]

    torch.testing.assert_close(
        third(module(x, (h0, c0))[0]), third(plain_lstm(x, [weights], h0, c0, hard=True)[0])
    )


def test_padding_is_not_read_by_second_derivatives() -> None:
    module = LSTM(5, 7)
    x = torch.randn(6, 2, 5)
    x[3:, 0] = torch.nan
    y = module(x.requires_grad_(), input_lengths=torch.tensor([3, 6]))[0]
    found = second_order((y,), [x, *module.parameters()])
    assert all(g.isfinite().all() for g in found) and not found[0][3:, 0].any() and found[0][:3, 0].any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_second_derivatives_of_half_types(dtype: torch.dtype) -> None:
    torch.manual_seed(6)
    module = LSTM(5, 7, dtype=dtype)
    x = torch.randn(4, 2, 5).to(dtype).requires_grad_()
    (found,) = second_order((module(x)[0],), [x])
    wide = module.float()
    (expected,) = second_order((wide(x.float())[0],), [x])
    assert found.dtype == dtype
    torch.testing.assert_close(found, expected, rtol=0.05, atol=0.02)


def test_what_draws_masks_is_refused_by_name() -> None:
    for name, shown in (("zoneout", "zoneout"), ("rw_dropout", "rw_dropout"), ("dropout", "dropout")):
        module = LSTM(5, 7, 2, **{name: 0.2})
        x = torch.randn(4, 2, 5, requires_grad=True)
        (first,) = grad(module(x)[0].sum(), x, create_graph=True)
        message = f"second derivatives of the LSTM with {shown} in training are not available"
        with pytest.raises(NotImplementedError, match=message):
            first.sum().backward()
        second_order((module.eval()(x)[0],), [x])


def test_gradients_without_a_graph_make_none_of_torchs_operations() -> None:
    """What second derivatives need is made when they are asked for."""
    module, x = LSTM(5, 7), torch.randn(6, 3, 5, requires_grad=True)
    y = module(x)[0]
    with torch.profiler.profile() as profile:
        y.sum().backward()
    names = {event.key for event in profile.key_averages()}
    assert any("lstm_backward" in name for name in names)
    assert not {"aten::linear", "aten::sigmoid", "aten::tanh"} & names


@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True, "activation": "hard"}])
@pytest.mark.parametrize("wanted", ["all", "x", "weights"])
def test_batches_of_gradients(options: dict[str, Any], wanted: str) -> None:
    torch.manual_seed(7)
    module = LSTM(5, 7, dropout=0.2 if options else 0.0, **options)
    x, (h0, c0) = torch.randn(6, 3, 5), (torch.randn(4 if options else 1, 3, 7) for _ in range(2))
    leaves = {"x": [x], "weights": list(module.parameters())}.get(wanted, [x, h0, c0, *module.parameters()])
    for leaf in leaves:
        leaf.requires_grad_()
    y, (h_n, c_n) = module(x, (h0, c0))
    values = (y, h_n) if wanted == "x" else (y, h_n, c_n)
    by = [torch.randn(4, *value.shape) for value in values]

    def gradients(*by: Tensor) -> tuple[Tensor, ...]:
        return grad(values, leaves, by, retain_graph=True)

    expected = tuple(map(torch.stack, zip(*(gradients(*one) for one in zip(*by, strict=True)), strict=True)))
    batched = grad(values, leaves, by, retain_graph=True, is_grads_batched=True)
    torch.testing.assert_close(batched, expected)
    torch.testing.assert_close(torch.func.vmap(gradients)(*by), expected)
    in_second = [b.movedim(0, 1) for b in by]
    torch.testing.assert_close(torch.func.vmap(gradients, 1)(*in_second), expected)


def test_jacobians_and_hessians() -> None:
    torch.manual_seed(8)
    theirs, ours = (kind(2, 3, **DOUBLE) for kind in (nn.LSTM, LSTM))
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(3, 1, 2, **DOUBLE)
    of = torch.autograd.functional
    for vectorize in (False, True):
        found, expected = (of.jacobian(lambda x: m(x)[0], x, vectorize=vectorize) for m in (ours, theirs))  # noqa: B023
        torch.testing.assert_close(found, expected)
        found, expected = (
            of.hessian(lambda x: m(x)[0].square().sum(), x, vectorize=vectorize)  # noqa: B023
            for m in (ours, theirs)
        )
        torch.testing.assert_close(found, expected)
