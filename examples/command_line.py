"""What the command lines of the examples share: the device, the folder for plots, a quick run."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch


def parse_arguments(doc: str | None, quick: str) -> argparse.Namespace:
    """doc: the example's docstring, whose first paragraph is the description; quick: what --quick has fewer of."""
    parser = argparse.ArgumentParser(description=(doc or "").split("\n\n")[0])
    parser.add_argument(
        "--device", default=None, help="cpu, cuda or cuda:N (default: the GPU where there is one)"
    )
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the plots (default: out)")
    parser.add_argument("--quick", action="store_true", help=quick)
    return parser.parse_args()


def choose_device(name: str | None) -> torch.device:
    device = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
    torch.zeros(1, device=device)  # an unusable device fails here, with torch's own message
    return device
