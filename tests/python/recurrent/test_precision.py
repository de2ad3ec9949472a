"""Which precision of float32 products the LSTM's calls ask for."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from warpalign._recurrent import ops
from warpalign.recurrent import LSTM, LSTMCell, LSTMWeights, lstm


def test_it_is_that_of_torch_at_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls with gradients, without, with lengths, of cells, of streams and of the function; but with one of the module's own."""
    seen: list[int] = []

    def spy_of(operator: Any) -> Any:
        def spy(*arguments: Any, **settings: Any) -> Any:
            seen.append(settings.get("precision", 0))
            return operator(*arguments, **settings)

        return spy

    for name in ("lstm", "stream_"):
        monkeypatch.setattr(ops, name, spy_of(getattr(ops, name)))
    module, cell, own = LSTM(3, 4), LSTMCell(3, 4), LSTM(3, 4, precision="highest")
    stream = module.eval().stream(2)
    weights = [LSTMWeights(module.weight_ih_l0, module.weight_hh_l0)]
    x = torch.randn(5, 2, 3)
    before = torch.get_float32_matmul_precision()
    try:
        for precision in ("high", "medium", "highest"):
            torch.set_float32_matmul_precision(precision)
            module(x), module(x, input_lengths=torch.tensor([5, 2])), cell(x[0]), stream.step(x[0])
            lstm(x, weights), own(x)
            with torch.no_grad():
                module(x)
    finally:
        torch.set_float32_matmul_precision(before)
    assert seen == [2, 2, 2, 2, 2, 0, 2] * 2 + [0] * 7
