"""Times the transducer losses on one core of a CPU, beside torchaudio and Transformers where they are installed.

CPU time of this thread, the least of several runs: other programs may run beside it. `copy_ms` is one copy of the logits
into memory that exists; three passes over them, which the two calls make, take 1.5 of it. `first_ms` is the first
call, `gradient_ms` the second one in the logits' memory, `step_ms` a training step whose gradient gets fresh memory, with
the page faults of that. Writes benchmarks/results/<cpu>/<date>-<commit>-transducer-cpu.json.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

import warpalign
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
from benchmarks.transducer.measure import Problem
from benchmarks.transducer.sizes import Size
from warpalign._transducer import ops

SIZES = [
    Size(1, 200, 50, 128),
    Size(1, 200, 50, 1024),
    Size(1, 200, 50, 1024, "float16"),
    Size(1, 200, 50, 1024, "bfloat16"),
    Size(1, 200, 50, 1024, family="multi_blank"),
    Size(1, 200, 50, 1024, family="tdt"),
    Size(1, 100, 40, 5000),
    Size(2, 400, 100, 29),
]


def of_module(module: str, name: str) -> Callable[..., Tensor] | None:
    try:
        function: Callable[..., Tensor] = getattr(import_module(module), name)
    except (ImportError, OSError):
        return None
    return function


def peer_step(problem: Problem) -> Callable[[], Any] | None:
    """A training step of the package that has this family and dtype, if it is installed."""
    size = problem.size
    t, u = (torch.full((size.B,), n, dtype=torch.int32) for n in (size.T, size.U))
    if size.family == "rnnt" and size.dtype in ("float32", "float16"):
        rnnt = of_module("torchaudio.functional", "rnnt_loss")
        if rnnt is None:
            return None
        arguments = (problem.targets, t, u, 0, -1, "sum")
        return lambda: torch.autograd.grad(rnnt(problem.logits, *arguments), problem.logits)
    if size.family == "tdt":
        tdt = of_module("transformers.loss.loss_tdt", "tdt_loss")
        if tdt is None:
            return None
        durations = list(size.options.durations or ())

        def step() -> Any:
            labels, timed = problem.logits.split([size.V, len(durations)], -1)
            given = (labels, timed, problem.targets.long(), t.long(), u.long(), 0, durations)
            return torch.autograd.grad(tdt(*given, sigma=size.options.sigma, reduction="sum"), problem.logits)

        return step
    return None


def measured(size: Size, runs: int) -> Row:
    problem = Problem(size, torch.device("cpu"))
    source = problem.logits.detach()
    target = torch.empty_like(source)
    inputs, settings = problem.operator_inputs()
    loss, saved = ops.loss(*inputs, True, **settings)
    upstream = torch.ones_like(loss)

    def ms(run: Callable[[], object], count: int = runs) -> float | None:
        return rounded(1e3 * least_thread_s(run, count))

    row: Row = {
        "copy_ms": ms(lambda: target.copy_(source)),
        "first_ms": ms(lambda: ops.loss(*inputs, True, **settings)),
        "step_ms": ms(problem.step),
    }
    peer = peer_step(problem)
    row["peer_step_ms"] = None if peer is None else ms(peer, 2)
    # Last: it takes the logits' memory. What it reads afterwards are gradients: as many rows are dead.
    row["gradient_ms"] = ms(lambda: ops.gradient_in_place(*inputs, saved, upstream, **settings))
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--runs", type=int, default=7, help="of which the least time counts (default: 7)")
    add_arguments(parser)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    path, commit = result_path(arguments, cpu_name(), "-transducer-cpu")
    rows = []
    for size in SIZES:
        row = {
            "op": "transducer",
            "device": cpu_name(),
            "threads": 1,
            **size._asdict(),
            **measured(size, arguments.runs),
        }
        print(size.name, {key: value for key, value in row.items() if key.endswith("_ms")}, flush=True)
        rows.append(row | stamp(commit))
    write_rows(rows, path)
    print(path, warpalign.__version__)


if __name__ == "__main__":
    main()
