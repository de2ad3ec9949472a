"""A state_dict's metadata say which activation its weights belong to; loading others warns."""

from __future__ import annotations

import copy
import io
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from warpalign.compat.caiman import CustomLSTM
from warpalign.recurrent import LSTM, HardLSTM, LSTMCell, replace_lstm


def through_a_file(state: Any) -> Any:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


def warnings_of(load: Callable[[], object]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        load()
    assert all(one.filename == __file__ for one in caught), "at the line of the caller"
    return [str(one.message) for one in caught]


@pytest.mark.parametrize("pass_on", [lambda state: state, through_a_file, copy.deepcopy])
def test_weights_of_another_activation_warn(pass_on: Any) -> None:
    soft, hard = LSTM(5, 7), HardLSTM(5, 7)
    hard_text = '"hard" (hard_slope=0.125, hard_offset=0.5)'
    for source, target, came, is_ in ((soft, hard, '"soft"', hard_text), (hard, soft, hard_text, '"soft"')):
        state = pass_on(source.state_dict())
        (message,) = warnings_of(lambda: target.load_state_dict(state))  # noqa: B023
        name = type(target).__name__
        assert message == (
            f"state_dict: expected weights of activation={is_} for {name}, got those of activation={came}: construct the module "
            "with the activation of the checkpoint, or load dict(state_dict) to use the weights nevertheless"
        )
        assert warnings_of(lambda: target.load_state_dict(state)), "each time"  # noqa: B023
        assert torch.equal(target.weight_hh_l0, source.weight_hh_l0), "they are loaded all the same"
        assert not warnings_of(lambda: target.load_state_dict(dict(state)))  # noqa: B023
    assert not warnings_of(lambda: hard.load_state_dict(pass_on(HardLSTM(5, 7).state_dict())))
    assert not warnings_of(lambda: soft.load_state_dict(pass_on(LSTM(5, 7).state_dict())))
    steep = HardLSTM(5, 7, hard_slope=0.2)
    (message,) = warnings_of(lambda: steep.load_state_dict(hard.state_dict()))
    assert 'activation="hard" (hard_slope=0.2, hard_offset=0.5) for HardLSTM' in message
    (message,) = warnings_of(
        lambda: LSTMCell(5, 7, activation="hard").load_state_dict(LSTMCell(5, 7).state_dict())
    )
    assert 'for LSTMCell, got those of activation="soft"' in message


def test_weights_of_torchs_lstm_warn_in_a_hard_module() -> None:
    theirs = nn.LSTM(5, 7).state_dict()
    (message,) = warnings_of(lambda: HardLSTM(5, 7).load_state_dict(theirs))
    assert message == (
        'state_dict: expected weights of activation="hard" (hard_slope=0.125, hard_offset=0.5) for HardLSTM, got those of a '
        'module without that record, such as torch.nn.LSTM, whose activation is "soft": construct warpalign.recurrent.LSTM '
        "for soft weights, or load dict(state_dict) if they are hard"
    )
    assert not warnings_of(lambda: LSTM(5, 7).load_state_dict(theirs))
    assert not warnings_of(lambda: HardLSTM(5, 7).load_state_dict(dict(theirs))), "nobody knows"
    assert not warnings_of(lambda: nn.LSTM(5, 7).load_state_dict(HardLSTM(5, 7).state_dict()))
    assert not warnings_of(lambda: CustomLSTM(5, 7, hard=True).load_state_dict(theirs)), (
        "the original has no record"
    )
    assert warnings_of(lambda: CustomLSTM(5, 7, hard=True).load_state_dict(LSTM(5, 7).state_dict()))


def test_the_record_of_a_whole_model() -> None:
    model = replace_lstm(nn.Sequential(nn.Linear(5, 5), nn.Sequential(nn.LSTM(5, 7))))
    state = model.state_dict()
    assert list(state) == [name for name, _ in model.named_parameters()], "the keys are torch's"
    hard = replace_lstm(nn.Sequential(nn.Linear(5, 5), nn.Sequential(nn.LSTM(5, 7))), activation="hard")
    (message,) = warnings_of(lambda: hard.load_state_dict(state, assign=True))
    assert " for 1.0, got those of " in message
    assert not warnings_of(lambda: hard.load_state_dict(through_a_file(hard.state_dict())))
    assert not warnings_of(lambda: model.load_state_dict(state, strict=False))
    plain: dict[str, Any] = {}
    assert model.state_dict(destination=plain) is plain  # has no place for metadata
