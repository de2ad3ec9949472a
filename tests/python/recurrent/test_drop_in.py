"""What code around torch.nn.LSTM relies on: errors that it catches, and torch.jit.trace."""

from __future__ import annotations

import io
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from warpalign._recurrent.checks import ShapeError
from warpalign.recurrent import LSTM, LSTMCell

X = torch.randn(4, 2, 5, generator=torch.Generator().manual_seed(0))
BAD_CALLS: dict[str, Callable[[Any], object]] = {
    "no steps": lambda kind: kind(5, 7)(X[:0]),
    "no steps, batch first": lambda kind: kind(5, 7, batch_first=True)(X[:, :0]),
    "no steps of one sequence": lambda kind: kind(5, 7)(X[:0, 0]),
    "h of another batch": lambda kind: kind(5, 7)(X, (torch.zeros(1, 3, 7), torch.zeros(1, 2, 7))),
    "c of another size": lambda kind: kind(5, 7)(X, (torch.zeros(1, 2, 7), torch.zeros(1, 2, 6))),
    "h of one layer": lambda kind: kind(5, 7, 2)(X, (torch.zeros(1, 2, 7), torch.zeros(2, 2, 7))),
    "h without a batch": lambda kind: kind(5, 7)(X, (torch.zeros(1, 7), torch.zeros(1, 7))),
    "h before the projection": lambda kind: kind(5, 7, proj_size=3)(X, (torch.zeros(1, 2, 7),) * 2),
    "h of a packed batch": lambda kind: kind(5, 7)(
        pack_padded_sequence(X, torch.tensor([4, 2])), (torch.zeros(1, 3, 7),) * 2
    ),
    "other features": lambda kind: kind(5, 7)(X[..., :4]),
    "another dtype": lambda kind: kind(5, 7)(X.double()),
    "one axis": lambda kind: kind(5, 7)(X[0, 0]),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_errors_are_caught_as_those_of_torch(name: str) -> None:
    with pytest.raises((TypeError, ValueError, RuntimeError)) as theirs:
        BAD_CALLS[name](nn.LSTM)
    with pytest.raises(theirs.type) as ours:
        BAD_CALLS[name](LSTM)
    assert isinstance(ours.value, (TypeError, ValueError)), "as everywhere in this package"
    assert str(ours.value).startswith(("input: expected ", "hx[0]: expected ", "hx[1]: expected "))


def test_errors_of_cells_are_caught_as_those_of_torch() -> None:
    for kind in (nn.LSTMCell, LSTMCell):
        with pytest.raises(RuntimeError):
            kind(5, 7)(X[0, :, :4])
        with pytest.raises(RuntimeError):
            kind(5, 7)(X[0], (torch.zeros(3, 7), torch.zeros(3, 7)))


def test_errors_can_be_sent_between_processes() -> None:
    error = pickle.loads(pickle.dumps(ShapeError("input: ...")))
    assert type(error) is ShapeError and str(error) == "input: ..."


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_layers": 2, "bidirectional": True, "batch_first": True},
        {"activation": "hard", "layer_norm": True},
    ],
)
def test_traced_modules(gradients: bool, options: dict[str, Any]) -> None:
    torch.manual_seed(1)
    module = LSTM(5, 7, **options).eval()
    with warnings.catch_warnings(), torch.set_grad_enabled(gradients):
        warnings.simplefilter("error", torch.jit.TracerWarning)
        traced = torch.jit.trace(module, (X,))
    buffer = io.BytesIO()
    torch.jit.save(traced, buffer)
    buffer.seek(0)
    loaded = torch.jit.load(buffer)
    x = torch.randn(6, 6, 5)  # of other extents than those of the trace
    for call in (traced, loaded):
        torch.testing.assert_close(call(x), module(x))
    if gradients:
        leaf = x.clone().requires_grad_()
        (found,) = torch.autograd.grad(traced(leaf)[0].square().sum(), leaf)
        (expected,) = torch.autograd.grad(module(leaf)[0].square().sum(), leaf)
        torch.testing.assert_close(found, expected)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_traced_models_with_states_and_cells() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.cell = LSTM(5, 7), LSTMCell(7, 7)

        def forward(self, x: Tensor, h: Tensor, c: Tensor) -> Tensor:
            y, (h_n, c_n) = self.lstm(x, (h, c))
            value: Tensor = self.cell(y[-1], (h_n[0], c_n[0]))[0]
            return value

    model, state = Model(), (torch.randn(1, 2, 7), torch.randn(1, 2, 7))
    traced = torch.jit.trace(model, (X, *state))
    x = torch.randn(3, 2, 5)
    torch.testing.assert_close(traced(x, *state), model(x, *state))
