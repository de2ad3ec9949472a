"""Drop-in for geomloss: SamplesLoss("sinkhorn").

Values are those of geomloss' own list of epsilons, with one symmetric update at each: converged no further than geomloss'.
:func:`warpalign.transport.sinkhorn_divergence` converges. No N × M table of costs is made, and KeOps is not needed. Every backend computes
the same here; "multiscale" does not cut kernels off, and cluster labels are not used. A distance (p = 1) of equal points is 0,
where geomloss takes 1e-4. Gradients with ``reach`` are those of the value, (rho + epsilon) / (rho + epsilon / 2) times geomloss',
whose factor of the backward pass is never called. "energy", "gaussian", "laplacian" and "hausdorff" are no transport, and are not here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from warpalign._core.scalars import check_number
from warpalign._transport.descent import schedule
from warpalign.compat._samples_loss import (
    Ground,
    Measures,
    between,
    diameter_of,
    side_value,
    warn_of_numbers,
    with_itself,
)

__all__ = ["SamplesLoss"]

_BACKENDS = ("auto", "tensorized", "online", "multiscale")
_NAMES = ("α", "x", "β", "y")


class SamplesLoss(nn.Module):
    """geomloss' SamplesLoss: the Sinkhorn divergence of weighted point sets.

    Args:
        loss: "sinkhorn".
        p: 2, for the cost |x − y|²/2, or 1, for |x − y|.
        blur: epsilon is blur^p.
        reach: the strength of KL on the sums of weights is reach^p; None: sums are exact.
        diameter: where the list of epsilons begins; None: the diagonal of the box that holds all points.
        scaling: from one epsilon to the next by scaling^p.
        truncate: kept for the signature.
        cost: a function of x (B, N, D) and y (B, M, D) that returns (B, N, M), in the place of p's.
        kernel: kept for the signature.
        cluster_scale: kept for the signature.
        debias: whether the parts of each set with itself are taken off.
        potentials: whether a call returns potentials (F, G) in the place of a value.
        verbose: kept for the signature.
        backend: "auto", "tensorized", "online" or "multiscale".

    Call it with (x, y), with (α, x, β, y), or with (labels_x, α, x, labels_y, β, y): x (N, D) or (B, N, D), y (M, D) or
    (B, M, D), weights (N,), (N, 1), (B, N) or (B, N, 1). It returns a number, or (B,) numbers. Potentials are (B, N) and (B, M), of
    a single problem (1, N) and (1, M), as the original's, and (N,) and (M,) with backend="multiscale".
    """

    def __init__(
        self,
        loss: str = "sinkhorn",
        p: int = 2,
        blur: float = 0.05,
        reach: float | None = None,
        diameter: float | None = None,
        scaling: float = 0.5,
        truncate: float | None = 5,
        cost: Callable[[Tensor, Tensor], Tensor] | str | None = None,
        kernel: Any = None,
        cluster_scale: float | None = None,
        debias: bool = True,
        potentials: bool = False,
        verbose: bool = False,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        if loss != "sinkhorn":
            raise NotImplementedError(f'loss: expected "sinkhorn", the one that is transport, got {loss!r}')
        if cost is None and p not in (1, 2):
            raise ValueError(f"p: expected 1 or 2, got {p!r}")
        if isinstance(cost, str):
            raise NotImplementedError(f"cost: expected a function of tensors, got the KeOps formula {cost!r}")
        if backend not in _BACKENDS:
            names = ", ".join(f'"{name}"' for name in _BACKENDS)
            raise ValueError(f"backend: expected one of {names}, got {backend!r}")
        self.loss = loss
        self.backend = backend
        self.p = p
        self.blur = blur
        self.reach = reach
        self.truncate = truncate
        self.diameter = diameter
        self.scaling = scaling
        self.cost = cost
        self.kernel = kernel
        self.cluster_scale = cluster_scale
        self.debias = debias
        self.potentials = potentials
        self.verbose = verbose

    def forward(self, *args: Any) -> Tensor | tuple[Tensor, Tensor]:
        a, x, b, y = self._arguments(args)
        batched = x.dim() == 3
        of = _checked(a, x, b, y)
        given = self.diameter
        diameter = diameter_of(x, y) if given is None else check_number(given, "diameter", None)
        epsilons = schedule(diameter, self.blur, self.scaling, self.p)
        rho = None if self.reach is None else self.reach**self.p
        named = Ground("sqeuclidean", 0.5, rho, rho) if self.p == 2 else Ground("euclidean", 1.0, rho, rho)
        ground = named if self.cost is None else Ground(self.cost, 1.0, rho, rho)
        found = between(of, ground, epsilons)
        own: tuple[Tensor | None, Tensor | None] = (None, None)
        if self.debias:
            own = (
                with_itself(of.a, of.x, rho, ground, epsilons),
                with_itself(of.b, of.y, rho, ground, epsilons),
            )
        if self.potentials:
            f, g = (one if other is None else one - other for one, other in zip(found, own, strict=True))
            warn_of_numbers(of, _NAMES, f, self.blur)
            return (f, g) if batched or self.backend != "multiscale" else (f[0], g[0])
        value = side_value(of.a, found.f, own[0], rho, epsilons[-1])
        value = value + side_value(of.b, found.g, own[1], rho, epsilons[-1])
        warn_of_numbers(of, _NAMES, value, self.blur)
        return value if batched else value[0]

    def _arguments(self, args: tuple[Any, ...]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        if len(args) == 6:
            x_labels, a, x, y_labels, b, y = args
            if (x_labels is not None or y_labels is not None) and self.backend in ("tensorized", "online"):
                raise ValueError(
                    'Explicit cluster labels are only supported with the "auto" and "multiscale" backends.'
                )
            return a, x, b, y
        if len(args) == 4:
            return args
        if len(args) != 2:
            raise ValueError(
                "A SamplesLoss accepts two (x, y), four (α, x, β, y) or six (l_x, α, x, l_y, β, y) arguments."
            )
        x, y = args
        a, b = (z.new_full(z.shape[:-1], 1 / z.shape[-2]) for z in (x, y))
        return a, x, b, y


def _checked(a: Tensor, x: Tensor, b: Tensor, y: Tensor) -> Measures:
    """With a batch axis, weights without their last axis of 1."""
    if x.dim() not in (2, 3):
        raise ValueError("Input samples 'x' and 'y' should be encoded as (N,D) or (B,N,D) (batch) tensors.")
    if x.dim() != y.dim():
        raise ValueError("Input samples 'x' and 'y' should have the same number of dimensions.")
    if x.shape[-1] != y.shape[-1]:
        raise ValueError("Input samples 'x' and 'y' should have the same last dimension.")
    if x.shape[:-2] != y.shape[:-2]:
        raise ValueError("Samples 'x' and 'y' should have the same batchsize.")
    rows = []
    for name, point_name, weights, points in (("α", "x", a, x), ("β", "y", b, y)):
        row = weights.squeeze(-1) if weights.dim() == points.dim() and weights.shape[-1] == 1 else weights
        if row.shape != points.shape[:-1]:
            raise ValueError(f"Weights '{name}' and samples '{point_name}' should have compatible shapes.")
        rows.append(row.to(points.dtype))
    a, b = rows
    if x.dim() == 2:
        a, x, b, y = a[None], x[None], b[None], y[None]
    return Measures(a, x, b, y)
