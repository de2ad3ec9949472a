"""How the transducer's thresholds are measured: the problems of each (benchmarks/harness/tuning.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial

import torch

from benchmarks.harness.tuning import Choice, Crossing, Machine, Probe, Problem, Run
from benchmarks.transducer import measure
from benchmarks.transducer.joint import JointProblem
from benchmarks.transducer.sizes import Size
from warpalign._core import ways
from warpalign._core.checks import Precision

MIB = 1 << 20


def _make(size: Size, gradient: bool, precision: Precision, way: str, device: torch.device) -> Run:
    made = JointProblem(size, device)

    def run() -> object:
        chosen = ways.forced("transducer_joint", way) if way else nullcontext()
        with chosen, torch.set_grad_enabled(gradient):
            value = made.loss(precision)
            return torch.autograd.grad(value, made.tensors) if gradient else value

    return run


def joint(
    size: Size,
    gradient: bool,
    quantity: float | None = None,
    precision: Precision = "highest",
    way: str = "",
) -> Problem:
    """A training step of the loss fused with its joint network, or its value alone. way: one that is forced."""
    name = f"{size.name} {'step' if gradient else 'value'} {precision}"
    return Problem(name, partial(_make, size, gradient, precision, way), quantity)


LARGE = [(4, 300, 60, 1024, 640), (16, 150, 40, 512, 512), (8, 200, 80, 4096, 512)]
SMALL = [(1, 60, 20, 1024, 640), (2, 100, 29, 256, 320)]


def joints(
    sizes: Sequence[tuple[int, int, int, int, int]],
    dtype: str,
    gradient: bool,
    precision: Precision = "highest",
    way: str = "",
) -> Callable[[Machine], list[Problem]]:
    found = [
        joint(Size(b, t, u, v, dtype, H=h), gradient, precision=precision, way=way) for b, t, u, v, h in sizes
    ]
    return lambda _: found


def few_labels(_: Machine) -> list[Problem]:
    return [
        joint(Size(16, 150, 40, labels, dtype, H=512), True, labels)
        for dtype in ("bfloat16", "float32")
        for labels in (8, 12, 16, 24, 32, 48, 64, 128)
    ]


def _logits(size: Size, device: torch.device) -> Run:
    return measure.Problem(size, device).step


def logits(_: Machine) -> list[Problem]:
    return [
        Problem(size.name, partial(_logits, size)) for size in (Size(4, 100, 30, 256), Size(2, 60, 20, 1024))
    ]


PROBES: dict[str, Probe] = {
    "warpgroup_labels": Crossing(few_labels),
    "warpgroup_chunk_bytes": Choice(
        joints(LARGE, "bfloat16", True), values=[k * MIB for k in (20, 40, 60, 90, 120)]
    ),
    "warpgroup_chunk_cost": Choice(
        joints([*LARGE, *SMALL], "bfloat16", True), values=[200_000, 400_000, 800_000, 1_600_000]
    ),
    "warpgroup_weight_parts": Choice(joints([*LARGE, *SMALL], "bfloat16", True), values=[1, 2, 4, 8, 16]),
    "chunk_bytes": Choice(
        joints(LARGE, "float32", False, way="blocks"), values=[k * MIB for k in (12, 24, 40, 60)]
    ),
    "gradient_chunk_bytes": Choice(
        joints(LARGE, "float32", True, way="blocks"), values=[k * MIB for k in (10, 20, 40, 60)]
    ),
    "tf32_chunk_bytes": Choice(
        joints(LARGE, "float32", True, "medium", "tf32"), values=[k * MIB for k in (20, 40, 60, 90)]
    ),
    "tf32_chunk_cost": Choice(
        joints([*LARGE, *SMALL], "float32", True, "medium", "tf32"), values=[50, 150, 300, 600]
    ),
    "weight_parts": Choice(joints([*LARGE, *SMALL], "float32", True, way="blocks"), values=[1, 2, 4]),
    "tf32_weight_parts": Choice(
        joints([*LARGE, *SMALL], "float32", True, "medium", "tf32"), values=[1, 2, 4, 8]
    ),
    "worker_elements": Choice(
        logits, values=[1 << 14, 1 << 15, 1 << 16, 1 << 17, 1 << 18], needs_threads=True
    ),
    "joint_tile_bytes": Choice(
        lambda _: [joint(Size(1, 50, 30, v, H=h), True) for v, h in ((29, 320), (512, 512), (1024, 640))],
        values=[MIB // 2, MIB, 2 * MIB, 4 * MIB],
    ),
    "joint_gradient_chunk_bytes": Choice(
        lambda _: [joint(Size(4, 60, 40, v, H=h), True) for v, h in ((256, 320), (1024, 640))],
        values=[4 * MIB, 8 * MIB, 16 * MIB, 32 * MIB],
    ),
}
