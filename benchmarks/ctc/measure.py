"""Measures one row of the CTC table: times, memory and errors, next to PyTorch's and torchaudio's functions.

A step is forward, sum and backward to the logits, N(0, 1). `mib` is the peak of the allocator above the logits during a
step, less the gradient. `copy_ms` is one copy of the logits. `err_loss` is relative; `err_g` is the largest difference of
the gradient from PyTorch's in float64, for one upstream factor of 1. `torch_*` are the same of log_softmax and
torch.nn.functional.ctc_loss with PyTorch's own kernels, `cudnn_*` with cuDNN's, in the same run, eager: neither can be
captured in a CUDA graph with lengths on the host.
"""

from __future__ import annotations

import functools
from importlib import import_module

import torch
import torch.nn.functional as F
from torch import Tensor

import warpalign
from benchmarks.ctc.decode import measure_decode
from benchmarks.ctc.sizes import Size
from benchmarks.harness.results import Row, rounded
from benchmarks.harness.timing import eager_ms, graph_ms, peak_mib

# A gradient error above this is recorded as a failure: float32's, and one rounding to a half type.
WRONG = {"float32": 1e-6, "float64": 1e-11, "float16": 1e-3, "bfloat16": 5e-3}


class Problem:
    """One size's tensors, and the calls that are measured."""

    def __init__(self, size: Size, device: torch.device, seed: int = 0) -> None:
        generator = torch.Generator(device).manual_seed(seed)
        self.size, self.device = size, device
        shape = (size.B, size.T, size.C) if size.what != "mas" else (size.B, size.L, size.T)
        self.logits = torch.randn(*shape, generator=generator, device=device, dtype=size.torch_dtype)
        if size.what == "loss":
            self.logits.requires_grad_()
        self.targets = torch.randint(
            1, max(size.C, 2), (size.B, size.L), generator=generator, device=device, dtype=torch.int32
        )

    def loss(self) -> Tensor:
        return warpalign.ctc_loss(self.logits, self.targets, reduction="none")

    @torch.no_grad()
    def forward(self) -> Tensor:
        return self.loss()

    def step(self) -> tuple[Tensor, ...]:
        return torch.autograd.grad(self.loss().sum(), self.logits)

    def torch_loss(self, logits: Tensor, *, for_cudnn: bool = False) -> Tensor:
        size = self.size
        log_probs = F.log_softmax(logits, -1, dtype=torch.promote_types(logits.dtype, torch.float32))
        frames = torch.full((size.B,), size.T, dtype=torch.int32)
        labels = torch.full((size.B,), size.L, dtype=torch.int32)
        targets = self.targets.flatten().cpu() if for_cudnn else self.targets
        return F.ctc_loss(log_probs.transpose(0, 1), targets, frames, labels, reduction="none")

    def torch_step(self, *, for_cudnn: bool = False) -> tuple[Tensor, ...]:
        return torch.autograd.grad(self.torch_loss(self.logits, for_cudnn=for_cudnn).sum(), self.logits)

    def exact(self) -> tuple[Tensor, Tensor]:
        """Losses and gradients by PyTorch in float64."""
        wide = self.logits.detach().double().requires_grad_()
        with torch.backends.cudnn.flags(enabled=False):
            value = self.torch_loss(wide)
            (gradient,) = torch.autograd.grad(value.sum(), wide)
        return value.detach(), gradient


def peers(problem: Problem, gradient: Tensor, budget_s: float) -> Row:
    """PyTorch's own kernels, and cuDNN's, which takes float32, at most 256 labels, and labels on the CPU."""
    row: Row = {}
    has_cudnn = problem.device.type == "cuda" and problem.size.L <= 256
    for name, enabled in (("torch", False), *((("cudnn", True),) if has_cudnn else ())):
        with torch.backends.cudnn.flags(enabled=enabled):
            step = functools.partial(problem.torch_step, for_cudnn=enabled)
            row[f"{name}_step_ms"] = rounded(eager_ms(step, problem.device, budget_s))
            row[f"{name}_mib"] = rounded(peak_mib(step, problem.device))
            (own,) = step()
        row[f"{name}_err_g"] = rounded(float((own.double() - gradient).abs().max()), 3)
    return row


