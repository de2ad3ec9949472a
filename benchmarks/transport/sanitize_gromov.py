"""The kernels of sampled Gromov-Wasserstein on small odd shapes: part of sanitize.py, on a GPU alone."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from benchmarks.harness.sanitizer_cases import Case
from warpalign._transport import anchor_ops, ops
from warpalign._transport.settings import Inputs, Settings, as_keywords

_MEDIUM = 2  # the place in `Precision`
_POINTS = (66, 131)
_LONG = (3, 8200)  # warpgroups make the passes of long sides


def _on_grid(count: int, coordinates: int, seed: int) -> Tensor:
    """Points of both signs that binary16 has."""
    points = torch.randn(count, coordinates, generator=torch.Generator().manual_seed(seed))
    return points.mul(64).round().div(64)


def rounded_wrong(points: tuple[int, int], coordinates: int, mass: float, device: torch.device) -> str | None:
    """What is wrong with Sinkhorn between rounded points, if anything is."""
    x, y = (_on_grid(count, coordinates, count)[None] for count in points)
    settings = Settings(
        epsilon=0.1 * coordinates, mass=mass, max_iterations=3, tolerance=0.0, precision=_MEDIUM
    )
    nothing = (None,) * 8
    found = ops.sinkhorn_potentials(*Inputs(x.to(device), y.to(device), *nothing), **as_keywords(settings))
    expected = ops.sinkhorn_potentials(*Inputs(x.double(), y.double(), *nothing), **as_keywords(settings))
    for name, ours, theirs in zip(("value", "linear", "f", "g"), found, expected, strict=True):
        if not torch.allclose(ours.cpu().double(), theirs, rtol=1e-4, atol=1e-4 * settings.epsilon):
            return name
    return None


def anchors_wrong(geometry: str, device: torch.device) -> str | None:
    """What is wrong with coordinates and draws, if anything is."""
    x, y = (_on_grid(count, 37, count) for count in _POINTS)
    places = torch.arange(0, _POINTS[0], 2)
    unit = torch.full((1,), 16.0)
    number = anchor_ops.DISTANCES.index(geometry)
    found = anchor_ops.coordinates(x.to(device), places.to(device), unit.to(device), number)
    order = torch.inf if geometry == "landmark" else 2.0
    distances = torch.cdist(x.double(), x[places].double(), p=order)
    expected = (distances.square() if geometry == "sqeuclidean" else distances) / 16 - 0.5
    if not torch.allclose(found.cpu().double(), expected, rtol=1e-3, atol=1e-5):
        return "coordinates"
    # At a small epsilon the nearest point is drawn.
    zeros = torch.zeros(_POINTS[1], device=device)
    drawn = anchor_ops.columns(x.to(device), y.to(device), zeros, None, places.to(device), 1.0, 1e-4, 1)
    nearest = torch.cdist(x[places].double(), y.double()).argmin(1)
    return None if torch.equal(drawn.cpu(), nearest) else "columns"


def cases(device: torch.device) -> Iterator[Case]:
    """A name, and what says what is wrong. None where there is no GPU: a CPU has none of these kernels."""
    if device.type != "cuda":
        return
    for coordinates in (3, 17, 81):
        for mass in (0.0, 0.5):
            yield (
                f"rounded points, {coordinates} coordinates, mass {mass}",
                partial(rounded_wrong, _POINTS, coordinates, mass, device),
            )
        yield f"long side, {coordinates} coordinates", partial(rounded_wrong, _LONG, coordinates, 0.0, device)
    for geometry in anchor_ops.DISTANCES:
        yield f"anchors, {geometry}", partial(anchors_wrong, geometry, device)
