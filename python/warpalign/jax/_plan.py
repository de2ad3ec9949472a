"""Transport plans, which are not stored: what is read off them is computed from the problem and its potentials."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from warpalign._transport.settings import Settings
from warpalign.jax._arrays import check_floats
from warpalign.jax._call import call
from warpalign.jax._scaling import Wanted, along_batch, dense, has_gradient, values_of
from warpalign.jax._transport import Inputs, keywords


def _run_dense(settings: Settings, of: Inputs) -> Array:
    return call("transport_dense", **of._asdict(), **keywords(settings))[0]


_dense = jax.custom_vjp(_run_dense, nondiff_argnums=(0,))


def _dense_forward(settings: Settings, primals: Inputs) -> tuple[Array, Any]:
    of = values_of(primals)
    return _run_dense(settings, of), (of, _wanted(primals))


def _dense_backward(settings: Settings, kept: Any, grad: Any) -> tuple[Inputs | None]:
    of, wanted = kept
    known = dense(grad)
    return (None if known is None else _gradients(settings, of, wanted, w=known),)


def _run_product(settings: Settings, transposed: bool, v: Array, of: Inputs) -> Array:
    return call("transport_apply", **of._asdict(), **keywords(settings), v=v, transposed=transposed)[0]


_product = jax.custom_vjp(_run_product, nondiff_argnums=(0, 1))


def _product_forward(settings: Settings, transposed: bool, v: Any, primals: Inputs) -> tuple[Array, Any]:
    of = values_of(primals)
    return _run_product(settings, transposed, v.value, of), (v.value, of, _wanted(primals))


def _product_backward(
    settings: Settings, transposed: bool, kept: Any, grad: Any
) -> tuple[Array | None, Inputs | None]:
    v, of, wanted = kept
    known = dense(grad)
    if known is None:
        return None, None
    u, other = (v, known) if transposed else (known, v)
    return _run_product(settings, not transposed, known, of), _gradients(settings, of, wanted, u=u, v=other)


def _wanted(primals: Inputs) -> Wanted:
    return Wanted(has_gradient(one) for one in primals)


def _gradients(settings: Settings, of: Inputs, wanted: tuple[bool, ...], **factors: Any) -> Inputs:
    """The derivatives of sum W P with respect to all inputs; W is w, or u vᵀ."""
    rows, columns, *found = call(
        "transport_gradient",
        **of._asdict(),
        **keywords(settings),
        **factors,
        needs_grad_x=wanted[0],
        needs_grad_y=wanted[1],
        needs_grad_cost=wanted[2],
    )
    if of.epsilons is None:
        by_f, by_g = rows / settings.epsilon, columns / settings.epsilon
    else:
        by_f, by_g = (one / along_batch(of.epsilons, one) for one in (rows, columns))
    both = zip((*found, None, None, by_f, by_g), wanted, strict=True)
    return Inputs(*(gradient if need else None for gradient, need in both))


_dense.defvjp(_dense_forward, _dense_backward, symbolic_zeros=True)
_product.defvjp(_product_forward, _product_backward, symbolic_zeros=True)


@jax.tree_util.register_pytree_node_class
class TransportPlan:
    """A plan P (B, N, M), or (N, M) for unbatched input, as its problem and its potentials: no table is stored.

    A pytree: it passes through jax.jit. ``plan @ v`` and ``plan.T @ v`` are products, differentiable with respect to the inputs of
    the problem and v.
    """

    def __init__(self, of: Inputs, settings: Settings, unbatched: bool, transposed: bool = False) -> None:
        self._of, self._settings = of, settings
        self._unbatched, self._transposed = unbatched, transposed

    def tree_flatten(self) -> tuple[tuple[Inputs], tuple[Any, ...]]:
        return (self._of,), (self._settings, self._unbatched, self._transposed)

    @classmethod
    def tree_unflatten(cls, static: tuple[Any, ...], children: tuple[Inputs]) -> TransportPlan:
        return cls(*children, *static)

    @property
    def shape(self) -> tuple[int, ...]:
        """(B, N, M), or (N, M)."""
        n, m = self._of.sizes
        sizes = (m, n) if self._transposed else (n, m)
        return sizes if self._unbatched else (self._of.first.shape[0], *sizes)

    @property
    def T(self) -> TransportPlan:
        """The plan with rows and columns exchanged."""
        return TransportPlan(self._of, self._settings, self._unbatched, not self._transposed)

    def to_dense(self) -> Array:
        """All entries, (B, N, M) or (N, M)."""
        plan = _dense(self._settings, self._of)
        plan = jnp.swapaxes(plan, 1, 2) if self._transposed else plan
        return plan[0] if self._unbatched else plan

    def __matmul__(self, v: Array) -> Array:
        """The product with v (B, M, K), or (M, K) of unbatched input: (B, N, K) or (N, K)."""
        own = check_floats(v, "v", "M, K", (2,) if self._unbatched else (3,))
        own = (own[None] if self._unbatched else own).astype(self._of.first.dtype)
        product = _product(self._settings, self._transposed, own, self._of)
        return product[0] if self._unbatched else product
