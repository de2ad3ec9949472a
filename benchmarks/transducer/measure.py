"""Measures one row of the transducer table: times, memory and errors of a training step.

A step is forward, sum and backward to the logits, N(0, 1). `mib` is the peak of the allocator above the logits during a
step, less the gradient; `inplace_mib` the same of a step whose gradient takes the logits' memory. `copy_ms` is one copy of
the logits: three passes, two that read and one that writes, take 1.5 of it. Errors are against float64 on the first
utterance: of the loss relative, of the gradient relative L2. `torchaudio_*` are the same of torchaudio's rnnt_loss, in
the same run, where it is installed and has the size's dtype and family.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from torch import Tensor

import warpalign
from benchmarks.harness.results import Row, rounded
from benchmarks.harness.timing import eager_ms, graph_ms, peak_mib
from benchmarks.transducer.align import measure_align
from benchmarks.transducer.decode import measure_decode
from benchmarks.transducer.joint import JointProblem, measure_joint
from benchmarks.transducer.sizes import FIRST_LABEL, Size
from tests.python.transducer.reference import keywords, loss_by_frames
from warpalign._transducer import ops
from warpalign._transducer.settings import Settings

# A gradient error above this is recorded as a failure, not as a result: float32's, and one rounding to a half type.
WRONG = {"float32": 1e-5, "float64": 1e-10, "float16": 1e-3, "bfloat16": 8e-3}
ERROR_LOGITS = {"cuda": 2**28, "cpu": 2**22}  # the largest utterance that is compared with float64


class Problem:
    """One size's tensors, and the calls that are measured."""

    def __init__(self, size: Size, device: torch.device, seed: int = 0) -> None:
        generator = torch.Generator(device).manual_seed(seed)
        shape = (size.B, size.T, size.U + 1)
        self.size, self.columns = size, size.V
        self.joint = torch.randn(
            *shape, size.columns, generator=generator, device=device, dtype=size.torch_dtype
        )
        self.logits = self.joint.requires_grad_()
        labels = torch.randint(
            FIRST_LABEL, max(size.V, FIRST_LABEL + 1), (size.B, size.U), generator=generator, device=device
        )
        self.targets = labels.int()
        self.lengths: tuple[Tensor | None, Tensor | None] = (None, None)
        if size.ragged:
            share = torch.linspace(0.5, 1, size.B, device=device)
            self.lengths = ((share * size.T).int(), (share.flip(0) * size.U).int())

    def loss(self, reduction: str = "none") -> Tensor:
        given: dict[str, Any] = keywords(self.size.options) | {"reduction": reduction}
        if self.size.options.durations is None:
            return warpalign.transducer_loss(self.logits, self.targets, *self.lengths, **given)
        return warpalign.tdt_loss(self.logits, None, self.targets, *self.lengths, **given)

    @torch.no_grad()
    def forward(self) -> Tensor:
        return self.loss()

    def step(self) -> tuple[Tensor, ...]:
        return torch.autograd.grad(self.loss("sum"), self.logits)

    def operator_inputs(self) -> tuple[list[Tensor | None], dict[str, Any]]:
        """What the raw operators take: tensors, and settings by name."""
        o = self.size.options
        settings = Settings(
            blank=o.blank,
            durations=o.durations or tuple(m for m, _ in o.big_blanks),
            big_blank_columns=tuple(column for _, column in o.big_blanks),
            sigma=o.sigma,
            delay_penalty=o.delay,
            eos_id=-1 if o.eos is None else o.eos,
            eos_penalty=o.eos_penalty,
        )._asdict()
        x = self.logits.detach()
        inputs = [x[..., : self.columns], None if o.durations is None else x[..., self.columns :]]
        return [*inputs, self.targets, *self.lengths, None], settings

    def step_in_place(self) -> tuple[Tensor, ...]:
        """The two operators, without autograd: the logits are gone."""
        inputs, settings = self.operator_inputs()
        loss, saved = ops.loss(*inputs, True, **settings)
        ops.gradient_in_place(*inputs, saved, torch.ones_like(loss), **settings)
        return ()

    def errors(self) -> dict[str, float | None]:
        size, o = self.size, self.size.options
        t, u = (
            int(n[0]) if n is not None else full
            for n, full in zip(self.lengths, (size.T, size.U), strict=True)
        )
        if t * (u + 1) * size.V > ERROR_LOGITS[self.logits.device.type]:
            return {"err_loss": None, "err_g": None}
        value = self.loss()
        (gradient,) = torch.autograd.grad(value.sum(), self.logits)
        wide = self.logits.detach()[0, :t, : u + 1].double().requires_grad_()
        durations = None if o.durations is None else wide[..., self.columns :]
        expected = loss_by_frames(wide[..., : self.columns], self.targets[0, :u], o, durations)
        (reference,) = torch.autograd.grad(expected, wide)
        difference = gradient[0, :t, : u + 1].double() - reference
        return {
            "err_loss": float(((value[0].double() - expected) / expected).abs().detach()),
            "err_g": float(difference.norm() / reference.norm()),
        }


