"""What the tests of all operators share."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[2]
Array = NDArray[np.float64]
Outputs = TypeVar("Outputs")
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
HALF_DTYPES = [torch.float16, torch.bfloat16]
OPCHECK_OF_SAVED = ("test_schema", "test_autograd_registration", "test_faketensor")
"""The checks for an operator that returns memory for its backward, in which nobody writes some bytes: two calls differ there."""


def randn(
    *shape: int,
    seed: int,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    grad: bool = False,
) -> torch.Tensor:
    """The same numbers on every device."""
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randn(*shape, generator=generator, dtype=torch.float64)
    return numbers.to(device=device, dtype=dtype).requires_grad_(grad)


def numpy64(tensor: torch.Tensor) -> Array:
    return tensor.detach().to("cpu", torch.float64).numpy()


def relative_error(got: torch.Tensor, expected: Array) -> float:
    """In the Euclidean norm over the whole tensor."""
    difference = float(np.linalg.norm(numpy64(got) - expected))
    norm = float(np.linalg.norm(expected))
    return difference / norm if norm > 0 else difference


def assert_tensors_close(got: tuple[torch.Tensor, ...], expected: tuple[torch.Tensor, ...]) -> None:
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def assert_tensors_equal(got: tuple[torch.Tensor, ...], expected: tuple[torch.Tensor, ...]) -> None:
    for one, other in zip(got, expected, strict=True):
        assert torch.equal(one, other)


def assert_compiled_equals_eager(
    step: Callable[..., torch.Tensor],
    calls: Iterable[tuple[Sequence[torch.Tensor], Sequence[object]]],
    dynamic: bool | None = None,
) -> None:
    """A function that torch compiles whole: its value and gradients are those of the function run eagerly.

    Args:
        step: takes the tensors of a call, then its other arguments; returns a scalar.
        calls: the tensors to differentiate by, and the other arguments, of each call.
        dynamic: as torch.compile takes it.
    """
    torch._dynamo.reset()
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for tensors, others in calls:
        results = []
        for function in (step, compiled):
            leaves = [tensor.detach().clone().requires_grad_() for tensor in tensors]
            value = function(*leaves, *others)
            results.append([value, *torch.autograd.grad(value, leaves)])
        torch.testing.assert_close(*results)


def assert_close(got: torch.Tensor, expected: torch.Tensor, tolerance: float) -> None:
    assert got.shape == expected.shape
    assert relative_error(got, numpy64(expected)) <= tolerance


def captured(run: Callable[[], Outputs]) -> tuple[torch.cuda.CUDAGraph, Outputs]:
    """A CUDA graph of a call, and the tensors that its replays write."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = run()
    return graph, outputs


@contextmanager
def no_synchronisation() -> Iterator[None]:
    """Whatever makes the host wait for the GPU raises."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def run_python(*arguments: str, limit_s: float = 300, **environment: str) -> subprocess.CompletedProcess[str]:
    """A new Python process in the repository's root, which finds the package of this tree."""
    paths = os.pathsep.join(filter(None, [str(ROOT / "python"), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": paths, **environment},
        capture_output=True,
        text=True,
        timeout=limit_s,
    )


def in_a_new_process(code: str) -> str:
    """What a program prints, which must not fail."""
    done = run_python("-c", code)
    assert done.returncode == 0, done.stderr
    return done.stdout


def write_files(root: Path, files: dict[str, str]) -> None:
    """files: texts by path below root."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
