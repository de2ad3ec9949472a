"""Colour transfer: the pixels of one photograph are moved to the colours of another (Ferradans et al., SIIMS 2014)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import NamedTuple

import torch
from torch import Tensor

from warpalign import SinkhornTransport
from warpalign.transport import Annealing, sinkhorn

EPSILON = 0.005  # of squared distances in the cube of colours
RHO = 0.05


class Recoloured(NamedTuple):
    name: str
    image: Tensor
    solve_s: float
    iterations: int
    map_s: float


class Peer(NamedTuple):
    name: str
    seconds: float
    ratio: float
    """To our time for the same."""


def some_pixels(image: Tensor, count: int, seed: int) -> Tensor:
    """(count, 3) pixels, drawn at random."""
    pixels = image.reshape(-1, 3)
    generator = torch.Generator().manual_seed(seed)
    return pixels[torch.randint(len(pixels), (count,), generator=generator)]


def transfer(
    source: Tensor, target: Tensor, count: int, rho: float | None, device: torch.device, seed: int
) -> Recoloured:
    """The source in the target's colours. With rho the target's colours need not all be used in their share."""
    model = SinkhornTransport(
        EPSILON, cost_normalization=None, rho_a=rho, rho_b=rho, annealing=0.5, max_iter=100, device=device
    )
    xs, xt = some_pixels(source, count, seed).numpy(), some_pixels(target, count, seed + 1).numpy()
    start = time.perf_counter()
    model.fit(xs, Xt=xt)
    middle = time.perf_counter()
    moved = torch.from_numpy(model.transform(source.reshape(-1, 3).numpy()))
    end = time.perf_counter()
    name = "all colours" if rho is None else "relaxed"
    image = moved.clamp(0, 1).reshape(source.shape)
    return Recoloured(name, image, middle - start, model.n_iter_, end - middle)


def peers(
    source: Tensor, target: Tensor, count: int, ours: Recoloured, device: torch.device, seed: int
) -> Iterator[Peer]:
    """The same number of iterations at the same epsilon by packages that are installed, next to ours."""
    x = some_pixels(source, count, seed).to(device)
    y = some_pixels(target, count, seed + 1).to(device)
    iterations = min(ours.iterations, 20)
    mine = _seconds(lambda: sinkhorn(x, y, epsilon=EPSILON, max_iter=iterations, tol=0.0).value, device)
    if find_spec("ot") is not None:
        import ot

        def of_pot() -> object:
            weights = torch.full((count,), 1 / count, device=device)
            costs = torch.cdist(x, y).square()
            return ot.sinkhorn(
                weights,
                weights,
                costs,
                EPSILON,
                method="sinkhorn_log",
                numItermax=iterations,
                stopThr=0,
                warn=False,
            )

        seconds = _seconds(of_pot, device)
        yield Peer(f"POT, {iterations} iterations", seconds, seconds / mine)
    if find_spec("geomloss") is not None:
        from geomloss import SamplesLoss

        loss = SamplesLoss(blur=EPSILON**0.5, scaling=0.5, debias=False, backend="tensorized")
        scaled = _seconds(lambda: loss(x * 2**0.5, y * 2**0.5), device)
        own = _seconds(
            lambda: sinkhorn(
                x, y, epsilon=EPSILON, annealing=Annealing(start=2.0, factor=0.25), max_iter=2, tol=0.0
            ),
            device,
        )
        yield Peer("geomloss, its own list of epsilons", scaled, scaled / own)


def _seconds(job: Callable[[], object], device: torch.device) -> float:
    start = time.perf_counter()
    job()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start
