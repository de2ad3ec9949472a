"""Searches of CTC, as they are measured: frames that are sure of one class, as trained networks give them, and unsure ones."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import Tensor

import warpalign
from benchmarks.ctc.sizes import Size
from benchmarks.harness.results import Row, rounded
from benchmarks.harness.timing import eager_ms, graph_ms, peak_mib


def peaky(batch: int, frames: int, classes: int, generator: torch.Generator, height: float = 9.0) -> Tensor:
    """Logits N(0, 1); `height` more for blank, and for one label in every fourth frame."""
    logits = torch.randn(batch, frames, classes, generator=generator, device=generator.device)
    labels = torch.randint(1, classes, (batch, frames), generator=generator, device=generator.device)
    labels[:, torch.arange(frames, device=generator.device) % 4 != 0] = 0
    return logits.scatter_add_(
        2, labels[..., None], torch.full_like(labels[..., None], height, dtype=logits.dtype)
    )


def measure_decode(size: Size, device: torch.device, budget_s: float) -> Row:
    """A beam search of L hypotheses, or greedy search."""
    logits = peaky(size.B, size.T, size.C, torch.Generator(device).manual_seed(0)).to(size.torch_dtype)

    def run(x: Tensor = logits) -> tuple[Tensor, Tensor]:
        found = (
            warpalign.ctc_greedy_decode(x)
            if size.what == "greedy"
            else warpalign.ctc_beam_decode(x, beam=size.L)[0]
        )
        return found.tokens, found.scores

    row: Row = {
        f"{size.what}_ms": rounded(eager_ms(run, device, budget_s)),
        "mib": rounded(peak_mib(run, device)),
    }
    if device.type == "cuda":
        row[f"graph_{size.what}_ms"] = rounded(graph_ms(run, device, budget_s))
        tokens, scores = run(logits.cpu())
        found = run()
        error = float(((found[1].cpu() - scores) / scores).abs().max())
        if not torch.equal(found[0].cpu(), tokens) or not error < 1e-4:
            row["error"] = f"labels or scores (by {error:.2g}) differ from the CPU's"
    return row


# Other packages' searches of one utterance's log-probabilities (T, C), where they are installed, with the pruning of labels
# that makes them fast.


def flashlight_search(classes: int, beam: int) -> Callable[[Tensor], list[int]] | None:
    try:
        text = import_module("flashlight.lib.text.decoder")
    except ImportError:
        return None
    options = text.LexiconFreeDecoderOptions(
        beam_size=beam,
        beam_size_token=min(beam + 2, classes),  # blank among them
        beam_threshold=1e30,
        lm_weight=0.0,
        sil_score=0.0,
        log_add=True,
        criterion_type=text.CriterionType.CTC,
    )
    decoder = text.LexiconFreeDecoder(options, text.ZeroLM(), -1, 0, [])

    def search(log_probs: Tensor) -> list[int]:
        (best, *_) = decoder.decode(log_probs.data_ptr(), *log_probs.shape)
        tokens = list(best.tokens)
        return [t for t, before in zip(tokens, [-1, *tokens], strict=False) if t != before and t > 0]

    return search


def fast_ctc_search(classes: int, beam: int) -> Callable[[Tensor], list[int]] | None:
    try:
        package = import_module("fast_ctc_decode")
    except ImportError:
        return None
    alphabet = [chr(0x4E00 + c) for c in range(classes)]

    def search(log_probs: Tensor) -> list[int]:
        probabilities: Any = np.exp(log_probs.numpy())
        text, _ = package.beam_search(
            probabilities, alphabet, beam_size=beam, beam_cut_threshold=0.1 / classes
        )
        return [ord(letter) - 0x4E00 for letter in text]

    return search


def pyctcdecode_search(classes: int, beam: int) -> Callable[[Tensor], list[int]] | None:
    try:
        package = import_module("pyctcdecode")
    except ImportError:
        return None
    decoder = package.build_ctcdecoder(["", *(chr(0x4E00 + c) for c in range(1, classes))])

    def search(log_probs: Tensor) -> list[int]:
        return [ord(letter) - 0x4E00 for letter in decoder.decode(log_probs.numpy(), beam_width=beam)]

    return search


PEERS = {
    "flashlight": flashlight_search,
    "fast_ctc_decode": fast_ctc_search,
    "pyctcdecode": pyctcdecode_search,
}
