"""Times one long utterance on a CPU by the number of threads: a training step, posteriors of labels, and an alignment.

Time by the clock, the least of several runs; runs with different numbers of threads follow each other in turns, so that other
programs disturb all alike. `equal` says whether results are those of one thread, bit by bit. Writes
benchmarks/results/<cpu>/<date>-<commit>-ctc-threads.json.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

import torch
from torch import Tensor

import warpalign
from benchmarks.harness.results import Row, add_arguments, cpu_name, result_path, rounded, stamp, write_rows
from benchmarks.harness.timing import wall_s

SIZES = [(12000, 32, 3000), (60000, 32, 15000)]
MOST_POSTERIORS = 1 << 26  # elements of a result (T, L)


def calls_of(frames: int, classes: int, labels: int) -> dict[str, Callable[[], Tensor]]:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(1, frames, classes, generator=generator).requires_grad_()
    targets = torch.randint(1, classes, (1, labels), generator=generator)
    plain = logits.detach()
    calls: dict[str, Callable[[], Tensor]] = {
        "step": lambda: torch.autograd.grad(warpalign.ctc_loss(logits, targets), logits)[0],
        "align": lambda: warpalign.ctc_align(plain, targets).labels,
    }
    if frames * labels <= MOST_POSTERIORS:
        calls["posteriors"] = lambda: warpalign.ctc_posteriors(plain, targets)
    return calls


def rows_of(size: tuple[int, int, int], threads: list[int], runs: int) -> list[Row]:
    frames, classes, labels = size
    rows: list[Row] = []
    for name, run in calls_of(*size).items():
        torch.set_num_threads(1)
        alone = run()
        least = dict.fromkeys(threads, math.inf)
        equal = dict.fromkeys(threads, True)
        for _ in range(runs):
            for count in threads:
                torch.set_num_threads(count)
                found, seconds = wall_s(run)
                least[count] = min(least[count], seconds)
                equal[count] &= torch.equal(found, alone)
        for count in threads:
            rows.append(
                {
                    "op": f"ctc_{name}",
                    "device": cpu_name(),
                    "threads": count,
                    "B": 1,
                    "T": frames,
                    "C": classes,
                    "L": labels,
                    "ms": rounded(1e3 * least[count]),
                    "equal": equal[count],
                }
            )
            print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--runs", type=int, default=5, help="of which the least time counts (default: 5)")
    parser.add_argument("--sizes", type=int, default=len(SIZES), help="the number of sizes that run")
    add_arguments(parser)
    arguments = parser.parse_args()
    path, commit = result_path(arguments, cpu_name(), "-ctc-threads")
    rows = []
    for size in SIZES[: arguments.sizes]:
        rows += [row | stamp(commit) for row in rows_of(size, arguments.threads, arguments.runs)]
    write_rows(rows, path)
    print(path)


if __name__ == "__main__":
    main()
