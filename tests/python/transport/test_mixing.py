"""Anderson's mixing in rounds, as a GPU makes them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from warpalign._transport.mixing import MixedRounds, Mixing


def _map(device: torch.device) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, tuple[Tensor, ...]]]]:
    """A point (1, 40), and a map that shrinks differences from its limit, the more the larger they are."""
    draw = torch.Generator().manual_seed(0)
    limit, start = (torch.rand(1, 40, dtype=torch.float64, generator=draw).to(device) for _ in range(2))
    basis = torch.linalg.qr(torch.rand(40, 40, dtype=torch.float64, generator=draw)).Q.to(device)
    shrunk = basis * torch.linspace(0.1, 0.99, 40, dtype=torch.float64, device=device) @ basis.T

    def of(point: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        image = limit + torch.tanh(point - limit) @ shrunk
        return image, (image.sum(1),)

    return start, of


@pytest.mark.parametrize("count", [1, 2, 9, 30])
def test_rounds_are_calls_of_mixing(count: int, device: torch.device) -> None:
    point, of = _map(device)
    rounds, mixing = MixedRounds(point), Mixing()
    for _ in range(count):
        rounds.next(of, False)
        image = of(point)[0]
        point = mixing.next(point, image)
        assert rounds.moved == pytest.approx(mixing.moved, rel=1e-3, abs=1e-12)
    torch.testing.assert_close(rounds.found[0], image, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(rounds.found[1][0], rounds.found[0].sum(1))


def test_what_is_not_finite_stays_so(device: torch.device) -> None:
    point, of = _map(device)
    rounds = MixedRounds(point * torch.nan)
    for _ in range(3):
        rounds.next(of, False)
        assert not rounds.moved > 0


@pytest.mark.gpu
def test_replayed_rounds_are_the_same(cuda: torch.device) -> None:
    found = []
    for replays in (True, False):
        point, of = _map(cuda)
        rounds = MixedRounds(point)
        for _ in range(25):
            rounds.next(of, replays)
        found.append((rounds.moved, rounds.found))
    (moved, (image, results)), (other_moved, (other_image, other_results)) = found
    assert moved == other_moved and torch.equal(image, other_image)
    assert torch.equal(results[0], other_results[0])
