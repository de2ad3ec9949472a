"""The trainings of the study, shared out to processes of one GPU, and the error rates of the models."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator
from multiprocessing.queues import Queue
from pathlib import Path
from queue import Empty
from typing import NamedTuple

import torch

from benchmarks.harness.results import Row, rounded
from recognise_speech_steps import corpus
from recognise_speech_steps.corpus import Corpus
from recognise_speech_steps.model import FAMILIES, Recogniser
from recognise_speech_steps.train import Course, batch_of, recognise, train

HARD = ("RNN-T", "multi-blank 2 4 8", "TDT 0 to 4", "pruned")
"""The families that are trained with hard gates too."""
TUNED = ("RNN-T", *(name for name, family in FAMILIES.items() if family.fastemit or family.delay_penalty))
"""A trained RNN-T is trained on with these: from the first step on, a penalty disturbs learning to align."""
TUNED_RATE = 1e-3
BEAM = 4


class Job(NamedTuple):
    family: str
    activation: str
    seed: int

    @property
    def file(self) -> str:
        return f"{self.family.replace(' ', '-').replace(',', '')}-{self.activation}-{self.seed}.pt"


class Setup(NamedTuple):
    """What all trainings share."""

    training: int
    held_out: int
    """Utterances of each kind."""
    steps: int
    batch: int
    hidden: int
    learning_rate: float
    device: str
    folder: Path
    """Where the corpus and the models are."""
    tones: bool = False
    """Whether tones speak in place of espeak-ng."""


def jobs(first_seed: int, seeds: int) -> list[Job]:
    """Every training: those that others go on from first, then seed by seed, so that the first ones are whole if time ends."""
    all_seeds = range(first_seed, first_seed + seeds)
    found = [Job("RNN-T", "soft", seed) for seed in all_seeds]
    for seed in all_seeds:
        found += [Job(family, "hard", seed) for family in HARD]
        found += [Job(family, "soft", seed) for family in FAMILIES if family not in TUNED]
    return found


def make_corpus(setup: Setup) -> list[Corpus]:
    """The training set and the held-out ones, which are also written to the folder."""
    device, processes = torch.device(setup.device), 1 if setup.tones else os.cpu_count() or 1
    parts = corpus.make(corpus.TEXT, setup.training, setup.held_out, 0, device, processes, setup.tones)
    torch.save([tuple(part) for part in parts], setup.folder / "corpus.pt")
    return parts


def load_corpus(setup: Setup) -> list[Corpus]:
    parts = torch.load(setup.folder / "corpus.pt", map_location="cpu", weights_only=False)
    device = torch.device(setup.device)
    return [
        Corpus(frames.to(device), lengths, targets.to(device), counts, words)
        for frames, lengths, targets, counts, words in parts
    ]


def model_of(setup: Setup, job: Job, trained: bool = True) -> Recogniser:
    """The model of a job, with the weights of its training or with its first ones."""
    torch.manual_seed(job.seed)
    model = Recogniser(FAMILIES[job.family], job.activation, setup.hidden).to(setup.device)
    if trained:
        model.load_state_dict(torch.load(setup.folder / job.file, map_location=setup.device))
    return model.eval()


def errors_of(model: Recogniser, held_out: list[Corpus]) -> Row:
    """Error rates of each kind of held-out utterances and of all of them, in percent."""
    row: Row = {}
    of_all: dict[str, list[float]] = {}
    for part, data in zip(corpus.HELD_OUT, held_out, strict=True):
        name = part.name.replace(" ", "_")
        greedy, beam = recognise(model, data), recognise(model, data, BEAM)
        batch = batch_of(data, torch.arange(len(data.lengths)))
        with torch.no_grad():
            letters, nodes = model.walk(model.encode(batch.frames), batch.lengths)
        share = float(nodes.sum()) / (int(data.lengths.sum()) + sum(map(len, letters)))
        row[f"agree_{name}"] = sum(a == b for a, b in zip(letters, greedy.tokens, strict=True)) / len(letters)
        for key, value in (
            ("letters", 100 * greedy.letter_errors),
            ("words", 100 * greedy.word_errors),
            ("beam_letters", 100 * beam.letter_errors),
            ("beam_words", 100 * beam.word_errors),
            ("delay_ms", greedy.delay_ms),
            ("visited", 100 * share),
        ):
            row[f"{key}_{name}"] = rounded(value) if value == value else None
            of_all.setdefault(key, []).append(value)
    return row | {
        key: rounded(sum(values) / len(values)) if all(v == v for v in values) else None
        for key, values in of_all.items()
    }


def run_job(setup: Setup, job: Job, parts: list[Corpus]) -> Iterator[Row]:
    """Trains a model, and measures its errors; RNN-T with soft gates is then trained on with each of `TUNED`."""
    model = model_of(setup, job, trained=False).train()
    course = train(model, parts[0], setup.steps, setup.batch, job.seed, setup.learning_rate)
    torch.save(model.state_dict(), setup.folder / job.file)
    yield _row(setup, job, setup.steps, course, errors_of(model.eval(), parts[1:]))
    if job[:2] != ("RNN-T", "soft"):
        return
    for family in TUNED:
        tuned = Recogniser(FAMILIES[family], job.activation, setup.hidden).to(setup.device)
        tuned.load_state_dict(model.state_dict())
        steps = max(1, setup.steps // 4)
        course = train(tuned, parts[0], steps, setup.batch, 100 + job.seed, TUNED_RATE)
        row = _row(setup, job._replace(family=family), steps, course, errors_of(tuned.eval(), parts[1:]))
        yield row | {"op": "transducer_recogniser_tuned"}


def _row(setup: Setup, job: Job, steps: int, course: Course, errors: Row) -> Row:
    return {
        "op": "transducer_recogniser",
        "family": job.family,
        "activation": job.activation,
        "seed": job.seed,
        "steps": steps,
        "batch": setup.batch,
        "first_loss": rounded(course.losses[0]),
        "loss": rounded(course.losses[-1]),
        "shared_s": rounded(course.seconds),
        **errors,
    }


def _work(setup: Setup, todo: Queue[Job | None], done: Queue[Row | str | None]) -> None:
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("high")
    parts = load_corpus(setup)
    while (job := todo.get()) is not None:
        try:
            for row in run_job(setup, job, parts):
                done.put(row)
        except Exception as error:
            done.put(f"{job}: {type(error).__name__}: {str(error).splitlines()[0]}")
    done.put(None)


def run_jobs(setup: Setup, todo: list[Job], processes: int, until: float) -> Iterator[Row]:
    """Rows of the jobs as they come, by so many processes, until time.monotonic() says so; failures are printed."""
    context = multiprocessing.get_context("spawn")
    tasks, results = context.Queue(), context.Queue()
    for job in [*todo, *[None] * processes]:
        tasks.put(job)
    workers = [
        context.Process(target=_work, args=(setup, tasks, results), daemon=True) for _ in range(processes)
    ]
    for worker in workers:
        worker.start()
    running = len(workers)
    while running:
        try:
            found = results.get(timeout=max(until - time.monotonic(), 0.1))
        except Empty:
            print("time is up: some trainings have no row", flush=True)
            break
        if isinstance(found, str):
            print(found, flush=True)
        elif found is None:
            running -= 1
        else:
            yield found
    for worker in workers:
        worker.terminate()
