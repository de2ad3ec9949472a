"""Under torch.compile and torch.export: the same numbers as in eager mode, in one graph.

The backend "aot_eager" is quick to start; its graphs are inductor's.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import torch
from torch.func import grad, vmap
from torch.utils._triton import has_triton

import warpalign
from tests.python.helpers import assert_tensors_close
from tests.python.soft_dtw.reference import pair

Tensors = tuple[torch.Tensor, ...]


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def forward_and_backward(
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], x: torch.Tensor, y: torch.Tensor
) -> Tensors:
    x, y = x.detach().requires_grad_(), y.detach().requires_grad_()
    value = loss(x, y)
    return value.detach(), *torch.autograd.grad(value.sum(), (x, y))


def losses() -> dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]]:
    lengths = torch.tensor([6, 1, 3, 6])
    return {
        "series": lambda x, y: warpalign.soft_dtw(torch.tanh(x), y, gamma=0.5) * 2,
        "lengths": lambda x, y: warpalign.soft_dtw(x, y, x_lengths=lengths.to(x.device)).exp(),
        "broadcast": lambda x, y: warpalign.soft_dtw(x[:1], y),
        "unbatched": lambda x, y: warpalign.soft_dtw(x[0], y[0]),
        "precision": lambda x, y: warpalign.soft_dtw(x, y, precision="high"),
        "half": lambda x, y: warpalign.soft_dtw(x.bfloat16(), y.bfloat16()),
        "mean": lambda x, y: warpalign.soft_dtw(x, y, reduction="mean"),
        "cost": lambda x, y: warpalign.soft_dtw_cost((x[:, :, None] - y[:, None]).square().sum(-1)),
        "alignment": lambda x, y: (lambda r: r.value + r.alignment.sum((1, 2)))(
            warpalign.soft_dtw_alignment(x, y)
        ),
        "module": warpalign.SoftDTW(0.3),
    }


@pytest.mark.parametrize("name", losses())
def test_compiled_equals_eager(device: torch.device, name: str) -> None:
    loss = losses()[name]
    x, y = pair(4, 6, 5, 2, device=device)
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    assert_tensors_close(forward_and_backward(compiled, x, y), forward_and_backward(loss, x, y))
    with torch.no_grad():
        assert_tensors_close((compiled(x, y),), (loss(x, y),))


def test_compiled_with_dynamic_shapes(device: torch.device) -> None:
    compiled = torch.compile(warpalign.soft_dtw, fullgraph=True, dynamic=True, backend="aot_eager")
    for batch, n, m, d in ((3, 6, 5, 2), (4, 9, 7, 2), (5, 33, 20, 3)):
        x, y = pair(batch, n, m, d, device=device)
        assert_tensors_close(
            forward_and_backward(compiled, x, y), forward_and_backward(warpalign.soft_dtw, x, y)
        )


def test_compiled_with_another_gamma_each_time(device: torch.device) -> None:
    """As when gamma is annealed: the compiler takes the changing number for a symbol."""
    compiled = torch.compile(warpalign.soft_dtw, fullgraph=True, backend="aot_eager")
    x, y = pair(3, 6, 5, 2, device=device)
    for gamma in (1.0, 0.5, 0.25, 2):
        assert_tensors_close(
            forward_and_backward(partial(compiled, gamma=gamma), x, y),
            forward_and_backward(partial(warpalign.soft_dtw, gamma=gamma), x, y),
        )


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: warpalign.dtw_path(x, y).value,
        lambda x, y: warpalign.cdist_soft_dtw(x, y),
        lambda x, y: warpalign.soft_dtw_barycenter(x, max_iter=2).barycenter + y[0, 0],
    ],
    ids=["dtw_path", "cdist", "barycenter"],
)
def test_what_cannot_be_compiled_runs_within_compiled_code(
    device: torch.device, function: Callable[..., torch.Tensor]
) -> None:
    x, y = pair(3, 6, 5, 2, device=device)
    compiled = torch.compile(lambda x, y: function(2 * x, y) + 1, backend="aot_eager")
    assert_tensors_close((compiled(x, y),), (function(2 * x, y) + 1,))


def test_compiled_by_inductor(device: torch.device) -> None:
    if not (Path(sysconfig.get_paths()["include"]) / "Python.h").exists():
        pytest.skip("inductor needs Python.h")
    if device.type == "cuda" and not has_triton():
        pytest.skip("inductor needs triton")

    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (warpalign.soft_dtw(torch.tanh(x), 2 * y, gamma=0.5) + 1).log()

    x, y = pair(4, 33, 20, 3, device=device)
    compiled = torch.compile(loss, fullgraph=True)
    # Inductor would build and load a library for each instruction set of the CPU, to see whether it can.
    with torch._inductor.config.patch("cpp.vec_isa_ok", True):
        assert_tensors_close(forward_and_backward(compiled, x, y), forward_and_backward(loss, x, y))


def test_compiled_second_derivatives_raise(device: torch.device) -> None:
    compiled = torch.compile(warpalign.soft_dtw, fullgraph=True, backend="aot_eager")
    x, y = pair(2, 4, 5, 2, device=device, grad=True)
    with pytest.raises(RuntimeError):
        (grad_x,) = torch.autograd.grad(compiled(x, y).sum(), x, create_graph=True)
        torch.autograd.grad(grad_x.square().sum(), x)


def test_compiled_vmap(device: torch.device) -> None:
    x, y = pair(3, 5, 6, 2, device=device)
    compiled = torch.compile(vmap(warpalign.soft_dtw), fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x, y), warpalign.soft_dtw(x, y))


@pytest.mark.parametrize(
    "function",
    [
        warpalign.soft_dtw,
        lambda a, b: warpalign.soft_dtw(b, a),
        lambda a, b: warpalign.soft_dtw(a, b[:1]),
        lambda a, b: warpalign.soft_dtw_alignment(a, b).value,
        lambda c, _: warpalign.soft_dtw_cost(c),
        lambda c, _: warpalign.soft_dtw_cost(c[0]),
    ],
)
def test_compiled_torch_func_grad(device: torch.device, function: Callable[..., torch.Tensor]) -> None:
    """Its inputs tell the tracer that they require no gradient: a careless front end returns zeros, and no error."""
    x, y = pair(3, 5, 6, 2, device=device)
    gradient = grad(lambda a: function(a, y).sum())
    got = torch.compile(gradient, fullgraph=True, backend="aot_eager")(x)
    leaf = x.clone().requires_grad_()
    assert_tensors_close((got,), torch.autograd.grad(function(leaf, y).sum(), leaf))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_export(device: torch.device) -> None:
    x, y = pair(3, 5, 6, 2, device=device)
    program = torch.export.export(warpalign.SoftDTW(gamma=0.5), (x, y))
    assert torch.equal(program.module()(x, y), warpalign.soft_dtw(x, y, gamma=0.5))
