"""`warpalign info`."""

from __future__ import annotations

import platform
from typing import Any

import click
import torch

from warpalign import __version__
from warpalign._core import library
from warpalign.cli._common import json_option, report


@click.command()
@json_option
def info(as_json: bool) -> None:
    """Print versions, the libraries that were built, devices and instruction sets."""
    values: dict[str, Any] = {
        "warpalign": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda_of_torch": torch.version.cuda or "none",
        "libraries": sorted(path.name for path in library.LIBRARIES.glob("*.so")),
        "cuda_operators": "loaded" if library.has_cuda else "none",
        "cpu": platform.machine(),
        "instruction_sets": instruction_sets(),
        "threads": torch.get_num_threads(),
        "devices": ["cpu", *map(describe_gpu, range(torch.cuda.device_count()))],
    }
    if as_json:
        report(values, as_json=True)
        return
    report({name: ", ".join(v) if isinstance(v, list) else v for name, v in values.items()}, as_json=False)


def instruction_sets() -> list[str]:
    """The vector extensions that this CPU has, out of those that matter to the kernels; they choose at run time."""
    if not hasattr(torch.cpu, "get_capabilities"):  # before torch 2.11
        return [torch.backends.cpu.get_cpu_capability().lower()]
    flags = torch.cpu.get_capabilities()
    wanted = (
        "sse4_2",
        "avx",
        "avx2",
        "fma3",
        "avx512_f",
        "avx512_dq",
        "avx512_bw",
        "avx512_vl",
        "neon",
        "sve",
    )
    return [name for name in wanted if flags.get(name)]


def describe_gpu(index: int) -> str:
    properties = torch.cuda.get_device_properties(index)
    memory = properties.total_memory / 2**30
    return f"cuda:{index} {properties.name} (sm_{properties.major}{properties.minor}, {memory:.0f} GiB)"
