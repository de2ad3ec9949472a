"""A transport plan of low rank, by its factors."""

from __future__ import annotations

from typing import NoReturn

import torch
from torch import Tensor

from warpalign._transport.costs import row_blocks
from warpalign._transport.plan import TransportPlan


class LowRankPlan(TransportPlan):
    """A plan P = Q diag(1 / w) Rᵀ with Q (N, r), R (M, r) and weights w (r,) of its r components, none of them negative.

    It behaves as a :class:`TransportPlan`: products, marginals, maps, rows, entries and samples take memory linear in N + M. Functions
    that search entries (``topk``, ``argmax``, ``to_sparse``) compute them block by block, in N · M · r operations. The plan has no
    potentials. Products are differentiable with respect to what is multiplied; the plan itself has no gradient, and backward to the
    problem's inputs raises NotImplementedError.

    :func:`warpalign.transport.sinkhorn_low_rank` and :func:`warpalign.transport.gromov_wasserstein_low_rank` return such plans; users do
    not construct them.
    """

    def __init__(
        self,
        q: Tensor,
        r: Tensor,
        weights: Tensor,
        *,
        epsilon: float,
        unbatched: bool,
        transposed: bool = False,
    ) -> None:
        # Q and R as they were solved, (B, N, r) and (B, M, r); weights (B, r).
        self._q, self._r, self._component_weights = q, r, weights
        self._epsilon, self._is_unbatched, self._transposed = epsilon, unbatched, transposed

    def __repr__(self) -> str:
        return f"LowRankPlan(shape={tuple(self.shape)}, rank={self.rank})"

    @property
    def rank(self) -> int:
        return self._q.shape[2]

    @property
    def q(self) -> Tensor:
        """Q (B, N, r): how much of each row's mass each component takes."""
        return self._squeezed(self._r if self._transposed else self._q)

    @property
    def r(self) -> Tensor:
        """R (B, M, r): how much of each column's mass each component takes."""
        return self._squeezed(self._q if self._transposed else self._r)

    @property
    def weights(self) -> Tensor:
        """w (B, r): the mass of each component."""
        return self._squeezed(self._component_weights)

    @property
    def epsilon(self) -> float | Tensor:
        """The strength of the factors' entropies; 0: none."""
        return self._epsilon

    @property
    def f(self) -> NoReturn:
        """A plan of low rank has no potentials: reading them raises AttributeError."""
        raise AttributeError("f: a plan of low rank has no potentials, but factors: q, r and weights")

    @property
    def g(self) -> NoReturn:
        """A plan of low rank has no potentials: reading them raises AttributeError."""
        raise AttributeError("g: a plan of low rank has no potentials, but factors: q, r and weights")

    @property
    def T(self) -> LowRankPlan:
        """The transposed plan, without a copy."""
        return self._with(self._q, self._r, self._component_weights, self._is_unbatched, not self._transposed)

    @property
    def _like(self) -> Tensor:
        return self._q

    @property
    def _unbatched(self) -> bool:
        return self._is_unbatched

    @property
    def _sizes(self) -> tuple[int, int]:
        n, m = self._q.shape[1], self._r.shape[1]
        return (m, n) if self._transposed else (n, m)

    def _with(self, q: Tensor, r: Tensor, weights: Tensor, unbatched: bool, transposed: bool) -> LowRankPlan:
        return LowRankPlan(q, r, weights, epsilon=self._epsilon, unbatched=unbatched, transposed=transposed)

    def _of_problem(self, k: int) -> LowRankPlan:
        q, r, weights = (t[k : k + 1] for t in (self._q, self._r, self._component_weights))
        return self._with(q, r, weights, True, self._transposed)

    def _product(self, columns: Tensor, transpose: bool) -> Tensor:
        left, right = (self._r, self._q) if transpose != self._transposed else (self._q, self._r)
        return left @ ((right.mT @ columns) / self._component_weights[:, :, None])

    def _dense(self) -> Tensor:
        return self._part(None, None)

    def _part(self, rows: Tensor | None, columns: Tensor | None) -> Tensor:
        q = self._q if rows is None else self._q.index_select(1, rows)
        r = self._r if columns is None else self._r.index_select(1, columns)
        return q @ (r / self._component_weights[:, None, :]).mT

    @torch.no_grad()
    def _topk(self, count: int, along_rows: bool) -> tuple[Tensor, Tensor]:
        plan = self if along_rows else self.T
        batch, (n, m) = self._q.shape[0], plan._sizes
        values, indices = [], []
        for of_block in row_blocks(batch, n, m):
            places = torch.arange(of_block.start, of_block.stop, device=self._q.device)
            block = plan._part(None, places).mT if plan._transposed else plan._part(places, None)
            if count == 1:
                at = block.argmax(-1, keepdim=True)  # the first of equal ones
                values.append(block.gather(-1, at))
            else:
                block, at = block.sort(stable=True, dim=-1, descending=True)
                values.append(block[..., :count])
            indices.append(at[..., :count])
        return torch.cat(values, 1), torch.cat(indices, 1)

    @torch.no_grad()
    def _sample(self, count: int, seed: int) -> Tensor:
        """A component by its mass, then a row and a column of it, independently."""
        generator = torch.Generator().manual_seed(seed)
        batch, rank = self._component_weights.shape
        draws = torch.rand(3, batch, count, generator=generator, dtype=torch.float64).to(self._q.device)
        q, r, weights = (t.double() for t in (self._q, self._r, self._component_weights))
        masses = q.sum(1) * r.sum(1) / weights
        of_components = masses.cumsum(-1)
        component = torch.searchsorted(of_components, draws[0] * of_components[:, -1:], right=True)
        component = component.clamp(max=rank - 1)
        pairs = torch.stack([_drawn(side, component, u) for side, u in ((q, draws[1]), (r, draws[2]))], -1)
        return torch.where(of_components[:, -1, None, None] > 0, pairs, -1)


def _drawn(factor: Tensor, component: Tensor, u: Tensor) -> Tensor:
    """(B, count) int64: a point of each draw's component, by the factor (B, N, r) and u (B, count) from [0, 1).

    One search serves all components: sums along the points of component k, divided by their last one, lie in (k, k + 1].
    """
    batch, n, rank = factor.shape
    sums = factor.mT.cumsum(-1)
    shares = sums / sums[..., -1:].where(sums[..., -1:] > 0, 1.0)
    steps = (shares + torch.arange(rank, device=factor.device)[:, None]).reshape(batch, rank * n)
    found = torch.searchsorted(steps, component + u, right=True)
    return (found - component * n).clamp(0, n - 1)
