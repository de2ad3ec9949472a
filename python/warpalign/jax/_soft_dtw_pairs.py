"""Pairs of series and matrices of costs, checked, and the operators on them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from warpalign._core.scalars import COSTS, check_number
from warpalign._soft_dtw.settings import Settings
from warpalign.jax._arrays import check_lengths, check_mask, check_numbers, check_pair, unwrapped
from warpalign.jax._call import call, no_derivative
from warpalign.jax._derivatives import Family, Results


class Pairs(NamedTuple):
    x: Array
    """(B, N, D) float64 or float32."""
    y: Array
    """(B, M, D)"""
    gammas: Array | None
    """(B,), in the place of Settings.gamma."""
    x_lengths: Array | None
    """(B,) int32"""
    y_lengths: Array | None
    x_mask: Array | None
    """(B, N) bool"""
    y_mask: Array | None


class Costs(NamedTuple):
    cost: Array
    """(B, N, M) float64 or float32."""
    gammas: Array | None
    x_lengths: Array | None
    y_lengths: Array | None


def _chosen(wanted: tuple[str, ...], **results: Array) -> dict[str, Array]:
    return {name: results[name] for name in wanted}


def _run_pairs(operator: str, settings: Settings, wanted: tuple[str, ...], of: Pairs) -> Results:
    value, x, y, gammas, *alignment = call(
        operator,
        **of._asdict(),
        **settings._asdict(),
        needs_grad_x="x" in wanted,
        needs_grad_y="y" in wanted,
        needs_grad_gamma="gammas" in wanted,
    )
    others = {"alignment": alignment[0]} if alignment else {}
    return Results(value, _chosen(wanted, x=x, y=y, gammas=gammas), others)


def _bend_pairs(
    settings: Settings, wanted: tuple[str, ...], of: Pairs, _: Any, along: dict[str, Array]
) -> dict[str, Array]:
    _, x, y = call(
        "soft_dtw_jvp",
        **of._asdict(),
        **settings._asdict(),
        x_tangent=along.get("x"),
        y_tangent=along.get("y"),
        needs_grad_x="x" in wanted,
        needs_grad_y="y" in wanted,
    )
    return _chosen(wanted, x=x, y=y)


def _refuse(settings: Settings, names: tuple[str, ...], of: Pairs | Costs) -> None:
    if "gammas" in names:
        raise no_derivative("second derivatives of soft-DTW by gamma")
    if of.gammas is None and settings.gamma == 0:
        raise no_derivative("second derivatives of hard DTW (gamma = 0)")


def _of_costs(settings: Settings) -> dict[str, Any]:
    """The settings that operators on costs have."""
    given = settings._asdict()
    del given["cost_kind"]
    return given


def _run_costs(settings: Settings, wanted: tuple[str, ...], of: Costs) -> Results:
    value, cost, gammas = call(
        "soft_dtw_cost",
        **of._asdict(),
        **_of_costs(settings),
        needs_grad="cost" in wanted,
        needs_grad_gamma="gammas" in wanted,
    )
    return Results(value, _chosen(wanted, cost=cost, gammas=gammas), {})


def _bend_costs(
    settings: Settings, wanted: tuple[str, ...], of: Costs, _: Any, along: dict[str, Array]
) -> dict[str, Array]:
    _, cost = call(
        "soft_dtw_cost_jvp",
        **of._asdict(),
        **_of_costs(settings),
        cost_tangent=along["cost"],
        needs_grad="cost" in wanted,
    )
    return _chosen(wanted, cost=cost)


def _of_pairs(operator: str) -> Family:
    run: Callable[..., Results] = partial(_run_pairs, operator)
    return Family(("x", "y", "gammas"), run, _bend_pairs, _refuse)


PAIRS = _of_pairs("soft_dtw")
PAIRS_WITH_ALIGNMENT = _of_pairs("soft_dtw_alignment")
COST_MATRICES = Family(("cost", "gammas"), _run_costs, _bend_costs, _refuse)


def check_cost(cost: object) -> int:
    if cost not in COSTS:
        names = ", ".join(f'"{name}"' for name in COSTS)
        raise ValueError(
            f"cost: expected one of {names}, got {cost!r}: of other costs write soft_dtw_cost(cost_matrix)"
        )
    return COSTS.index(str(cost))


def check_gamma(gamma: object, batch: int, dtype: Any) -> tuple[float, Array | None]:
    """The operators' gamma, and their gammas, which take its place."""
    gamma = unwrapped(gamma)
    if isinstance(gamma, (jax.Array, np.ndarray)):
        return 1.0, check_numbers(gamma, "gamma", batch, dtype)
    return check_number(gamma, "gamma"), None


def problem(
    x: object,
    y: object,
    gamma: object,
    cost: object,
    x_lengths: object,
    y_lengths: object,
    x_mask: object,
    y_mask: object,
    settings: Settings,
) -> tuple[Pairs, Settings, bool]:
    """What the operators take, and whether the series came without a batch axis."""
    kind = check_cost(cost)
    left, right, unbatched = check_pair(x, y)
    batch, n, m = left.shape[0], left.shape[1], right.shape[1]
    number, gammas = check_gamma(gamma, batch, left.dtype)
    of = Pairs(
        left,
        right,
        gammas,
        check_lengths(x_lengths, "x_lengths", batch, n, "N", least=1, unbatched=unbatched, unit="pair"),
        check_lengths(y_lengths, "y_lengths", batch, m, "M", least=1, unbatched=unbatched, unit="pair"),
        check_mask(x_mask, "x_mask", batch, n),
        check_mask(y_mask, "y_mask", batch, m),
    )
    return of, settings._replace(gamma=number, cost_kind=kind), unbatched