def measure_loss(size: Size, device: torch.device, budget_s: float) -> Row:
    problem = Problem(size, device)
    row: Row = {
        "forward_ms": rounded(eager_ms(problem.forward, device, budget_s)),
        "step_ms": rounded(eager_ms(problem.step, device, budget_s)),
        "graph_forward_ms": None,
        "graph_step_ms": None,
        "mib": rounded(peak_mib(problem.step, device)),
    }
    target = torch.empty_like(problem.logits)
    row["copy_ms"] = rounded(
        eager_ms(lambda: target.detach().copy_(problem.logits.detach()), device, budget_s)
    )
    if device.type == "cuda":
        row["graph_forward_ms"] = rounded(graph_ms(problem.forward, device, budget_s))
        row["graph_step_ms"] = rounded(graph_ms(problem.step, device, budget_s))
    value, gradient = problem.exact()
    row["err_loss"] = rounded(float(((problem.forward().double() - value) / value).abs().max()), 3)
    error = float((problem.step()[0].double() - gradient).abs().max())
    row["err_g"] = rounded(error, 3)
    if not error <= WRONG[size.dtype]:  # NaN is not <= either
        row["error"] = f"err_g is {error:.2g}, above {WRONG[size.dtype]:g}"
    return row | peers(problem, gradient, budget_s)


def measure_align(size: Size, device: torch.device, budget_s: float) -> Row:
    problem = Problem(size, device)
    log_probs = F.log_softmax(problem.logits.double(), -1).to(problem.logits.dtype)

    def run() -> Tensor:
        return warpalign.ctc_align(log_probs, problem.targets, from_log_probs=True).labels

    row: Row = {
        "align_ms": rounded(eager_ms(run, device, budget_s)),
        "mib": rounded(peak_mib(run, device)),
    }
    if device.type == "cuda":
        row["graph_align_ms"] = rounded(graph_ms(run, device, budget_s))
    try:
        forced_align = import_module("torchaudio.functional").forced_align
    except ImportError:
        return row
    if size.B == 1:
        row["torchaudio_align_ms"] = rounded(
            eager_ms(lambda: forced_align(log_probs, problem.targets, blank=0), device, budget_s)
        )
        labels, _ = forced_align(log_probs, problem.targets, blank=0)
        # Sums of 60 000 float32 numbers, as torchaudio's, choose another path here and there.
        different = int((labels != run()).sum())
        row["torchaudio_different"] = different
        if different > size.T // 100:
            row["error"] = f"{different} of {size.T} labels differ from torchaudio's"
    return row


def measure_mas(size: Size, device: torch.device, budget_s: float) -> Row:
    problem = Problem(size, device)

    def run() -> tuple[Tensor]:
        return (warpalign.monotonic_alignment_search(problem.logits),)

    row: Row = {
        "mas_ms": rounded(eager_ms(run, device, budget_s)),
        "mib": rounded(peak_mib(run, device)),
    }
    if device.type == "cuda":
        row["graph_mas_ms"] = rounded(graph_ms(run, device, budget_s))
        expected = warpalign.monotonic_alignment_search(problem.logits.cpu())
        if not torch.equal(run()[0].cpu(), expected):
            row["error"] = "paths differ from the CPU's"
    return row


def measure(size: Size, device: torch.device, budget_s: float) -> Row:
    """All columns of one row; a column that does not exist on this device is None."""
    run = {"loss": measure_loss, "align": measure_align, "mas": measure_mas}.get(size.what, measure_decode)
    return run(size, device, budget_s)


def not_reproducible(device: torch.device, runs: int) -> list[str]:
    """Names of the sizes at which any of `runs` runs differs from the first in a single bit."""
    different = []
    for size in (
        Size(3, 130, 40, 65),
        Size(2, 700, 12, 300),
        Size(5, 97, 700, 33, "float16"),
        Size(2, 200, 3000, 130, "bfloat16"),
        Size(3, 600, 20, 200, what="align"),
        Size(3, 300, 0, 97, what="mas"),
        Size(3, 60, 70, 20, what="beam"),
        Size(3, 300, 40, 1, what="greedy"),
    ):
        problem = Problem(size, device, seed=1)

        def run(problem: Problem = problem) -> tuple[Tensor, ...]:
            if problem.size.what == "mas":
                return (warpalign.monotonic_alignment_search(problem.logits),)
            if problem.size.what == "beam":
                hypotheses = warpalign.ctc_beam_decode(problem.logits, beam=problem.size.L)[0]
                return hypotheses.tokens, hypotheses.frames, hypotheses.scores
            if problem.size.what == "greedy":
                hypotheses = warpalign.ctc_greedy_decode(problem.logits)
                return hypotheses.tokens, hypotheses.frames, hypotheses.scores
            if problem.size.what == "align":
                found = warpalign.ctc_align(problem.logits, problem.targets)
                return found.score, found.labels
            return (problem.loss().detach(), *problem.step())

        first = run()
        if not all(all(map(torch.equal, first, run())) for _ in range(runs - 1)):
            different.append(size.name)
    return different
