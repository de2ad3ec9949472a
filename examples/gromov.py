#!/usr/bin/env python3
"""Gromov-Wasserstein transport at work: two views of samples, graphs and their copies, curves of many points.

Data: what scikit-learn and networkx ship (gromov_steps/data.py); nothing is downloaded. Runs on the GPU where there is one.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import NamedTuple

import torch

import warpalign
from command_line import choose_device, parse_arguments
from gromov_steps import data, graphs, modalities, plots, scaling

SEED = 0


class Size(NamedTuple):
    samples: int | None
    """Samples of each data set with two views; None: all."""
    noise: list[float]
    """Shares of edges to rewire."""
    copies: int
    """Rewired copies of each graph for each share."""
    points: list[tuple[int, int]]
    """Numbers of points on the spiral and on the roll."""


FULL = Size(
    samples=None,
    noise=[0.0, 0.02, 0.05, 0.1, 0.2],
    copies=5,
    points=[(400, 500), (1000, 1200), (4000, 5000), (10000, 12000), (20000, 25000), (50000, 50000)],
)
QUICK = Size(samples=250, noise=[0.0, 0.1], copies=1, points=[(200, 250), (400, 500)])


def run(arguments: argparse.Namespace) -> None:
    start = time.perf_counter()
    size, out = QUICK if arguments.quick else FULL, arguments.out
    device = choose_device(arguments.device)
    out.mkdir(parents=True, exist_ok=True)
    print(f"warpalign {warpalign.__version__}, torch {torch.__version__}, {device}")

    matched = [modalities.match(views, device, SEED) for views in data.load_views(SEED, size.samples)]
    for one in matched:
        for name, share in one.closer.items():
            print(f"{one.of.name}, {name}: {share:.3f} of the samples are closer than the true match")
        print(f"{one.of.name}: {one.accuracy:.1%} of the labels arrive")
    plots.plot_modalities(matched, out / "gromov_modalities.png")

    networks = data.load_networks()
    recovered = [graphs.recover(one, size.noise, size.copies, device, SEED) for one in networks]
    for found in recovered:
        for noise, kept, nodes in zip(found.noise, found.kept, found.nodes, strict=True):
            print(
                f"{found.of.name}, {noise:.0%} rewired: {kept:.1%} of the edges found, {nodes:.1%} of the nodes"
            )
    factions = graphs.factions(networks[0], device)
    print(f"{networks[0].name}: {factions.agreement:.1%} of the members in their factions")
    plots.plot_graphs(recovered, factions, out / "gromov_graphs.png")

    rows = []
    for n, m in size.points:
        for row in (scaling.ours(n, m, device, SEED), scaling.pots(n, m)):
            if row is not None:
                rows.append(row)
                print(
                    f"spiral and roll, {row.name}, {n} x {m}: {row.seconds:.2f} s, {row.mebibytes:.0f} MiB, "
                    f"distortion {row.distortion:.5f}, correlation {row.correlation:.4f}"
                )
    plots.plot_scaling(rows, out / "gromov_scaling.png")
    print(f"Plots in {out}/, {time.perf_counter() - start:.0f} s in all.")


def main() -> int:
    try:
        run(parse_arguments(__doc__, quick="fewer copies of graphs and fewer points"))
    except (OSError, RuntimeError, ValueError, ImportError) as error:
        print(f"gromov: {str(error).splitlines()[0]}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
