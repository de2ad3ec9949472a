"""Checks of the arguments that only transport has. Messages name the argument, what was expected and what came.

Values of tensors that lie on a device are not read. On the CPU the core checks weights, epsilons and the mass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from warpalign._core.checks import DTYPES, check_number, check_precision, shape_of
from warpalign._core.series import is_half, widened
from warpalign._transport.convergence import is_known
from warpalign._transport.costs import CostNormalization
from warpalign._transport.settings import Settings, settings_of
from warpalign._transport.settings import check_distance_normalization as check_distance_normalization
from warpalign._transport.settings import check_name as check_name
from warpalign._transport.settings import check_step as check_step
from warpalign._transport.settings import check_strength as check_strength
from warpalign._transport.settings import weight_of_features as weight_of_features

_EQUAL_SUMS = 1e-4  # as the core's: sums may differ by this share
_ROUNDED_SUMS = 2**-6  # the relative difference of sums of half weights that is taken for rounding


def check_normalization(normalization: object) -> CostNormalization | None:
    if normalization not in (None, "max", "mean"):
        raise ValueError(f'cost_normalization: expected "max", "mean" or None, got {normalization!r}')
    return normalization


def check_settings(*, precision: object = None, **settings: Any) -> Settings:
    """As settings_of(), with a precision by name; None: that of torch's own float32 products."""
    return settings_of(precision=check_precision(precision), **settings)


def check_callback(callback: object) -> None:
    if callback is not None and not callable(callback):
        raise TypeError(f"callback: expected a function or None, got {type(callback).__name__}")


def check_epsilon(epsilon: object, table: Tensor, name: str) -> tuple[float, Tensor | None]:
    """The operators' epsilon, and their epsilons, which take its place: (B,), contiguous, of the table's dtype."""
    if not isinstance(epsilon, Tensor):
        return check_number(epsilon, "epsilon", None), None
    if epsilon.dtype not in DTYPES:
        raise TypeError(f"epsilon: expected dtype float64, float32, float16 or bfloat16, got {epsilon.dtype}")
    batch = table.shape[0]
    if epsilon.device != table.device:
        raise ValueError(f"epsilon: expected the device of {name}, {table.device}, got {epsilon.device}")
    if epsilon.shape not in ((), (batch,)):
        raise ValueError(
            f"epsilon: expected shape () or ({batch},), one per problem, got {shape_of(epsilon)}"
        )
    return 1.0, epsilon.to(table.dtype).expand(batch).contiguous()


def check_rows(given: object, name: str, table: Tensor, first: str, length: int) -> Tensor | None:
    """A number per point, as the operators want it: (B, length), contiguous, of the table's dtype.

    Arrays, lists and integers are taken, and floating-point numbers that lose no digits.

    Args:
        table: the problem's points or costs, (B, ...), float64 or float32; first is their name.
    """
    if given is None:
        return None
    if not isinstance(given, Tensor):
        given = _numbers(given, name).to(table.device, table.dtype)
    if given.dtype not in DTYPES and not given.is_complex():  # counts
        given = given.to(table.dtype)
    if given.dtype not in DTYPES:
        raise TypeError(f"{name}: expected dtype float64, float32, float16 or bfloat16, got {given.dtype}")
    if given.device != table.device:
        raise ValueError(f"{name}: expected the device of {first}, {table.device}, got {given.device}")
    rows = widened(given)
    rows = rows.to(torch.promote_types(rows.dtype, table.dtype))
    if rows.dtype != table.dtype:
        raise TypeError(
            f"{name}: expected {table.dtype}, as {first} has, got {given.dtype}: write {name}.to({first}.dtype)"
        )
    batch = table.shape[0]
    if rows.shape not in ((length,), (1, length), (batch, length)):
        raise ValueError(
            f"{name}: expected shape ({length},) or ({batch}, {length}), one number per point, got {shape_of(rows)}"
        )
    return rows.expand(batch, length).contiguous()


def _numbers(given: object, name: str) -> Tensor:
    """Arrays and sequences of real numbers, which have no gradient, as a tensor on the CPU."""
    if hasattr(given, "__array__") or isinstance(given, (list, tuple)):
        import numpy as np  # only for those who bring no tensors

        array = np.asarray(given)
        if array.dtype.kind in "fiub":
            return torch.tensor(array.tolist() if array.dtype.kind == "b" else array)
    raise TypeError(
        f"{name}: expected a torch.Tensor, an array or a list of numbers, or None, got {type(given).__name__}"
    )


