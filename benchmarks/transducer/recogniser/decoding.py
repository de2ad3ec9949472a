"""How long the trained recognisers take to decode, on a GPU and on one thread of a CPU, and with what error.

`loop`: greedy search as a loop over the nodes of a path, of the whole batch, in torch (Recogniser.walk).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor

from benchmarks.harness.results import Row, rounded
from benchmarks.harness.timing import eager_ms, least_thread_s, times_ms
from benchmarks.transducer.recogniser.jobs import BEAM, Job, Setup, model_of
from recognise_speech_steps.corpus import Corpus
from recognise_speech_steps.model import Recogniser
from recognise_speech_steps.train import batch_of, edits, tokens_of

DECODED = (
    ("RNN-T", "soft"),
    ("multi-blank 2", "soft"),
    ("multi-blank 2 4", "soft"),
    ("multi-blank 2 4 8", "soft"),
    ("multi-blank 2 4 8, sigma 0.2", "soft"),
    ("TDT 0 to 4", "soft"),
    ("RNN-T", "hard"),
    ("multi-blank 2 4 8", "hard"),
)
"""Family and activation of the models that are timed."""
ONE_BY_ONE = 4  # utterances that are decoded alone


def _letter_errors(data: Corpus, some: Tensor, tokens: list[list[int]]) -> float:
    """In percent."""
    said = [data.targets[k, : data.counts[k]].tolist() for k in some.tolist()]
    wrong = sum(edits(a, b) for a, b in zip(tokens, said, strict=True))
    return 100 * wrong / sum(map(len, said))


def _searches(model: Recogniser, rows: Tensor, lengths: Tensor, graphs: bool) -> dict[str, Callable[[], Any]]:
    own, given = model.transducer, (rows, lengths, model.predictor)
    found: dict[str, Callable[[], Any]] = {
        "greedy": partial(own.greedy_decode, *given),
        "beam": partial(own.beam_decode, *given, beam=BEAM),
        "loop": partial(model.walk, rows, lengths),
    }
    if graphs:
        found["greedy_graph"] = partial(own.greedy_decode, *given, cuda_graph=True)
        found["beam_graph"] = partial(own.beam_decode, *given, beam=BEAM, cuda_graph=True)
    return found


def _each(searches: list[dict[str, Callable[[], Any]]], name: str) -> None:
    for one in searches:
        one[name]()


def _search_ms(search: Callable[[], Any], device: torch.device, budget_s: float) -> float:
    """Median time after two runs: a search with hypotheses takes long."""
    times_ms(search, device, 1)
    (first,) = times_ms(search, device, 1)
    return median(times_ms(search, device, max(3, min(50, int(1e3 * budget_s / first)))))


@torch.no_grad()
def measure_on_gpu(model: Recogniser, data: Corpus, some: Tensor, budget_s: float) -> Row:
    """Milliseconds of a batch, encoder apart, and of utterances alone; errors of both searches."""
    device = data.frames.device
    batch = batch_of(data, some)
    rows = model.encode(batch.frames)
    row: Row = {"encoder_ms": rounded(eager_ms(lambda: model.encode(batch.frames), device, budget_s))}
    searches = _searches(model, rows, batch.lengths, graphs=device.type == "cuda")
    for name, search in searches.items():
        row[f"{name}_ms"] = rounded(_search_ms(search, device, budget_s))
    row["greedy_errors"] = rounded(_letter_errors(data, some, tokens_of(searches["greedy"]())))
    row["beam_errors"] = rounded(_letter_errors(data, some, tokens_of(searches["beam"]()[0])))
    alone = [batch_of(data, one) for one in some[:ONE_BY_ONE].split(1)]
    outputs = [(model.encode(one.frames), one.lengths) for one in alone]
    of_one = [_searches(model, *one, graphs=False) for one in outputs]
    for name in ("greedy", "loop"):
        milliseconds = _search_ms(partial(_each, of_one, name), device, budget_s)
        row[f"{name}_alone_ms"] = rounded(milliseconds / len(of_one))
    return row


@torch.no_grad()
def measure_on_cpu(model: Recogniser, data: Corpus, some: Tensor) -> Row:
    """Milliseconds of one thread for an utterance alone."""
    model = model.cpu()
    own = data._replace(frames=data.frames.cpu(), targets=data.targets.cpu())
    alone = [batch_of(own, one) for one in some[:ONE_BY_ONE].split(1)]
    outputs = [(model.encode(one.frames), one.lengths) for one in alone]
    of_one = [_searches(model, *one, graphs=False) for one in outputs]
    row: Row = {
        "encoder_cpu_ms": rounded(
            1e3 * least_thread_s(lambda: [model.encode(one.frames) for one in alone], 5) / len(alone)
        )
    }
    for name in ("greedy", "beam", "loop"):
        seconds = least_thread_s(partial(_each, of_one, name), 3)
        row[f"{name}_cpu_ms"] = rounded(1e3 * seconds / len(of_one))
    return row


def measure_decoding(setup: Setup, todo: list[Job], data: Corpus, budget_s: float) -> Iterator[Row]:
    """A row for each trained model, on the first utterances of a held-out set."""
    some = torch.arange(min(256, len(data.lengths)))
    for job in todo:
        if not (setup.folder / job.file).exists():
            continue
        model = model_of(setup, job)
        row: Row = {
            "op": "transducer_recogniser_decode",
            "family": job.family,
            "activation": job.activation,
            "seed": job.seed,
            "batch": len(some),
            "beam": BEAM,
            **measure_on_gpu(model, data, some, budget_s),
        }
        yield row | measure_on_cpu(model, data, some)
