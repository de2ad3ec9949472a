"""Times greedy and beam decoding beside a plain batched torch loop and torchaudio's RNNTBeamSearch.

The loop is greedy search as one writes it without this package: a step takes every utterance one arc on, by the joint
network of (B, H) rows, an argmax and torch.where, and the predictor reads the labels. Both find the same labels, or the
row is an error. `decode_graph_ms`: in a CUDA graph, which the call captures. torchaudio's search takes one utterance,
with hypotheses in Python; it is measured where it is installed, for RNN-T and a batch of 1, the same beam and hypotheses
in order of their scores. `score` and `torchaudio_score` are the best ones. A random model; the blanks' bias is such that
some U labels are written in T frames. Big blanks are of 2, 4 and 8 frames, TDT's durations 0 to 4. `visited` is the share
of the frames in which the loop has been.

What bounds greedy search on a CPU: `loop_products_ms` are the joint network's rows and products of the loop's steps,
without predictor and choices; `products_ms` are those of the rows that all paths visit, by the kernel that search runs,
in one call.

`python -m benchmarks.transducer.decode` takes CPU time of one thread, the least of several runs; with `--device cuda` the
time between events, the median of three runs. It writes benchmarks/results/<device>/<date>-<commit>-decode.json.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

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
from benchmarks.harness.timing import eager_ms, least_thread_s, of_three_ms, wall_s
from benchmarks.transducer.sizes import DECODED, Size
from warpalign._transducer.decode_ops import scores
from warpalign.transducer import JointWeights, transducer_beam_decode, transducer_greedy_decode

MAX_SYMBOLS = 10


class LastToken(torch.nn.Embedding):
    def initial_state(self, batch: int) -> Tensor:
        return torch.zeros(batch, 0, device=self.weight.device)

    def step(self, tokens: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return self(tokens), state


class AsTorchaudio(torch.nn.Module):
    """The same model with the methods that torchaudio's search calls."""

    def __init__(self, predictor: LastToken, joint: JointWeights) -> None:
        super().__init__()
        self.predictor, self.joint = predictor, joint

    def transcribe(self, encoder: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        return encoder, lengths

    def predict(self, tokens: Tensor, lengths: Tensor, state: Any) -> tuple[Tensor, Tensor, list[Any]]:
        return self.predictor(tokens), lengths, [[torch.zeros(len(tokens), 1, device=tokens.device)]]

    def join(
        self, encoder: Tensor, lengths: Tensor, rows: Tensor, counts: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        hidden = (encoder[:, :, None] + rows[:, None]).relu()
        return torch.nn.functional.linear(hidden, self.joint.weight, self.joint.bias), lengths, counts


class DecodeProblem:
    """One size's model and rows, and the searches that are measured."""

    def __init__(self, size: Size, device: torch.device) -> None:
        generator = torch.Generator().manual_seed(0)
        b, t, v, h = size.B, size.T, size.V, size.H
        self.beams, self.device = size.beams, device
        self.durations = size.options.durations
        big_blanks = tuple(frames for frames, _ in size.options.big_blanks)
        columns = size.columns
        self.encoder = torch.randn(b, t, h, generator=generator).to(device)
        self.predictor = LastToken(v, h)
        self.predictor.weight.data = torch.randn(v, h, generator=generator)
        self.predictor.to(device)
        weight = torch.randn(columns, h, generator=generator).to(device) / h**0.5
        bias = torch.zeros(columns, device=device)
        some = self.encoder.flatten(0, 1)[torch.randint(b * t, (1000,), generator=generator).to(device)]
        behind = self.predictor.weight[torch.randint(v, (1000,), generator=generator).to(device)]
        rows = (some + behind).relu() @ weight.T
        # The bias makes blanks lose at this share of the nodes of a path: there a label is written.
        frames = [1.0, *map(float, big_blanks)] if self.durations is None else self.durations
        mean = sum(frames) / len(frames)  # of a blank's, and of a TDT label's
        nodes = size.U + max(size.T - (size.U * mean if self.durations else 0), 0) / mean
        self.labels = v - 1 - len(big_blanks)
        # The best label's score less the best blank's.
        above = rows[:, : self.labels].amax(1) - rows[:, self.labels : v].amax(1)
        bias[self.labels : v] = above.quantile(1 - min(size.U / nodes, 1)).item()
        self.blank = v - 1
        self.joint = JointWeights(
            weight, bias, blank=self.blank, durations=self.durations, big_blanks=big_blanks
        )
        # Frames that each column but those of durations consumes; big blanks stand before the blank, the first one last.
        self.consumed = torch.tensor([*[0] * self.labels, *reversed(big_blanks), 1], device=device)

    def frames_of(self, scores: Tensor, best: Tensor) -> Tensor:
        """(B,) frames that the best arcs consume, by scores (B, columns)."""
        if self.durations is None:
            return self.consumed[best]
        frames = torch.tensor(self.durations, device=self.device)
        of_durations = scores[:, self.blank + 1 :]
        # A blank consumes a frame at least.
        forbidden = (best == self.blank)[:, None] & (frames == 0)
        return frames[of_durations.masked_fill(forbidden, -torch.inf).argmax(-1)]

    def loop(self, been: list[Tensor] | None = None) -> list[list[int]]:
        """been: takes each utterance's frame in each step, −1 after the end."""
        batch, frames, _ = self.encoder.shape
        device = self.encoder.device
        each = torch.arange(batch, device=device)
        at = torch.zeros(batch, dtype=torch.int64, device=device)
        symbols = torch.zeros_like(at)
        rows = self.predictor(torch.full_like(at, self.blank))
        written = []
        assert self.joint.bias is not None
        while bool((at < frames).any()):
            if been is not None:
                been.append(torch.where(at < frames, at, -1))
            hidden = (self.encoder[each, at.clamp(max=frames - 1)] + rows).relu()
            scores = hidden @ self.joint.weight.T + self.joint.bias
            best = scores[:, : self.blank + 1].argmax(-1)
            found = (best < self.labels) & (at < frames)
            rows = torch.where(found[:, None], self.predictor(best), rows)
            consumed = self.frames_of(scores, best)
            symbols = torch.where(found & (consumed == 0), symbols + 1, 0)
            consumed = consumed + (symbols == MAX_SYMBOLS)
            at, symbols = at + consumed, torch.where(consumed > 0, 0, symbols)
            written.append(torch.where(found, best, -1))
        return [[label for label in column if label >= 0] for column in torch.stack(written, 1).tolist()]

    def visited(self) -> float:
        """The share of frames in which the loop has been."""
        been: list[Tensor] = []
        self.loop(been)
        different = [{t for t in column if t >= 0} for column in torch.stack(been, 1).tolist()]
        return sum(map(len, different)) / (self.encoder.shape[0] * self.encoder.shape[1])

    def loop_products(self, steps: int) -> None:
        batch = len(self.encoder)
        rows = self.predictor.weight[:batch]
        assert self.joint.bias is not None
        for step in range(steps):
            hidden = (self.encoder[:, step % self.encoder.shape[1]] + rows).relu()
            _ = hidden @ self.joint.weight.T + self.joint.bias

    def products(self, visited: int) -> None:
        """Scores of so many rows: of the frames from the first one on, again and again."""
        batch, frames, _ = self.encoder.shape
        begin = torch.zeros(batch, dtype=torch.int32, device=self.device)
        given: dict[str, Any] = {
            "beams": 1,
            "weight": self.joint.weight,
            "bias": self.joint.bias,
            "activation": 0,
        }
        left = -(-visited // batch)
        while left > 0:
            window = min(left, frames)
            scores(begin, None, self.encoder, self.predictor.weight[:batch], window=window, **given)
            left -= window

    def search(self, cuda_graph: bool = False) -> Any:
        given: Any = (self.encoder, None, self.predictor, self.joint)
        options: Any = {"max_symbols_per_frame": MAX_SYMBOLS, "cuda_graph": cuda_graph}
        if self.beams == 1:
            return transducer_greedy_decode(*given, **options)
        return transducer_beam_decode(*given, beam=self.beams, score_norm=False, **options)[0]

    def torchaudio(self) -> Callable[[], Any] | None:
        """torchaudio's search of the first utterance, if it is installed and there is one for the family."""
        if self.durations or self.joint.big_blanks:
            return None
        try:
            search = import_module("torchaudio.models").RNNTBeamSearch
        except (ImportError, OSError):
            return None
        model = AsTorchaudio(self.predictor, self.joint)
        decoder = search(model, self.blank, hypo_sort_key=lambda h: h[3], step_max_tokens=MAX_SYMBOLS)
        length = torch.tensor(len(self.encoder[0]), device=self.device)
        return lambda: decoder(self.encoder[0], length, self.beams)


@torch.no_grad()
def measure_bounds(size: Size, time: Callable[[Callable[[], Any]], float]) -> Row:
    """What greedy search cannot do without."""
    problem = DecodeProblem(size, torch.device("cpu"))
    labels = [len(text) for text in problem.loop()]
    frames = problem.encoder.shape[1]
    return {
        "loop_products_ms": rounded(time(lambda: problem.loop_products(frames + max(labels)))),
        "products_ms": rounded(time(lambda: problem.products(size.B * frames + sum(labels)))),
    }


def texts(found: Any) -> list[list[int]]:
    return [row[:n] for row, n in zip(found.tokens.tolist(), found.lengths.tolist(), strict=True)]


@torch.no_grad()
def measure_decode(
    size: Size,
    device: torch.device,
    budget_s: float,
    time: Callable[[Callable[[], Any]], float] | None = None,
) -> Row:
    """All columns of one row. time: of a call, in ms, in place of eager mode's time by events or the clock."""
    problem = DecodeProblem(size, device)
    time = time or (lambda run: eager_ms(run, device, budget_s))
    found = problem.search()
    row: Row = {
        "labels_found": float(found.lengths.float().mean()),
        "decode_ms": rounded(time(problem.search)),
        "decode_graph_ms": None,
        "loop_ms": None,
        "torchaudio_decode_ms": None,
    }
    if device.type == "cuda":
        row["decode_graph_ms"] = rounded(time(lambda: problem.search(cuda_graph=True)))
    if size.beams == 1:
        if texts(found) != problem.loop():
            row["error"] = "other labels than the loop's"
        row["visited"] = rounded(problem.visited())
        row["loop_ms"] = rounded(time(problem.loop))
    elif size.B == 1:
        peer = problem.torchaudio()
        wait = partial(torch.cuda.synchronize, device) if device.type == "cuda" else lambda: None
        if peer is not None:
            best, seconds = wall_s(peer, wait)  # one run is enough
            row["torchaudio_decode_ms"] = rounded(1e3 * seconds)
            row["score"], row["torchaudio_score"] = float(found.scores[0]), best[0][3]
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument(
        "--runs", type=int, default=5, help="of which the least time counts, on a CPU (default: 5)"
    )
    parser.add_argument("--device", default="cpu")
    add_arguments(parser)
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    torch.set_num_threads(1)
    path, commit = result_path(arguments, device_name(device), "-decode")
    rows = []

    def time(run: Callable[[], Any]) -> float:
        return 1e3 * least_thread_s(run, arguments.runs)

    on_cpu = device.type == "cpu"
    for size in [size._replace(beams=beams) for size in DECODED for beams in (1, 4)]:
        measured = measure_decode(size, device, 0, time if on_cpu else partial(of_three_ms, device=device))
        if size.beams == 1 and on_cpu:
            measured |= measure_bounds(size, time)
        row: Row = {"op": "transducer_decode", "device": device_name(device), **size._asdict(), **measured}
        row |= {"threads": 1} if on_cpu else {}
        print(size.name, measured, flush=True)
        rows.append(row | stamp(commit))
        write_rows(rows, path)
    print(path)


if __name__ == "__main__":
    main()
