"""Times the alignment of two slices of tissue by compat.paste.pairwise_align beside PASTE's own formulation on POT's solver.

    python -m benchmarks.transport.slices [--device cuda] [--spots 2000 20000]

PASTE 1.4 does not run with today's POT. So the baseline is ot.gromov.fused_gromov_wasserstein as PASTE calls its copy of that function:
the same objective, weights and start, at most 200 steps of conditional gradients with an exact solver in each, tolerances 1e-9, float64.
On a CPU it has NumPy arrays and on a GPU tensors there, whose linear problems POT solves on the CPU. Both sides begin from coordinates and
expression. Slices have layers of different expression; the second one is rotated, with its spots at other places.

`seconds` is one solve, on a CPU the CPU time of one thread, on a GPU by the clock after a small solve. `objective` is PASTE's, without an
entropic term, in float64. `same_layer` is the share of spots whose largest entry of the plan is in their own layer, `off` the median
distance, in spots, between a spot and the mean of what it is matched with. A solve beyond --limit seconds is ended, and its row has
`least_s`. Writes benchmarks/results/<device>/<date>-<commit>-transport-slices.json.
"""

from __future__ import annotations

import argparse
import math
import os
import time
import warnings
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from benchmarks.harness.results import (
    Row,
    add_arguments,
    device_name,
    result_path,
    rounded,
    stamp,
    write_rows,
)
from warpalign.compat.paste import pairwise_align

ALPHA = 0.1  # PASTE's default
STEPS = 200
GENES, LAYERS = 60, 8


class Slice:
    """What is read of an AnnData."""

    def __init__(self, expression: np.ndarray[Any, Any], places: np.ndarray[Any, Any]) -> None:
        self.X, self.obsm = expression, {"spatial": places}
        self.layers: dict[str, object] = {}
        self.var_names = [f"gene {k}" for k in range(expression.shape[1])]

    def __getitem__(self, index: Any) -> Slice:
        return self  # all genes, in their order


class Pair(NamedTuple):
    """Two slices with the layers of their spots, and places of both in one frame, where spots are 1 apart."""

    slices: tuple[Slice, Slice]
    layers: tuple[Tensor, Tensor]
    places: tuple[Tensor, Tensor]


def pair(spots: int) -> Pair:
    side = round(math.sqrt(spots))
    generator = torch.Generator().manual_seed(0)
    profiles = 4 * torch.rand(LAYERS, GENES, generator=generator)
    across = 8 * torch.rand(GENES, generator=generator)
    turn = torch.tensor(40 * math.pi / 180)
    rotation = torch.stack([turn.cos(), -turn.sin(), turn.sin(), turn.cos()]).view(2, 2)
    slices, of_layers, of_places = [], [], []
    for number in range(2):
        axis = torch.arange(side, dtype=torch.float32)
        places = torch.cartesian_prod(axis, axis)
        places += 0.3 * (torch.rand(places.shape, generator=generator) - 0.5)
        unit = (places / side).clamp(min=0)
        depth = unit[:, 1] + 0.15 * torch.sin(3 * unit[:, 0])
        layers = (LAYERS * depth).floor().clamp(0, LAYERS - 1).long()
        expression = torch.poisson(profiles[layers] + unit[:, :1] * across, generator)
        seen = places @ rotation.T if number else places
        slices.append(Slice(expression.double().numpy(), seen.double().numpy()))
        of_layers.append(layers)
        of_places.append(places)
    return Pair((slices[0], slices[1]), (of_layers[0], of_layers[1]), (of_places[0], of_places[1]))


