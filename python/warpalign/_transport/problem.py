"""From the public functions' arguments to the operators: checked, broadcast, widened."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from warpalign._core.checks import check_pair, check_table
from warpalign._core.costs import CostFunction, check_cost, without_padding
from warpalign._core.lengths import check_lengths
from warpalign._core.series import widened
from warpalign._core.transforms import replaced
from warpalign._transport.checks import (
    check_epsilon,
    check_init,
    check_normalization,
    check_rows,
    with_equal_sums,
)
from warpalign._transport.costs import DEGREES, CostNormalization, pair_costs, size_of_costs
from warpalign._transport.settings import Inputs, Settings, of_results


class Problem(NamedTuple):
    """A batch of transport problems, ready to be solved."""

    of: Inputs
    settings: Settings
    unbatched: bool
    points: tuple[Tensor, Tensor] | None
    """x and y, where the caller gave points."""
    function: CostFunction | None
    """The caller's own cost of points."""
    divisor: Tensor | None = None
    """(B,): what the costs of `function` are divided by."""

    def with_itself(self, side: int) -> Problem:
        """The same problem between x and x (side 0), or y and y (side 1)."""
        assert self.points is not None
        z = self.points[side]
        weights = (self.of.a, self.of.b)[side]
        lengths = (self.of.x_lengths, self.of.y_lengths)[side]
        tables: tuple[Tensor | None, ...] = (z, z, None)
        if self.function is not None:
            costs = _costs(self.function, (z, z), (lengths, lengths))
            if self.divisor is not None:
                costs = costs / self.divisor[:, None, None]
            tables = (None, None, costs)
        of = Inputs(*tables, weights, weights, self.of.epsilons, lengths, lengths, None, None)  # type: ignore[call-arg]
        return self._replace(of=of, points=(z, z))

    def squeezed(self, tensor: Tensor) -> Tensor:
        """Without the batch axis, where the caller gave none."""
        return tensor.squeeze(0) if self.unbatched else tensor


class _Tables(NamedTuple):
    """x and y, or cost, with the problem's batch."""

    x: Tensor | None
    y: Tensor | None
    cost: Tensor | None
    unbatched: bool
    name: str
    """The argument that the others must fit."""


def _matrix(given: object, half_costs: bool) -> _Tables:
    cost = check_table(given, "cost_matrix", "N, M")
    unbatched = cost.dim() == 2
    if half_costs and cost.dtype == torch.float64:
        raise TypeError('cost_matrix: expected float32 or a half type with storage="half", got torch.float64')
    stays = half_costs and cost.dtype == torch.float16
    costs = cost.unsqueeze(0) if unbatched else cost
    return _Tables(None, None, costs if stays else widened(costs), unbatched, "cost_matrix")


def _points(given_x: object, given_y: object) -> _Tables:
    x, y = check_pair(given_x, given_y, ("x", "y"), series=False)
    unbatched = x.dim() == 2
    if unbatched:
        x, y = x.unsqueeze(0), y.unsqueeze(0)
    batch = y.shape[0] if x.shape[0] == 1 else x.shape[0]
    # Widened before they are repeated: the gradients of shared points are then summed in float32.
    x, y = (t if t.shape[0] == batch else t.expand(batch, -1, -1) for t in (widened(x), widened(y)))
    return _Tables(x, x if given_y is given_x else y, None, unbatched, "x")


def _costs(
    function: CostFunction, points: tuple[Tensor, Tensor], lengths: tuple[Tensor | None, Tensor | None]
) -> Tensor:
    """The costs that the caller's function makes of points."""
    # What padding holds must not come back through the function's derivative either.
    x, y = (without_padding(z, n) for z, n in zip(points, lengths, strict=True))
    return pair_costs(function, x, y)


