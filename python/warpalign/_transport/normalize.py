"""Sinkhorn normalisation of logits: as many iterations as are asked for, and their own gradient."""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from warpalign._core.checks import check_count, check_table, naming_arguments, shape_of
from warpalign._core.library import check_devices
from warpalign._core.transforms import (
    Dim,
    apply,
    folded,
    may_write_in_place,
    needs_gradient,
    no_derivative,
    runs_alone,
    traceable,
    unfold,
)

AxisOrder = Literal["rows_first", "columns_first"]
_ORDERS: tuple[str, ...] = get_args(AxisOrder)
_MOST = 64


@torch.library.register_fake("warpalign::sinkhorn_normalize")  # type: ignore[untyped-decorator]
def _(logits: Tensor, iterations: int, columns_first: bool) -> Tensor:
    return logits.new_empty(logits.shape)


@torch.library.register_fake("warpalign::sinkhorn_normalize_gradient")  # type: ignore[untyped-decorator]
def _(logits: Tensor, grad_plan: Tensor, iterations: int, columns_first: bool) -> Tensor:
    check_devices("logits", logits=logits, grad_plan=grad_plan)
    return logits.new_empty(logits.shape)


_plan = torch.ops.warpalign.sinkhorn_normalize.default
_gradient = torch.ops.warpalign.sinkhorn_normalize_gradient.default


class _Gradient(torch.autograd.Function):
    """The gradient with respect to logits."""

    @staticmethod
    def forward(logits: Tensor, grad_plan: Tensor, iterations: int, columns_first: bool) -> Tensor:
        result: Tensor = _gradient(logits, grad_plan, iterations, columns_first)
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise no_derivative("second derivatives of sinkhorn_normalize")

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[Dim, ...],
        logits: Tensor,
        grad_plan: Tensor,
        iterations: int,
        columns_first: bool,
    ) -> tuple[Tensor, Dim]:
        tensors = folded((logits, grad_plan), in_dims[:2], info.batch_size)
        apart, dims = unfold((apply(_Gradient, *tensors, iterations, columns_first),), info.batch_size)
        return apart[0], dims[0]


class _Normalize(torch.autograd.Function):
    named = "sinkhorn_normalize"

    @staticmethod
    def forward(logits: Tensor, iterations: int, columns_first: bool) -> Tensor:
        result: Tensor = _plan(logits, iterations, columns_first)
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        logits, ctx.iterations, ctx.columns_first = inputs
        ctx.save_for_backward(logits)

    @staticmethod
    def backward(ctx: Any, grad_plan: Tensor) -> tuple[Tensor, None, None]:
        (logits,) = ctx.saved_tensors
        arguments = (logits, grad_plan, ctx.iterations, ctx.columns_first)
        if may_write_in_place(grad_plan):
            return _gradient(*arguments), None, None
        return apply(_Gradient, *arguments), None, None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Dim, ...], logits: Tensor, iterations: int, columns_first: bool
    ) -> tuple[Tensor, Dim]:
        (table,) = folded((logits,), in_dims[:1], info.batch_size)
        apart, dims = unfold((apply(_Normalize, table, iterations, columns_first),), info.batch_size)
        return apart[0], dims[0]


