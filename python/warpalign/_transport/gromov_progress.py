"""Signs of life of a solve that takes long."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from warpalign._core import optional
from warpalign._core.checks import check_flag, warn_once

LONG_PAIRS = 1 << 22
"""With more pairs of points, a solve on a CPU shows that it runs."""

Step = Callable[[str, "float | Tensor"], None]


@contextlib.contextmanager
def steps_shown(
    function: str, progress: object, sizes: tuple[int, int], device: torch.device, most: int
) -> Iterator[Step]:
    """A function to call after each step with the name of the stage, and its epsilon, of which the largest is shown.

    Args:
        function: the name of the caller, for the warning.
        progress: the caller's argument. None: a bar for a long solve if somebody looks at stderr, else one warning.
        most: steps at most.
    """
    if not _wants_bar(function, progress, sizes, device):
        yield lambda stage, epsilon: None
        return
    tqdm: Any = optional.load("tqdm.auto", "progress=True", "progress").tqdm
    with tqdm(total=most, desc="Gromov-Wasserstein", unit="step") as bar:

        def step(stage: str, epsilon: float | Tensor) -> None:
            shown = float(epsilon.max()) if isinstance(epsilon, Tensor) else epsilon
            bar.set_postfix_str(f"{stage}, epsilon {shown:.3g}", refresh=False)
            # The number of steps is not known before: a stop rule ends them, and further iterations follow.
            bar.total = max(bar.total, bar.n + 1)
            bar.update()

        yield step


def _wants_bar(function: str, progress: object, sizes: tuple[int, int], device: torch.device) -> bool:
    if progress is not None:
        return check_flag(progress, "progress")
    if device.type != "cpu" or sizes[0] * sizes[1] <= LONG_PAIRS:
        return False
    # A notebook shows bars, too.
    if find_spec("tqdm") is not None and (sys.stderr.isatty() or "ipykernel" in sys.modules):
        return True
    warn_once(
        f"progress: expected True or False in {function} between {sizes[0]} and {sizes[1]} points on a CPU, "
        "which takes seconds to minutes, got None: progress=True shows a bar, progress=False silences this, and a GPU "
        "takes a small part of the time"
    )
    return False
