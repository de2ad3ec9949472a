"""Runs every CTC kernel on small odd shapes: meant to be run under compute-sanitizer, and so kept short.

Inputs are made on the CPU and results are checked there against the CPU path in float64, which its own tests compare with
the reference, so that nearly all device work is warpalign's.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

import warpalign
from benchmarks.harness.sanitizer_cases import Case, main

DTYPES = (torch.float32, torch.float16, torch.float64, torch.bfloat16)
# B, T, C, U: one strip and several, one panel and several; occupancies by class, and by first of equal labels.
SHAPES = [(1, 1, 2, 0), (3, 20, 7, 9), (2, 80, 9, 40), (2, 33, 700, 20), (1, 300, 5, 140), (2, 18, 2600, 17)]
OPTIONS: list[dict[str, Any]] = [{}, {"star": 3}, {"from_log_probs": True}, {"zero_infinity": True}]
LIMIT = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 5e-3, torch.float64: 1e-10}


def wrong(
    shape: tuple[int, int, int, int],
    dtype: torch.dtype,
    options: dict[str, Any],
    flat: bool,
    device: torch.device,
) -> str | None:
    """What is wrong with one batch's results, if anything is."""
    generator = torch.Generator().manual_seed(0)
    b, t, c, u = shape
    x = torch.randn(b, t, c, generator=generator).to(dtype)
    y = torch.randint(1, c, (b, u), generator=generator)
    frames = torch.tensor([t, max(t - 3, 1), t][:b])
    labels = torch.tensor([u, max(u - 5, 0), 0][:b])
    if flat:
        y = torch.cat([y[k, : int(n)] for k, n in enumerate(labels)])

    def results(place: torch.device, kind: torch.dtype) -> dict[str, Tensor]:
        own = x.to(place, kind, copy=True).requires_grad_()
        given = (y.to(place), frames.to(place), labels.to(place))
        value = warpalign.ctc_loss(own, *given, reduction="none", **options)
        (gradient,) = torch.autograd.grad(value[value.isfinite()].sum(), own)
        rest = {k: v for k, v in options.items() if k != "zero_infinity"}
        found = {"loss": value.detach(), "gradient": gradient}
        found["score"] = warpalign.ctc_align(own.detach(), *given, **rest).score
        if not flat:
            found["posteriors"] = warpalign.ctc_posteriors(own.detach(), *given, **rest)
        return {name: tensor.cpu().double() for name, tensor in found.items()}

    mine, exact = results(device, dtype), results(torch.device("cpu"), torch.float64)
    for name, expected in exact.items():
        scale = 1 + expected[expected.isfinite()].abs() if name in ("loss", "score") else 1.0
        known = expected.isfinite()
        if not torch.equal(known, mine[name].isfinite()):
            return f"{name}: other elements are finite"
        if not bool(((mine[name] - expected)[known].abs() <= LIMIT[dtype] * scale).all()):
            return name
    return None


def search_wrong(shape: tuple[int, int, int], dtype: torch.dtype, device: torch.device) -> str | None:
    scores = torch.randn(*shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    lengths = torch.tensor([shape[1], max(shape[1] - 4, 1)][: shape[0]])
    frames = torch.tensor([shape[2], shape[2]][: shape[0]])
    found = warpalign.monotonic_alignment_search(scores.to(device), lengths.to(device), frames.to(device))
    expected = warpalign.monotonic_alignment_search(scores, lengths, frames)
    return None if torch.equal(found.cpu(), expected) else "path"


class Reader:
    """A language model without a state."""

    def initial_state(self, batch: int) -> Tensor:
        return torch.zeros(batch, 1)

    def step(self, tokens: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        rows = torch.arange(7.0, device=tokens.device) - tokens[:, None].float()
        return rows.log_softmax(-1), state.to(tokens.device)


def decoding_wrong(beam: int, classes: int, dtype: torch.dtype, device: torch.device) -> str | None:
    logits = 2 * torch.randn(2, 9, classes, generator=torch.Generator().manual_seed(beam)).to(dtype)
    lengths = torch.tensor([9, 5])

    def results(place: torch.device) -> dict[str, warpalign.Hypotheses]:
        given = (logits.to(place), lengths.to(place))
        model = {"language_model": Reader(), "lm_weight": 0.3} if classes == 7 else {}
        return {
            "beam": warpalign.ctc_beam_decode(*given, beam=beam, **model)[0],  # type: ignore[arg-type]
            "greedy": warpalign.ctc_greedy_decode(*given),
        }

    mine, exact = results(device), results(torch.device("cpu"))
    for name, expected in exact.items():
        same = torch.equal(mine[name].tokens.cpu(), expected.tokens)
        if not same or not torch.allclose(mine[name].scores.cpu(), expected.scores, rtol=1e-5):
            return name
    return None


def head_wrong(dtype: torch.dtype, device: torch.device) -> str | None:
    """What is wrong with the loss with the last layer within it: 3000 classes, in chunks of a few frames."""
    generator = torch.Generator().manual_seed(0)
    hidden, weight = torch.randn(2, 12, 8, generator=generator), torch.randn(3000, 8, generator=generator)
    targets = torch.randint(1, 3000, (2, 5), generator=generator)

    def results(place: torch.device, kind: torch.dtype) -> dict[str, Tensor]:
        own = [v.to(dtype).to(place, kind).requires_grad_() for v in (hidden, weight)]
        value = warpalign.ctc_loss_from_encoder(
            own[0], own[1], None, targets.to(place), workspace_limit=1 << 16, reduction="none"
        )
        gradients = torch.autograd.grad(value.sum(), own)
        found = dict(zip(("loss", "hidden", "weight"), (value.detach(), *gradients), strict=True))
        return {name: tensor.cpu().double() for name, tensor in found.items()}

    mine, exact = results(device, dtype), results(torch.device("cpu"), torch.float64)
    for name, expected in exact.items():
        if not bool(((mine[name] - expected).abs() <= 30 * LIMIT[dtype] * (1 + expected.abs())).all()):
            return name
    return None


def cases(device: torch.device) -> Iterator[Case]:
    """Losses, alignments, decoding and the loss with the last layer within it."""
    for number, shape in enumerate(SHAPES):
        for turn, dtype in enumerate(DTYPES):
            options = OPTIONS[(number + turn) % len(OPTIONS)]
            if options.get("star", 0) >= shape[2]:
                options = {}
            flat = (2 * number + turn) % len(DTYPES) == 0
            yield f"{shape} {dtype} {options} {flat=}", partial(wrong, shape, dtype, options, flat, device)
    for number, search_shape in enumerate([(2, 5, 9), (2, 70, 90), (1, 530, 560)]):
        for dtype in DTYPES if number < 2 else DTYPES[:1]:
            yield f"search {search_shape} {dtype}", partial(search_wrong, search_shape, dtype, device)
    for number, (beam, classes) in enumerate([(1, 3), (8, 7), (33, 40), (128, 150)]):
        for dtype in DTYPES if number == 1 else DTYPES[:1]:
            name = f"decoding, {beam=} {classes=} {dtype}"
            yield name, partial(decoding_wrong, beam, classes, dtype, device)
    for dtype in DTYPES:
        yield f"head {dtype}", partial(head_wrong, dtype, device)


if __name__ == "__main__":
    sys.exit(main(__doc__, cases))
