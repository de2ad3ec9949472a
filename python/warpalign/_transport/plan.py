"""A transport plan that is not stored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import Tensor

from warpalign._core import optional
from warpalign._core.checks import DTYPES, check_count, check_number, naming_arguments
from warpalign._core.randomness import seed_of
from warpalign._core.transforms import replaced
from warpalign._transport import plan_autograd, plan_ops
from warpalign._transport.costs import row_blocks
from warpalign._transport.labels import check_labels
from warpalign._transport.plan_checks import (
    Places,
    PlanTop,
    check_columns,
    check_copy,
    check_dim,
    check_index,
    check_one,
    check_sparsity,
    compressed_rows,
    from_array,
    place_of_problem,
    places_of,
)
from warpalign._transport.plan_part import part_of
from warpalign._transport.problem import Problem
from warpalign._transport.settings import Inputs, as_keywords

Dim = Literal[0, 1]


class TransportPlan:
    """The plan P of a transport problem, (B, N, M), or (N, M) of a single problem, by its potentials.

    P[i, j] = R[i, j] exp((f[i] + g[j] − C[i, j]) / epsilon). Every function computes the entries again as it needs them;
    only :meth:`to_dense`, ``np.asarray(plan)`` and ``plan[:]`` store N × M numbers. Padding has entries 0. Products, marginals, maps,
    rows, ``plan[...]`` and :meth:`to_dense` are differentiable once with respect to the problem's inputs: implicitly, through the
    potentials. ``dim``
    is 0 or 1, the dimension of (N, M) that is summed over or searched along, whether or not there is a batch.

    A plan behaves as the matrix it stands for:

    | written | stands for |
    | --- | --- |
    | ``plan.shape``, ``len(plan)`` | (N, M) or (B, N, M), and its first number |
    | ``plan.T`` | the transposed plan, (M, N) or (B, M, N), without a copy |
    | ``plan @ y``, ``u @ plan`` | products with tensors or arrays, as :meth:`apply`; a batch multiplies problem by problem |
    | ``plan[rows]``, ``plan[:, columns]`` | entries of a single plan: an int, a slice, ints (k,) or a mask in each place |
    | ``plan[k]``, ``for one in plan`` | of a batch: the plan of problem k, a TransportPlan |
    | ``np.asarray(plan)`` | all entries as an array, detached and on the CPU |

    :func:`warpalign.transport.sinkhorn` and the Gromov-Wasserstein functions return plans; users do not construct them.
    """

    __array_ufunc__ = None  # NumPy leaves array @ plan to __rmatmul__

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
        return torch.Size((n, m) if self._unbatched else (self._like.shape[0], n, m))

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        return (self[k] for k in range(len(self)))

    def __matmul__(self, y: Any) -> Tensor:
        return self.apply(y)

    def __rmatmul__(self, u: Any) -> Tensor:
        rows = u if isinstance(u, Tensor) else from_array(u, "u", self._like)
        if rows.dim() == (1 if self._unbatched else 2):
            return self.apply(rows, transpose=True)
        return self.apply(rows.mT, transpose=True).mT

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        check_copy(copy)
        array = self.to_dense().detach().cpu().numpy()
        return array if dtype is None else array.astype(dtype)

    def __getitem__(self, index: Any) -> Any:
        """Entries of a single plan, as of a tensor (N, M): one index gives rows (k, M), a pair gives rows and columns.

        An index is an int, which drops its dimension, a slice, ints (k,) as a tensor, array or list, or a mask (N,). Negative ints count
        from the end. A pair may have one list of places: with two, write ``plan[rows][:, columns]``. Of a batch, ``plan[k]`` is the
        plan of problem k, a TransportPlan that stores nothing either. Ints on a GPU are not checked.

        Raises:
            IndexError: a place is outside of the plan.
            TypeError: an index is of another type, or a batch is indexed by anything else than an int.
        """
        if not self._unbatched:
            return self._of_problem(place_of_problem(index, tuple(self.shape)))
        rows, columns = places_of(index, self._sizes, self._like.device)
        block = self._block(rows, columns)
        if columns.single:
            block = block.squeeze(1)
        return block.squeeze(0) if rows.single else block

    @property
    def epsilon(self) -> float | Tensor:
        """A number, or (B,) where the problems have their own."""
        epsilons = self._of.epsilons
        return self._settings.epsilon if epsilons is None else self._squeezed(epsilons)

    @property
    def f(self) -> Tensor:
        """Potentials of the rows, (B, N)."""
        return self._squeezed(self._potentials[1 if self._transposed else 0])

    @property
    def g(self) -> Tensor:
        """Potentials of the columns, (B, M)."""
        return self._squeezed(self._potentials[0 if self._transposed else 1])

    @property
    def T(self) -> TransportPlan:
        """The transposed plan, without a copy."""
        f, g = self._potentials
        return TransportPlan(self._problem, f, g, transposed=not self._transposed)

    def apply(self, v: Any, transpose: bool = False) -> Tensor:
        """The product P v, or Pᵀ v; ``plan @ v`` is plan.apply(v).

        Args:
            v: (B, M, K) or (B, M), of a single problem (M, K) or (M,); with transpose N in place of M. A tensor of the plan's
                dtype and device, or an array, which is converted to them.
            transpose: whether the product is Pᵀ v.

        Returns:
            (B, N, K) or the like, differentiable with respect to v, too.
        """
        n, m = self._sizes
        values, columns = check_columns(v, "v", n if transpose else m, self._like, self._unbatched)
        result = self._product(columns, transpose)
        return self._squeezed(result if values.dim() == columns.dim() - self._unbatched else result[..., 0])

    def marginal(self, dim: Dim) -> Tensor:
        """Marginals of the plan: sums over a dimension.

        Args:
            dim: 1 for the row marginals P 1, (B, N), 0 for the column marginals Pᵀ 1, (B, M).
        """
        rows_summed = check_dim(dim) == 1
        ones = self._like.new_ones(self._like.shape[0], self._sizes[1 if rows_summed else 0], 1)
        return self._squeezed(self._product(ones, not rows_summed)[..., 0])

    def mass(self) -> Tensor:
        """(B,): the sum of all entries."""
        return self.marginal(1).sum(-1)

    def barycentric_map(self, y: Any) -> Tensor:
        """The barycentric projection of each row: (P y) / (P 1), 0 for rows without mass.

        Args:
            y: (B, M, D) values of the columns, of a single problem (M, D): a tensor or an array.

        Returns:
            (B, N, D).
        """
        mass = self.marginal(1)[..., None]
        return self.apply(y) / mass.where(mass > 0, 1.0)

    def transfer_labels(self, labels: Any, num_classes: int | None = None) -> Tensor:
        """What share of each column's mass comes from rows of each label.

        Args:
            labels: (B, N) ints from 0 on, of a single problem (N,): a tensor, array or list. −1: the row is unlabelled. Its mass
                belongs to no class, so that the shares of a column may add up to less than 1. Names, None and NaN become such
                ints by ``pandas.factorize(labels)[0]``; the estimators' ``transform_labels`` takes them as they are.
            num_classes: None: the largest label and 1, which waits for the device. On a GPU, labels beyond belong to no class.

        Returns:
            (B, M, num_classes); 0 for columns without mass.
        """
        known, classes = check_labels(labels, num_classes, self.shape[:-1], self._like.device)
        one_hot = known[..., None] == torch.arange(classes, device=known.device)
        return self.T.barycentric_map(one_hot.to(self._like.dtype))

    def topk(self, k: int, dim: Dim = 1) -> PlanTop:
        """The k largest entries of each row or column, in falling order; equal ones by index. No gradient.

        Args:
            k: from 1 to M (dim 1) or N (dim 0).
            dim: 1 to search along each row, 0 along each column.

        Returns:
            PlanTop(values, indices), each (B, N, k), or (B, M, k) with dim 0.
        """
        along_rows = check_dim(dim) == 1
        count, most = check_count(k, "k"), self._sizes[1 if along_rows else 0]
        if count > most:
            raise ValueError(f"k: expected at most {most}, the length of dimension {dim}, got {k}")
        return PlanTop(*map(self._squeezed, self._topk(count, along_rows)))

    def argmax(self, dim: Dim = 1) -> Tensor:
        """Places of the largest entries; the first of equal ones. No gradient.

        Args:
            dim: 1 for the column of each row's largest entry, int64 (B, N); 0 for the row of each column's, (B, M).
        """
        return self.topk(1, dim).indices[..., 0]

    def sample(self, count: int, *, generator: torch.Generator | int | None = None) -> Tensor:
        """Independent pairs (i, j), drawn with probability P[i, j] / sum P. No gradient.

        Args:
            count: how many pairs, at least 1.
            generator: a torch.Generator on the CPU, which advances, or an int, a seed from 0 to 2^63 − 1. None: torch's default
                generator. A seed gives the same pairs with any number of threads.

        Returns:
            (B, count, 2) int64. A plan without mass gives (−1, −1).
        """
        number = check_count(count, "count")
        seed = seed_of(generator)
        pairs = self._squeezed(self._sample(number, seed))
        return pairs.flip(-1) if self._transposed else pairs

    def rows(self, index: Tensor | list[int]) -> Tensor:
        """Some rows of the plan, (B, k, M).

        Args:
            index: (k,) ints from 0 to N − 1, a tensor or a list, at least one.
        """
        chosen = check_index(index, self._sizes[0], self._like.device)
        if self._transposed:
            return self._squeezed(self._part(None, chosen).transpose(1, 2))
        return self._squeezed(self._part(chosen, None))

    def columns(self, index: Tensor | list[int]) -> Tensor:
        """Some columns of the plan, (B, N, k).

        Args:
            index: (k,) ints from 0 to M − 1, a tensor or a list, at least one.
        """
        return self.T.rows(index).transpose(-1, -2)

    def to_dense(self, dtype: torch.dtype | None = None) -> Tensor:
        """All entries as a tensor (B, N, M).

        Args:
            dtype: float64, float32, float16 or bfloat16. None: the plan's dtype.
        """
        if dtype is not None and dtype not in DTYPES:
            raise TypeError(f"dtype: expected float64, float32, float16 or bfloat16, got {dtype}")
        plan = self._dense()
        plan = self._squeezed(plan.transpose(1, 2) if self._transposed else plan)
        return plan if dtype is None else plan.to(dtype)

    def to_sparse(self, *, k: int | None = None, threshold: float | None = None) -> Tensor:
        """The largest entries of a single plan as a sparse CSR tensor (N, M), without a gradient.

        Args:
            k: an int from 1 to M: the k largest entries of each row are kept. None: any number of them.
            threshold: a number >= 0: entries above it are kept. Without k and threshold: all entries that are not 0.

        Raises:
            ValueError: the plan is a batch (write plan[k].to_sparse() for one of its problems), or both k and threshold are given.
        """
        check_one("to_sparse", self._unbatched, tuple(self.shape))
        return compressed_rows(*self._entries(k, threshold), self._sizes)

    def to_scipy(self, *, k: int | None = None, threshold: float | None = None) -> Any:
        """The largest entries of a single plan as a ``scipy.sparse.csr_array`` (N, M) on the CPU. It needs SciPy.

        AnnData writes SciPy's matrices to .h5ad, and does not write sparse tensors: ``adata.obsp["plan"] = plan.to_scipy(k=10)``.

        Args:
            k: an int from 1 to M: the k largest entries of each row are kept. None: any number of them.
            threshold: a number >= 0: entries above it are kept. Without k and threshold: all entries that are not 0.

        Raises:
            ValueError: as in :meth:`to_sparse`.
        """
        check_one("to_scipy", self._unbatched, tuple(self.shape))
        optional.load("scipy", "TransportPlan.to_scipy", "cluster")
        from scipy.sparse import csr_array

        sparse = self.to_sparse(k=k, threshold=threshold)
        parts = (sparse.values(), sparse.col_indices(), sparse.crow_indices())
        return csr_array(tuple(part.cpu().numpy() for part in parts), shape=self._sizes)

    @property
    def _like(self) -> Tensor:
        """A tensor (B, ...) of the plan's dtype and device."""
        return self._of.first

    @property
    def _unbatched(self) -> bool:
        return self._problem.unbatched

    def _squeezed(self, tensor: Tensor) -> Tensor:
        """Without the batch axis, where the caller gave none."""
        return tensor.squeeze(0) if self._unbatched else tensor

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

    def _product(self, columns: Tensor, transpose: bool) -> Tensor:
        with naming_arguments():
            return plan_autograd.product(columns, self._of, transpose != self._transposed, self._settings)

    def _of_problem(self, k: int) -> TransportPlan:
        """The plan of one problem of a batch."""
        of = Inputs(*(None if t is None else t[k : k + 1] for t in self._of))
        f, g = (t[k : k + 1] for t in self._potentials)
        problem = self._problem._replace(of=of, unbatched=True, points=None)
        return TransportPlan(problem, f, g, transposed=self._transposed)

    def _topk(self, count: int, along_rows: bool) -> tuple[Tensor, Tensor]:
        """Values and int64 indices (B, N, count), or (B, M, count) along columns."""
        with naming_arguments(), torch.no_grad():
            values, indices = plan_ops.topk(
                *self._of, count, self._transposed == along_rows, **self._keywords
            )
        return values, indices.long()

    def _sample(self, count: int, seed: int) -> Tensor:
        """(B, count, 2) int64 pairs of the plan as it was solved."""
        with naming_arguments(), torch.no_grad():
            pairs: Tensor = plan_ops.sample(*self._of, count, seed, **self._keywords)
        return pairs.long()

    def _dense(self) -> Tensor:
        """(B, N, M) of the plan as it was solved."""
        with naming_arguments():
            return plan_autograd.dense(self._of, self._settings)

    def _block(self, rows: Places, columns: Places) -> Tensor:
        """(k, l) entries of a single plan."""
        if 0 in (rows.length, columns.length):
            return self._like.new_empty(rows.length, columns.length)
        if rows.at is None and columns.at is None:
            return self.to_dense()
        if self._transposed:
            return self._part(columns.at, rows.at)[0].T
        return self._part(rows.at, columns.at)[0]

    def _part(self, rows: Tensor | None, columns: Tensor | None) -> Tensor:
        """(B, rows, columns) of the plan as it was solved; None: all of them."""
        return part_of(self._of, self._settings, rows, columns)

    @torch.no_grad()
    def _entries(self, k: int | None, threshold: float | None) -> tuple[Tensor, Tensor, Tensor]:
        """Rows, columns and values of the largest entries, row by row, in rising order of the columns."""
        check_sparsity(k, threshold)
        return self._above(0.0 if threshold is None else threshold) if k is None else self._largest(k)

    def _largest(self, k: int) -> tuple[Tensor, Tensor, Tensor]:
        top = self.topk(k)
        indices, order = top.indices.sort(-1)
        rows = torch.arange(self._sizes[0], device=indices.device).repeat_interleave(top.indices.shape[-1])
        return rows, indices.flatten(), top.values.gather(-1, order).flatten()

    def _above(self, threshold: float) -> tuple[Tensor, Tensor, Tensor]:
        least = check_number(threshold, "threshold")
        n, m = self._sizes
        found = []
        for of_block in row_blocks(1, n, m):
            index = torch.arange(of_block.start, of_block.stop, device=self._like.device)
            block = self.rows(index)
            rows, columns = (~(block <= least)).nonzero(as_tuple=True)  # NaN stays
            found.append((rows + of_block.start, columns, block[rows, columns]))
        rows, columns, values = (torch.cat(parts) for parts in zip(*found, strict=True))
        return rows, columns, values
