"""Compiles KeOps' formulas for a GPU with nvcc: KeOps 2.3 crashes within NVRTC of CUDA 13.0, on its own too, before torch is loaded.

The code and its options are KeOps' own. What is compiled stays in KeOps' cache.
"""

from __future__ import annotations

import struct
import subprocess
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

import torch


def use_nvcc() -> None:
    """From now on; formulas that are in the cache are not compiled again."""
    link = import_module("keopscore.binders.nvrtc.Gpu_link_compile").Gpu_link_compile
    if hasattr(link, "original_init"):
        return
    link.original_init = link.__init__

    def init(self: Any) -> None:
        link.original_init(self)
        self.my_c_dll = _Compiler

    link.__init__ = init


class _Compiler:
    """In the place of KeOps' library that calls NVRTC, with its one function; arguments are ctypes' objects."""

    @staticmethod
    def Compile(target: Any, code: Any, half: Any, fast_math: Any, device: Any, include: Any) -> int:
        """Writes the size and the bytes of the binary to the file `target`; 0: done."""
        major, minor = torch.cuda.get_device_capability(device.value)
        with tempfile.TemporaryDirectory() as folder:
            source, binary = Path(folder, "formula.cu"), Path(folder, "formula.cubin")
            source.write_bytes(code.value)
            command = ["nvcc", "-cubin", f"-arch=sm_{major}{minor}", "-o", str(binary), str(source)]
            done = subprocess.run(
                [*command, *(["-use_fast_math"] if fast_math.value else [])],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode != 0:
                print(done.stderr)
                return 1
            content = binary.read_bytes()
        Path(target.value.decode()).write_bytes(struct.pack("N", len(content)) + content)
        return 0
