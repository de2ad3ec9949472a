"""Models between torch.nn.LSTM and the package's LSTM: what is replaced, what is restored, what is left, and who says so."""

from __future__ import annotations

import copy
import logging
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune

from tests.python.recurrent.models import Model
from warpalign._core import checks
from warpalign.recurrent import LSTM, HardLSTM, LSTMCell, replace_lstm, restore_lstm


class Subclass(nn.LSTM):
    pass


def messages(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    assert all(record.name == "warpalign" for record in caplog.records)
    return [record.getMessage() for record in caplog.records if record.levelno == level]


def test_replacing_names_what_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "warpalign")
    model = replace_lstm(Model())
    assert messages(caplog, logging.INFO) == ["replace_lstm: replaced encoder, inner.0"]
    assert not messages(caplog, logging.WARNING)
    caplog.clear()
    replace_lstm(model)  # nothing is left to do, and nothing was skipped
    assert not caplog.records
    replace_lstm(nn.LSTM(5, 7))
    assert messages(caplog, logging.INFO) == ["replace_lstm: replaced the model itself"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_replacing_warns_once_of_all_that_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    model = nn.ModuleDict(
        {
            "plain": nn.LSTM(5, 7),
            "sub": Subclass(5, 7),
            "cell": nn.LSTMCell(5, 7),
            "normed": parametrizations.weight_norm(nn.LSTM(5, 7), "weight_hh_l0"),
            "scripted": torch.jit.script(nn.LSTM(5, 7)),
            "ours": LSTM(5, 7),
            "our_cell": LSTMCell(5, 7, activation="hard"),
            "gru": nn.GRU(5, 7),
        }
    )
    model["quantized"] = torch.ao.nn.quantized.dynamic.LSTM(5, 7)
    kinds = {name: type(module) for name, module in model.items()}
    replace_lstm(model, activation="hard")
    assert {name for name, kind in kinds.items() if type(model[name]) is not kind} == {"plain"}
    (warning,) = messages(caplog, logging.WARNING)
    assert warning.startswith("replace_lstm: expected torch.nn.LSTM modules, left as they are: ")
    for part in (
        "sub (Subclass is a subclass, which may compute something else: derive it from warpalign.recurrent.LSTM)",
        "cell (a torch.nn.LSTMCell: construct warpalign.recurrent.LSTMCell in its place)",
        "normed (weight_hh_l0 parametrized: replace the LSTM first, and parametrize it then)",
        "scripted (scripted: replace the LSTM before torch.jit)",
        "quantized (quantized: replace the LSTM of the model in floating point)",
        "ours (already a warpalign LSTM, with another activation)",
    ):
        assert part in warning
    assert "our_cell" not in warning and "gru" not in warning and "plain" not in warning


def test_replacing_warns_where_there_is_no_lstm(caplog: pytest.LogCaptureFixture) -> None:
    replace_lstm(nn.Sequential(nn.GRU(5, 7)))
    assert messages(caplog, logging.WARNING) == [
        "replace_lstm: model: expected a torch.nn.LSTM within it, got none: nothing is replaced"
    ]


@pytest.mark.filterwarnings("ignore:.*weight_norm.*is deprecated:FutureWarning")
@pytest.mark.parametrize("how", ["prune", "weight_norm", "spectral_norm"])
def test_layers_with_hooks_on_weights_are_replaced(how: str) -> None:
    torch.manual_seed(1)
    module: Any = nn.LSTM(5, 7)
    x = torch.randn(6, 3, 5)
    if how == "prune":
        prune.random_unstructured(module, "weight_hh_l0", 0.5)
    else:
        getattr(nn.utils, how)(module, "weight_hh_l0")
    module.eval()
    expected = module(x)[0]
    assert type(replace_lstm(module)) is LSTM
    torch.testing.assert_close(module(x)[0], expected)
    with torch.no_grad():  # the hooks make the weights anew in every call
        for parameter in module.parameters():
            parameter.mul_(2)
    assert not torch.allclose(module(x)[0], expected)
    if how == "prune":
        assert (module.weight_hh_l0 == 0).sum() == module.weight_hh_l0.numel() // 2
        prune.remove(module, "weight_hh_l0")
    assert type(restore_lstm(module)) is nn.LSTM
    changed = module(x)[0]
    torch.testing.assert_close(replace_lstm(module)(x)[0], changed)


@pytest.mark.parametrize("options", [{"activation": "softer"}, {"forget_bias": 1.0}])
def test_a_refused_option_leaves_the_model_as_it_was(options: dict[str, Any]) -> None:
    model, x = nn.Sequential(nn.LSTM(5, 7), nn.LSTM(7, 7, bias=False)), torch.randn(6, 3, 5)
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError, match="^(activation|forget_bias): "):
        replace_lstm(model, **options)
    assert [type(module) for module in model] == [nn.LSTM, nn.LSTM]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    model[0](x)


