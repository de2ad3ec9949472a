"""What the rules of jax.custom_vjp share: which inputs have gradients, and which cotangents there are."""

from __future__ import annotations

from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import Array
from jax.custom_derivatives import SymbolicZero

_Tree = TypeVar("_Tree")


class Wanted(tuple[bool, ...]):
    """Which inputs have a gradient; a constant for JAX."""


jax.tree_util.register_static(Wanted)


def _is_primal(value: Any) -> bool:
    return hasattr(value, "perturbed")


def has_gradient(primal: Any) -> bool:
    """Whether an input of a forward rule is differentiated. None is not."""
    return primal is not None and bool(primal.perturbed)


def values_of(primals: _Tree) -> _Tree:
    """The inputs of a forward rule without what JAX says of them."""
    values: _Tree = jax.tree.map(lambda one: one.value, primals, is_leaf=_is_primal)
    return values


def dense(tangent: Any) -> Array | None:
    """None for a cotangent that is known to be 0."""
    return None if isinstance(tangent, SymbolicZero) else tangent


def along_batch(factor: Array, like: Array) -> Array:
    """(B, 1, ...) of (B,)."""
    return jnp.reshape(factor, factor.shape + (1,) * (like.ndim - factor.ndim))