def without_padding(weights: Tensor, lengths: Tensor | None) -> Tensor:
    """(B, N) weights, 0 after the true lengths (B,)."""
    if lengths is None:
        return weights
    points = torch.arange(weights.shape[1], device=weights.device)
    return weights.where(points < lengths[:, None], 0.0)


def with_equal_sums(
    given: tuple[object, object],
    weights: tuple[Tensor | None, Tensor | None],
    lengths: tuple[Tensor | None, Tensor | None],
) -> tuple[Tensor | None, Tensor | None]:
    """Weights of balanced transport, of which those that came as a half type sum to what the other side's do.

    A half type rounds sums by up to 2^-9 of their size. Sums that differ by more than 2^-6 are left for the operator to refuse.
    """
    found = list(weights)
    for side in (1, 0):
        source, own, other = given[side], found[side], found[1 - side]
        if own is None or not isinstance(source, Tensor) or not is_half(source):
            continue
        wanted: Tensor | float = 1.0
        if other is not None:
            wanted = without_padding(other, lengths[1 - side]).sum(1)
        ratio = wanted / without_padding(own, lengths[side]).sum(1)
        found[side] = own * ratio.where((ratio - 1).abs() < _ROUNDED_SUMS, 1.0)[:, None]
    return found[0], found[1]


def check_sums(weights: tuple[Tensor | None, Tensor | None]) -> None:
    """Refuses weights (1, N) and (1, M) of balanced transport with other sums, as the core does on a CPU. Waits for a GPU."""
    sums = [1.0 if rows is None else float(rows.sum(dtype=torch.float64)) for rows in weights]
    if not abs(sums[0] - sums[1]) <= _EQUAL_SUMS * max(sums):
        name, other = "ab" if abs(sums[0] - 1) >= abs(sums[1] - 1) else "ba"
        raise ValueError(
            f"{name}: expected the sum of {other} (write {name} / {name}.sum(), or give rho_a or rho_b), got "
            f"{sums['ab'.index(name)]:g} at index 0"
        )


def check_plan(plan: Tensor, name: str) -> None:
    """Refuses a first plan (N, M) or (B, N, M) with entries that no plan has. Reads values on a CPU alone."""
    if not is_known(plan):
        return
    wrong = plan[~((plan >= 0) & plan.isfinite())]
    if wrong.numel() == 0 and bool((plan.sum((-2, -1)) > 0).all()):
        return
    came = f"{float(wrong[0]):g}" if wrong.numel() > 0 else "a sum of 0"
    raise ValueError(f"{name}: expected a plan of finite numbers >= 0 with a positive sum, got {came}")


def check_init(
    init: object, table: Tensor, first: str, sizes: tuple[int, int], epsilon: float | None
) -> tuple[Tensor | None, Tensor | None]:
    """The potentials to start from, without their graph. A result of sinkhorn has them as f and g.

    epsilon: None, where it is not one known number. Beside larger potentials than can be told apart by one epsilon, an iteration
    changes nothing, and looks as if it had converged.
    """
    if init is None:
        return None, None
    if hasattr(init, "f") and hasattr(init, "g"):
        pair: Sequence[object] = (init.f, init.g)
    elif isinstance(init, (tuple, list)) and len(init) == 2:
        pair = init
    else:
        raise TypeError(
            f"init: expected a SinkhornResult, potentials (f, g) or None, got {type(init).__name__}"
        )
    f, g = (
        check_rows(potential, f"init: {name}", table, first, size)
        for potential, name, size in zip(pair, ("f", "g"), sizes, strict=True)
    )
    if f is None or g is None:
        raise TypeError("init: expected both potentials (f, g), got None as one of them")
    start = _start(f), _start(g)
    if epsilon is not None and all(map(is_known, start)):
        largest = max(float(potential.abs().amax()) for potential in start)
        most = epsilon / torch.finfo(table.dtype).eps
        if largest > most:
            kind = str(table.dtype).removeprefix("torch.")
            raise ValueError(
                f"init: expected absolute values of at most {most:.3g}, which is epsilon / eps of {kind}, got {largest:.3g}: write "
                "init=None, or a larger epsilon"
            )
    return start


def _start(potential: Tensor) -> Tensor:
    """Infinite potentials, of points that every cost forbids, start at 0."""
    finite = torch.nan_to_num(potential.detach(), nan=0.0, posinf=0.0, neginf=0.0)
    return finite.contiguous()
