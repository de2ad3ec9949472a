"""Times Sinkhorn on one core of a CPU, beside POT's log domain and geomloss where they are installed.

CPU time of this thread, the least of several runs: other programs may run beside it. `iteration_ns` is a full iteration
(both potentials) per element of the cost matrix: the difference of two calls of unequal counts, over the difference.
`around_ms` is a call of one iteration, with the passes that find the logits' range, value and all gradients but those by
costs and points. Peers do the same number of full iterations of the same problem, in float32 as in float64.
Writes benchmarks/results/<cpu>/<date>-<commit>-transport-cpu.json.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib.util import find_spec
from typing import NamedTuple

import torch

from benchmarks.harness.results import (
    Row,
    add_arguments,
    cpu_name,
    result_path,
    rounded,
    stamp,
    write_rows,
)
from benchmarks.harness.timing import least_thread_s
from warpalign.transport import sinkhorn

EPSILON = 0.1


class Size(NamedTuple):
    N: int
    M: int
    D: int
    """0: costs are given."""
    dtype: str
    iterations: int
    """More of them in the longer of two calls."""
    updates: str = "alternating"


SIZES = [
    Size(100, 100, 0, "float32", 400),
    Size(1000, 1000, 0, "float32", 40),
    Size(1000, 1000, 0, "float32", 40, "symmetric"),
    Size(1000, 1000, 0, "float64", 20),
    Size(1500, 1200, 0, "float64", 100),
    Size(1500, 1200, 0, "float32", 100),
    Size(4000, 5000, 0, "float32", 20),
    Size(1000, 1000, 3, "float32", 40),
    Size(1000, 1000, 64, "float32", 40),
]


def difference_ns(run: Callable[[int], object], size: Size, runs: int) -> float:
    """Per element and iteration. Shorter calls than the first do not keep exponentials."""
    few, many = (least_thread_s(lambda count=count: run(count), runs) for count in (10, 10 + size.iterations))  # type: ignore[misc]
    return 1e9 * (many - few) / (size.iterations * size.N * size.M)


def peers(size: Size, x: torch.Tensor, y: torch.Tensor, cost: torch.Tensor, runs: int) -> Row:
    """iteration_ns of the packages that are installed."""
    row: Row = {}
    if size.D == 0 and size.updates == "alternating" and find_spec("ot") is not None:
        import ot

        a, b = (torch.full((count,), 1 / count, dtype=cost.dtype).numpy() for count in (size.N, size.M))
        costs = cost.numpy()

        def of_pot(count: int) -> object:
            return ot.bregman.sinkhorn_log(a, b, costs, EPSILON, numItermax=count, stopThr=0, warn=False)

        row["pot_ns"] = rounded(difference_ns(of_pot, size, runs))
    if size.D and find_spec("geomloss") is not None:
        from geomloss import SamplesLoss

        def of_geomloss(count: int) -> object:
            # `count` symmetric updates: the list of epsilons has as many.
            loss = SamplesLoss(
                blur=1.0, diameter=2.0 ** (count - 1), scaling=0.5, debias=False, backend="tensorized"
            )
            return loss(x, y)

        row["geomloss_ns"] = rounded(difference_ns(of_geomloss, size, runs))
    return row


def measured(size: Size, runs: int) -> Row:
    generator = torch.Generator().manual_seed(0)
    dtype = getattr(torch, size.dtype)
    x, y = (torch.rand(count, max(size.D, 3), generator=generator, dtype=dtype) for count in (size.N, size.M))
    cost = torch.cdist(x, y).square()
    problem = {"x": x, "y": y} if size.D else {"cost_matrix": cost}

    def ours(count: int) -> object:
        return sinkhorn(**problem, epsilon=EPSILON, max_iter=count, tol=0.0, updates=size.updates)  # type: ignore[arg-type]

    row: Row = {
        "iteration_ns": rounded(difference_ns(ours, size, runs)),
        "around_ms": rounded(1e3 * least_thread_s(lambda: ours(1), runs)),
    }
    return row | peers(size, x, y, cost, max(runs // 3, 3))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--runs", type=int, default=9, help="of which the least time counts (default: 9)")
    add_arguments(parser)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    path, commit = result_path(arguments, cpu_name(), "-transport-cpu")
    rows = []
    for size in SIZES:
        row = {"op": "sinkhorn", "device": cpu_name(), "threads": 1, "epsilon": EPSILON}
        row |= {**size._asdict(), **measured(size, arguments.runs)}
        print({key: value for key, value in row.items() if value and key not in ("op", "device")}, flush=True)
        rows.append(row | stamp(commit))
    write_rows(rows, path)
    print(path)


if __name__ == "__main__":
    main()
