"""What is installed, and what this machine has: `warpalign info`. Needs torch alone."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from warpalign._core import library

OPTIONAL = ("numpy", "scikit-learn", "matplotlib", "tqdm", "click", "torchmetrics", "scipy", "onnx")
"""Packages that some functions use where they are installed."""

_INSTRUCTION_SETS = (
    *("sse4_2", "avx", "avx2", "fma3", "avx512_f", "avx512_dq", "avx512_bw", "avx512_vl", "avx512_bf16"),
    *("neon", "sve"),
)


def information(of_package: str) -> dict[str, Any]:
    """The package's version, as given, libraries, instruction sets, threads, GPUs and optional packages, by name."""
    built = built_architectures()
    capabilities = [torch.cuda.get_device_capability(index) for index in range(torch.cuda.device_count())]
    return {
        "warpalign": of_package,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda_of_torch": torch.version.cuda or "none",
        "libraries": sorted(path.name for path in library.LIBRARIES.glob("*.so")),
        "cuda_operators": "loaded" if library.has_cuda else "none",
        "cuda_architectures": built if built is not None else ["not recorded"],
        "cpu": platform.machine(),
        "instruction_sets": instruction_sets(),
        "threads": torch.get_num_threads(),
        "devices": [
            "cpu",
            *(describe_gpu(index, capability, built) for index, capability in enumerate(capabilities)),
        ],
        "optional_packages": [f"{name} {found}" for name in OPTIONAL if (found := _version_of(name))],
        "missing_packages": [name for name in OPTIONAL if not _version_of(name)],
    }


def instruction_sets() -> list[str]:
    """The vector extensions of this CPU, out of those that matter to the kernels, which choose at run time."""
    if not hasattr(torch.cpu, "get_capabilities"):  # before torch 2.11
        return [torch.backends.cpu.get_cpu_capability().lower()]
    flags = torch.cpu.get_capabilities()
    return [name for name in _INSTRUCTION_SETS if flags.get(name)]


def built_architectures() -> list[str] | None:
    """The architectures of the CUDA library in CMake's words: [] without that library, None where it does not say."""
    if not (library.LIBRARIES / "libwarpalign_torch_cuda.so").exists():
        return []
    record = library.LIBRARIES / "cuda_architectures.txt"
    return record.read_text().split() if record.exists() else None


def serves(capability: tuple[int, int], built: list[str]) -> str:
    """How a GPU of this compute capability runs a build for these architectures: "built in", "through PTX" or "".

    Machine code (90, 90-real) runs on its own major version from its minor version on. PTX (90, 90-virtual) runs on every
    later one, and is compiled by the driver.
    """
    through_ptx = False
    for name in built:
        digits, _, kind = name.partition("-")
        digits = digits.rstrip("af")  # 90a: for 9.0 alone
        major, minor = int(digits[:-1]), int(digits[-1])
        if kind != "virtual" and capability[0] == major and capability[1] >= minor:
            return "built in"
        through_ptx = through_ptx or (kind != "real" and capability >= (major, minor))
    return "through PTX" if through_ptx else ""


def describe_gpu(index: int, capability: tuple[int, int], built: list[str] | None) -> str:
    """One line on a GPU: name, architecture, memory, and whether the library has machine code for it."""
    properties = torch.cuda.get_device_properties(index)
    memory = properties.total_memory / 2**30
    how = "build unknown" if built is None else serves(capability, built) or "not built in"
    return f"cuda:{index} {properties.name} (sm_{capability[0]}{capability[1]}, {how}, {memory:.0f} GiB)"


def lines(values: dict[str, Any]) -> list[str]:
    """A line per value, the names in one column."""
    width = max(len(name) for name in values) + 2
    texts = {name: ", ".join(v) if isinstance(v, list) else str(v) for name, v in values.items()}
    return [f"{name.replace('_', ' '):{width}}{text or 'none'}" for name, text in texts.items()]


def _version_of(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