def matrices(of: Pair, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """PASTE's dissimilarity of expression and distances of coordinates, in float64."""
    p, q = (torch.from_numpy(one.X).to(device) + 0.01 for one in of.slices)
    p, q = (one / one.sum(1, keepdim=True) for one in (p, q))
    dissimilarity = (p * p.log()).sum(1, keepdim=True) - p @ q.log().T
    x, y = (torch.from_numpy(one.obsm["spatial"]).to(device) for one in of.slices)
    return dissimilarity, torch.cdist(x, x), torch.cdist(y, y)


def ours(of: Pair, device: torch.device, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.from_numpy(pairwise_align(*of.slices, alpha=ALPHA, device=device, dtype=dtype)).to(device)


def of_pot(of: Pair, device: torch.device) -> Tensor:
    import ot

    cost, dx, dy = matrices(of, device)
    arrays: list[Any] = [t if device.type == "cuda" else t.numpy() for t in (cost, dx, dy)]
    options = {"loss_fun": "square_loss", "alpha": ALPHA, "max_iter": STEPS, "tol_rel": 1e-9, "tol_abs": 1e-9}
    plan = ot.gromov.fused_gromov_wasserstein(*arrays, **options)
    return torch.as_tensor(plan, device=device)


SOLVERS: dict[str, Callable[[Pair, torch.device], Tensor]] = {
    "warpalign": ours,
    "warpalign, float32": partial(ours, dtype=torch.float32),
    "POT": of_pot,
}


def quality(of: Pair, plan: Tensor) -> Row:
    cost, dx, dy = matrices(of, plan.device)
    a, b = plan.sum(1), plan.sum(0)
    distortion = a @ dx.square() @ a + b @ dy.square() @ b - 2 * (dx @ plan @ dy * plan).sum()
    objective = (1 - ALPHA) * (cost * plan).sum() + ALPHA * distortion
    layers, others = (one.to(plan.device) for one in of.layers)
    places, of_others = (one.to(plan) for one in of.places)
    off = (plan @ of_others / a[:, None] - places).norm(dim=1).median()
    return {
        "objective": rounded(float(objective), 6),
        "same_layer": rounded(float((others[plan.argmax(1)] == layers).double().mean())),
        "off": rounded(float(off), 3),
        "off_sums": rounded(float((a * len(a) - 1).abs().max()), 2),
    }


def solved(impl: str, spots: int, device: torch.device, answer: Connection) -> None:
    """Sends the measured columns of one solve in this process."""
    warnings.simplefilter("ignore")
    if device.type == "cpu":
        torch.set_num_threads(1)
    now = time.process_time if device.type == "cpu" else time.perf_counter
    solve = SOLVERS[impl]
    solve(pair(100), device)  # loads what the first call loads
    of = pair(spots)
    answer.send("begun")
    start = now()
    plan = solve(of, device)
    if device.type == "cuda":
        torch.cuda.synchronize()
    answer.send({"seconds": rounded(now() - start)} | quality(of, plan))


def alone(impl: str, spots: int, device: torch.device, limit: float) -> Row:
    """solved() in a process of its own, which is ended after the limit."""
    context = get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=solved, args=(impl, spots, device, there))
    process.start()
    there.close()
    try:
        here.recv()  # it has begun
        row: Row = here.recv() if here.poll(limit) else {"least_s": limit}
    except EOFError:
        row = {"error": "the process ended"}
    finally:
        process.kill()
        process.join()
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default: cpu)")
    parser.add_argument(
        "--spots", type=int, nargs="*", default=[2000], help="of a slice, about (default: 2000)"
    )
    parser.add_argument("--limit", type=float, default=600, help="seconds of a solve (default: 600)")
    parser.add_argument("--impls", nargs="*", default=list(SOLVERS), choices=list(SOLVERS))
    add_arguments(parser)
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    if device.type == "cpu":
        os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    path, commit = result_path(arguments, device_name(device), "-transport-slices")
    rows: list[Row] = []
    for spots in arguments.spots:
        count = len(pair(spots).layers[0])
        for impl in arguments.impls:
            if impl == "POT" and find_spec("ot") is None:
                continue
            row: Row = {"op": "transport-slices", "impl": impl, "device": device_name(device)}
            row |= {"N": count, "M": count, "genes": GENES, "alpha": ALPHA, "threads": 1}
            row |= alone(impl, spots, device, arguments.limit)
            print({key: value for key, value in row.items() if key not in ("op", "device")}, flush=True)
            rows.append(row | stamp(commit))
            write_rows(rows, path)
    print(path)


if __name__ == "__main__":
    main()
