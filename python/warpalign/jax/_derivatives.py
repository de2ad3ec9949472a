"""Values whose gradients come with them, and how those are differentiated again.

An operator returns the values V (B,) of a batch of problems, and the gradients of V with respect to those inputs for which they are
wanted. V's derivative along tangents is a sum of products with these gradients. JAX transposes it for reverse mode: the gradients times
an upstream factor. The derivatives of the gradients are a symmetric linear map, the Hessian of V, which a second operator applies. JAX is
told that the map is its own transpose, so that forward and reverse mode in any order take one call of that operator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.custom_derivatives import SymbolicZero, zero_from_primal
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from warpalign.jax._call import no_derivative


class Results(NamedTuple):
    value: Array
    """(B,)"""
    gradients: dict[str, Array]
    """Those that are wanted, by the names of their inputs."""
    others: dict[str, Array]
    """Further results, which have no derivatives."""


class Family(NamedTuple):
    """An operator and its second derivatives. Settings are a NamedTuple of numbers, inputs a NamedTuple of arrays or None."""

    names: tuple[str, ...]
    """The differentiable inputs. A name that is none of the inputs' stands for one that is 0: its gradient is a result of its own."""
    run: Callable[[Any, tuple[str, ...], Any], Results]
    """(settings, wanted, inputs)"""
    bend: Callable[[Any, tuple[str, ...], Any, dict[str, Array], dict[str, Array]], dict[str, Array]]
    """(settings, wanted, inputs, others, tangents): the derivatives of the wanted gradients along tangents."""
    refuse: Callable[[Any, tuple[str, ...], Any], None]
    """(settings, names, inputs): raises where there are no second derivatives with respect to these inputs."""


@partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2))
def solved(family: Family, settings: Any, wanted: tuple[str, ...], of: Any) -> Results:
    """What the operator returns, differentiable in the inputs of the family's names."""
    return family.run(settings, wanted, of)


def _along(
    family: Family, settings: Any, wanted: tuple[str, ...], primals: Any, tangents: Any
) -> tuple[Results, Results]:
    (of,), (along,) = primals, tangents
    given = {name: getattr(along, name, None) for name in family.names}
    moved = {name: t for name, t in given.items() if t is not None and not isinstance(t, SymbolicZero)}
    needed = tuple(name for name in family.names if name in wanted or name in moved)
    found = solved(family, settings, needed, of)
    slope = sum((_dot(found.gradients[name], t) for name, t in moved.items()), jnp.zeros_like(found.value))
    bent: dict[str, Array] = {}
    if wanted and moved:
        family.refuse(settings, needed, of)

        def apply(given: Any, tangents: dict[str, Array], names: tuple[str, ...]) -> list[Array]:
            inputs, others = given
            results = family.bend(settings, names, inputs, others, tangents)
            return [results[name] for name in names]

        bent = _symmetric_map(_THIRD, apply, (of, found.others), found.gradients, moved, wanted)
    kept = found._replace(gradients={name: found.gradients[name] for name in wanted})
    return kept, Results(slope, bent, zero_from_primal(found.others, symbolic_zeros=True))


solved.defjvp(_along, symbolic_zeros=True)


def _dot(gradient: Array, tangent: Array) -> Array:
    """(B,): sums over all axes but the first."""
    return (gradient * tangent).sum(tuple(range(1, gradient.ndim)))


_THIRD = (
    "third derivatives of soft-DTW and Sinkhorn, and second derivatives of Sinkhorn's potentials, linear part and plan (of its value "
    "write jax.hessian, or jax.jvp of jax.grad)"
)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def once_differentiable(what: str, value: Array, inputs: Any) -> Array:
    """The value, whose derivatives raise where they are differentiated by the inputs, on which they depend in another way than JAX knows.

    Args:
        what: the second derivatives, as an error names them.
    """
    return value


@once_differentiable.defjvp
def _once(what: str, primals: Any, tangents: Any) -> tuple[Array, Array]:
    value, inputs = primals
    known = _symmetric_map(
        what,
        lambda _, along, __: [along["value"]],
        inputs,
        {"value": value},
        {"value": tangents[0]},
        ("value",),
    )
    return value, known["value"]


_symmetric = Primitive("warpalign_symmetric_map")
_symmetric.multiple_results = True


