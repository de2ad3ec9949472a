"""An LSTM on a CPU beside torch's: `python -m benchmarks.recurrent.cpu_steps --threads 1 2 --steps 1 100 -o FILE`.

float32, I = H, without gradients and as a training step; one step of streams and cells, too. Every program runs a few
times in a row, as an application would call it, then comes the next one. The least time counts, because other work on the
machine only adds to it.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.harness.results import Row, cpu_name, current_commit, stamp, write_rows
from warpalign.recurrent import LSTM, LSTMCell


def least_us(
    programs: dict[str, Callable[[], object]], runs_in_a_row: int, seconds: float
) -> dict[str, float]:
    """The least time of each program in microseconds, of as many rounds as fit."""
    least = dict.fromkeys(programs, float("inf"))
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for name, run in programs.items():
            for _ in range(runs_in_a_row):
                begin = time.perf_counter()
                run()
                least[name] = min(least[name], time.perf_counter() - begin)
    return {name: round(1e6 * s, 1) for name, s in least.items()}


def measure(steps: int, hidden: int, batch: int, seconds: float) -> Row:
    theirs, their_cell = torch.nn.LSTM(hidden, hidden).eval(), torch.nn.LSTMCell(hidden, hidden).eval()
    ours, our_cell = LSTM(hidden, hidden).eval(), LSTMCell(hidden, hidden).eval()
    ours.load_state_dict(theirs.state_dict())
    our_cell.load_state_dict(their_cell.state_dict())
    stream = ours.stream(batch)
    x, (h, c) = torch.randn(steps, batch, hidden), torch.randn(2, 1, batch, hidden)
    rows, states = x[0], (h[0], c[0])

    def trained(
        module: torch.nn.Module, input: torch.Tensor, states: tuple[torch.Tensor, torch.Tensor]
    ) -> object:
        module.zero_grad()
        return module(input, states)[0].sum().backward()

    forward: dict[str, Callable[[], object]] = {
        "torch_lstm_us": lambda: theirs(x, (h, c)),
        "lstm_us": lambda: ours(x, (h, c)),
    }
    training: dict[str, Callable[[], object]] = {
        "torch_lstm_train_us": lambda: trained(theirs, x, (h, c)),
        "lstm_train_us": lambda: trained(ours, x, (h, c)),
    }
    if steps == 1:
        forward |= {
            "stream_us": lambda: stream.step(rows),
            "torch_cell_us": lambda: their_cell(rows, states),
            "cell_us": lambda: our_cell(rows, states),
        }
        training |= {
            "torch_cell_train_us": lambda: trained(their_cell, rows, states),
            "cell_train_us": lambda: trained(our_cell, rows, states),
        }
    in_a_row = 12 if steps == 1 else 2
    with torch.no_grad():
        found = least_us(forward, in_a_row, seconds)
    found |= least_us(training, in_a_row, seconds)
    sizes = {"op": "lstm_step", "device": cpu_name(), "T": steps, "B": batch, "I": hidden, "H": hidden}
    return {**sizes, "dtype": "float32", "threads": torch.get_num_threads(), **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    parser.add_argument("--steps", type=int, nargs="+", default=[1])
    parser.add_argument("--hidden", type=int, nargs="+", default=[64, 128, 256, 512])
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--seconds", type=float, default=1.0, help="for each size")
    parser.add_argument("-o", "--output", type=Path, help="a JSON file of the rows")
    options = parser.parse_args()
    torch.manual_seed(0)
    rows = []
    for threads, steps, hidden, batch in itertools.product(
        options.threads, options.steps, options.hidden, options.batch
    ):
        torch.set_num_threads(threads)
        row = measure(steps, hidden, batch, options.seconds)
        times = ", ".join(f"{name.removesuffix('_us')} {row[name]}" for name in row if name.endswith("_us"))
        print(f"{threads} threads, T {steps}, B {batch}, H {hidden}: {times} us", flush=True)
        rows.append(row | stamp(current_commit()))
    if options.output:
        write_rows(rows, options.output)


if __name__ == "__main__":
    main()
