"""Optimal transport."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from tests.python.bad_calls import BadCall, BadCalls, Given
from warpalign.transport import SinkhornDivergence, TransportPlan, sinkhorn, sinkhorn_divergence

INTS = "expected ints from 0 on, and −1 where a row has no label"
NAMES = "write pandas.factorize(labels)[0], or give names to transform_labels of SinkhornTransport or GromovTransport"
DTYPES = "dtype float64, float32, float16 or bfloat16"


def made(given: Given, changed: dict[str, Any]) -> dict[str, Any]:
    """Arguments: values, or functions of what is given."""
    return {k: v(given) if isinstance(v, Callable) else v for k, v in changed.items()}  # type: ignore[arg-type]


def bad(
    *, error: type[BaseException] = ValueError, message: str, cpu_only: bool = False, **changed: Any
) -> BadCall:
    """sinkhorn of good arguments but for those named."""

    def call(given: Given) -> object:
        return sinkhorn(**{"x": given.x, "y": given.y, "epsilon": 0.5} | made(given, changed))

    return BadCall(call, error, message, cpu_only)


def of_costs(
    *, error: type[BaseException] = ValueError, message: str, cpu_only: bool = False, **changed: Any
) -> BadCall:
    def call(given: Given) -> object:
        return sinkhorn(**{"cost_matrix": given.cost, "epsilon": 0.5} | made(given, changed))

    return BadCall(call, error, message, cpu_only)


def numbers(*values: float, **options: Any) -> Callable[[Given], torch.Tensor]:
    return lambda given: torch.tensor(values, device=given.device, **options)


def of_plan(
    call: Callable[[TransportPlan, Given], object],
    *,
    error: type[BaseException] = ValueError,
    message: str,
    cpu_only: bool = False,
) -> BadCall:
    """A call on a batch of plans (3, 5, 6)."""
    return BadCall(
        lambda given: call(sinkhorn(given.x, given.y, epsilon=0.5).plan, given), error, message, cpu_only
    )


def of_one_plan(
    call: Callable[[TransportPlan], object], *, error: type[BaseException] = ValueError, message: str
) -> BadCall:
    return BadCall(lambda given: call(sinkhorn(cost_matrix=given.cost[0], epsilon=0.5).plan), error, message)


PLANS: BadCalls = {
    "TransportPlan: applied to names": of_plan(
        lambda plan, given: plan.apply(["a"] * 6),
        error=TypeError,
        message="v: expected a torch.Tensor or an array of numbers, got list",
    ),
    "TransportPlan: applied to another dtype": of_plan(
        lambda plan, given: plan.apply(given.y.double()),
        error=TypeError,
        message="v: expected torch.float32 on DEVICE, as the plan, got torch.float64 on DEVICE: write v.to('DEVICE', torch.float32)",
    ),
    "TransportPlan: applied to rows": of_plan(
        lambda plan, given: plan.apply(given.x),
        message="v: expected (B, M, K) or (B, M) with M = 6, got shape (3, 5, 2)",
    ),
    "TransportPlan: one plan times a batch": of_one_plan(
        lambda plan: plan @ torch.zeros(3, 6, 2, device=plan.f.device),
        message="v: expected (M, K) or (M,) with M = 6, got shape (3, 6, 2)",
    ),
    "TransportPlan: labels of columns": of_plan(
        lambda plan, given: plan.transfer_labels(given.ints(1, 2)),
        message="labels: expected ints of shape (3, 5), one per row, got torch.int64 of shape (2,)",
    ),
    "TransportPlan: no labels": of_one_plan(
        lambda plan: plan.transfer_labels(None),
        error=TypeError,
        message=f"labels: {INTS}, got NoneType: {NAMES}",
    ),
    "TransportPlan: labels that are names": of_one_plan(
        lambda plan: plan.transfer_labels(["b", "a", "b", "b", "a"]),
        error=TypeError,
        message=f"labels: {INTS}, got values of type str: {NAMES}",
    ),
    "TransportPlan: labels with None": of_one_plan(
        lambda plan: plan.transfer_labels([0, 1, None, 0, 1]),
        error=TypeError,
        message=f"labels: {INTS}, got values of type NoneType: {NAMES}",
    ),
    "TransportPlan: labels with NaN": of_one_plan(
        lambda plan: plan.transfer_labels(np.array([0, 1, np.nan, 0, 1])),
        error=TypeError,
        message=f"labels: {INTS}, got values of type float64: {NAMES}",
    ),
    "TransportPlan: labels that are floats": of_one_plan(
        lambda plan: plan.transfer_labels(torch.zeros(5)),
        error=TypeError,
        message=f"labels: {INTS}, got torch.float32: {NAMES}",
    ),
    "TransportPlan: a label below −1": of_one_plan(
        lambda plan: plan.transfer_labels([0, 1, -2, 0, 1]),
        message="labels: expected ints from 0, or −1 where a row has no label, got -2",
    ),
    "TransportPlan: a label beyond the classes": of_one_plan(
        lambda plan: plan.transfer_labels([0, 1, 3, -1, 1], num_classes=3),
        message="labels: expected ints from 0 to 2, or −1 where a row has no label, got 3",
    ),
    "TransportPlan: no row has a label": of_one_plan(
        lambda plan: plan.transfer_labels([-1] * 5),
        message="labels: expected a row that has a label, got −1 for every row: write num_classes= for a result of zeros",
    ),
    "TransportPlan: dimension 2": of_plan(
        lambda plan, given: plan.argmax(2),  # type: ignore[arg-type]
        message="dim: expected 0 or 1, a dimension of (N, M), got 2",
    ),
    "TransportPlan: seven of six": of_plan(
        lambda plan, given: plan.topk(7), message="k: expected at most 6, the length of dimension 1, got 7"
    ),
    "TransportPlan: a number for a generator": of_plan(
        lambda plan, given: plan.sample(3, generator=1.5),  # type: ignore[arg-type]
        error=TypeError,
        message="generator: expected a torch.Generator, an int or None, got float",
    ),
    "TransportPlan: a seed below 0": of_plan(
        lambda plan, given: plan.sample(3, generator=-1),
        message="generator: expected a seed from 0 to 2^63 − 1, got -1",
    ),
    "TransportPlan: sparse plans": of_plan(
        lambda plan, given: plan.to_sparse(k=1),
        message="to_sparse: expected the plan of one problem (N, M), got a batch (3, 5, 6): write plan[k].to_sparse(), or "
        "[one.to_sparse() for one in plan]",
    ),
    "TransportPlan: SciPy's plans": of_plan(
        lambda plan, given: plan.to_scipy(),
        message="to_scipy: expected the plan of one problem (N, M), got a batch (3, 5, 6): write plan[k].to_scipy(), or "
        "[one.to_scipy() for one in plan]",
    ),
    "TransportPlan: sparse by two": of_one_plan(
        lambda plan: plan.to_sparse(k=1, threshold=0.1),
        message="threshold: expected None with k = 1, got 0.1: give one of both",
    ),
    "TransportPlan: no copy": of_one_plan(
        lambda plan: np.asarray(plan, copy=False),
        message="copy: expected None or True, because the plan's entries are computed, got False",
    ),
    "TransportPlan: rows of a batch": of_plan(
        lambda plan, given: plan[:2],
        error=TypeError,
        message="index: expected an int, the number of a problem, for a batch of plans (3, 5, 6), got slice: "
        "write plan.rows(index) for rows of every problem, or plan[k][index] for those of problem k",
    ),
    "TransportPlan: a problem that is not there": of_plan(
        lambda plan, given: plan[3], error=IndexError, message="index: expected places from -3 to 2, got 3"
    ),
    "TransportPlan: an index of three": of_one_plan(
        lambda plan: plan[0, 1, 2],
        error=IndexError,
        message="index: expected at most two, of rows and of columns, got 3: plan.to_dense() takes any index",
    ),
    "TransportPlan: two lists of places": of_one_plan(
        lambda plan: plan[[0, 1], [1, 2]],
        error=TypeError,
        message="index: expected at most one list of places, because two of a tensor are read in pairs, got two: "
        "write plan[rows][:, columns], or plan.to_dense()[rows, columns] for pairs",
    ),
    "TransportPlan: an index that is a name": of_one_plan(
        lambda plan: plan["a"],
        error=TypeError,
        message="index: expected an int, a slice, ints (k,) or a mask, got str",
    ),
    "TransportPlan: a mask of another length": of_one_plan(
        lambda plan: plan[[True, False]],
        error=TypeError,
        message="index: expected an int, a slice, ints (k,) or a mask (5,), got torch.bool of shape (2,)",
    ),
    "TransportPlan: dense integers": of_plan(
        lambda plan, given: plan.to_dense(torch.int32),
        error=TypeError,
        message="dtype: expected float64, float32, float16 or bfloat16, got torch.int32",
    ),
    "TransportPlan: a row by its number": of_plan(
        lambda plan, given: plan.rows(1),  # type: ignore[arg-type]
        error=TypeError,
        message="index: expected a tensor or list of ints, got int",
    ),
    "TransportPlan: rows by floats": of_plan(
        lambda plan, given: plan.rows(torch.zeros(2)),
        message="index: expected ints (k,), got torch.float32 of shape (2,)",
    ),
    "TransportPlan: a row that is not there": of_plan(
        lambda plan, given: plan.rows([1, 5]), message="index: expected places from 0 to 4, got 5"
    ),
    "TransportPlan: no rows": of_plan(
        lambda plan, given: plan.columns([]), message="index: expected at least one place, got none"
    ),
}


class Bad(NamedTuple):
    """An argument that the divergence and its module refuse alike."""

    value: object
    error: type[BaseException]
    message: str


OF_BOTH = {
    "epsilon": Bad(0.0, ValueError, "epsilon: expected a finite number > 0, got 0.0"),
    "rho": Bad(-1.0, ValueError, "rho: expected a finite number >= 0, got -1.0"),
    "debias": Bad(1, TypeError, "debias: expected a bool, got int"),
    "cost": Bad(3, TypeError, "cost: expected a str or a function, got int"),
    "cost_scale": Bad(-1.0, ValueError, "cost_scale: expected a finite number > 0, got -1.0"),
    "cost_normalization": Bad(
        "median", ValueError, 'cost_normalization: expected "max", "mean" or None, got \'median\''
    ),
    "annealing": Bad("1", TypeError, "annealing: expected an Annealing, a number > 0 or None, got str"),
    "updates": Bad(1, ValueError, 'updates: expected "alternating" or "symmetric" or "mixed", got 1'),
    "max_iter": Bad(1.5, TypeError, "max_iter: expected an int, got float"),
    "tol": Bad(-1e-3, ValueError, "tol: expected a finite number >= 0, got -0.001"),
    "reduction": Bad("max", ValueError, 'reduction: expected "none", "mean" or "sum", got \'max\''),
    "storage": Bad("half", ValueError, "storage: expected \"full\" or None, got 'half'"),
    "precision": Bad(1, TypeError, "precision: expected a str or None, got int"),
    "batch_invariant": Bad(None, TypeError, "batch_invariant: expected a bool, got NoneType"),
}


def divergence(
    *, error: type[BaseException] = ValueError, message: str, cpu_only: bool = False, **changed: Any
) -> BadCall:
    def call(given: Given) -> object:
        options: dict[str, Any] = {"x": given.x, "y": given.y, "epsilon": 0.5} | made(given, changed)
        return sinkhorn_divergence(**options)

    return BadCall(call, error, message, cpu_only)


def module(name: str, bad: Bad) -> BadCall:
    options = {"epsilon": 0.5} | {name: bad.value}
    return BadCall(lambda given: SinkhornDivergence(**options), bad.error, bad.message)  # type: ignore[arg-type]


DIVERGENCES: BadCalls = {
    **{
        f"sinkhorn_divergence: {name}": divergence(error=bad.error, message=bad.message, **{name: bad.value})
        for name, bad in OF_BOTH.items()
    },
    **{f"SinkhornDivergence: {name}": module(name, bad) for name, bad in OF_BOTH.items()},
    "sinkhorn_divergence: return_result": divergence(
        return_result=1, error=TypeError, message="return_result: expected a bool, got int"
    ),
    "sinkhorn_divergence: no x": divergence(
        x=None, message="x: expected points, or a cost_matrix in the place of x and y, got None"
    ),
    "sinkhorn_divergence: y of one axis": divergence(
        y=lambda given: given.y[0, :, 0],
        message="y: expected (B, M, D) or (M, D), got shape (6,): write y[:, None] for points of one feature",
    ),
    "sinkhorn_divergence: one set and a batch": divergence(
        y=lambda given: given.y[0],
        message="y: expected as many axes as x, which has shape (3, 5, 2), got shape (6, 2): write y[None] to pair one set of points "
        "with each of x",
    ),
    "sinkhorn_divergence: other features": divergence(
        x=lambda given: torch.zeros(5, 3, device=given.device),
        y=lambda given: given.y[0],
        message="y: expected D = 3 features as in x, got shape (6, 2)",
    ),
    "sinkhorn_divergence: too few weights": divergence(
        a=lambda given: given.x[:, :2, 0],
        message="a: expected shape (5,) or (3, 5), one number per point, got (3, 2)",
    ),
    "sinkhorn_divergence: a weight below 0": divergence(
        b=lambda given: given.y[..., 0] - 1,
        message="b: expected finite weights >= 0, got -1 at index 0",
        cpu_only=True,
    ),
    "sinkhorn_divergence: a length of 0": divergence(
        x_lengths=[0, 1, 1], message="x_lengths: expected lengths from 1 to N = 5, got 0 at index 0"
    ),
    "sinkhorn_divergence: a length of 9": divergence(
        y_lengths=[1, 9, 1], message="y_lengths: expected lengths from 1 to M = 6, got 9 at index 1"
    ),
    "SinkhornDivergence: epsilon of integers": module(
        "epsilon", Bad(torch.tensor(1), TypeError, f"epsilon: expected {DTYPES}, got torch.int64")
    ),
}

CALLS: BadCalls = (
    PLANS
    | DIVERGENCES
    | {
        "sinkhorn: no x": bad(
            x=None, message="x: expected points, or a cost_matrix in the place of x and y, got None"
        ),
        "sinkhorn: no y": bad(
            y=None, message="y: expected points, or a cost_matrix in the place of x and y, got None"
        ),
        "sinkhorn: x beside a matrix": of_costs(
            x=lambda given: given.x, message="x: expected None with a cost_matrix, got Tensor"
        ),
        "sinkhorn: costs beside a matrix": of_costs(
            cost="l1", message="cost: expected none with a cost_matrix, got 'l1'"
        ),
        "sinkhorn: a matrix of one axis": of_costs(
            cost_matrix=numbers(1.0), message="cost_matrix: expected (B, N, M) or (N, M), got shape (1,)"
        ),
        "sinkhorn: features differ": bad(
            y=lambda given: given.y[..., :1],
            message="y: expected D = 2 features as in x, got shape (3, 6, 1)",
        ),
        "sinkhorn: an unknown cost": bad(
            cost="l2",
            message='cost: expected one of "sqeuclidean", "euclidean", "l1", "cosine", "huber", or a function, got \'l2\'',
        ),
        "sinkhorn: a function of another shape": bad(
            cost=lambda given: lambda x, y: x.sum((1, 2)),
            message="cost: expected a function that returns shape (3, 5, 6), torch.float32, on DEVICE, "
            "got shape (3,), torch.float32, on DEVICE",
        ),
        "sinkhorn: a scale of 0": bad(
            cost_scale=0, message="cost_scale: expected a finite number > 0, got 0"
        ),
        "sinkhorn: costs scaled by their median": bad(
            cost_normalization="median",
            message='cost_normalization: expected "max", "mean" or None, got \'median\'',
        ),
        "sinkhorn: scaled cosines": bad(
            cost="cosine",
            cost_normalization="max",
            message="cost_normalization: expected None with cost=\"cosine\", which does not grow with the points, got 'max'",
        ),
        "sinkhorn: an unknown storage": bad(
            storage="float16", message='storage: expected "half", "full" or None, got \'float16\''
        ),
        "sinkhorn: half costs of points": bad(
            storage="half", message='storage: expected "full" or None with points, got "half"'
        ),
        "sinkhorn: stored costs at a lower precision": bad(
            storage="full",
            precision="medium",
            message='precision: expected "highest" or None with storage="full", whose costs have float32\'s accuracy, got \'medium\'',
        ),
        "sinkhorn: stored costs, batch_invariant": bad(
            storage="full",
            batch_invariant=True,
            message='storage: expected None with batch_invariant=True, got "full"',
        ),
        "sinkhorn: stored costs, partial": bad(
            storage="full", mass=0.5, message='storage: expected None with mass, got "full"'
        ),
        "sinkhorn: float64 costs as half": of_costs(
            cost_matrix=lambda given: given.x.double(),
            storage="half",
            error=TypeError,
            message='cost_matrix: expected float32 or a half type with storage="half", got torch.float64',
        ),
        "sinkhorn: epsilon 0": bad(epsilon=0.0, message="epsilon: expected a finite number > 0, got 0.0"),
        "sinkhorn: epsilon a string": bad(
            epsilon="auto", error=TypeError, message="epsilon: expected a float, got str"
        ),
        "sinkhorn: epsilon of integers": bad(
            epsilon=lambda given: given.ints(1, 2, 3),
            error=TypeError,
            message=f"epsilon: expected {DTYPES}, got torch.int64",
        ),
        "sinkhorn: two epsilons for three problems": bad(
            epsilon=numbers(1.0, 2.0), message="epsilon: expected shape () or (3,), one per problem, got (2,)"
        ),
        "sinkhorn: epsilon on another device": bad(
            epsilon=lambda given: torch.ones(3, device="meta"),
            message="epsilon: expected the device of x, DEVICE, got meta",
        ),
        "sinkhorn: an epsilon below 0": bad(
            epsilon=numbers(1.0, -2.0, 1.0),
            message="epsilon: expected finite and > 0, got -2 at index 1",
            cpu_only=True,
        ),
        "sinkhorn: annealing from a number below 0": bad(
            annealing=-1.0, message="annealing: expected a finite number > 0, got -1.0"
        ),
        "sinkhorn: weights in a list of strings": bad(
            a=["0.2"] * 5,
            error=TypeError,
            message="a: expected a torch.Tensor, an array or a list of numbers, or None, got list",
        ),
        "sinkhorn: complex weights": bad(
            b=lambda given: given.ints(*range(6)).to(torch.complex64),
            error=TypeError,
            message=f"b: expected {DTYPES}, got torch.complex64",
        ),
        "sinkhorn: rows that sum to 5": bad(
            a=numbers(1.0, 1.0, 1.0, 1.0, 1.0),
            message="a: expected the sum of b (write a / a.sum(), or give rho_a or rho_b), got 5 at index 0",
            cpu_only=True,
        ),
        "sinkhorn: columns that sum to 6": bad(
            b=lambda given: torch.ones(6, dtype=torch.int64, device=given.device),
            message="b: expected the sum of a (write b / b.sum(), or give rho_a or rho_b), got 6 at index 0",
            cpu_only=True,
        ),
        "sinkhorn: weights of another dtype": bad(
            a=numbers(0.2, 0.2, 0.2, 0.2, 0.2, dtype=torch.float64),
            error=TypeError,
            message="a: expected torch.float32, as x has, got torch.float64: write a.to(x.dtype)",
        ),
        "sinkhorn: too few weights": bad(
            a=numbers(1.0), message="a: expected shape (5,) or (3, 5), one number per point, got (1,)"
        ),
        "sinkhorn: weights on another device": bad(
            b=lambda given: torch.ones(6, device="meta"),
            message="b: expected the device of x, DEVICE, got meta",
        ),
        "sinkhorn: a weight below 0": bad(
            a=numbers(0.5, 0.5, -0.5, 0.25, 0.25),
            message="a: expected finite weights >= 0, got -0.5 at index 0",
            cpu_only=True,
        ),
        "sinkhorn: weights of no mass": bad(
            b=numbers(*[0.0] * 6),
            message="b: expected weights with a sum > 0, got 0 at index 0",
            cpu_only=True,
        ),
        "sinkhorn: a length of 0": bad(
            x_lengths=[1, 0, 5], message="x_lengths: expected lengths from 1 to N = 5, got 0 at index 1"
        ),
        "sinkhorn: a length of 7": bad(
            y_lengths=[1, 7, 5], message="y_lengths: expected lengths from 1 to M = 6, got 7 at index 1"
        ),
        "sinkhorn: rho_a below 0": bad(rho_a=-1.0, message="rho_a: expected a finite number >= 0, got -1.0"),
        "sinkhorn: rho_b beside mass": bad(
            rho_b=1.0, mass=0.5, message="rho_b: expected None with mass, which ties both sides, got 1.0"
        ),
        "sinkhorn: a mass of 0": bad(mass=0, message="mass: expected a finite number > 0, got 0"),
        "sinkhorn: more mass than there is": bad(
            mass=1.5,
            message="mass: expected at most the smaller sum of weights, got 1.5 at index 0",
            cpu_only=True,
        ),
        "sinkhorn: an unknown reference": bad(
            reference="uniform", message='reference: expected "product" or "counting", got \'uniform\''
        ),
        "sinkhorn: unknown updates": bad(
            updates="both", message='updates: expected "alternating" or "symmetric" or "mixed", got \'both\''
        ),
        "sinkhorn: no iterations": bad(max_iter=0, message="max_iter: expected at least 1, got 0"),
        "sinkhorn: a tol below 0": bad(tol=-1.0, message="tol: expected a finite number >= 0, got -1.0"),
        "sinkhorn: an unknown precision": bad(
            precision="low",
            message='precision: expected one of "highest", "high", "medium", or None, got \'low\'',
        ),
        "sinkhorn: batch_invariant a number": bad(
            batch_invariant=1, error=TypeError, message="batch_invariant: expected a bool, got int"
        ),
        "sinkhorn: a start that is a tensor": bad(
            init=lambda given: given.x,
            error=TypeError,
            message="init: expected a SinkhornResult, potentials (f, g) or None, got Tensor",
        ),
        "sinkhorn: half a start": bad(
            init=lambda given: (given.x[..., 0], None),
            error=TypeError,
            message="init: expected both potentials (f, g), got None as one of them",
        ),
        "sinkhorn: a start of other sizes": bad(
            init=lambda given: (given.y[..., 0], given.y[..., 0]),
            message="init: f: expected shape (5,) or (3, 5), one number per point, got (3, 6)",
        ),
        "sinkhorn: a start far beyond epsilon": bad(
            init=lambda given: (given.x[..., 0] + 1e30, given.y[..., 0]),
            message="init: expected absolute values of at most 4.19e+06, which is epsilon / eps of float32, got 1e+30: write init=None, "
            "or a larger epsilon",
            cpu_only=True,
        ),
        "transport operator: no tables": BadCall(
            lambda given: torch.ops.warpalign.sinkhorn(
                None, given.y, None, *[None] * 7, False, False, False, rho_a=1.0, rho_b=1.0
            ),
            RuntimeError,
            "warpalign: x: expected a tensor (B, N, D), or a cost matrix, got neither",
        ),
        "transport operator: x without y": BadCall(
            lambda given: torch.ops.warpalign.sinkhorn(
                given.x, None, None, *[None] * 7, False, False, False, rho_a=1.0, rho_b=1.0
            ),
            RuntimeError,
            "warpalign: y: expected a tensor (B, M, D) with x, got None",
        ),
        "transport operator: x beside costs": BadCall(
            lambda given: torch.ops.warpalign.sinkhorn(
                given.x, None, given.cost, *[None] * 7, False, False, False, rho_a=1.0, rho_b=1.0
            ),
            RuntimeError,
            "warpalign: cost: expected None beside x and y, got a tensor",
        ),
        "transport operator: weights that are not contiguous": BadCall(
            lambda given: torch.ops.warpalign.sinkhorn(
                given.x,
                given.y,
                None,
                given.x[..., 0],
                *[None] * 6,
                False,
                False,
                False,
                rho_a=1.0,
                rho_b=1.0,
            ),
            RuntimeError,
            "warpalign: a: expected a contiguous tensor (3, 5), got shape (3, 5)",
        ),
    }
)
