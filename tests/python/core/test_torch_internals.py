"""Every function of _core/torch_internals.py, which use what torch does not document: a new torch that changes it fails here."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import grad, jvp, vmap

from tests.python.helpers import in_a_new_process
from warpalign._core import torch_internals
from warpalign._core.torch_internals import (
    apply_unbound,
    below_autograd,
    by_arguments,
    compiler_is_loaded,
    constant_when_compiled,
    is_forward_mode,
    is_jit_tracing,
    is_legacy_batched,
    is_second_order,
    is_transforming,
    is_vmapped,
    is_wrapped,
    keeps_graph,
    lengths_of_jagged,
    matmul_precision,
    matmul_precision_of,
    padding_breaks_graphs,
    with_legacy_batch,
    without_legacy_batch,
)

X = torch.arange(3.0)


def seen(ask: Any, transform: Any) -> list[Any]:
    """What `ask` answers to a tensor within a transform of sum()."""
    answers = []

    def function(x: Tensor) -> Tensor:
        answers.append(ask(x))
        return x.sum()

    transform(function)
    return answers


def test_every_function_has_a_test() -> None:
    functions = {
        name
        for name, value in vars(torch_internals).items()
        if inspect.isfunction(value) and value.__module__ == torch_internals.__name__
    }
    assert functions <= globals().keys()


def test_whether_a_backward_pass_keeps_its_graph() -> None:
    told = []

    class Tells(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            told.append(keeps_graph())
            return grad

    x = X.clone().requires_grad_()
    loss = Tells.apply(x).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    torch.autograd.grad(Tells.apply(x).sum(), x, create_graph=True)
    assert told == [True, False, True]


def test_nothing_below_autograd_has_a_gradient() -> None:
    x = X.clone().requires_grad_()
    with below_autograd():
        assert not (x * 2).requires_grad
    assert (x * 2).requires_grad


def test_transforms_are_seen() -> None:
    assert not is_transforming()
    for transform in (
        lambda f: grad(f)(X),
        lambda f: vmap(f)(X[None]),
        lambda f: jvp(f, (X,), (X,)),
    ):
        assert seen(lambda x: (is_transforming(), is_wrapped(x)), transform) == [(True, True)]
    assert not is_wrapped(X) and not is_transforming()


def test_samples_of_vmap_are_seen() -> None:
    assert seen(is_vmapped, lambda f: vmap(f)(X[None])) == [True]
    assert seen(is_vmapped, lambda f: vmap(grad(f))(X[None])) == [True]
    assert seen(is_vmapped, lambda f: grad(lambda x: vmap(f)(x).sum())(X[None])) == [True]
    assert seen(is_vmapped, lambda f: grad(f)(X)) == [False]
    assert not is_vmapped(X)


def test_batched_gradients_are_seen() -> None:
    """torch.autograd.grad(is_grads_batched=True) batches what backward gets, and names no transform."""
    answers = []

    class Identity(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            answers.append(is_legacy_batched(grad))
            return grad

    x = X.clone().requires_grad_()
    (got,) = torch.autograd.grad(Identity.apply(x), x, torch.eye(3), is_grads_batched=True)
    assert torch.equal(got, torch.eye(3)) and answers == [True]
    torch.autograd.grad(Identity.apply(x).sum(), x)
    assert answers == [True, False] and not is_legacy_batched(X)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tracing_is_seen() -> None:
    told = []

    def function(x: Tensor) -> Tensor:
        told.append(is_jit_tracing())
        return x * 2

    torch.jit.trace(function, (X,), check_trace=False)
    assert told == [True] and not is_jit_tracing()


def test_a_batch_of_gradients_is_taken_apart() -> None:
    class Weighted(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            level, batch = without_legacy_batch(grad)
            assert batch.shape == (2, 3) and not is_legacy_batched(batch)
            return with_legacy_batch(batch * torch.tensor([[1.0], [5.0]]), level)

    x = X.clone().requires_grad_()
    (got,) = torch.autograd.grad(Weighted.apply(x), x, torch.ones(2, 3), is_grads_batched=True)
    assert torch.equal(got, torch.tensor([[1.0] * 3, [5.0] * 3]))


def test_forward_mode_is_seen() -> None:
    assert not is_forward_mode()
    with forward_ad.dual_level():
        assert is_forward_mode()
    assert seen(lambda x: is_forward_mode(), lambda f: jvp(f, (X,), (X,))) == [True]
    assert seen(lambda x: is_forward_mode(), lambda f: grad(f)(X)) == [False]


def test_second_order_is_seen() -> None:
    def twice(f: Any) -> None:
        grad(lambda x: grad(f)(x).sum())(X)

    assert seen(lambda x: is_second_order(), twice) == [True]
    assert seen(lambda x: is_second_order(), lambda f: grad(f)(X)) == [False]
    assert seen(lambda x: is_second_order(), lambda f: vmap(grad(f))(X[None])) == [False]
    assert seen(lambda x: is_second_order(), lambda f: jvp(f, (X,), (X,))) == [True]
    assert not is_second_order()


def test_apply_unbound_is_apply() -> None:
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(x: Tensor, factor: float) -> Tensor:
            return x * factor

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.factor = inputs[1]

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:
            return grad * ctx.factor, None

    x = X.clone().requires_grad_()
    value = apply_unbound(Scaled, x, 3.0)
    assert torch.equal(value, Scaled.apply(x, 3.0)) and value.grad_fn is not None
    assert torch.equal(torch.autograd.grad(value.sum(), x)[0], torch.full((3,), 3.0))


def test_lengths_of_jagged_series() -> None:
    """Also of what torch's functions make of the series; what the caller says is believed."""
    series = torch.nested.nested_tensor_from_jagged(torch.ones(9, 2), torch.tensor([0, 3, 8, 9]))
    assert lengths_of_jagged(series) == lengths_of_jagged(series * 2) == (1, 5)
    told = {"min_seqlen": 1, "max_seqlen": 7}
    made = torch.nested.nested_tensor_from_jagged(torch.ones(9, 2), torch.tensor([0, 3, 8, 9]), **told)
    assert lengths_of_jagged(made * 2) == (1, 7)