def test_restoring_is_the_way_back(caplog: pytest.LogCaptureFixture) -> None:
    torch.manual_seed(2)
    model, x = Model().eval(), torch.randn(3, 6, 5)
    expected, shown, keys = model(x), repr(model), list(model.state_dict())
    parameters = list(model.parameters())
    calls = []
    model.encoder.register_forward_hook(lambda *_: calls.append(1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    caplog.set_level(logging.INFO, "warpalign")
    assert restore_lstm(replace_lstm(model, precision="medium", recompute=True)) is model
    assert messages(caplog, logging.INFO)[1] == "restore_lstm: restored encoder, inner.0"
    assert type(model.encoder) is nn.LSTM and type(model.inner[0]) is nn.LSTM
    assert repr(model) == shown and list(model.state_dict()) == keys
    assert vars(model.encoder).keys() == vars(nn.LSTM(5, 7)).keys()
    assert all(a is b for a, b in zip(model.parameters(), parameters, strict=True))
    assert torch.equal(model(x), expected) and calls
    model(x).square().sum().backward()
    optimizer.step()
    assert not torch.equal(model(x), expected)
    copy.deepcopy(model)(x)


def test_restoring_cells_and_soft_modules_of_other_classes() -> None:
    x = torch.randn(6, 3, 5)
    cell = LSTMCell(5, 7)
    expected = cell(x[0])
    assert type(restore_lstm(cell)) is nn.LSTMCell
    torch.testing.assert_close(cell(x[0]), expected)
    soft = HardLSTM(5, 7, activation="soft", zoneout=(0.0, 0.0), forget_bias=1.0)
    values = soft(x)[0]
    assert type(restore_lstm(soft)) is nn.LSTM
    torch.testing.assert_close(soft(x)[0], values)


UNLIKE: dict[str, tuple[nn.Module, str]] = {
    "hard": (HardLSTM(5, 7), "activation='hard'"),
    "cell": (LSTMCell(5, 7, activation="hard"), "activation='hard'"),
    "zoneout": (LSTM(5, 7, zoneout=(0.0, 0.1)), "zoneout=(0.0, 0.1)"),
    "two": (LSTM(5, 7, layer_norm=True, rw_dropout=0.1), "rw_dropout=0.1, layer_norm=True"),
    "states": (LSTM(5, 7, return_all_states=True), "return_all_states=True"),
    "state_dtype": (LSTM(5, 7, state_dtype=torch.float32), "state_dtype=torch.float32"),
    "invariant": (LSTM(5, 7, batch_invariant=True), "batch_invariant=True"),
    "subclass": (type("Own", (LSTM,), {})(5, 7), "Own is a subclass, which may compute something else"),
    "parametrized": (
        parametrizations.weight_norm(LSTM(5, 7), "weight_hh_l0"),
        "weight_hh_l0 parametrized: call torch.nn.utils.parametrize.remove_parametrizations first",
    ),
}


@pytest.mark.parametrize("name", UNLIKE)
def test_what_torch_cannot_express_is_refused_or_left(name: str, caplog: pytest.LogCaptureFixture) -> None:
    unlike, reason = UNLIKE[name]
    model: Any = nn.ModuleDict({"plain": LSTM(5, 7), name: copy.deepcopy(unlike)})
    with pytest.raises(ValueError) as caught:
        restore_lstm(model)
    assert str(caught.value) == (
        f"model: expected modules that torch.nn.LSTM can express, got {name} ({reason}): "
        'unsupported="leave" leaves them as they are'
    )
    assert model["plain"]._options, "unchanged"
    restore_lstm(model, unsupported="leave")
    assert type(model["plain"]) is nn.LSTM and type(model[name]) is type(unlike)
    assert messages(caplog, logging.WARNING) == [f"restore_lstm: left as they are: {name} ({reason})"]
    assert isinstance(model[name], (LSTM, LSTMCell)) and model[name]._options == unlike._options


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_dynamic_quantization(monkeypatch: pytest.MonkeyPatch) -> None:
    """It converts torch.nn.LSTM alone, by its class: of ours it says that they stay."""
    monkeypatch.setattr(checks, "_warned", set())
    torch.manual_seed(3)
    model: Any = replace_lstm(Model()).eval()
    x = torch.randn(3, 6, 5)
    with pytest.warns(
        UserWarning, match=r"^torch.ao.quantization: expected torch.nn.LSTM, got warpalign's LSTM"
    ):
        left = torch.ao.quantization.quantize_dynamic(model, {nn.LSTM, nn.Linear})
    assert type(left.encoder) is LSTM and not hasattr(left.encoder, "qconfig")
    torch.testing.assert_close(left.encoder(x)[0], model.encoder(x)[0])
    plain = nn.Sequential(LSTM(5, 7)).eval()
    quantized = torch.ao.quantization.quantize_dynamic(restore_lstm(copy.deepcopy(plain)), {nn.LSTM})
    assert isinstance(quantized[0], torch.ao.nn.quantized.dynamic.LSTM)
    error = (quantized(x.transpose(0, 1))[0] - plain(x.transpose(0, 1))[0]).abs().max()
    assert 0 < error < 0.02  # eight bits of weights up to 0.4
