"""Options and batches that the tests of the transducer losses share."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import warpalign
from tests.python.transducer.reference import Options, keywords

FAMILIES: dict[str, Options] = {
    "rnnt": Options(),
    "multi_blank": Options(blank=6, big_blanks=((2, 5), (3, 4))),
    "tdt": Options(blank=6, durations=(0, 1, 2, 4)),
    "tdt_without_0": Options(blank=6, durations=(2, 1)),
}
PENALTIES: dict[str, dict[str, Any]] = {
    "none": {},
    "sigma": {"sigma": 0.07},
    "delay": {"delay": 0.03},
    "eos": {"eos": 3, "eos_penalty": 0.2},
    "star": {"star": 1, "star_penalty": 0.5},
    "log_probs": {"from_log_probs": True},
    "all": {"sigma": 0.05, "delay": 0.01, "eos": 3, "eos_penalty": 0.1, "star": 2, "star_penalty": 2.0},
}


def every_family_and_penalty() -> dict[str, Options]:
    cases = {}
    for family, options in FAMILIES.items():
        for penalty, changed in PENALTIES.items():
            own = {k: v for k, v in changed.items() if options.durations is None or not k.startswith("star")}
            if own or penalty == "none":
                cases[f"{family}-{penalty}"] = options._replace(**own)
    return cases


def labels_for(options: Options, *shape: int) -> Tensor:
    """1, 2 or 3: no blank of FAMILIES."""
    return torch.randint(1, 4, shape)


def loss(
    logits: Tensor, durations: Tensor | None, targets: Tensor, options: Options, *lengths: Any, **more: Any
) -> Tensor:
    """transducer_loss or tdt_loss; no reduction unless one is named."""
    given = {"reduction": "none"} | keywords(options) | more
    if durations is None:
        return warpalign.transducer_loss(logits, targets, *lengths, **given)
    return warpalign.tdt_loss(logits, durations, targets, *lengths, **given)


def logits_for(options: Options, *shape: int, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    """N(0, 1) logits with 7 columns; durations where the family has them."""
    x = torch.randn(*shape, 7, **kwargs)
    if options.durations is None:
        return x, None
    return x, torch.randn(*shape, len(options.durations), **kwargs)
