"""LSTMPredictor: the same outputs for whole targets and label by label, in the decoders, in every dtype and device."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from tests.python.helpers import HALF_DTYPES
from warpalign.transducer import LSTMPredictor, TransducerJointLoss


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, *HALF_DTYPES])
@pytest.mark.parametrize("projection", [0, 5])
def test_steps_are_those_of_whole_targets(dtype: torch.dtype, projection: int, device: torch.device) -> None:
    torch.manual_seed(0)
    predictor = LSTMPredictor(
        12, 6, 10, 2, start=3, dtype=dtype, device=device, proj_size=projection, activation="hard"
    ).eval()
    targets = torch.randint(0, 12, (4, 7), device=device)
    whole = predictor(targets)
    assert whole.shape == (4, 8, projection or 10) and whole.dtype == dtype
    state = predictor.initial_state(4)
    assert [part.shape for part in state] == [(2, 4, projection or 10), (2, 4, 10)]
    assert all(part.dtype == dtype and part.device == whole.device for part in state)
    with torch.no_grad():
        for u, tokens in enumerate(F.pad(targets, (1, 0), value=3).T):
            before = tuple(part.clone() for part in state)
            row, after = predictor.step(tokens, state)
            assert all(torch.equal(part, own) for part, own in zip(state, before, strict=True))
            tolerance = {torch.float64: 1e-12, torch.float32: 1e-6}.get(dtype, 2e-2)
            torch.testing.assert_close(row, whole[:, u], atol=tolerance, rtol=tolerance)
            state = after


def test_padding_of_targets_is_read_as_the_first_label(device: torch.device) -> None:
    predictor = LSTMPredictor(5, 3, 4, device=device)
    targets = torch.tensor([[1, 2, -1], [3, -1, -1]], device=device)
    filled = torch.where(targets < 0, 4, targets)
    assert torch.equal(predictor(targets), predictor(filled))
    assert torch.equal(predictor(targets.to(torch.int32)), predictor(filled))
    assert predictor(targets[:, :0]).shape == (2, 1, 4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_decoders_take_it(dtype: torch.dtype, device: torch.device) -> None:
    torch.manual_seed(0)
    predictor = LSTMPredictor(9, 4, 6, dtype=dtype, device=device)
    transducer = TransducerJointLoss(6, 9, dtype=dtype, device=device)
    encoder_out = torch.randn(2, 5, 6, dtype=dtype, device=device)
    targets = torch.randint(0, 8, (2, 3), device=device)
    transducer(encoder_out, predictor(targets), targets).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in predictor.parameters())
    greedy = transducer.eval().greedy_decode(encoder_out, None, predictor.eval())
    beam = transducer.beam_decode(encoder_out, None, predictor, beam=3)
    assert greedy.tokens.shape[0] == 2 and beam[0].tokens.shape[0] == 2
