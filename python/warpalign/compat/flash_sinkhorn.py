"""Drop-in for flash-sinkhorn: SamplesLoss, on CPUs too.

The symmetric backend does one update at each epsilon of the original's list, the alternating one ``n_iters`` iterations. What
says how the original's kernels run makes no difference here: ``allow_tf32``, ``truncate_tf32``, ``use_exp2``, ``autotune``, the
block sizes, ``pad_to_multiple``, the ``hvp_`` options. All is float32, without TF32 unless torch's own products have it.
``threshold`` is not looked at: all updates are made. Costs with labels and the multiscale backend are not here.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from warpalign._core.scalars import check_number
from warpalign._transport.descent import Potentials, schedule
from warpalign.compat._samples_loss import (
    Ground,
    Measures,
    between,
    diameter_of,
    side_value,
    warn_of_numbers,
    with_itself,
)
from warpalign.transport import sinkhorn

__all__ = ["SamplesLoss"]

_NAMES = ("a", "x", "b", "y")


class SamplesLoss(nn.Module):
    """flash-sinkhorn's SamplesLoss: entropic transport of weighted point sets with the cost |x − y|².

    Args:
        loss: "sinkhorn".
        p: 2.
        blur: epsilon is blur².
        reach: both sides' sums of weights are tied by KL of strength reach²; None: they are exact.
        reach_x: the same for x's side alone; None: reach.
        reach_y: the same for y's side alone; None: reach.
        scaling: from one epsilon to the next by scaling².
        debias: whether the parts of each set with itself are taken off.
        potentials: whether a call returns potentials (f, g) in the place of a value.
        backend: "symmetric" or "alternating", which needs eps, n_iters and use_epsilon_scaling=False.
        normalize: whether weights are divided by their sum.
        use_epsilon_scaling: False: n_iters updates at eps.
        last_extrapolation: whether a full update follows the averaged ones.
        allow_tf32: kept for the signature.
        truncate_tf32: kept for the signature.
        use_exp2: kept for the signature.
        autotune: kept for the signature.
        half_cost: the cost is |x − y|²/2, as in geomloss.
        eps: epsilon, without epsilon scaling.
        n_iters: the number of updates without epsilon scaling, else the most epsilons of the list; None: all.
        diameter: where the list of epsilons begins; None: the diagonal of the box that holds all points.
        eps_list: epsilons in the place of the list.
        block_m: kept for the signature.
        block_n: kept for the signature.
        block_k: kept for the signature.
        num_warps: kept for the signature.
        num_stages: kept for the signature.
        hvp_tau2: kept for the signature.
        hvp_max_cg_iter: kept for the signature.
        hvp_cg_rtol: kept for the signature.
        hvp_cg_atol: kept for the signature.
        hvp_cg_stabilise_every: kept for the signature.
        hvp_preconditioner: kept for the signature.
        hvp_precond_terms: kept for the signature.
        hvp_use_preconditioner: kept for the signature.
        label_cost_matrix: None; costs with labels are not available.
        lambda_x: kept for the signature.
        lambda_y: kept for the signature.
        threshold: kept for the signature. All updates are made.
        inner_iterations: kept for the signature.
        use_flashstyle: kept for the signature.
        pad_to_multiple: kept for the signature.
        tol: None; it belongs to the multiscale backend, which is not available.

    Call it with (x, y) or (a, x, b, y): x (N, D) or (B, N, D), weights (N,), (N, 1), (B, N) or (B, N, 1). It returns a number, or
    (B,) numbers, in float32.
    """

    def __init__(
        self,
        loss: str = "sinkhorn",
        *,
        p: int = 2,
        blur: float = 0.05,
        reach: float | None = None,
        reach_x: float | None = None,
        reach_y: float | None = None,
        scaling: float = 0.5,
        debias: bool = False,
        potentials: bool = False,
        backend: str = "symmetric",
        normalize: bool = True,
        use_epsilon_scaling: bool = True,
        last_extrapolation: bool = True,
        allow_tf32: bool = True,
        truncate_tf32: bool | None = None,
        use_exp2: bool = True,
        autotune: bool = True,
        half_cost: bool = False,
        eps: float | None = None,
        n_iters: int | None = None,
        diameter: float | None = None,
        eps_list: Sequence[float] | None = None,
        block_m: int | None = None,
        block_n: int | None = None,
        block_k: int | None = None,
        num_warps: int | None = None,
        num_stages: int = 2,
        hvp_tau2: float = 1e-5,
        hvp_max_cg_iter: int = 300,
        hvp_cg_rtol: float = 1e-6,
        hvp_cg_atol: float = 1e-6,
        hvp_cg_stabilise_every: int = 0,
        hvp_preconditioner: str = "none",
        hvp_precond_terms: int = 3,
        hvp_use_preconditioner: bool = True,
        label_cost_matrix: Tensor | None = None,
        lambda_x: float = 1.0,
        lambda_y: float = 0.0,
        threshold: float | None = None,
        inner_iterations: int = 10,
        use_flashstyle: bool | None = None,
        pad_to_multiple: int | None = None,
        tol: float | None = None,
    ) -> None:
        super().__init__()
        if loss != "sinkhorn":
            raise ValueError('Only loss="sinkhorn" is supported.')
        if p != 2:
            raise ValueError("Only p=2 (squared Euclidean cost) is supported.")
        if backend in ("triton", "auto"):
            warnings.warn(
                f'backend="{backend}" is a legacy alias for "symmetric". '
                'Use backend="symmetric" or backend="alternating" explicitly.',
                DeprecationWarning,
                stacklevel=2,
            )
            backend = "symmetric"
        if backend == "multiscale":
            raise NotImplementedError(
                'backend: expected "symmetric" or "alternating", got "multiscale": write warpalign.transport.sinkhorn'
            )
        if backend not in ("symmetric", "alternating"):
            raise ValueError(
                'Only backend in {"symmetric","alternating","multiscale","triton","auto"} is supported.'
            )
        if label_cost_matrix is not None:
            raise NotImplementedError(
                "label_cost_matrix: expected None, because costs with labels are not here, got a tensor"
            )
        if backend == "alternating":
            if use_epsilon_scaling:
                raise ValueError(
                    'backend="alternating" requires use_epsilon_scaling=False. Provide fixed eps and n_iters instead.'
                )
            if eps is None or n_iters is None:
                raise ValueError('backend="alternating" requires eps and n_iters to be specified.')
        if tol is not None:
            raise ValueError('tol applies only to backend="multiscale".')
        for name, value in (("reach", reach), ("reach_x", reach_x), ("reach_y", reach_y)):
            if value is not None and value <= 0:
                raise ValueError(f"{name} must be positive (or None: the side is balanced).")
        reach_x = reach if reach_x is None else reach_x
        reach_y = reach if reach_y is None else reach_y
        self.loss, self.p, self.blur, self.scaling = loss, p, float(blur), float(scaling)
        self.reach_x, self.reach_y = reach_x, reach_y
        self.rho_x = None if reach_x is None else float(reach_x) ** 2
        self.rho_y = None if reach_y is None else float(reach_y) ** 2
        self.debias, self.potentials, self.backend = bool(debias), bool(potentials), backend
        self.normalize, self.half_cost = bool(normalize), bool(half_cost)
        self.use_epsilon_scaling, self.last_extrapolation = (
            bool(use_epsilon_scaling),
            bool(last_extrapolation),
        )
        self.cost_scale = 0.5 if half_cost else 1.0
        self.eps = None if eps is None else float(eps)
        self.n_iters = None if n_iters is None else int(n_iters)
        self.diameter = None if diameter is None else float(diameter)
        self.eps_list = None if eps_list is None else list(map(float, eps_list))

    def forward(self, *args: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        of, shapes = self._measures(args)
        batched = args[-1].dim() == 3
        parts = [self._of_problem(Measures(*(t[k : k + 1] for t in of))) for k in range(len(of.x))]
        if self.potentials:
            f, g = (torch.cat([part[side] for part in parts]) for side in (0, 1))
            warn_of_numbers(of, _NAMES, f, self.blur)
            return f.reshape(shapes[0]), g.reshape(shapes[1])
        value = torch.cat([part[0] for part in parts])
        warn_of_numbers(of, _NAMES, value, self.blur)
        return value if batched else value[0]

    def _of_problem(self, of: Measures) -> tuple[Tensor, ...]:
        """Potentials, or the value, of one problem: every one has its own list of epsilons."""
        epsilons = self._epsilons(of)
        one_relaxed = (self.rho_x is None) != (self.rho_y is None)
        ground = Ground("sqeuclidean", self.cost_scale, self.rho_x, self.rho_y, one_relaxed)
        if self.backend == "alternating":
            return self._alternating(of, epsilons[-1], len(epsilons))
        extrapolate = self.last_extrapolation
        found = between(of, ground, epsilons, extrapolate=extrapolate)
        if self.potentials:
            return found
        if not extrapolate:  # the update's gradient, and the averaged potentials' value
            full = between(of, ground, epsilons)
            found = Potentials(
                *(now + (other - other.detach()) for now, other in zip(found, full, strict=True))
            )
        own: tuple[Tensor | None, Tensor | None] = (None, None)
        if self.debias:
            own = (
                with_itself(of.a, of.x, self.rho_x, ground, epsilons),
                with_itself(of.b, of.y, self.rho_y, ground, epsilons),
            )
        value = side_value(of.a, found.f, own[0], self.rho_x, epsilons[-1])
        return (value + side_value(of.b, found.g, own[1], self.rho_y, epsilons[-1]),)

    def _alternating(self, of: Measures, epsilon: float, iterations: int) -> tuple[Tensor, ...]:
        """The original begins with x's potential, as sinkhorn does with y's: so the sides are exchanged."""

        def solve(of: Measures, rho_x: float | None, rho_y: float | None) -> Any:
            return sinkhorn(
                of.y,
                of.x,
                a=of.b,
                b=of.a,
                epsilon=epsilon,
                cost_scale=self.cost_scale,
                rho_a=rho_y,
                rho_b=rho_x,
                max_iter=iterations,
                tol=0.0,
            )

        result = solve(of, self.rho_x, self.rho_y)
        if self.potentials:
            return result.g, result.f
        value: Tensor = result.value
        if self.debias:
            x, y = Measures(of.a, of.x, of.a, of.x), Measures(of.b, of.y, of.b, of.y)
            value = (
                value - (solve(x, self.rho_x, self.rho_x).value + solve(y, self.rho_y, self.rho_y).value) / 2
            )
        return (value,)

    def _epsilons(self, of: Measures) -> list[float]:
        if self.eps_list is not None:
            epsilons = list(self.eps_list)
        elif self.use_epsilon_scaling:
            given = self.diameter
            diameter = diameter_of(of.x, of.y) if given is None else check_number(given, "diameter", None)
            epsilons = schedule(diameter, self.blur, self.scaling, 2)
        else:
            if self.eps is None or self.n_iters is None:
                raise ValueError("When use_epsilon_scaling=False, provide eps and n_iters.")
            epsilons = [self.eps] * self.n_iters
        epsilons = epsilons if self.n_iters is None else epsilons[: self.n_iters]
        if not epsilons:
            raise ValueError("eps_list is empty after applying n_iters.")
        return epsilons

    def _measures(self, args: tuple[Tensor, ...]) -> tuple[Measures, tuple[torch.Size, torch.Size]]:
        if len(args) not in (2, 4):
            raise TypeError(f"SamplesLoss expects either (x, y) or (a, x, b, y). Got {len(args)} arguments.")
        x, y = (args[0], args[1]) if len(args) == 2 else (args[1], args[3])
        if x.dim() not in (2, 3) or y.dim() != x.dim():
            raise ValueError("x and y must be shaped (N,D) or (B,N,D).")
        if x.shape[:-2] != y.shape[:-2]:
            raise ValueError("x and y must have the same batch size.")
        if x.shape[-1] != y.shape[-1]:
            raise ValueError("x and y must have the same feature dimension.")
        rows, shapes = [], []
        for index, (name, points) in enumerate((("x", x), ("y", y))):
            if len(args) == 2:
                row = points.new_full(points.shape[:-1], 1 / points.shape[-2])
                shapes.append(row.shape)
            else:
                row = args[2 * index]
                shapes.append(row.shape)
                row = row.squeeze(-1) if row.dim() == points.dim() and row.shape[-1] == 1 else row
                if row.shape != points.shape[:-1]:
                    raise ValueError(f"{'ab'[index]} must have shape (…, n) or (…, n, 1) matching {name}.")
            row = row.float()
            rows.append(row / row.sum(-1, keepdim=True) if self.normalize else row)
        tensors = [rows[0], x.float(), rows[1], y.float()]
        if x.dim() == 2:
            tensors = [t[None] for t in tensors]
        return Measures(*tensors), (shapes[0], shapes[1])
