"""Every option of soft_dtw, and series to try it with."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

MISSING = torch.arange(70) % 5 == 1
LENGTHS = {"x_lengths": torch.tensor([70, 1, 33]), "y_lengths": torch.tensor([90, 64, 2])}
CASES: dict[str, dict[str, Any]] = {
    "sakoe_chiba": {"bandwidth": 7},
    "sakoe_chiba of lengths": {"bandwidth": 3, **LENGTHS},
    "slanted": {"bandwidth": 2, "band": "slanted"},
    "abs": {"bandwidth": 25, "band": "abs"},
    "itakura": {"band": "itakura", "max_slope": 1.7},
    "penalty": {"step_penalty": 0.4},
    "euclidean": {"cost": "euclidean"},
    "l1": {"cost": "l1", **LENGTHS},
    "cosine": {"cost": "cosine", **LENGTHS},
    "huber": {"cost": "huber", "bandwidth": 11},
    "missing": {"x_mask": MISSING, **LENGTHS},
    "missing in y": {"y_mask": torch.arange(90) % 4 == 0, "cost": "cosine"},
    "gammas": {"gamma": torch.tensor([0.1, 1.0, 20.0])},
    "one gamma as a tensor": {"gamma": torch.tensor(0.7), "step_penalty": 0.1, "bandwidth": 20},
    "hard": {"gamma": 0.0},
    "hard with all": {
        "gamma": 0.0,
        "bandwidth": 9,
        "step_penalty": 0.2,
        "cost": "l1",
        "x_mask": MISSING,
        **LENGTHS,
    },
    "normalize": {"normalize": True, "cost": "huber", **LENGTHS},
}


def series(d: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(d)
    x, y = (torch.randn(3, length, d, generator=generator, dtype=torch.float64) for length in (70, 90))
    return x.to(dtype), y.to(dtype)


def placed(options: dict[str, Any], device: torch.device, dtype: torch.dtype) -> dict[str, Any]:
    """The options for this device; a gamma that is a tensor gets a gradient."""
    moved = {name: v.to(device) if isinstance(v, Tensor) else v for name, v in options.items()}
    if isinstance(moved.get("gamma"), Tensor):
        moved["gamma"] = moved["gamma"].to(dtype).requires_grad_()
    return moved


SMOOTH = [case for case in CASES if not case.startswith("hard") and "gamma" not in CASES[case]]
"""Those that have a second derivative."""
