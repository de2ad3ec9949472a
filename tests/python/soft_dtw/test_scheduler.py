"""GammaScheduler: the curves, and resuming."""

from __future__ import annotations

import math

import pytest
import torch

import warpalign
from tests.python.soft_dtw.reference import pair
from warpalign import GammaScheduler, SoftDTW

CURVES = {
    "linear": lambda t: 2.0 + (0.5 - 2.0) * t,
    "cosine": lambda t: 0.5 + 1.5 * (1 + math.cos(math.pi * t)) / 2,
    "exponential": lambda t: 2.0 * 0.25**t,
}


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("as_buffer", [False, True])
def test_curves(curve: str, as_buffer: bool) -> None:
    loss = SoftDTW(torch.tensor(2.0, dtype=torch.float64) if as_buffer else 2.0)
    scheduler = GammaScheduler(loss, end=0.5, steps=4, curve=curve)  # type: ignore[arg-type]
    for epoch in range(7):
        assert scheduler.last_epoch == epoch
        expected = CURVES[curve](min(epoch / 4, 1.0))
        assert float(loss.gamma) == pytest.approx(expected, rel=1e-12)
        assert scheduler.get_last_gamma() == pytest.approx(expected, rel=1e-12)
        scheduler.step()
    assert ("gamma" in loss.state_dict()) is as_buffer


def test_start_and_hard_end() -> None:
    loss = SoftDTW(7.0)
    scheduler = GammaScheduler(loss, start=1.0, end=0.0, steps=2, curve="linear")
    assert loss.gamma == 1.0
    scheduler.step()
    scheduler.step()
    x, y = pair(2, 6, 5, 2)
    assert torch.equal(loss(x, y), warpalign.dtw(x, y))


def test_resuming() -> None:
    scheduler = GammaScheduler(SoftDTW(1.0), end=0.01, steps=10, curve="cosine")
    for _ in range(3):
        scheduler.step()
    other = SoftDTW(5.0)
    resumed = GammaScheduler(other, end=1.0, steps=1)
    resumed.load_state_dict(scheduler.state_dict())
    assert other.gamma == scheduler.get_last_gamma()
    scheduler.step()
    resumed.step()
    assert other.gamma == scheduler.get_last_gamma() and resumed.last_epoch == 4
    # By the argument, as torch's schedulers do.
    third = SoftDTW(5.0)
    GammaScheduler(third, start=1.0, end=0.01, steps=10, curve="cosine", last_epoch=3)
    assert third.gamma == scheduler.get_last_gamma()


def test_a_buffer_changes_in_place() -> None:
    """What a captured graph reads."""
    loss = SoftDTW(torch.tensor(1.0))
    address = loss.gamma.data_ptr()  # type: ignore[union-attr]
    GammaScheduler(loss, end=0.1, steps=1).step()
    assert loss.gamma.data_ptr() == address and float(loss.gamma) == pytest.approx(0.1)  # type: ignore[union-attr]
