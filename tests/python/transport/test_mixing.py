"""Anderson's mixing, one round after the other, and in rounds that a GPU replays."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from warpalign._transport.mixing import Mixing

Map = Callable[[Tensor], tuple[Tensor, tuple[Tensor, ...]]]


def _map(device: torch.device) -> tuple[Tensor, Map, Tensor]:
    """A point (1, 40), and a map that shrinks differences from its limit, the more the larger they are."""
    draw = torch.Generator().manual_seed(0)
    limit, start = (torch.rand(1, 40, dtype=torch.float64, generator=draw).to(device) for _ in range(2))
    basis = torch.linalg.qr(torch.rand(40, 40, dtype=torch.float64, generator=draw)).Q.to(device)
    shrunk = basis * torch.linspace(0.1, 0.99, 40, dtype=torch.float64, device=device) @ basis.T

    def of(point: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        image = limit + torch.tanh(point - limit) @ shrunk
        return image, (image.sum(1),)

    return start, of, limit


def _by_least_squares(point: Tensor, of: Map, count: int) -> Tensor:
    """The last of so many images, with weights from the least squares of the last ten differences."""
    points, images = [point], [of(point)[0]]
    for _ in range(count - 1):
        moves = torch.cat(images) - torch.cat(points)
        turns, changes = moves.diff(dim=0)[-10:], torch.cat(images).diff(dim=0)[-10:]
        following = images[-1]
        if len(turns):
            weights = torch.linalg.lstsq(turns.T.cpu(), moves[-1:].T.cpu(), driver="gelsd").solution
            following = following - weights.T.to(point.device) @ changes
        points.append(following)
        images.append(of(following)[0])
    return images[-1]


@pytest.mark.parametrize("count", [1, 2, 9, 11, 12, 25])
def test_points_are_those_of_least_squares(count: int, device: torch.device) -> None:
    start, of, limit = _map(device)
    mixing = Mixing(start)
    for _ in range(count):
        mixing.next(of)
    image, (results,) = mixing.found
    expected = _by_least_squares(start, of, count)
    # The products of the differences have twice the digits that least squares lose.
    torch.testing.assert_close(image, expected, rtol=1e-3, atol=1e-3 * float((expected - limit).abs().max()))
    torch.testing.assert_close(results, image.sum(1))
    assert mixing.moved > 0


def test_without_mixing_points_are_images(device: torch.device) -> None:
    point, of, _ = _map(device)
    mixing = Mixing(point, mixes=False)
    for _ in range(5):
        mixing.next(of)
        before, point = point, of(point)[0]
        assert mixing.moved == float((point - before).abs().max())
    assert torch.equal(mixing.found[0], point)


def test_a_limit_that_is_reached_stays(device: torch.device) -> None:
    _, of, limit = _map(device)
    mixing = Mixing(limit)
    for _ in range(13):
        mixing.next(of)
        assert mixing.moved <= 1e-15
    assert torch.equal(mixing.found[0], limit)


def test_what_is_not_finite_stays_so(device: torch.device) -> None:
    point, of, _ = _map(device)
    mixing = Mixing(point * torch.nan)
    for _ in range(3):
        mixing.next(of)
        assert not mixing.moved > 0


@pytest.mark.gpu
def test_replayed_rounds_are_the_same(cuda: torch.device) -> None:
    found = []
    for replays in (True, False):
        point, of, _ = _map(cuda)
        mixing = Mixing(point)
        for _ in range(25):
            mixing.next(of, replays)
        found.append((mixing.moved, mixing.found))
    (moved, (image, results)), (other_moved, (other_image, other_results)) = found
    assert moved == other_moved and torch.equal(image, other_image)
    assert torch.equal(results[0], other_results[0])
