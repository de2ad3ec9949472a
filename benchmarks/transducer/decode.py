"""Times greedy and beam decoding beside a plain batched torch loop, on a CPU (one thread) or a GPU.

The loop is what one writes without this package: a step takes every utterance one arc on, by the joint network of (B, H)
rows, an argmax and torch.where, and the predictor reads the labels. All find the same labels, which is checked. A random
model; the blank's bias is such that some `labels` of `frames` frames write one. CPU: time of this thread, the least of
several runs. GPU: wall time with a synchronisation at the end. Writes benchmarks/results/<device>/<date>-<commit>-decode.json.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from benchmarks.harness.results import Row, add_arguments, cpu_name, result_path, rounded, stamp, write_rows
from benchmarks.harness.timing import least_thread_s, wall_s
from warpalign.decoding import JointWeights, transducer_beam_decode, transducer_greedy_decode

MAX_SYMBOLS = 10


class Size(NamedTuple):
    batch: int
    frames: int
    labels: int
    """Of an utterance, about."""
    vocabulary: int
    hidden: int


SIZES = [Size(16, 400, 100, 1024, 640), Size(1, 400, 100, 1024, 640), Size(64, 100, 40, 128, 128)]


class LastToken(torch.nn.Embedding):
    def initial_state(self, batch: int) -> Tensor:
        return torch.zeros(batch, 0, device=self.weight.device)

    def step(self, tokens: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return self(tokens), state


class Problem:
    def __init__(self, size: Size, device: torch.device) -> None:
        generator = torch.Generator().manual_seed(0)
        b, t, _, v, h = size
        self.encoder = torch.randn(b, t, h, generator=generator).to(device)
        self.predictor = LastToken(v, h)
        self.predictor.weight.data = torch.randn(v, h, generator=generator)
        self.predictor.to(device)
        weight = torch.randn(v, h, generator=generator).to(device) / h**0.5
        bias = torch.zeros(v, device=device)
        some = self.encoder.flatten(0, 1)[torch.randint(b * t, (1000,), generator=generator).to(device)]
        behind = self.predictor.weight[torch.randint(v, (1000,), generator=generator).to(device)]
        rows = (some + behind).relu() @ weight.T
        # The bias makes the blank lose at this share of the nodes of a path: there a label is written.
        share = size.labels / (size.frames + size.labels)
        above = rows[:, :-1].amax(1) - rows[:, -1]  # the best label's score less the blank's
        bias[-1] = above.quantile(1 - share).item()
        self.joint = JointWeights(weight, bias)
        self.blank = v - 1

    def plain_loop(self) -> list[list[int]]:
        batch, frames, _ = self.encoder.shape
        device = self.encoder.device
        each = torch.arange(batch, device=device)
        at = torch.zeros(batch, dtype=torch.int64, device=device)
        symbols = torch.zeros_like(at)
        rows = self.predictor(torch.full_like(at, self.blank))
        written = []
        assert self.joint.bias is not None
        while bool((at < frames).any()):
            hidden = (self.encoder[each, at.clamp(max=frames - 1)] + rows).relu()
            best = (hidden @ self.joint.weight.T + self.joint.bias).argmax(-1)
            found = (best != self.blank) & (at < frames)
            rows = torch.where(found[:, None], self.predictor(best), rows)
            symbols = torch.where(found, symbols + 1, 0)
            goes_on = ~found | (symbols == MAX_SYMBOLS)
            at, symbols = at + goes_on.long(), torch.where(goes_on, 0, symbols)
            written.append(torch.where(found, best, -1))
        return [[label for label in column if label >= 0] for column in torch.stack(written, 1).tolist()]

    def arguments(self) -> tuple[Tensor, None, LastToken, JointWeights]:
        return self.encoder, None, self.predictor, self.joint

    def greedy(self) -> Any:
        return transducer_greedy_decode(*self.arguments(), max_symbols_per_frame=MAX_SYMBOLS)

    def beam(self) -> Any:
        return transducer_beam_decode(*self.arguments(), beam=4, max_symbols_per_frame=MAX_SYMBOLS)


def milliseconds(function: Callable[[], Any], device: torch.device, runs: int) -> float | None:
    if device.type == "cpu":
        return rounded(1e3 * least_thread_s(function, runs))
    wait = partial(torch.cuda.synchronize, device)
    function()
    return rounded(1e3 * min(wall_s(function, wait)[1] for _ in range(runs)))


@torch.no_grad()
def measured(size: Size, device: torch.device, runs: int) -> Row:
    problem = Problem(size, device)
    found, plain = problem.greedy(), problem.plain_loop()
    ours = [row[:n] for row, n in zip(found.tokens.tolist(), found.lengths.tolist(), strict=True)]
    return {
        **size._asdict(),
        "labels_found": float(found.lengths.float().mean()),
        "same_share": sum(a == b for a, b in zip(ours, plain, strict=True)) / size.batch,
        "plain_ms": milliseconds(problem.plain_loop, device, runs),
        "greedy_ms": milliseconds(problem.greedy, device, runs),
        "beam4_ms": milliseconds(problem.beam, device, max(1, runs // 2)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--runs", type=int, default=5, help="of which the least time counts (default: 5)")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    add_arguments(parser)
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    if device.type == "cpu":
        torch.set_num_threads(1)
    name = cpu_name() if device.type == "cpu" else torch.cuda.get_device_name(device)
    path, commit = result_path(arguments, name, "-decode")
    rows = []
    for size in SIZES:
        row: Row = {"op": "transducer_decode", "device": name, **measured(size, device, arguments.runs)}
        print(row, flush=True)
        rows.append(row | stamp(commit))
    write_rows(rows, path)
    print(path)


if __name__ == "__main__":
    main()
