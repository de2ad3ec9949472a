"""Training steps of published packages, in the same run as ours, where these packages are installed.

softdtw-cuda-torch (https://github.com/BGU-CS-VIL/sdtw-cuda-torch, module softdtw_cuda) and pysdtw (on PyPI). A folder
on PYTHONPATH that holds their modules is enough. Both launch Numba's kernels on the legacy stream, which a CUDA graph
cannot capture. So a graph's step hands them torch's stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from benchmarks.harness.results import Row, rounded
from benchmarks.harness.timing import eager_ms, graph_ms

Loss = Callable[[Tensor, Tensor], Tensor]


def softdtw_cuda_torch(gamma: float) -> Loss:
    # Its other mode, fused, takes 13 to 55 times as long (benchmarks/results/peers).
    loss: Loss = import_module("softdtw_cuda").SoftDTW(gamma=gamma, fused=False)
    return loss


def pysdtw(gamma: float) -> Loss:
    package: Any = import_module("pysdtw")
    loss: Loss = package.SoftDTW(gamma=gamma, use_cuda=True)
    return loss


PEERS: dict[str, Callable[[float], Loss]] = {"softdtw_cuda_torch": softdtw_cuda_torch, "pysdtw": pysdtw}


def supply_row_stack() -> None:
    """numba asks for numpy.row_stack, and newer NumPy no longer has it."""
    numpy: Any = import_module("numpy")
    if not hasattr(numpy, "row_stack"):
        numpy.row_stack = numpy.vstack


@contextmanager
def numba_on_torch_stream() -> Iterator[None]:
    """Numba's launches without a stream go to torch's current one."""
    cuda: Any = import_module("numba.cuda")
    dispatcher: Any = import_module("numba.cuda.dispatcher").CUDADispatcher
    original = dispatcher.configure

    def configure(self: Any, griddim: Any, blockdim: Any, stream: Any = 0, sharedmem: int = 0) -> Any:
        if stream == 0:
            stream = cuda.external_stream(torch.cuda.current_stream().cuda_stream)
        return original(self, griddim, blockdim, stream, sharedmem)

    dispatcher.configure = configure
    try:
        yield
    finally:
        dispatcher.configure = original


def peer_steps(x: Tensor, y: Tensor, gamma: float, budget_s: float) -> Row:
    """<package>_step_ms and <package>_graph_step_ms of every package that is installed, or <package>_error.

    x (B, N, D) and y (B, M, D) are on a GPU and require gradients.
    """
    row: Row = {}
    supply_row_stack()
    for name, make in PEERS.items():
        try:
            loss = make(gamma)
        except ImportError:
            continue

        def step(loss: Loss = loss) -> tuple[Tensor, ...]:
            return torch.autograd.grad(loss(x, y).sum(), (x, y))

        try:
            row[f"{name}_step_ms"] = rounded(eager_ms(step, x.device, budget_s))
            with numba_on_torch_stream():
                row[f"{name}_graph_step_ms"] = rounded(graph_ms(step, x.device, budget_s))
        except Exception as error:  # a package may refuse a size, or a capture, in its own way
            row[f"{name}_error"] = (str(error).splitlines() or [type(error).__name__])[0][:200]
    return row
