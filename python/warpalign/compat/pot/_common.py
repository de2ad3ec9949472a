"""Arrays of the caller's kind in and out, and the problems behind POT's functions."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from warpalign._core.costs import COSTS, Cost
from warpalign._transport.costs import pair_costs
from warpalign.transport import SinkhornResult, sinkhorn

METRICS: dict[str, Cost] = {
    "sqeuclidean": "sqeuclidean",
    "euclidean": "euclidean",
    "cityblock": "l1",
    "cosine": "cosine",
}
NOT_CONVERGED = (
    "Sinkhorn did not converge. You might want to increase the number of iterations `numItermax` "
    "or the regularization parameter `reg`."
)
NOT_FINITE = (
    "Numerical errors: the cost of the plan is not finite. Expected finite costs M in which every point with weight "
    "reaches another one, and weights without NaN"
)
NO_SIMPLEX = "expected a number > 0, because warpalign has no network simplex and no other exact solver"


class Kind(NamedTuple):
    """What the caller's arrays are: tensors, which keep their graph, or NumPy's."""

    is_torch: bool
    dtype: torch.dtype
    device: torch.device

    def out(self, tensor: Tensor) -> Any:
        if self.is_torch:
            return tensor
        array = tensor.detach().numpy()
        return array[()] if array.ndim == 0 else array

    def tensor(self, given: Any) -> Tensor:
        if isinstance(given, Tensor):
            return given.to(self.device, self.dtype)
        return torch.as_tensor(np.asarray(given), device=self.device).to(self.dtype)


def kind_of(*given: Any) -> Kind:
    """Integers become float64, as do lists."""
    tensors = [one for one in given if isinstance(one, Tensor)]
    if tensors:
        dtype = tensors[0].dtype if tensors[0].is_floating_point() else torch.float64
        return Kind(True, dtype, tensors[0].device)
    first = next(one for one in given if one is not None)
    dtype = torch.float32 if getattr(first, "dtype", None) == np.float32 else torch.float64
    return Kind(False, dtype, torch.device("cpu"))


def weights_of(given: Any, count: int, kind: Kind) -> Tensor:
    """Weights, uniform ones where none are given, or an empty array."""
    if given is None or len(given) == 0:
        return torch.full((count,), 1 / count, dtype=kind.dtype, device=kind.device)
    return kind.tensor(given)


def check_equal_sums(a: Tensor, b: Tensor, remedy: str) -> None:
    """Refuses weights of balanced transport whose sums differ, by POT's names. On a GPU the operator returns NaN.

    Args:
        a: (n,) weights; b: (m,).
        remedy: what else to write than normalised weights.

    Raises:
        ValueError: The sums differ by more than 1e-4 of the larger one, which is the operator's tolerance.
    """
    if a.is_cuda:
        return
    sums = {"a": float(a.detach().sum()), "b": float(b.detach().sum())}
    if not abs(sums["a"] - sums["b"]) > 1e-4 * max(sums.values()):  # NaN is the operator's to refuse
        return
    name, other = ("a", "b") if abs(sums["a"] - 1) >= abs(sums["b"] - 1) else ("b", "a")
    raise ValueError(
        f"{name}: expected the sum of {other}, {sums[other]:g}: write {name} / {name}.sum(), or {remedy}, got {sums[name]:g}"
    )


def metric_of(metric: Any) -> Cost:
    if metric not in METRICS:
        names = ", ".join(f'"{name}"' for name in METRICS)
        raise NotImplementedError(f"metric: expected one of {names}, got {metric!r}")
    return METRICS[metric]


def costs_of(metric: Any, x: Tensor, y: Tensor) -> Tensor:
    """(n, m) costs of points."""
    return pair_costs(COSTS.index(metric_of(metric)), x[None], y[None])[0]


def tolerance_of(threshold: float, kind: Kind) -> float:
    """No smaller than what rounding leaves of a marginal."""
    return max(float(threshold), 4 * torch.finfo(kind.dtype).eps)


class Solved(NamedTuple):
    """A problem's solution, and log scaling vectors as POT has them: P = exp(log_u + log_v − M / reg), times c if it has one."""

    result: SinkhornResult
    log_u: Tensor
    log_v: Tensor


def check_reg(reg: Any) -> float:
    if reg is None or not float(reg) > 0:
        raise NotImplementedError(f"reg: {NO_SIMPLEX}, got {reg}")
    return float(reg)


def balanced(
    a: Tensor,
    b: Tensor,
    reg: float,
    kind: Kind,
    *,
    costs: dict[str, Any],
    start: Tensor | float = 0.0,
    max_iter: int,
    threshold: float,
    warn: bool,
    **options: Any,
) -> Solved:
    """Columns are updated first, from log u = start, as POT does.

    Args:
        a: (n,) weights; b: (m,).
        costs: cost_matrix, or x, y and cost.
    """
    check_equal_sums(a, b, "relax the marginals with ot.unbalanced")
    log_a, log_b = a.detach().log(), b.detach().log()
    result = sinkhorn(
        **costs,
        a=a,
        b=b,
        epsilon=reg,
        init=(reg * (torch.zeros_like(log_a) + start - log_a), torch.zeros_like(log_b)),
        max_iter=max(int(max_iter), 1),
        tol=tolerance_of(threshold, kind),
        **options,
    )
    if not warn_of_numbers(kind, result.linear) and warn:
        warn_unless_converged(result, kind, threshold)
    return Solved(result, result.f / reg + a.log(), result.g / reg + b.log())


def warn_unless_converged(result: SinkhornResult, kind: Kind, threshold: float) -> None:
    """Waits for the device."""
    error = float(result.error.max())
    if not error <= tolerance_of(threshold, kind):
        # No number of iterations helps where the error is no number.
        warn_at_caller(NOT_CONVERGED if math.isfinite(error) else NOT_FINITE)


def warn_of_numbers(kind: Kind, *costs: Tensor) -> bool:
    """As POT, whatever ``warn`` says; of tensors on a GPU nothing is read. Returns whether it warned."""
    warns = kind.device.type == "cpu" and not all(bool(cost.isfinite().all()) for cost in costs)
    if warns:
        warn_at_caller(NOT_FINITE)
    return warns


def error_of(result: SinkhornResult, b: Tensor) -> Tensor:
    """The last entry of POT's list of errors: how far the column marginals are from b."""
    off: Tensor = result.plan.marginal(0) - b
    size: Tensor = off.detach().square().sum().sqrt()
    return size


def in_kind(kind: Kind, values: dict[str, Any]) -> dict[str, Any]:
    return {
        name: kind.out(value)
        if isinstance(value, Tensor)
        else [kind.out(one) if isinstance(one, Tensor) else one for one in value]
        if isinstance(value, list)
        else tuple(kind.out(one) for one in value)
        if isinstance(value, tuple)
        else value
        for name, value in values.items()
    }


def of_columns(b: Tensor, solve: Callable[[Tensor], Any]) -> list[Any]:
    """One answer for every column of b (m, k)."""
    return [solve(b[:, k]) for k in range(b.shape[1])]


def warn_at_caller(message: str) -> None:
    """A UserWarning, as POT's, at the line outside of the package that called."""
    frame: Any = sys._getframe()
    level = 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("warpalign."):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)
