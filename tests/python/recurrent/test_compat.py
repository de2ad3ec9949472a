"""The drop-ins for CAIMAN-ASR's CustomLSTM and haste's LSTMs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.python.recurrent.reference import plain_lstm
from warpalign.compat import haste
from warpalign.compat.caiman import CustomLSTM
from warpalign.recurrent import LSTMWeights


def weights_of(module: Any) -> list[LSTMWeights]:
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    return [LSTMWeights(*(getattr(module, f"{n}_l{k}") for n in names)) for k in range(module.num_layers)]


@pytest.mark.parametrize("hard", [False, True])
def test_caiman(hard: bool) -> None:
    torch.manual_seed(1)
    module = CustomLSTM(5, 7, 2, hard=hard, dtype=torch.float64)
    nn.LSTM(5, 7, 2).load_state_dict(module.float().state_dict(), strict=True)
    module.double()
    x = torch.randn(6, 3, 5).double()
    hx = tuple(torch.randn(2, 3, 7).double().requires_grad_() for _ in range(2))
    y, (h, c), every = module(x, hx)
    assert every is not None
    h_all, c_all = every
    assert h_all.shape == c_all.shape == (2, 6, 3, 7)
    assert torch.equal(h_all[1], y) and torch.equal(h_all[:, -1], h) and torch.equal(c_all[:, -1], c)
    expected = plain_lstm(x, weights_of(module), *hx, hard=hard)
    for is_, value in zip((y, h, c), expected, strict=True):
        torch.testing.assert_close(is_, value, rtol=1e-12, atol=1e-13)
    # The original loses the gradients by the initial states, and through the final ones.
    leaves = [*hx, *module.parameters()]
    ours = torch.autograd.grad(h.sin().sum() + c.square().sum(), leaves)
    theirs = torch.autograd.grad(expected[1].sin().sum() + expected[2].square().sum(), leaves)
    for is_, value in zip(ours, theirs, strict=True):
        assert value.any()
        torch.testing.assert_close(is_, value, rtol=1e-10, atol=1e-12)
    module.eval()
    assert module(x)[2] is None
    with pytest.raises(NotImplementedError, match="quantize: expected False"):
        CustomLSTM(5, 7, quantize=True)


def haste_plain(module: Any, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """haste's equations in its own gate order; zoneout in evaluation."""

    def norm(v: Tensor, gamma: Tensor) -> Tensor:
        return nn.functional.layer_norm(v, v.shape[-1:], gamma, eps=1e-5)

    outputs = []
    for step in x:
        of_x, of_h = step @ module.kernel, h @ module.recurrent_kernel
        if isinstance(module, haste.LayerNormLSTM):
            of_x, of_h = norm(of_x, module.gamma[0]), norm(of_h, module.gamma[1])
        i, g, f, o = (of_x + of_h + module.bias).chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        cell = c
        if isinstance(module, haste.LayerNormLSTM):
            cell = norm(c, module.gamma_h) + module.beta_h
        h = module.zoneout * h + (1 - module.zoneout) * o.sigmoid() * cell.tanh()
        outputs.append(h)
    return torch.stack(outputs), c


@pytest.mark.parametrize("kind", [haste.LSTM, haste.LayerNormLSTM])
@pytest.mark.parametrize("batch_first", [False, True])
def test_haste(kind: Any, batch_first: bool) -> None:
    torch.manual_seed(2)
    module = kind(5, 7, batch_first=batch_first, zoneout=0.2, dropout=0.3).double().eval()
    with torch.no_grad():
        for p in module.parameters():
            p.add_(0.1 * torch.randn_like(p))
    x, state = torch.randn(6, 3, 5).double(), tuple(torch.randn(1, 3, 7).double() for _ in range(2))
    y, (h, c) = module(x.transpose(0, 1) if batch_first else x, state)
    expected, last = haste_plain(module, x, state[0][0], state[1][0])
    torch.testing.assert_close(y.transpose(0, 1) if batch_first else y, expected, rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(c[0], last, rtol=1e-11, atol=1e-12)
    assert h.shape == (1, 3, 7)
    parameters = list(module.parameters())
    for is_, value in zip(
        torch.autograd.grad(y.square().sum(), parameters),
        torch.autograd.grad(expected.square().sum(), parameters),
        strict=True,
    ):
        torch.testing.assert_close(is_, value, rtol=1e-9, atol=1e-11)
    shorter, (h_3, _) = module(
        x.transpose(0, 1) if batch_first else x, state, lengths=torch.tensor([3, 6, 1])
    )
    torch.testing.assert_close(h_3[0, 0], expected[2, 0])
    assert shorter.shape == y.shape


def test_haste_state_sequences_and_training() -> None:
    module = haste.LSTM(5, 7, batch_first=True, return_state_sequence=True, zoneout=0.5, forget_bias=3.0)
    assert (module.bias[14:21] == 3).all() and module.bias.count_nonzero() == 7
    y, (h, c) = module(torch.randn(3, 6, 5))
    assert h.shape == c.shape == (1, 3, 6, 7) and torch.equal(h[0], y)
    assert abs((y[:, 1:] == y[:, :-1]).float().mean() - 0.5) < 0.25
    for options in ({"dropout": 1.0}, {"zoneout": -0.1}):
        with pytest.raises(ValueError, match="LSTM: (dropout|zoneout) must be in"):
            haste.LSTM(5, 7, **options)  # type: ignore[arg-type]


def test_haste_exchanges_weights_with_torch() -> None:
    torch.manual_seed(3)
    native, module, x = nn.LSTM(5, 7), haste.LSTM(5, 7), torch.randn(6, 3, 5)
    module.from_native_weights(*(p for _, p in native.named_parameters()))
    torch.testing.assert_close(module(x)[0], native(x)[0])
    ih, hh, bias_ih, bias_hh = module.to_native_weights()
    assert torch.equal(ih, native.weight_ih_l0) and torch.equal(hh, native.weight_hh_l0)
    assert torch.equal(bias_ih, bias_hh)
    torch.testing.assert_close(bias_ih + bias_hh, sum(p for n, p in native.named_parameters() if "bias" in n))
