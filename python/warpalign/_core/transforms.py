"""What the autograd functions share: how they are applied, and vmapped axes folded into the batch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad

from warpalign._core.torch_internals import (
    apply_unbound,
    compiler_is_loaded,
    is_forward_mode,
    is_legacy_batched,
    is_transforming,
    is_vmapped,
)

Dim = int | None
Function = TypeVar("Function", bound=Callable[..., Any])
Values = TypeVar("Values", bound=tuple[Any, ...])
_NO_RULE = "You must implement the jvp function"  # torch's message, in forward mode, of a function without a rule for it


def not_compiled(function: Function) -> Function:
    """A function that runs eagerly within torch.compile, as what it does depends on values that the compiler does not see.

    torch.compiler.disable imports the compiler, which takes longer than the whole package. So a call disables it, once somebody
    has imported it. vmap hides values, too, and is refused.
    """

    @functools.wraps(function)
    def eager(*arguments: Any, **keywords: Any) -> Any:
        refuse_vmap(getattr(function, "__name__", "this function"), *arguments, *keywords.values())
        if not compiler_is_loaded():
            return function(*arguments, **keywords)
        return torch.compiler.disable(function)(*arguments, **keywords)

    return eager  # type: ignore[return-value]


def refuse_vmap(name: str, *given: object) -> None:
    """Raises where vmap has made a sample of a tensor among what the function of this name was given."""
    if is_transforming() and any(map(_has_vmapped, given)):
        raise NotImplementedError(
            f"warpalign: {name} is not available under torch.func.vmap: call it with a batch, or for each sample"
        )


@contextmanager
def no_autocast() -> Iterator[None]:
    """Products within keep their operands' digits, which torch.autocast would round to half types; also a decorator."""
    other = (
        "cuda" if torch.is_autocast_enabled("cuda") else "cpu"
    )  # naming CUDA where there is none would warn
    with torch.autocast("cpu", enabled=False), torch.autocast(other, enabled=False):
        yield


def _has_vmapped(given: object) -> bool:
    """Whether there is a tensor that vmap made a sample of, in tuples and lists too."""
    if isinstance(given, (tuple, list)):
        return any(map(_has_vmapped, given))
    return isinstance(given, Tensor) and is_vmapped(given)


def replaced(given: Values, **changes: Any) -> Values:
    """given._replace(**changes), for what a caller keeps: torch.compile fails where it has that at a graph break (torch 2.11)."""
    kind: Any = type(given)
    return kind(**{**given._asdict(), **changes})  # type: ignore[no-any-return, attr-defined]


def apply(function: type[torch.autograd.Function], *arguments: Any) -> Any:
    """function.apply, and at every eager call less than half of its time.

    Function.apply binds its arguments to the signature of forward before it does what is called here, which only
    torch.func transforms and torch.compile need.

    Raises:
        NotImplementedError: an argument has a tangent, for which the function has no rule. Its attribute ``named`` says
            what the caller knows it as. A rule that raises would be one, and torch.compile takes no function with a rule.
    """
    if not is_forward_mode():
        return function.apply(*arguments) if is_traced() else apply_unbound(function, *arguments)
    try:
        return function.apply(*arguments)
    except NotImplementedError as error:
        if not str(error).startswith(_NO_RULE):
            raise
        named = getattr(function, "named", "this function")
    raise no_derivative(f"forward-mode derivatives of {named}")


def is_traced() -> bool:
    """Under torch.compile, a torch.func transform or in forward mode: only saved tensors may be kept between forward and
    backward, and nothing be written in place."""
    return torch.compiler.is_compiling() or is_transforming() or is_forward_mode()


def runs_alone(needs_grad: bool) -> bool:
    """Whether neither autograd nor a torch.func transform has anything to see: the operator alone takes a third of the time."""
    return not (needs_grad or is_transforming() or is_forward_mode())


def needs_gradient(*tensors: Tensor | None) -> bool:
    """Whether autograd records an operation on these tensors."""
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


def wanted_below(needs: tuple[bool, ...], *tensors: Tensor | None) -> tuple[bool, ...]:
    """Inside grad(vmap(...)) only the tensors under the vmapped ones know that a gradient is wanted."""
    pairs = zip(needs, tensors, strict=True)
    return tuple(need or (tensor is not None and tensor.requires_grad) for need, tensor in pairs)


def traceable(tensor: Tensor) -> Tensor:
    """While torch.compile traces torch.func.grad, its input says that it requires no gradient; a view of it tells right.

    Without the view the compiled gradient would silently be wrong.
    """
    return tensor.view_as(tensor) if torch.compiler.is_compiling() else tensor


def may_write_in_place(incoming: Tensor) -> bool:
    """Whether a backward may scale what it holds by the incoming gradient: neither is a graph of it wanted, nor is it
    traced, nor for many incoming gradients at once (is_grads_batched, or vmap)."""
    return not (torch.is_grad_enabled() or is_traced() or is_legacy_batched(incoming))


def along_batch(factor: Tensor, like: Tensor) -> Tensor:
    return factor.view(-1, *(1,) * (like.dim() - 1))


