"""All that the package takes from torch besides its documented API; tests/python/core/test_torch_internals.py names each."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn.utils.rnn import pad_packed_sequence

Function = TypeVar("Function", bound=Callable[..., Any])


def constant_when_compiled(function: Function) -> Function:
    """What torch.compiler.assume_constant_result does. That function imports the compiler, which takes longer than all else here."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def compiler_is_loaded() -> bool:
    """Whether anybody has imported torch's compiler; nothing can be compiled before."""
    return "torch._dynamo" in sys.modules


def by_arguments(values: Tensor, device: torch.device) -> Tensor:
    """The host's integers as int32 on a device, by kernels whose arguments they are, some dozens in each launch."""
    made = torch.zeros(values.shape, dtype=torch.int32, device=device)
    if values.numel():
        torch._foreach_add_(list(made.unbind()), values.tolist())
    return made


def padding_breaks_graphs() -> None:
    """Within torch.compile, pad_packed_sequence runs eagerly from now on, as pack_padded_sequence does.

    The compiler would trace it, and fail, because it reads batch_sizes. Code with torch.nn.LSTM escapes only because the
    compiler leaves out every function that has one.
    """
    if compiler_is_loaded() and not getattr(pad_packed_sequence, "_torchdynamo_disable", False):
        from torch._dynamo.decorators import skip

        skip(pad_packed_sequence)


@constant_when_compiled
def is_transforming() -> bool:
    """Whether a transform of torch.func (grad, vmap, jvp, ...) is active."""
    active: bool = torch._C._are_functorch_transforms_active()
    return active


@constant_when_compiled
def is_jit_tracing() -> bool:
    """Whether torch.jit.trace records what is called."""
    tracing: bool = torch._C._is_tracing()
    return tracing


def keeps_graph() -> bool:
    """Whether the backward pass that runs here was called with retain_graph=True, or with create_graph=True."""
    keeps: bool = torch._C._autograd._get_current_graph_task_keep_graph()
    return keeps


def is_wrapped(tensor: Tensor) -> bool:
    """Whether a transform of torch.func hides the tensor's values."""
    wrapped: bool = torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    return wrapped


def is_vmapped(tensor: Tensor) -> bool:
    """Whether torch.func.vmap made the tensor a sample, whatever other transforms are around."""
    of = torch._C._functorch
    while of.is_functorch_wrapped_tensor(tensor):
        if of.is_batchedtensor(tensor):
            return True
        tensor = of.get_unwrapped(tensor)
    return False


def lengths_of_jagged(series: Tensor) -> tuple[int, int]:
    """The smallest and the largest length of a jagged nested tensor, which keeps them: a GPU is asked once."""
    of: Any = series
    return of._min_seqlen, of._max_seqlen


def is_legacy_batched(tensor: Tensor) -> bool:
    """Whether torch.autograd.grad(..., is_grads_batched=True) made a batch of the tensor."""
    batched: bool = torch._C._functorch.is_legacy_batchedtensor(tensor)
    return batched


def without_legacy_batch(tensor: Tensor) -> tuple[int, Tensor]:
    """The level of a tensor that is_grads_batched=True made a batch of, and the whole batch with its axis in front."""
    level = 1
    while is_legacy_batched(whole := torch._remove_batch_dim(tensor, level, 1, 0)):
        level += 1  # it has no such level: torch gave it one more axis
    return level, whole


def with_legacy_batch(tensor: Tensor, level: int) -> Tensor:
    """The way back."""
    return torch._add_batch_dim(tensor, 0, level)


@constant_when_compiled
def is_forward_mode() -> bool:
    """Inputs may carry tangents, of torch.func.jvp or of torch.autograd.forward_ad."""
    return forward_ad._current_level >= 0


@constant_when_compiled
def is_second_order() -> bool:
    """Within forward mode, or torch.func.grad of torch.func.grad."""
    stack = torch._C._functorch.get_interpreter_stack() or []
    grads = [level for level in stack if level.key() == torch._C._functorch.TransformType.Grad]
    return forward_ad._current_level >= 0 or len(grads) > 1


def below_autograd() -> AbstractContextManager[None]:
    """Operators called within go past autograd, whose part in Python takes longer than a small call; the caller wants no gradients."""
    guard: AbstractContextManager[None] = torch._C._AutoDispatchBelowAutograd()
    return guard


def apply_unbound(function: type[torch.autograd.Function], *arguments: Any) -> Any:
    """What function.apply calls once it has bound its arguments to the signature of forward."""
    return super(torch.autograd.Function, function).apply(*arguments)  # type: ignore[misc]


@constant_when_compiled
def matmul_precision() -> str:
    """That of torch's own products of float32: "highest", "high" or "medium"."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:  # it was set by torch's newer names, which the older one does not know
        return "high" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "highest"


@contextmanager
def matmul_precision_of(precision: str | None) -> Iterator[None]:
    """Torch's products of float32 on a GPU have TF32 factors ("medium"), all digits (any other name), or what torch says (None)."""
    of_products = torch.backends.cuda.matmul
    before = of_products.fp32_precision
    if precision is not None:
        of_products.fp32_precision = "tf32" if precision == "medium" else "ieee"
    try:
        yield
    finally:
        of_products.fp32_precision = before