def _normalized(
    tables: _Tables,
    normalization: CostNormalization,
    cost: object,
    lengths: tuple[Tensor | None, Tensor | None],
) -> tuple[_Tables, Tensor]:
    """Costs divided by their size, or points so that their costs are; and the size (B,)."""
    x, y, costs = tables.x, tables.y, tables.cost
    if costs is not None:
        size = size_of_costs(
            normalization,
            lambda rows: widened(costs[:, rows]),
            (costs.shape[0], costs.shape[1], costs.shape[2]),
            lengths,
        )
        return tables._replace(cost=costs / size[:, None, None]), size
    assert x is not None and y is not None and isinstance(cost, str)
    if cost not in DEGREES:
        raise ValueError(
            f'cost_normalization: expected None with cost="{cost}", which does not grow with the points, got {normalization!r}'
        )
    kind = check_cost(cost)
    left, right = (without_padding(z, n) for z, n in zip((x, y), lengths, strict=True))
    size = size_of_costs(
        normalization,
        lambda rows: pair_costs(kind, left[:, rows], right),
        (x.shape[0], x.shape[1], y.shape[1]),
        lengths,
    )
    factor = (size ** (1 / DEGREES[cost]))[:, None, None]
    scaled = x / factor
    return tables._replace(x=scaled, y=scaled if y is x else y / factor), size


def problem(
    x: object,
    y: object,
    cost_matrix: object,
    *,
    cost: object,
    a: object,
    b: object,
    x_lengths: object,
    y_lengths: object,
    epsilon: object,
    init: object,
    settings: Settings,
    cost_normalization: object = None,
) -> Problem:
    """The problem behind a public function's arguments."""
    kind = check_cost(cost)
    if cost_matrix is None:
        if x is None or y is None:
            missing = "x" if x is None else "y"
            raise ValueError(
                f"{missing}: expected points, or a cost_matrix in the place of x and y, got None"
            )
        tables = _points(x, y)
    else:
        for name, given in (("x", x), ("y", y)):
            if given is not None:
                raise ValueError(f"{name}: expected None with a cost_matrix, got {type(given).__name__}")
        if cost != "sqeuclidean":
            raise ValueError(f"cost: expected none with a cost_matrix, got {cost!r}")
        tables = _matrix(cost_matrix, settings.storage == "half")
    if settings.storage == "half" and tables.cost is None and isinstance(kind, int):
        raise ValueError('storage: expected "full" or None with points, got "half"')
    table = tables.x if tables.cost is None else tables.cost
    other = tables.y if tables.cost is None else tables.cost.transpose(1, 2)
    assert table is not None and other is not None
    table = of_results(table)
    sizes, batch = (table.shape[1], other.shape[1]), table.shape[0]
    n = check_lengths(x_lengths, "x_lengths", "N", table, batch)
    is_one_set = tables.x is not None and tables.y is tables.x
    one_length = is_one_set and y_lengths is x_lengths
    m = n if one_length else check_lengths(y_lengths, "y_lengths", "M", other, batch)
    row_weights = check_rows(a, "a", table, tables.name, sizes[0])
    column_weights = check_rows(b, "b", table, tables.name, sizes[1])
    if settings.is_balanced:
        row_weights, column_weights = with_equal_sums((a, b), (row_weights, column_weights), (n, m))
    if one_length and b is a:
        column_weights = row_weights
    number, epsilons = check_epsilon(epsilon, table, tables.name)
    start = check_init(init, table, tables.name, sizes, number if epsilons is None else None)
    settings = replaced(settings, epsilon=number)
    normalization = check_normalization(cost_normalization)
    divisor = None
    if normalization is not None and isinstance(kind, int):
        tables, _ = _normalized(tables, normalization, cost, (n, m))
    points = None if tables.x is None or tables.y is None else (tables.x, tables.y)
    function = None
    if isinstance(kind, int):
        settings = replaced(settings, cost_kind=kind)
    elif points is not None:
        function = kind
        tables = tables._replace(x=None, y=None, cost=_costs(function, points, (n, m)))
        if normalization is not None:
            tables, divisor = _normalized(tables, normalization, cost, (n, m))
    of = Inputs(tables.x, tables.y, tables.cost, row_weights, column_weights, epsilons, n, m, *start)
    return Problem(of, settings, tables.unbatched, points, function, divisor)
