"""Which CUDA kernels an operator has, and how often this process has launched each one."""

from __future__ import annotations

import ctypes
import itertools

from warpalign._core.library import LIBRARIES


class _KernelLaunches(ctypes.Structure):
    """`KernelLaunches` of include/warpalign/kernel_launches.h."""

    _fields_ = [("kernel", ctypes.c_char * 96), ("launches", ctypes.c_ulonglong)]  # noqa: RUF012


def launches(operator: str, library: str = "cuda") -> dict[str, int]:
    """Launches by kernel. library: "cuda" or "cpu"; the CPU library has no kernel."""
    loaded = ctypes.CDLL(str(LIBRARIES / f"libwarpalign_torch_{library}.so"))
    read = loaded[f"warpalign_{operator}_kernel_launches"]
    read.argtypes, read.restype = [ctypes.c_int, ctypes.POINTER(_KernelLaunches)], ctypes.c_bool
    found: dict[str, int] = {}
    row = _KernelLaunches()
    for index in itertools.count():
        if not read(index, ctypes.byref(row)):
            return found
        name = row.kernel.decode()
        if name in found:
            raise RuntimeError(f"{operator}: two kernels are called {name!r}")
        found[name] = row.launches
    raise AssertionError("unreachable")
