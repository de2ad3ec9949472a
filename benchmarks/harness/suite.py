"""What `gpu_check.py` measures of an operator: `SUITE` in benchmarks/<operator>/suite.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from benchmarks.harness.results import ROOT, Row

if TYPE_CHECKING:
    import torch


class Size(Protocol):
    """One row of an operator's table: a NamedTuple whose fields become columns of the result."""

    @property
    def name(self) -> str:
        """What `--rows` is matched with."""
        ...

    def _asdict(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Suite:
    name: str
    """The operator's folder, and `op` of its rows."""
    sizes: Sequence[Size]
    quick_sizes: Sequence[Size]
    """Those that a CPU measures in seconds: `--quick`."""
    measure: Callable[[Any, torch.device, float], Row]
    """(size, device, seconds for each time) -> the measured columns. A wrong result is a column `error`, or raises."""
    columns: Sequence[str]
    """The measured columns that the short table prints."""
    not_reproducible: Callable[[torch.device, int], list[str]]
    """(device, runs) -> names of the sizes at which any run differs from the first in a single bit."""
    sanitizer: str
    """The module that runs every kernel on small shapes: `cases(device)`, and a program (`sanitizer_cases.py`)."""
    sweep: str | None = None
    """The module that measures over every length, in a file of its own (`--sweep`)."""
    launches: Callable[[], dict[str, int]] | None = None
    """How often this process has launched each CUDA kernel of the operator."""
    eager: Callable[[torch.device], Row] | None = None
    """(GPU) -> host times of the smallest eager step, in microseconds: a row whose `op` is the name and "_eager"."""
    known_races: Sequence[str] = ()
    """Parts of the names of kernels whose reports by racecheck are known to be false. The suite says why."""


def operators(module: str) -> list[str]:
    """Folders of benchmarks/ that have this module, soft_dtw first."""
    found = {path.parent.name for path in (ROOT / "benchmarks").glob(f"*/{module}.py")} - {"harness"}
    return sorted(found, key=lambda name: (name != "soft_dtw", name))


def load(operator: str) -> Suite:
    suite: Suite = import_module(f"benchmarks.{operator}.suite").SUITE
    return suite
