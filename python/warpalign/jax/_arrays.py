"""Checks of arguments that are arrays, when a function is traced. Messages name the argument, what was expected and what came.

Values are not read, except those of lists and NumPy arrays.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

_FLOATS = ("float64", "float32", "float16", "bfloat16")


def unwrapped(given: Any) -> Any:
    """The array within a parameter of a library of layers, such as nnx.Param of Flax; other objects as they are."""
    return jnp.asarray(given) if hasattr(given, "__jax_array__") else given


def check_floats(
    given: object, name: str, axes: str, dims: tuple[int, ...] = (2, 3), shapes: str | None = None
) -> Array:
    """A floating-point array, as many axes as one of dims. NumPy arrays and parameters of layers are taken.

    Args:
        shapes: what errors say of the expected shapes. None: (B, axes) or (axes).
    """
    given = unwrapped(given)
    if not isinstance(given, (jax.Array, np.ndarray)):
        raise TypeError(
            f"{name}: expected a jax.Array, got {type(given).__name__}: write jnp.asarray({name})"
        )
    if str(given.dtype) not in _FLOATS:
        raise TypeError(f"{name}: expected dtype float64, float32, float16 or bfloat16, got {given.dtype}")
    array = jnp.asarray(given)
    if array.ndim not in dims:
        expected = f"(B, {axes}) or ({axes})" if shapes is None else shapes
        raise ValueError(f"{name}: expected {expected}, got shape {array.shape}")
    return array


def check_table(given: object, name: str, axes: str) -> Array:
    """(B, N, D), or (N, D), of which only the batch may be empty."""
    array = check_floats(given, name, axes)
    if 0 in array.shape[-2:]:
        raise ValueError(f"{name}: expected no empty axis in ({axes}), got shape {array.shape}")
    return array


def check_pair(x: object, y: object) -> tuple[Array, Array, bool]:
    """(B, N, D) and (B, M, D), widened, and whether they came without a batch axis. A batch of 1 is repeated."""
    left, right = check_table(x, "x", "N, D"), check_table(y, "y", "M, D")
    if left.dtype != right.dtype:
        raise TypeError(
            f"y: expected the dtype of x, {left.dtype}, got {right.dtype}: write y.astype(x.dtype)"
        )
    if left.ndim != right.ndim:
        raise ValueError(
            f"y: expected as many axes as x, which has shape {left.shape}, got shape {right.shape}"
        )
    if left.shape[-1] != right.shape[-1]:
        raise ValueError(f"y: expected D = {left.shape[-1]} features as in x, got shape {right.shape}")
    unbatched = left.ndim == 2
    if unbatched:
        left, right = left[None], right[None]
    if left.shape[0] != right.shape[0] and 1 not in (left.shape[0], right.shape[0]):
        raise ValueError(f"y: expected a batch of {left.shape[0]} as in x, or of 1, got shape {right.shape}")
    batch = right.shape[0] if left.shape[0] == 1 else left.shape[0]
    # Widened before they are repeated: the gradients of a series' pairs are then summed in float32.
    left, right = (
        jnp.broadcast_to(array, (batch, *array.shape[1:])) for array in (widened(left), widened(right))
    )
    return left, right, unbatched


def widened(array: Array) -> Array:
    """float32 in place of half types."""
    return array.astype(jnp.float32) if array.dtype.itemsize == 2 else array


def check_lengths(
    given: object,
    name: str,
    count: int,
    most: int,
    most_name: str,
    *,
    least: int = 0,
    unbatched: bool = False,
    unit: str = "utterance",
) -> Array | None:
    """(count,) int32; None stays None. Without a batch axis a number is taken, too."""
    if given is None:
        return None
    is_read = isinstance(given, (list, tuple, int, np.ndarray, np.integer))
    if not (is_read or isinstance(given, jax.Array)):
        raise TypeError(f"{name}: expected integers (B,), got {type(given).__name__}")
    array: Any = np.asarray(given) if is_read else given
    if array.size == 0 and not isinstance(given, jax.Array):
        array = array.astype(np.int32)
    if not jnp.issubdtype(array.dtype, jnp.integer):
        raise TypeError(f"{name}: expected integers, got {array.dtype}")
    if unbatched and array.ndim == 0:
        array = array[None]
    if array.shape != (count,):
        raise ValueError(f"{name}: expected shape ({count},), one length per {unit}, got {array.shape}")
    if is_read:
        wrong = np.flatnonzero((array < least) | (array > most))
        if wrong.size:
            raise ValueError(
                f"{name}: expected lengths from {least} to {most_name} = {most}, got {array[wrong[0]]} at index {wrong[0]}"
            )
    return narrowed(jnp.asarray(array))


def narrowed(array: Array) -> Array:
    """int32; what lies beyond does not come back as a small number."""
    if array.dtype.itemsize == 8 or array.dtype == jnp.uint32:
        low, high = np.iinfo(np.int32).min, np.iinfo(np.int32).max
        array = jnp.minimum(array, high) if array.dtype.kind == "u" else jnp.clip(array, low, high)
    return array.astype(jnp.int32)


def check_integers(given: object, name: str, shape_text: str) -> Array:
    """Labels, as int32."""
    if not isinstance(given, (jax.Array, np.ndarray)):
        raise TypeError(
            f"{name}: expected an integer array {shape_text}, got {type(given).__name__}: write jnp.asarray({name})"
        )
    if not jnp.issubdtype(given.dtype, jnp.integer):
        raise TypeError(f"{name}: expected an integer dtype, got {given.dtype}")
    return narrowed(jnp.asarray(given))


def check_mask(given: object, name: str, batch: int, steps: int) -> Array | None:
    """(batch, steps) bools."""
    if given is None:
        return None
    if not isinstance(given, (jax.Array, np.ndarray)):
        raise TypeError(f"{name}: expected bools (B, N) as a jax.Array, got {type(given).__name__}")
    if given.dtype != jnp.bool_:
        raise TypeError(f"{name}: expected dtype bool, got {given.dtype}")
    if given.shape not in ((steps,), (1, steps), (batch, steps)):
        raise ValueError(f"{name}: expected shape ({batch}, {steps}), one per time step, got {given.shape}")
    return jnp.broadcast_to(given, (batch, steps))


def check_numbers(given: object, name: str, batch: int, dtype: Any) -> Array:
    """() or (batch,) floating-point numbers, as (batch,) of this dtype."""
    array = jnp.asarray(given)
    if str(array.dtype) not in _FLOATS:
        raise TypeError(f"{name}: expected dtype float64, float32, float16 or bfloat16, got {array.dtype}")
    if array.shape not in ((), (batch,)):
        raise ValueError(f"{name}: expected shape () or ({batch},), got {array.shape}")
    return jnp.broadcast_to(array.astype(dtype), (batch,))


def check_rows(given: object, name: str, table: Array, length: int) -> Array | None:
    """(batch, length) numbers of the table's dtype; None stays None."""
    if given is None:
        return None
    if not isinstance(given, (jax.Array, np.ndarray, list, tuple)):
        raise TypeError(
            f"{name}: expected a jax.Array, a list of numbers, or None, got {type(given).__name__}"
        )
    array = jnp.asarray(given)
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        raise TypeError(f"{name}: expected real numbers, got {array.dtype}")
    batch = table.shape[0]
    if array.shape not in ((length,), (1, length), (batch, length)):
        raise ValueError(
            f"{name}: expected shape ({length},) or ({batch}, {length}), one number per point, got {array.shape}"
        )
    return jnp.broadcast_to(array.astype(table.dtype), (batch, length))
