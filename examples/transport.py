#!/usr/bin/env python3
"""Optimal transport at work on real data: colours of photographs, digits of two domains, a flow of point clouds.

Data: what scikit-learn ships (transport_steps/data.py); nothing is downloaded. Runs on the GPU where there is one.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import NamedTuple

import torch

import warpalign
from command_line import choose_device, parse_arguments
from transport_steps import colour, data, digits, flow, plots

SEED = 0


class Size(NamedTuple):
    pixels: int
    """Pixels of each photograph that the plan is made of."""
    shrink: int
    """Every so many rows and columns of the photograph are coloured."""
    digits: int | None
    """Images of each domain; None: all."""
    points: int
    frames: int
    steps: int
    """Steps of gradient descent between two frames."""


FULL = Size(pixels=20000, shrink=1, digits=None, points=1500, frames=6, steps=8)
QUICK = Size(pixels=1000, shrink=4, digits=400, points=200, frames=6, steps=4)


def run(arguments: argparse.Namespace) -> None:
    start = time.perf_counter()
    size, out = QUICK if arguments.quick else FULL, arguments.out
    device = choose_device(arguments.device)
    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(SEED)
    print(f"warpalign {warpalign.__version__}, torch {torch.__version__}, {device}")

    source, target = data.load_photograph("china.jpg", size.shrink), data.load_photograph("flower.jpg", 1)
    recoloured = [
        colour.transfer(source, target, size.pixels, rho, device, SEED) for rho in (None, colour.RHO)
    ]
    for one in recoloured:
        print(
            f"colours, {one.name}: {size.pixels} x {size.pixels} pixels in {one.solve_s:.2f} s "
            f"({one.iterations} iterations), {source.shape[0] * source.shape[1]} pixels moved in {one.map_s:.2f} s"
        )
    for peer in colour.peers(source, target, size.pixels, recoloured[0], device, SEED):
        print(f"  the same plan by {peer.name}: {peer.seconds:.2f} s, {peer.ratio:.1f} times ours")
    plots.plot_colours(source, target, recoloured, out / "transport_colour.png")

    domains = data.load_digits(size.digits, SEED)
    found = digits.adapt(domains, device)
    for name, accuracy in found.accuracies.items():
        print(f"digits, {name}: {accuracy:.1%}")
    plots.plot_digits(domains, found, out / "transport_digits.png")

    frames = flow.flow(
        data.digit_points(3, size.points), data.digit_points(8, size.points), size.frames, size.steps, device
    )
    print(f"flow: divergence {frames.divergences[0]:.4f} -> {frames.divergences[-1]:.6f}")
    plots.plot_flow(frames, out / "transport_flow.png")
    print(f"Plots in {out}/, {time.perf_counter() - start:.0f} s in all.")


def main() -> int:
    try:
        run(parse_arguments(__doc__, quick="fewer pixels, digits, points and steps"))
    except (OSError, RuntimeError, ValueError, ImportError) as error:
        print(f"transport: {str(error).splitlines()[0]}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
