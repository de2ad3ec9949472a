"""ONNX files of models with LSTMs, run by onnxruntime."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from warpalign.recurrent import LSTM, onnx_translations, restore_lstm

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


class Model(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.lstm, self.head = LSTM(5, 6, **options), nn.LazyLinear(3)

    def forward(self, x: Tensor, h0: Tensor, c0: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, ...]:
        if isinstance(self.lstm, LSTM):
            y, (h_n, c_n) = self.lstm(x, (h0, c0), input_lengths=lengths)
        else:
            y, (h_n, c_n) = self.lstm(x, (h0, c0))
        return self.head(y), h_n, c_n


@pytest.mark.parametrize("how", ["translated", "translated with lengths", "restored"])
@pytest.mark.parametrize(
    "options", [{}, {"num_layers": 2, "bidirectional": True, "batch_first": True, "bias": False}]
)
def test_onnx_files_compute_the_same(how: str, options: dict[str, Any], tmp_path: Path) -> None:
    torch.manual_seed(1)
    model = Model(**options).eval()
    cells = model.lstm.num_layers * (1 + model.lstm.bidirectional)
    given = [torch.randn(4, 4, 5), torch.randn(cells, 4, 6), torch.randn(cells, 4, 6)]
    given += [torch.tensor([4, 1, 3, 2])] if how.endswith("lengths") else []
    expected = model(*given)
    exported = restore_lstm(copy.deepcopy(model)) if how == "restored" else model
    table = None if how == "restored" else onnx_translations()
    file = tmp_path / "model.onnx"
    with torch.no_grad():
        program = torch.onnx.export(
            exported, tuple(given), custom_translation_table=table, dynamo=True, verbose=False
        )
    program.save(file)
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_inputs()]
    found = session.run(None, {name: t.numpy() for name, t in zip(names, given, strict=True)})
    for is_, value in zip(found, expected, strict=True):
        torch.testing.assert_close(torch.from_numpy(is_), value.detach(), rtol=1e-5, atol=1e-6)


def test_what_onnx_does_not_have_is_refused_by_name() -> None:
    model = LSTM(5, 6, activation="hard").eval()
    with pytest.raises(torch.onnx.errors.OnnxExporterError) as caught:
        torch.onnx.export(
            model, (torch.randn(4, 2, 5),), custom_translation_table=onnx_translations(), dynamo=True
        )
    causes, error = [], caught.value
    while error is not None:
        causes.append(str(error))
        error = error.__cause__  # type: ignore[assignment]
    assert causes[-1] == (
        "onnx_translations: expected a soft LSTM without options, got activation, which ONNX's LSTM does not have"
    )