def scaled(factor: Tensor, gradients: tuple[Tensor, ...], wanted: tuple[bool, ...]) -> tuple[Tensor, ...]:
    """gradient[b] * factor[b]; empty where it is not wanted."""
    return tuple(
        gradient * along_batch(factor, gradient) if want else gradient.new_empty(0)
        for gradient, want in zip(gradients, wanted, strict=True)
    )


def scaled_in_place(
    factor: Tensor, gradients: tuple[Tensor, ...], wanted: tuple[bool, ...], dtype: torch.dtype
) -> tuple[Tensor | None, ...]:
    """gradient[b] * factor[b] where the gradient is, or rounded to the inputs' half type; None where it is not wanted."""
    return tuple(
        [
            _product(gradient, along_batch(factor, gradient), dtype) if want else None
            for gradient, want in zip(gradients, wanted, strict=True)
        ]
    )


def _product(gradient: Tensor, factor: Tensor, dtype: torch.dtype) -> Tensor:
    if gradient.dtype == dtype:
        return gradient.mul_(factor)
    # One pass over the gradient: autograd would convert the product in another one.
    return torch.mul(gradient, factor, out=gradient.new_empty(gradient.shape, dtype=dtype))


def only_wanted(wanted: tuple[bool, ...], tensors: tuple[Tensor, ...]) -> tuple[Tensor | None, ...]:
    return tuple(t if want else None for t, want in zip(tensors, wanted, strict=True))


def mark_unwanted(ctx: Any, gradients: tuple[Tensor, ...]) -> None:
    empty = (gradient for gradient, want in zip(gradients, ctx.wanted, strict=True) if not want)
    ctx.mark_non_differentiable(*empty)


def needs_graph() -> bool:
    """Whether a gradient is to be differentiable in its turn; a compiled graph would only trace that away."""
    return (torch.is_grad_enabled() or is_forward_mode()) and not torch.compiler.is_compiling()


def have_tangents(*given: object) -> bool:
    """Whether a tensor among them, or in a tuple among them, carries a tangent of forward mode."""
    if not is_forward_mode():
        return False
    tensors = [part for one in given for part in (one if isinstance(one, tuple) else (one,))]
    return any(
        isinstance(tensor, Tensor) and forward_ad.unpack_dual(tensor).tangent is not None
        for tensor in tensors
    )


def no_derivative(what: str) -> NotImplementedError:
    return NotImplementedError(f"warpalign: {what} are not available")


def split(kind: type[Any], values: Sequence[Any]) -> tuple[Any, tuple[Any, ...]]:
    """The first values as this NamedTuple, and the others."""
    size = len(kind._fields)
    return kind(*values[:size]), tuple(values[size:])


def by_name(kind: type[Any], **tensors: Tensor | None) -> tuple[Tensor | None, ...]:
    """One entry per field of this NamedTuple, None for those that are not named."""
    return tuple(tensors.get(field) for field in kind._fields)


def of_inputs(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
    """What backward returns: gradients of the first inputs, and None for the others."""
    return *gradients, *(None,) * (len(ctx.needs_input_grad) - len(gradients))


def folded(inputs: Sequence[Any], in_dims: Sequence[Any], size: int) -> tuple[Any, ...]:
    """Inputs of a vmapped function: each tensor's vmapped axis in front and folded into the batch, all else as it is.

    A tensor that has no such axis is repeated by stride 0. Tensors of three and more axes, such as series, stay strided;
    the operators want the others contiguous.
    """

    def fold(given: Any, dim: Dim) -> Any:
        if not isinstance(given, Tensor):
            return given
        front = given.movedim(dim, 0) if dim is not None else given.unsqueeze(0).expand(size, *given.shape)
        batch = front.flatten(0, 1)
        return batch if batch.dim() >= 3 else batch.contiguous()

    return tuple(fold(given, dim) for given, dim in zip(inputs, in_dims, strict=True))


def unfold(tensors: tuple[Tensor, ...], size: int) -> tuple[tuple[Tensor, ...], tuple[Dim, ...]]:
    """What folded() made one batch apart again; what was not asked for stays empty."""
    apart = tuple(t.unflatten(0, (size, -1)) if t.numel() or t.dim() > 1 else t for t in tensors)
    return apart, tuple(0 if a is not t else None for a, t in zip(apart, tensors, strict=True))


def of_each(
    function: type[torch.autograd.Function], size: int, in_dims: tuple[Dim, ...], arguments: tuple[Any, ...]
) -> tuple[tuple[Tensor, ...], tuple[Dim, ...]]:
    """A vmapped function by a call for each sample."""

    def sample(argument: Any, dim: Dim, index: int) -> Any:
        return argument.select(dim, index) if isinstance(argument, Tensor) and dim is not None else argument

    calls = [
        apply(function, *(sample(a, dim, index) for a, dim in zip(arguments, in_dims, strict=True)))
        for index in range(size)
    ]
    return tuple(torch.stack(parts) for parts in zip(*calls, strict=True)), (0,) * len(calls[0])
