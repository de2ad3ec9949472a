"""One call of an operator on arrays, with its batching rule: calls under jax.vmap become one call on a longer batch.

Every operator's arrays have the batch as their first axis, and so have its results. So a batch of V calls on batches of B is one
call on V · B, also within another vmap. What a first call saves for a second one is an array of bytes with a share for each element
of the batch; the library lays it out as it likes, so it means something to a call on the same joined batch alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.custom_batching import custom_vmap

from warpalign.jax._library import Operator, describe, operators, target

_OF_TRANSDUCERS = "second derivatives of the transducer losses"
# What the derivatives of these operators would be, which rules for reverse mode call.
_DERIVATIVES = {
    **dict.fromkeys(("ctc_loss", "ctc_gradient"), "second derivatives of ctc_loss and forward_sum_loss"),
    **dict.fromkeys(("transducer", "transducer_gradient"), _OF_TRANSDUCERS),
    **dict.fromkeys(("transducer_joint", "transducer_joint_gradient"), _OF_TRANSDUCERS),
    **dict.fromkeys(
        ("transport_dense", "transport_apply", "transport_gradient"), "second derivatives of transport plans"
    ),
}


def no_derivative(what: str) -> NotImplementedError:
    return NotImplementedError(f"warpalign: {what} are not available")


class _Call(NamedTuple):
    """What of a call is known when it is traced."""

    name: str
    given: tuple[bool, ...]
    """Which of the operator's arrays there are."""
    settings: tuple[Any, ...]
    shared: frozenset[str]
    """Arrays without a batch axis."""
    in_turn: bool
    """Whether calls under vmap stay calls of their own."""
    saved_bytes: int | None
    """The size of the result of bytes; None: as the operator says."""

    @property
    def operator(self) -> Operator:
        return operators()[self.name]

    @property
    def array_names(self) -> list[str]:
        """Of the arrays that are given."""
        both = zip(self.operator.arrays, self.given, strict=True)
        return [one.name for one, is_given in both if is_given]

    def results(self, arrays: Sequence[Any]) -> tuple[jax.ShapeDtypeStruct, ...]:
        rest = iter(arrays)
        described = describe(
            self.operator, [next(rest) if is_given else None for is_given in self.given], self.settings
        )
        if self.saved_bytes is None:
            return described
        saved = jax.ShapeDtypeStruct((self.saved_bytes,), jnp.uint8)
        return tuple(saved if _is_saved(one) else one for one in described)

    def attributes(self) -> dict[str, Any]:
        """As the handler reads them (bindings/jax/call_xla.cpp)."""
        mask = sum(1 << place for place, is_given in enumerate(self.given) if is_given)
        types = {"float": np.float64, "int": np.int64, "bool": bool}
        found: dict[str, Any] = {"given": np.int64(mask)}
        for one, value in zip(self.operator.settings, self.settings, strict=True):
            if one.type == "int[]":
                found[one.name] = np.array(value, dtype=np.int64)
            else:
                found[one.name] = types[one.type](value)
        return found


def _is_saved(result: Any) -> bool:
    """Whether a result is what a first call keeps for a second one."""
    return bool(result.dtype == jnp.uint8 and len(result.shape) == 1 and result.shape[0] > 0)


def call(name: str, *, shared: Any = (), in_turn: bool = False, **arguments: Any) -> tuple[Array, ...]:
    """The results of an operator.

    Args:
        name: of the operator.
        shared: the names of arrays without a batch axis.
        in_turn: whether calls under vmap run one after the other: because results are sums over a call's batch.
        **arguments: arrays, or None, and settings, by the names of the schema's parameters; where one is left out, its default.
    """
    operator = operators()[name]
    values = {one.name: arguments.pop(one.name, one.default) for one in operator.parameters}
    if arguments:
        raise TypeError(f"{name}: expected no argument {', '.join(arguments)}, got one")
    arrays = [values[one.name] for one in operator.arrays]
    settings = tuple(values[one.name] for one in operator.settings)
    of = _Call(name, tuple(array is not None for array in arrays), settings, frozenset(shared), in_turn, None)
    results: tuple[Array, ...] = _function(of)(*(array for array in arrays if array is not None))
    return results


@cache
def _function(of: _Call) -> Callable[..., tuple[Array, ...]]:
    """The call as a function of its arrays, with a batching rule."""

    @custom_vmap
    def run(*arrays: Array) -> tuple[Array, ...]:
        run_on_device = jax.ffi.ffi_call(target(of.name), of.results(arrays))
        axes = _mesh_axes(arrays)
        if not axes:
            return tuple(run_on_device(*arrays, **of.attributes()))
        # Within jax.shard_map, which has to be told that arrays and results differ between devices.
        results = run_on_device(*(_varying(array, axes) for array in arrays), **of.attributes())
        return tuple(_varying(result, axes) for result in results)

    @run.def_vmap
    def rule(size: int, are_batched: Sequence[bool], *arrays: Array) -> tuple[tuple[Array, ...], Any]:
        batched = list(are_batched)
        both = zip(batched, of.array_names, strict=True)
        if of.in_turn or any(is_batched and name in of.shared for is_batched, name in both):
            results = _one_by_one(run, batched, arrays)
        else:
            results = _joined(of, size, batched, arrays)
        return results, (True,) * len(results)

    @jax.custom_jvp
    def without_derivatives(*arrays: Array) -> tuple[Array, ...]:
        results: tuple[Array, ...] = run(*arrays)
        return results

    @without_derivatives.defjvp
    def refuse(primals: Any, tangents: Any) -> Any:
        raise no_derivative(_DERIVATIVES.get(of.name, f"derivatives of the operator {of.name}"))

    return without_derivatives