def sinkhorn_normalize(
    logits: Tensor, iterations: int = 20, *, axis_order: AxisOrder = "rows_first"
) -> Tensor:
    """The matrices exp(logits) after a number of alternating normalisations of their rows and columns.

    An iteration divides every row by its sum, and then every column. The columns of the result therefore sum to 1, and its rows
    nearly do, if the matrix is square: it is nearly doubly stochastic. Nothing checks for convergence. The gradient is that of exactly
    these iterations, which the backward pass computes again, so only the logits are saved. Iterations are in the log domain, and
    logits of any size are allowed.

    It replaces the loop ``for _ in range(iterations): logits = logits.log_softmax(-1).log_softmax(-2)`` with ``logits.exp()`` after it,
    for many small matrices: manifold-constrained hyper-connections, Gumbel–Sinkhorn and matching networks, doubly stochastic attention. For
    transport between given marginals, convergence to a tolerance and large matrices there is :func:`warpalign.transport.sinkhorn`.

    Sources: Sinkhorn & Knopp, Pacific J. Math. 1967; Adams & Zemel, "Ranking via Sinkhorn propagation", arXiv 1106.1925; Mena et al.,
    "Learning latent permutations with Gumbel-Sinkhorn networks", ICLR 2018; Xie et al., "mHC: Manifold-constrained hyper-connections",
    arXiv 2512.24880.

    Args:
        logits: (..., K, L) with K and L from 1 to 64, float64, float32, float16 or bfloat16, of any strides. −inf forbids an element;
            a row or column of −inf alone stays 0. A matrix with NaN or +inf becomes NaN.
        iterations: the number of iterations of two normalisations each, 1 to 2^20.
        axis_order: "rows_first" or "columns_first": what an iteration normalises first. The other sums of the result are 1.

    Returns:
        (..., K, L) of the dtype of the logits, >= 0. Half types are converted to float32 when they are read, and the result is rounded
        once. Differentiable once with respect to the logits.

    Raises:
        TypeError, ValueError: an argument is invalid.
        NotImplementedError: for second derivatives.

    Examples:
        >>> logits = torch.randn(32, 100, 4, 4, requires_grad=True)
        >>> mixing = sinkhorn_normalize(logits, 20)
        >>> mixing[..., 0, 0].sum().backward()
    """
    count = check_count(iterations, "iterations")
    columns_first = _check_order(axis_order) == "columns_first"
    given = logits.flatten(0, -3) if isinstance(logits, Tensor) and logits.dim() > 3 else logits
    table = traceable(check_table(given, "logits", "K, L", series=False))
    if max(table.shape[-2:]) > _MOST:
        raise ValueError(
            f"logits: expected at most {_MOST} rows and {_MOST} columns, got shape {shape_of(logits)}: write "
            "L * sinkhorn(cost_matrix=-logits, epsilon=1.0).plan.to_dense() for L columns"
        )
    batch = table if table.dim() == 3 else table.unsqueeze(0)
    with naming_arguments():
        if runs_alone(needs_gradient(batch)):
            plan: Tensor = _plan(batch, count, columns_first)
        else:
            plan = apply(_Normalize, batch, count, columns_first)
    return plan if plan.shape == logits.shape else plan.view(logits.shape)


def _check_order(order: object) -> AxisOrder:
    if order not in _ORDERS:
        raise ValueError(f'axis_order: expected "rows_first" or "columns_first", got {order!r}')
    return order  # type: ignore[return-value]


class SinkhornNormalize(nn.Module):
    """:func:`warpalign.transport.sinkhorn_normalize` as a layer with fixed settings.

    Args:
        iterations: the number of iterations of two normalisations each, 1 to 2^20.
        axis_order: "rows_first" or "columns_first": what an iteration normalises first. The other sums of the result are 1.

    Raises:
        TypeError, ValueError: an argument is invalid; a call raises what
            :func:`warpalign.transport.sinkhorn_normalize` raises.

    Examples:
        >>> mix = SinkhornNormalize(20)
        >>> mix(torch.randn(8, 4, 4)).sum(-2).round()[0]
        tensor([1., 1., 1., 1.])
    """

    def __init__(self, iterations: int = 20, *, axis_order: AxisOrder = "rows_first") -> None:
        super().__init__()
        self.iterations = check_count(iterations, "iterations")
        self.axis_order = _check_order(axis_order)

    def forward(self, logits: Tensor) -> Tensor:
        """The normalised matrices, (..., K, L).

        Args:
            logits: (..., K, L) with K and L from 1 to 64.
        """
        return sinkhorn_normalize(logits, self.iterations, axis_order=self.axis_order)

    def extra_repr(self) -> str:
        return f"{self.iterations}, axis_order={self.axis_order!r}"
