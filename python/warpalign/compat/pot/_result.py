"""ot.utils.OTResult: what solve(), solve_sample(), solve_gromov() and their batched forms return."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from warpalign.compat.pot._common import Kind
from warpalign.transport import TransportPlan


class OTResult:
    """Value, plan and potentials; None for what was not computed.

    ``lazy_plan`` is a :class:`warpalign.transport.TransportPlan`, from which the plan and the marginals are made when they are asked
    for. Potentials are logarithms of scaling vectors, as POT's.
    """

    def __init__(
        self,
        kind: Kind,
        *,
        value: Tensor,
        value_linear: Tensor,
        value_quad: Tensor | None = None,
        potentials: tuple[Tensor, Tensor] | None = None,
        lazy_plan: TransportPlan | None = None,
        plan: Tensor | None = None,
        log: dict[str, Any] | None = None,
    ) -> None:
        self._kind = kind
        self._plan = plan
        self.value = kind.out(value)
        self.value_linear = kind.out(value_linear)
        self.value_quad = None if value_quad is None else kind.out(value_quad)
        self.potentials = None if potentials is None else tuple(kind.out(one) for one in potentials)
        self.lazy_plan = lazy_plan
        self.log = log
        self.status = None

    def __repr__(self) -> str:
        return f"OTResult(value={self.value}, value_linear={self.value_linear})"

    @property
    def plan(self) -> Any:
        """(n, m), or (B, n, m)."""
        if self._plan is None:
            return None if self.lazy_plan is None else self._kind.out(self.lazy_plan.to_dense())
        return self._kind.out(self._plan)

    @property
    def sparse_plan(self) -> Any:
        """All entries that are not 0 as a sparse matrix: of SciPy for arrays, else a sparse CSR tensor."""
        if self.lazy_plan is None:
            return None
        if self._kind.is_torch:
            return self.lazy_plan.to_sparse()
        from scipy.sparse import csr_matrix  # POT's own type, not the newer csr_array

        return csr_matrix(self.lazy_plan.to_scipy())

    @property
    def potential_a(self) -> Any:
        return None if self.potentials is None else self.potentials[0]

    @property
    def potential_b(self) -> Any:
        return None if self.potentials is None else self.potentials[1]

    @property
    def marginal_a(self) -> Any:
        return None if self.lazy_plan is None else self._kind.out(self.lazy_plan.marginal(1))

    @property
    def marginal_b(self) -> Any:
        return None if self.lazy_plan is None else self._kind.out(self.lazy_plan.marginal(0))

    @property
    def marginals(self) -> Any:
        return None if self.lazy_plan is None else (self.marginal_a, self.marginal_b)