def _axes_of(array: Array) -> frozenset[str]:
    kind = jax.typeof(array)
    known = getattr(kind, "manual_axis_type", None)  # JAX before 0.10 has vma
    axes: frozenset[str] = getattr(kind, "vma", frozenset()) if known is None else known.varying
    return axes


def _mesh_axes(arrays: Sequence[Array]) -> frozenset[str]:
    """The axes of a mesh along which one of the arrays differs."""
    return frozenset().union(*(_axes_of(array) for array in arrays))


def _varying(array: Array, axes: frozenset[str]) -> Array:
    missing = tuple(sorted(axes - _axes_of(array)))
    return jax.lax.pcast(array, missing, to="varying") if missing else array


def varying_alike(of: Any) -> Any:
    """Arrays that all differ along the same axes of a mesh. Of one that every device shares, JAX then sums up the gradients."""
    axes = _mesh_axes(jax.tree.leaves(of))
    return jax.tree.map(lambda array: _varying(array, axes), of)


def _one_by_one(
    run: Callable[..., tuple[Array, ...]], are_batched: list[bool], arrays: Sequence[Array]
) -> tuple[Array, ...]:
    """The calls in turn: an array that the batch of a call shares differs between them."""
    apart = [array for array, is_batched in zip(arrays, are_batched, strict=True) if is_batched]

    def one(slices: list[Array]) -> tuple[Array, ...]:
        rest = iter(slices)
        both = zip(arrays, are_batched, strict=True)
        return run(*(next(rest) if is_batched else array for array, is_batched in both))

    results: tuple[Array, ...] = jax.lax.map(one, apart)
    return results


def _joined(of: _Call, size: int, are_batched: list[bool], arrays: Sequence[Array]) -> tuple[Array, ...]:
    """One call on the batches of all calls, one after the other."""
    single = [
        jax.ShapeDtypeStruct(array.shape[1:] if is_batched else array.shape, array.dtype)
        for array, is_batched in zip(arrays, are_batched, strict=True)
    ]
    alone = of.results(single)
    whole = []
    for name, array, is_batched in zip(of.array_names, arrays, are_batched, strict=True):
        if name in of.shared:
            whole.append(array)
            continue
        if not is_batched:
            array = jnp.broadcast_to(array, (size, *array.shape))
        whole.append(array.reshape(size * array.shape[1], *array.shape[2:]))
    saved = [one.shape[0] for one in alone if _is_saved(one)]
    results = _function(of._replace(saved_bytes=size * saved[0] if saved else None))(*whole)
    return tuple(_apart(result, one.shape, size) for result, one in zip(results, alone, strict=True))


def _apart(result: Array, alone: tuple[int, ...], size: int) -> Array:
    """(size, ...) of a result of the joined batch, whose shape is `alone` for one call. The axis that differs is the batch's."""
    differ = (
        axis
        for axis, (one, all_calls) in enumerate(zip(alone, result.shape, strict=True))
        if one != all_calls
    )
    axis = next(differ, 0)
    return jnp.moveaxis(result.reshape(*alone[:axis], size, *alone[axis:]), axis, 0)


def _of_joined(function: Callable[..., Array]) -> Callable[..., Array]:
    """A function of arrays with a batch axis that sees the whole batch under vmap, as the operators do."""

    @custom_vmap
    def run(*arrays: Array) -> Array:
        return function(*arrays)

    @run.def_vmap
    def rule(size: int, are_batched: Sequence[bool], *arrays: Array) -> tuple[Array, bool]:
        whole = []
        for array, is_batched in zip(arrays, are_batched, strict=True):
            if not is_batched:
                array = jnp.broadcast_to(array, (size, *array.shape))
            whole.append(array.reshape(size * array.shape[1], *array.shape[2:]))
        result = run(*whole)
        return result.reshape(size, result.shape[0] // size, *result.shape[1:]), True

    return run


def _places(like: Array) -> Array:
    count = like.shape[0]
    found = jnp.stack([jnp.arange(count, dtype=jnp.int32), jnp.full(count, count, jnp.int32)], 1)
    return _varying(found, _axes_of(like))


places = _of_joined(_places)
"""(B, 2): the place of each element of the batch in the joined batch of the call, and that batch's size. Of an array (B,)."""

in_place = _of_joined(
    lambda given, array: jnp.where((given == _places(array)).all(), array, jnp.asarray(jnp.nan, array.dtype))
)
"""An array (B,), if `places` are those of this call, else NaN: what a first call has saved is none of a second call's, where a program
takes apart what jax.vjp under jax.vmap returns, and calls it in other batches."""
