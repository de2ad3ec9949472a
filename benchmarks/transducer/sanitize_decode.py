"""Decoding's kernels on small shapes, compared with the CPU in float64: cases of `sanitize.py`."""

from __future__ import annotations

import torch

from tests.python.transducer.decoding_reference import FAMILIES, model
from warpalign.transducer import (
    Hypotheses,
    transducer_beam_decode,
    transducer_greedy_decode,
)


def found_with(
    family_name: str, hidden: int, beam: int, dtype: torch.dtype, device: torch.device
) -> list[Hypotheses]:
    """The best hypotheses of two utterances; beam 0 is greedy search."""
    family = FAMILIES[family_name]
    predictor, joint = model(family, hidden, blank=0.3)
    assert joint.bias is not None
    generator = torch.Generator().manual_seed(1)
    encoder = torch.randn(2, 9, hidden, generator=generator).to(device, dtype)
    lengths = torch.tensor([9, 5], device=device)
    predictor = predictor.to(device, dtype)
    weights = joint._replace(weight=joint.weight.to(device, dtype), bias=joint.bias.to(device, dtype))
    options = family.keywords()
    if beam == 0:
        return [transducer_greedy_decode(encoder, lengths, predictor, weights, **options)]  # type: ignore[arg-type]
    return transducer_beam_decode(encoder, lengths, predictor, weights, beam=beam, n_best=2, **options)  # type: ignore[arg-type]


def decode_wrong(
    family_name: str, hidden: int, beam: int, dtype: torch.dtype, device: torch.device
) -> str | None:
    """What is wrong with a search, if anything is."""
    ours = found_with(family_name, hidden, beam, dtype, device)
    exact = found_with(family_name, hidden, beam, torch.float64, torch.device("cpu"))
    for rank, (mine, wanted) in enumerate(zip(ours, exact, strict=True)):
        for name in ("tokens", "frames", "durations", "lengths"):
            if getattr(mine, name).tolist() != getattr(wanted, name).tolist():
                return f"hypothesis {rank}: {name}"
        if not torch.allclose(mine.scores.cpu().double(), wanted.scores.double(), rtol=1e-5, atol=1e-5):
            return f"hypothesis {rank}: scores {mine.scores.tolist()} instead of {wanted.scores.tolist()}"
    return None


# The family, H, the beam, the dtype: each kernel once.
DECODE_CASES = [
    ("rnnt", 6, 0, torch.float32),
    ("multi-blank", 33, 3, torch.float64),
    ("tdt", 40, 0, torch.float64),
    ("tdt-without-0", 65, 3, torch.float32),
]
