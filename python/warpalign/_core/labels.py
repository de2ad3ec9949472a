"""Checks that the losses of labelled utterances share. Messages name the argument, what was expected and what came."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from warpalign._core.checks import check_flag
from warpalign._core.reduction import check_reduction as check_reduction
from warpalign._core.scalars import check_column as check_column
from warpalign._core.torch_internals import is_transforming

_Function = TypeVar("_Function", bound=Callable[..., Any])


def keyword_only(most: int, remedy: str) -> Callable[[_Function], _Function]:
    """A function whose arguments beyond the first so many are given by name, and whose error says what to write."""

    def decorate(function: _Function) -> _Function:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if len(args) > most:
                raise TypeError(
                    f"{function.__name__}: expected at most {most} positional arguments, got {len(args)}: {remedy}"
                )
            return function(*args, **kwargs)

        # Modules read the defaults there.
        call.__kwdefaults__ = function.__kwdefaults__  # type: ignore[attr-defined]
        return call  # type: ignore[return-value]

    return decorate


def check_in_place(in_place: object, *tensors: Tensor | None) -> bool:
    """Whether gradients take the logits' memory, which then must be nobody else's."""
    if not check_flag(in_place, "inplace_grad"):
        return False
    if torch.compiler.is_compiling() or is_transforming():
        where = "torch.compile" if torch.compiler.is_compiling() else "torch.func"
        raise RuntimeError(
            f"inplace_grad: expected False under {where}, which allows no writing in place, got True"
        )
    for tensor in tensors:
        if tensor is None or not (torch.is_grad_enabled() and tensor.requires_grad):
            continue
        base = tensor._base if tensor._is_view() else None
        if tensor.is_leaf or (base is not None and base.is_leaf and base.requires_grad):
            raise ValueError(
                "inplace_grad: expected logits that an operation has computed, got a leaf, whose values would be lost"
            )
        if 0 in (stride for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1):
            raise ValueError(
                f"inplace_grad: expected logits that do not share memory, got expanded ones of strides {tensor.stride()}"
            )
    return True
