"""Times forced alignment beside the plain loop over anti-diagonals in batched torch code.

No package that the suite compares with aligns transducers: torchaudio's forced_align is CTC's. The loop is the best path
of plain RNN-T as one writes it without this package: for each anti-diagonal t + u a maximum of two shifted rows, and the
way back on the host. Both paths have the same weight, or the row is an error.
"""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.harness.results import Row, rounded
from benchmarks.harness.timing import eager_ms, graph_ms
from benchmarks.transducer.sizes import Size
from tests.python.transducer.reference import keywords
from warpalign import TransducerAlignment, transducer_align


def loop(logits: Tensor, targets: Tensor, blank: int) -> tuple[Tensor, Tensor]:
    """(scores (B,), frames (B, U)) of logits (B, T, U+1, V), every length full."""
    batch, frames, states, _ = logits.shape
    device = logits.device
    log_sum = logits.float().logsumexp(-1)
    by_blank = logits[..., blank].float() - log_sum
    labels = targets.long()[:, None, :, None].expand(-1, frames, -1, 1)
    by_label = logits[:, :, :-1].gather(-1, labels)[..., 0].float() - log_sum[:, :, :-1]
    u = torch.arange(states, device=device)
    best = torch.full((batch, states), -torch.inf, device=device)
    best[:, 0] = 0
    came_by_label = torch.zeros(frames + states - 1, batch, states, dtype=torch.bool, device=device)
    for diagonal in range(1, frames + states - 1):
        t = diagonal - u
        before = (t - 1).clamp(0, frames - 1)
        wait = torch.where((t > 0) & (t <= frames), best + by_blank[:, before, u], -torch.inf)
        emit = torch.full_like(best, -torch.inf)
        emit[:, 1:] = best[:, :-1] + by_label[:, t[1:].clamp(0, frames - 1), u[:-1]]
        emit = torch.where((t >= 0) & (t < frames), emit, -torch.inf)
        wait = torch.where(t < frames, wait, -torch.inf)
        came_by_label[diagonal] = emit > wait
        best = torch.maximum(wait, emit)
    score = best[:, -1] + by_blank[:, -1, -1]
    steps = came_by_label.cpu()
    found = torch.zeros(batch, states - 1, dtype=torch.int32)
    for b in range(batch):
        diagonal, at = frames + states - 2, states - 1
        while at > 0:
            if steps[diagonal, b, at]:
                at -= 1
                found[b, at] = diagonal - 1 - at
            diagonal -= 1
    return score, found


@torch.no_grad()
def measure_align(size: Size, device: torch.device, budget_s: float) -> Row:
    """align_ms: the best path; posteriors_ms: with posteriors; graph_*: in a CUDA graph; loop_ms: the loop."""
    generator = torch.Generator(device).manual_seed(0)
    shape = (size.B, size.T, size.U + 1, size.columns)
    joined = torch.randn(*shape, generator=generator, device=device, dtype=size.torch_dtype)
    logits, durations = joined[..., : size.V], joined[..., size.V :]
    targets = torch.randint(4, size.V, (size.B, size.U), generator=generator, device=device)
    options = size.options

    def align(posteriors: bool = False) -> TransducerAlignment:
        return transducer_align(
            logits,
            targets,
            duration_logits=None if options.durations is None else durations,
            posteriors=posteriors,
            **keywords(options),
        )

    def tensors(posteriors: bool) -> tuple[Tensor, ...]:
        found = align(posteriors)
        return (*found[:4], *(found.posteriors or ()))

    row: Row = {
        "align_ms": rounded(eager_ms(align, device, budget_s)),
        "posteriors_ms": rounded(eager_ms(lambda: align(True), device, budget_s)),
        "graph_align_ms": None,
        "graph_posteriors_ms": None,
        "loop_ms": None,
    }
    if device.type == "cuda":
        row["graph_align_ms"] = rounded(graph_ms(lambda: tensors(False), device, budget_s))
        row["graph_posteriors_ms"] = rounded(graph_ms(lambda: tensors(True), device, budget_s))
    if size.family == "rnnt":
        score, _ = loop(logits, targets, options.blank)
        if not torch.allclose(score, align().score, rtol=1e-5, atol=1e-3):
            row["error"] = "another score than the loop's"
        row["loop_ms"] = rounded(eager_ms(lambda: loop(logits, targets, options.blank), device, budget_s))
    return row