def copy_ms(source: Tensor, device: torch.device, budget_s: float) -> float:
    target = torch.empty_like(source)
    return eager_ms(lambda: target.copy_(source), device, budget_s)


def peer(problem: Problem, device: torch.device, budget_s: float) -> Row:
    size = problem.size
    none: Row = {"torchaudio_step_ms": None, "torchaudio_mib": None}
    if size.family != "rnnt" or size.dtype not in ("float32", "float16"):
        return none
    # It counts logits in int32 (pytorch/audio issue 3736): beyond that it reads memory that is not its own.
    if size.logits >= 2**31:
        return none | {"torchaudio_error": "more than 2^31 logits"}
    try:
        rnnt_loss = import_module("torchaudio.functional").rnnt_loss
    except ImportError:
        return none
    t = (
        torch.full((size.B,), size.T, dtype=torch.int32, device=device)
        if problem.lengths[0] is None
        else problem.lengths[0]
    )
    u = (
        torch.full((size.B,), size.U, dtype=torch.int32, device=device)
        if problem.lengths[1] is None
        else problem.lengths[1]
    )
    if size.ragged:
        return none  # it wants the longest lengths to be the tensor's

    def step() -> tuple[Tensor, ...]:
        value = rnnt_loss(problem.logits, problem.targets, t, u, blank=0, reduction="sum")
        return torch.autograd.grad(value, problem.logits)

    try:
        return {
            "torchaudio_step_ms": rounded(eager_ms(step, device, budget_s)),
            "torchaudio_mib": rounded(peak_mib(step, device)),
        }
    except RuntimeError as error:
        return none | {"torchaudio_error": str(error).splitlines()[0][:200]}


def measure(size: Size, device: torch.device, budget_s: float) -> Row:
    """All columns of one row; a column that does not exist on this device is None."""
    if size.align:
        return measure_align(size, device, budget_s)
    if size.beams:
        return measure_decode(size, device, budget_s)
    if size.H:
        return measure_joint(size, device, budget_s)
    problem = Problem(size, device)
    row: Row = {
        "forward_ms": rounded(eager_ms(problem.forward, device, budget_s)),
        "step_ms": rounded(eager_ms(problem.step, device, budget_s)),
        "graph_forward_ms": None,
        "graph_step_ms": None,
        "mib": rounded(peak_mib(problem.step, device)),
    }
    row["copy_ms"] = rounded(copy_ms(problem.logits.detach(), device, budget_s))
    found = problem.errors()
    row.update({key: rounded(value, 3) for key, value in found.items()})
    error = found["err_g"]
    if error is not None and not error <= WRONG[size.dtype]:  # NaN is not <= either
        row["err_g"] = None
        row["error"] = f"err_g is {error:.2g}, above {WRONG[size.dtype]:g}"
    if device.type == "cuda":
        try:
            row["graph_forward_ms"] = rounded(graph_ms(problem.forward, device, budget_s))
            row["graph_step_ms"] = rounded(graph_ms(problem.step, device, budget_s))
        except RuntimeError as failure:
            row.setdefault("error", f"CUDA graph: {str(failure).splitlines()[0][:200]}")
    row.update(peer(problem, device, budget_s))
    row["inplace_mib"] = rounded(peak_mib(problem.step_in_place, device))
    return row


def not_reproducible(device: torch.device, runs: int) -> list[str]:
    """Names of the sizes at which any of `runs` runs differs from the first in a single bit."""
    different = []
    for size in (
        Size(3, 130, 40, 65),
        Size(5, 33, 97, 29, "float16", ragged=True),
        Size(2, 70, 20, 130, family="multi_blank"),
        Size(2, 70, 20, 130, "bfloat16", family="tdt"),
        Size(3, 70, 20, 130, H=96),
        Size(3, 70, 20, 130, "bfloat16", family="tdt", H=96),
    ):
        problem = JointProblem(size, device, seed=1) if size.H else Problem(size, device, seed=1)
        first = (problem.loss().detach(), *problem.step())
        again = ((problem.loss().detach(), *problem.step()) for _ in range(runs - 1))
        if not all(all(map(torch.equal, first, results)) for results in again):
            different.append(size.name)
    return different
