"""A transport plan that is not stored."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from warpalign._core.checks import DTYPES, check_count, check_number, naming_arguments, shape_of
from warpalign._core.series import widened
from warpalign._core.transforms import replaced
from warpalign._transport import plan_autograd, plan_ops
from warpalign._transport.costs import row_blocks
from warpalign._transport.problem import Problem
from warpalign._transport.settings import Inputs, as_keywords

Axis = Literal[0, 1]


class PlanTop(NamedTuple):
    """Largest entries of a plan's rows or columns, in falling order."""

    values: Tensor
    """(B, N, k), or (B, M, k) of columns."""
    indices: Tensor
    """The same shape, int64."""


class TransportPlan:
    """The plan P of a transport problem, (B, N, M), or (N, M) of a single problem, by its potentials.

    P[i, j] = R[i, j] exp((f[i] + g[j] − C[i, j]) / epsilon). Every function makes the entries again as it needs them;
    :meth:`dense` alone stores N × M numbers. Behind true lengths the plan is 0. Products, marginals, maps, rows and
    :meth:`dense` are differentiable in the problem's inputs: implicitly through the potentials, and once. ``axis`` is 0
    or 1, the axis of (N, M) that is summed over or searched along, whether or not there is a batch.

    :func:`warpalign.transport.sinkhorn` makes plans; they are not made by hand.
    """

    def __init__(self, problem: Problem, f: Tensor, g: Tensor, *, transposed: bool = False) -> None:
        self._problem = problem
        self._of = replaced(problem.of, f0=f, g0=g)
        self._settings = replaced(problem.settings, mass=0.0)  # parts of a plan have less
        self._transposed = transposed

    def __repr__(self) -> str:
        return f"TransportPlan(shape={tuple(self.shape)}, epsilon={self.epsilon})"

    @property
    def shape(self) -> torch.Size:
        n, m = self._sizes
        return torch.Size((n, m) if self._problem.unbatched else (self._of.first.shape[0], n, m))

    @property
    def epsilon(self) -> float | Tensor:
        """A number, or (B,) where the problems have their own."""
        epsilons = self._of.epsilons
        return self._settings.epsilon if epsilons is None else self._problem.squeezed(epsilons)

    @property
    def f(self) -> Tensor:
        """Potentials of the rows, (B, N)."""
        return self._problem.squeezed(self._potentials[1 if self._transposed else 0])

    @property
    def g(self) -> Tensor:
        """Potentials of the columns, (B, M)."""
        return self._problem.squeezed(self._potentials[0 if self._transposed else 1])

    @property
    def T(self) -> TransportPlan:
        """The transposed plan, without a copy."""
        f, g = self._potentials
        return TransportPlan(self._problem, f, g, transposed=not self._transposed)

    def apply(self, v: Tensor, transpose: bool = False) -> Tensor:
        """The product P v, or Pᵀ v.

        Args:
            v: (B, M, K) or (B, M), of a single problem (M, K) or (M,); transposed with N in the place of M. The plan's dtype.

        Returns:
            (B, N, K) or the like.
        """
        n, m = self._sizes
        columns = self._columns(v, "v", n if transpose else m)
        result = self._product(columns, transpose)
        return self._problem.squeezed(
            result if v.dim() == columns.dim() - self._problem.unbatched else result[..., 0]
        )

    def marginal(self, axis: Axis) -> Tensor:
        """Sums over an axis: 1 gives those of the rows, (B, N), 0 those of the columns, (B, M)."""
        rows_summed = _check_axis(axis) == 1
        ones = self._of.first.new_ones(self._of.first.shape[0], self._sizes[1 if rows_summed else 0], 1)
        return self._problem.squeezed(self._product(ones, not rows_summed)[..., 0])

    def mass(self) -> Tensor:
        """(B,): the sum of all entries."""
        return self.marginal(1).sum(-1)

    def barycentric_map(self, y: Tensor) -> Tensor:
        """Where each row's mass goes on average: (P y) / (P 1), 0 for rows without mass.

        Args:
            y: (B, M, D) values of the columns, of a single problem (M, D).

        Returns:
            (B, N, D).
        """
        mass = self.marginal(1)[..., None]
        return self.apply(y) / mass.where(mass > 0, 1.0)

    def transfer_labels(self, labels: Tensor, num_classes: int | None = None) -> Tensor:
        """What share of each column's mass comes from rows of each label.

        Args:
            labels: (B, N) integers from 0 on, of a single problem (N,).
            num_classes: None: the largest label and 1, which waits for the device.

        Returns:
            (B, M, num_classes); 0 for columns without mass.
        """
        if not isinstance(labels, Tensor):
            raise TypeError(f"labels: expected a torch.Tensor, got {type(labels).__name__}")
        if labels.is_floating_point() or labels.is_complex() or labels.shape != self.shape[:-1]:
            raise ValueError(
                f"labels: expected integers of shape {tuple(self.shape[:-1])}, got {labels.dtype} of shape {shape_of(labels)}"
            )
        classes = -1 if num_classes is None else check_count(num_classes, "num_classes")
        one_hot = torch.nn.functional.one_hot(labels.long(), classes).to(self._of.first.dtype)
        return self.T.barycentric_map(one_hot)

    def topk(self, k: int, axis: Axis = 1) -> PlanTop:
        """The k largest entries of each row (axis 1), or of each column (axis 0); equal ones by index. No gradient."""
        along_rows = _check_axis(axis) == 1
        count, most = check_count(k, "k"), self._sizes[1 if along_rows else 0]
        if count > most:
            raise ValueError(f"k: expected at most {most}, the length of axis {axis}, got {k}")
        with naming_arguments(), torch.no_grad():
            values, indices = plan_ops.topk(
                *self._of, count, self._transposed == along_rows, **self._keywords
            )
        return PlanTop(self._problem.squeezed(values), self._problem.squeezed(indices.long()))

    def argmax(self, axis: Axis = 1) -> Tensor:
        """int64 (B, N): the column of each row's largest entry (axis 1), or (B, M): the row of each column's (axis 0)."""
        return self.topk(1, axis).indices[..., 0]

    def sample(self, count: int, *, seed: int = 0) -> Tensor:
        """Independent pairs (i, j), drawn with probability P[i, j] / sum P. No gradient.

        Args:
            seed: the same seed gives the same pairs, with any number of threads.

        Returns:
            (B, count, 2) int64. A plan without mass gives (−1, −1).
        """
        number = check_count(count, "count")
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise TypeError(f"seed: expected an int, got {type(seed).__name__}")
        if not 0 <= seed < 2**63:
            raise ValueError(f"seed: expected an int from 0 to 2^63 − 1, got {seed}")
        with naming_arguments(), torch.no_grad():
            pairs: Tensor = plan_ops.sample(*self._of, number, seed, **self._keywords)
        pairs = self._problem.squeezed(pairs.long())
        return pairs.flip(-1) if self._transposed else pairs

    def rows(self, index: Tensor | list[int]) -> Tensor:
        """Some rows of the plan, (B, len(index), M)."""
        part = self._of.first.new_empty(0)
        chosen = _check_index(index, self._sizes[0], part)
        if self._transposed:
            return self._problem.squeezed(self._part(None, chosen).transpose(1, 2))
        return self._problem.squeezed(self._part(chosen, None))

    def columns(self, index: Tensor | list[int]) -> Tensor:
        """Some columns of the plan, (B, N, len(index))."""
        return self.T.rows(index).transpose(-1, -2)

    def sparse(self, *, k: int | None = None, threshold: float | None = None) -> Tensor:
        """The largest entries of a single problem's plan as a sparse CSR tensor (N, M), without a gradient.

        Args:
            k: the k largest of each row.
            threshold: those above it. Either k or threshold is given.

        Raises:
            ValueError: the plan is a batch.
        """
        if not self._problem.unbatched:
            raise ValueError(
                f"sparse: expected the plan of one problem (N, M), got shape {tuple(self.shape)}"
            )
        if (k is None) == (threshold is None):
            raise ValueError(
                f"threshold: expected a number or None, the other one than k = {k}, got {threshold}"
            )
        with torch.no_grad():
            rows, columns, values = self._largest(k) if threshold is None else self._above(threshold)
        n, m = self._sizes
        counts = torch.bincount(rows, minlength=n)
        starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        return torch.sparse_csr_tensor(starts, columns, values, (n, m), check_invariants=True)

    def dense(self, dtype: torch.dtype | None = None) -> Tensor:
        """All entries, (B, N, M): the one function that stores them."""
        if dtype is not None and dtype not in DTYPES:
            raise TypeError(f"dtype: expected float64, float32, float16 or bfloat16, got {dtype}")
        with naming_arguments():
            plan = plan_autograd.dense(self._of, self._settings)
        plan = self._problem.squeezed(plan.transpose(1, 2) if self._transposed else plan)
        return plan if dtype is None else plan.to(dtype)

    @property
    def _sizes(self) -> tuple[int, int]:
        n, m = self._of.sizes
        return (m, n) if self._transposed else (n, m)

    @property
    def _potentials(self) -> tuple[Tensor, Tensor]:
        f, g = self._of.f0, self._of.g0
        assert f is not None and g is not None
        return f, g

    @property
    def _keywords(self) -> dict[str, object]:
        return as_keywords(self._settings)

    def _columns(self, v: object, name: str, length: int) -> Tensor:
        """(B, length, K) of the plan's dtype."""
        first, unbatched = self._of.first, self._problem.unbatched
        if not isinstance(v, Tensor):
            raise TypeError(f"{name}: expected a torch.Tensor, got {type(v).__name__}")
        axes = ("(M, K) or (M,)" if unbatched else "(B, M, K) or (B, M)") + f" with M = {length}"
        wide = widened(v)
        if wide.dtype != first.dtype or v.device != first.device:
            raise TypeError(
                f"{name}: expected {first.dtype} on {first.device}, as the plan, got {v.dtype} on {v.device}"
            )
        batched = wide.unsqueeze(0) if unbatched else wide
        if batched.dim() == 2:
            batched = batched.unsqueeze(-1)
        if batched.dim() != 3 or batched.shape[:2] != (first.shape[0], length) or batched.shape[2] == 0:
            raise ValueError(f"{name}: expected {axes}, got shape {shape_of(v)}")
        return batched

    def _product(self, columns: Tensor, transpose: bool) -> Tensor:
        with naming_arguments():
            return plan_autograd.product(columns, self._of, transpose != self._transposed, self._settings)

    def _part(self, rows: Tensor | None, columns: Tensor | None) -> Tensor:
        """(B, rows, columns) of the plan as it was solved; None: all of them."""
        of = self._of
        f, g = self._potentials
        x, y, cost = of.x, of.y, of.cost
        a, is_row = _weights(of.a, of.x_lengths, f)
        b, is_column = _weights(of.b, of.y_lengths, g)
        if rows is not None:
            x = None if x is None else x.index_select(1, rows)
            cost = None if cost is None else cost.index_select(1, rows)
            a, f, is_row = (t.index_select(1, rows) for t in (a, f, is_row))
        if columns is not None:
            y = None if y is None else y.index_select(1, columns)
            cost = None if cost is None else cost.index_select(2, columns)
            b, g, is_column = (t.index_select(1, columns) for t in (b, g, is_column))
        exists = is_row[:, :, None] & is_column[:, None, :]
        # What padding holds counts for nothing, NaN neither.
        x = None if x is None else x.masked_fill(~is_row[:, :, None], 0.0)
        y = None if y is None else y.masked_fill(~is_column[:, :, None], 0.0)
        cost = None if cost is None else cost.masked_fill(~exists, torch.inf)
        # The core wants some weight on each side; a part may have none, and padding counts for nothing.
        part = Inputs(x, y, cost, torch.ones_like(a), torch.ones_like(b), of.epsilons, None, None, f, g)
        with naming_arguments():
            plan = plan_autograd.dense(part, self._settings)
        if self._settings.reference == 0:
            plan = plan * a[:, :, None] * b[:, None, :]
        return plan.masked_fill(~exists, 0.0)

    def _largest(self, k: int | None) -> tuple[Tensor, Tensor, Tensor]:
        assert k is not None
        top = self.topk(k)
        indices, order = top.indices.sort(-1)
        rows = torch.arange(self._sizes[0], device=indices.device).repeat_interleave(top.indices.shape[-1])
        return rows, indices.flatten(), top.values.gather(-1, order).flatten()

    def _above(self, threshold: float) -> tuple[Tensor, Tensor, Tensor]:
        least = check_number(threshold, "threshold")
        n, m = self._sizes
        found = []
        for of_block in row_blocks(1, n, m):
            index = torch.arange(of_block.start, of_block.stop, device=self._of.first.device)
            block = self.rows(index)
            rows, columns = (block > least).nonzero(as_tuple=True)
            found.append((rows + of_block.start, columns, block[rows, columns]))
        rows, columns, values = (torch.cat(parts) for parts in zip(*found, strict=True))
        return rows, columns, values