def _symmetric_map(
    what: str,
    apply: Callable[[Any, dict[str, Array], tuple[str, ...]], list[Array]],
    of: Any,
    space: dict[str, Array],
    along: dict[str, Array],
    wanted: tuple[str, ...],
) -> dict[str, Array]:
    """The wanted components of a symmetric linear map of the vector with these components; those that are left out are 0.

    Args:
        what: the derivatives of the map by `of`, as an error names them.
        apply: (of, components, names of results) -> results.
        of: arrays on which the map depends.
        space: an array for each component that there is, of its shape and dtype.
        along: the components of the vector.
        wanted: the names of the results.
    """
    leaves, tree = jax.tree.flatten(of)
    found = _symmetric.bind(
        *leaves,
        *space.values(),
        *along.values(),
        apply=lambda leaves, *rest: apply(jax.tree.unflatten(tree, leaves), *rest),
        what=what,
        names=tuple(space),
        given=tuple(along),
        wanted=wanted,
    )
    return dict(zip(wanted, found, strict=True))


class _Operands(NamedTuple):
    """Of the primitive: the arrays that `apply` depends on, the space's, and the vector's."""

    of: list[Any]
    space: list[Any]
    along: list[Any]


def _operands(arrays: Sequence[Any], names: tuple[str, ...], given: tuple[str, ...]) -> _Operands:
    arrays = list(arrays)
    vector = len(arrays) - len(given)
    space = vector - len(names)
    return _Operands(arrays[:space], arrays[space:vector], arrays[vector:])


def _apply(*arrays: Any, apply: Any, names: Any, given: Any, wanted: Any, **_: Any) -> list[Array]:
    of, space, along = _operands(arrays, names, given)
    results: list[Array] = apply(of, dict(zip(given, along, strict=True)), wanted)
    return results


def _types(*avals: Any, names: Any, given: Any, wanted: Any, **_: Any) -> list[Any]:
    space = dict(zip(names, _operands(avals, names, given).space, strict=True))
    return [space[name] for name in wanted]


def _is_zero(tangent: Any) -> bool:
    return type(tangent) is ad.Zero or tangent.dtype == jax.dtypes.float0


def _jvp(primals: Any, tangents: Any, *, given: Any, **others: Any) -> tuple[list[Any], list[Any]]:
    of, space, along = _operands(tangents, others["names"], given)
    if not all(map(_is_zero, of)):
        raise no_derivative(others["what"])
    results = _symmetric.bind(*primals, given=given, **others)
    moved = {name: t for name, t in zip(given, along, strict=True) if not _is_zero(t)}
    if not moved:
        return results, [jnp.zeros_like(one) for one in results]
    fixed = primals[: len(of) + len(space)]
    return results, _symmetric.bind(*fixed, *moved.values(), given=tuple(moved), **others)


def _transpose(
    cotangents: Any, *arrays: Any, names: Any, given: Any, wanted: Any, **others: Any
) -> list[Any]:
    of, space, along = _operands(arrays, names, given)
    known = {name: ct for name, ct in zip(wanted, cotangents, strict=True) if type(ct) is not ad.Zero}
    asked = {name: one for name, one in zip(given, along, strict=True) if ad.is_undefined_primal(one)}
    if known:
        found = _symmetric.bind(
            *of, *space, *known.values(), names=names, given=tuple(known), wanted=tuple(asked), **others
        )
    else:
        found = [ad.Zero(one.aval) for one in asked.values()]
    by_name = dict(zip(asked, found, strict=True))
    return [None] * (len(of) + len(space)) + [by_name.get(name) for name in given]


def _batched(arrays: Any, axes: Any, *, apply: Any, names: Any, given: Any, **others: Any) -> Any:
    (size, *_) = (array.shape[axis] for array, axis in zip(arrays, axes, strict=True) if axis is not None)
    first = [
        array if axis is None else jnp.moveaxis(array, axis, 0)
        for array, axis in zip(arrays, axes, strict=True)
    ]
    places = [None if axis is None else 0 for axis in _operands(axes, names, given).of]
    of, space, along = _operands(first, names, given)
    are_batched = [axis is not None for axis in axes[len(of) :]]
    vectors = [
        one if is_batched else jnp.broadcast_to(one, (size, *one.shape))
        for one, is_batched in zip((*space, *along), are_batched, strict=True)
    ]

    def mapped(of: Any, along: dict[str, Array], wanted: tuple[str, ...]) -> Any:
        return jax.vmap(lambda one, vector: apply(one, vector, wanted), in_axes=(places, 0))(of, along)

    results = _symmetric.bind(*of, *vectors, apply=mapped, names=names, given=given, **others)
    return results, [0] * len(results)


_symmetric.def_impl(_apply)
_symmetric.def_abstract_eval(_types)
mlir.register_lowering(_symmetric, mlir.lower_fun(_apply, multiple_results=True))
ad.primitive_jvps[_symmetric] = _jvp
ad.primitive_transposes[_symmetric] = _transpose
batching.primitive_batchers[_symmetric] = _batched