def test_constants_are_no_graph_breaks() -> None:
    """The compiler takes the answer for a constant, where it could not trace the question."""
    torch._dynamo.reset()
    asked = []

    @constant_when_compiled
    def answer() -> float:
        asked.append(True)
        return {"what": 2.0}["what"]

    compiled = torch.compile(lambda x: x * answer(), fullgraph=True, backend="eager")
    assert torch.equal(compiled(X), 2 * X) and torch.equal(compiled(X + 1), 2 * X + 2)
    assert len(asked) == 1, "asked once, while it was traced"


def test_the_compiler_is_seen() -> None:
    code = """
import torch
from warpalign._core.torch_internals import compiler_is_loaded
before = compiler_is_loaded()
torch.compile(lambda x: x, backend="eager")(torch.zeros(1))
print(before, compiler_is_loaded())
"""
    assert in_a_new_process(code) == "False True\n"
    assert isinstance(compiler_is_loaded(), bool)


@pytest.mark.parametrize("name", ["highest", "high", "medium"])
def test_the_precision_of_torchs_products(name: str) -> None:
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision(name)
        assert matmul_precision() == name
    finally:
        torch.set_float32_matmul_precision(before)


def test_a_precision_of_torchs_products_for_a_while() -> None:
    of_products = torch.backends.cuda.matmul
    before = of_products.fp32_precision
    for name, expected in (("medium", "tf32"), ("high", "ieee"), ("highest", "ieee"), (None, before)):
        with matmul_precision_of(name):
            assert of_products.fp32_precision == expected
        assert of_products.fp32_precision == before


def test_padding_packed_rows_breaks_graphs() -> None:
    """Before, torch's compiler fails. Where it does not any more, padding_breaks_graphs() is not needed."""
    in_a_new_process(
        """
import torch
import torch._dynamo
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence

from warpalign._core.torch_internals import padding_breaks_graphs

packed = pack_sequence([torch.ones(3), torch.ones(2)])
double = torch.compile(lambda rows: pad_packed_sequence(rows)[0] * 2, backend="eager")
try:
    double(packed)
except torch._dynamo.exc.TorchRuntimeError:
    pass
else:
    raise SystemExit("torch traces pad_packed_sequence")
torch._dynamo.reset()
for _ in range(2):
    padding_breaks_graphs()
    assert double(packed).tolist() == [[2, 2], [2, 2], [2, 0]]
"""
    )


def test_nothing_breaks_graphs_before_the_compiler_is_loaded() -> None:
    in_a_new_process(
        f"""
import sys

from torch.nn.utils.rnn import pad_packed_sequence

from warpalign._core.torch_internals import {padding_breaks_graphs.__name__}

padding_breaks_graphs()
assert "torch._dynamo" not in sys.modules
assert not hasattr(pad_packed_sequence, "_torchdynamo_disable")
"""
    )


@pytest.mark.parametrize("values", [[], [3], [0, 7, 5, 2**31 - 1], list(range(300))])
def test_values_as_arguments_of_kernels(values: list[int]) -> None:
    found = by_arguments(torch.tensor(values, dtype=torch.int64), torch.device("cpu"))
    assert found.dtype == torch.int32 and found.tolist() == values