def _weights(weights: Tensor | None, lengths: Tensor | None, potential: Tensor) -> tuple[Tensor, Tensor]:
    """(B, N) weights, uniform ones too, and which points are no padding."""
    batch, length = potential.shape
    points = torch.arange(length, device=potential.device).expand(batch, -1)
    exists = points < (length if lengths is None else lengths[:, None])
    if weights is None:
        counts = exists.sum(1, keepdim=True).to(potential.dtype)
        return (1 / counts).expand(batch, length), exists
    return weights, exists


def _check_axis(axis: object) -> int:
    if axis not in (0, 1) or isinstance(axis, bool):
        raise ValueError(f"axis: expected 0 or 1, an axis of (N, M), got {axis!r}")
    return int(axis)


def _check_index(index: object, length: int, like: Tensor) -> Tensor:
    """(k,) int64 on the plan's device, from 0 to length - 1."""
    if not isinstance(index, (Tensor, list)):
        raise TypeError(f"index: expected a tensor or list of ints, got {type(index).__name__}")
    chosen = index if isinstance(index, Tensor) else torch.tensor(index, dtype=torch.int64)
    if chosen.dim() != 1 or chosen.dtype.is_floating_point or chosen.dtype in (torch.bool, torch.complex64):
        raise ValueError(f"index: expected ints (k,), got {chosen.dtype} of shape {shape_of(chosen)}")
    if chosen.device.type == "cpu" and chosen.numel():
        low, high = int(chosen.min()), int(chosen.max())
        if low < 0 or high >= length:
            raise ValueError(f"index: expected places from 0 to {length - 1}, got {low if low < 0 else high}")
    if not chosen.numel():
        raise ValueError("index: expected at least one place, got none")
    return chosen.to(like.device, torch.int64)
