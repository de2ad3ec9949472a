"""How CTC's thresholds are measured: the problems of each (benchmarks/harness/tuning.py)."""

from __future__ import annotations

from functools import partial

import torch

import warpalign
from benchmarks.ctc import measure
from benchmarks.ctc.sizes import Size
from benchmarks.harness.tuning import Choice, Crossing, Machine, Probe, Problem, Run


def _step(size: Size, device: torch.device) -> Run:
    return measure.Problem(size, device).step


def step(size: Size, quantity: float | None = None) -> Problem:
    """A training step."""
    return Problem(size.name, partial(_step, size), quantity)


def _align(size: Size, device: torch.device) -> Run:
    made = measure.Problem(size, device)
    return partial(warpalign.ctc_align, made.logits, made.targets)


def many_classes(_: Machine) -> list[Problem]:
    return [
        step(Size(16, 300, classes, 40), classes) for classes in (64, 128, 256, 384, 512, 768, 1024, 2048)
    ]


def steps(_: Machine) -> list[Problem]:
    return [step(size) for size in (Size(4, 300, 500, 40), Size(8, 200, 64, 60), Size(1, 1500, 32, 300))]


def long_alignments(_: Machine) -> list[Problem]:
    sizes = [Size(1, 3000, 32, 1000, what="align"), Size(1, 6000, 32, 2500, what="align")]
    return [Problem(size.name, partial(_align, size)) for size in sizes]


PROBES: dict[str, Probe] = {
    "dense_classes": Crossing(many_classes, at_most=True),
    "worker_elements": Choice(
        steps, values=[1 << 14, 1 << 15, 1 << 16, 1 << 17, 1 << 18], needs_threads=True
    ),
    "segment_doubles": Choice(steps, values=[1 << 14, 1 << 15, 1 << 16, 1 << 17]),
    "stripe_pairs": Choice(long_alignments, values=[128, 256, 512, 1024], needs_threads=True),
    "stripes_per_thread": Choice(long_alignments, values=[1, 2, 4, 8], needs_threads=True),
}
