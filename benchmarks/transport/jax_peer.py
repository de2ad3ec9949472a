"""OTT-JAX at the sizes of the transport table: the gradient of given costs' or points' value, compiled, in float32."""

from __future__ import annotations

import os
import time
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from torch import Tensor

from benchmarks.harness.results import Row, rounded
from benchmarks.transport.sizes import Size

_RUNS = 5


def ott(x: Tensor | None, y: Tensor | None, cost: Tensor | None, epsilon: float, size: Size) -> Row:
    """`ott_ms`: the least of five runs by the clock. Nothing where OTT-JAX or JAX on a GPU is not installed.

    Both use as many iterations in the log domain, without a test of convergence, and products of float32's class.
    """
    if find_spec("ott") is None or find_spec("jax") is None:
        return {}
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # read when JAX is imported
    jax: Any = import_module("jax")
    if jax.default_backend() != "gpu":
        return {}
    sinkhorn: Any = import_module("ott.solvers.linear.sinkhorn")
    linear_problem: Any = import_module("ott.problems.linear.linear_problem")
    geometry: Any = import_module("ott.geometry.geometry")
    pointcloud: Any = import_module("ott.geometry.pointcloud")
    solver = sinkhorn.Sinkhorn(
        lse_mode=True,
        threshold=-1.0,
        min_iterations=size.iterations,
        max_iterations=size.iterations,
        inner_iterations=size.iterations,
        use_danskin=True,
    )

    def value_of(of: Any) -> Any:
        return solver(linear_problem.LinearProblem(of)).reg_ot_cost

    def of_costs(costs: Any) -> Any:
        each = jax.vmap(lambda one: value_of(geometry.Geometry(cost_matrix=one, epsilon=epsilon)))
        return each(costs).sum()

    def between(u: Any, v: Any) -> Any:
        return value_of(pointcloud.PointCloud(u, v, epsilon=epsilon))

    def of_points(u: Any, v: Any) -> Any:
        debias = (between(u, u) + between(v, v)) / 2 if size.divergence else 0.0
        return between(u, v) - debias

    given = (cost,) if cost is not None else (x[0], y[0])  # type: ignore[index]
    arrays = [jax.dlpack.from_dlpack(t.detach().contiguous()) for t in given]
    with jax.default_matmul_precision("highest"):
        run = jax.jit(jax.grad(of_costs if cost is not None else of_points))
        try:
            jax.block_until_ready(run(*arrays))
        except Exception as failure:
            return {"ott_error": str(failure).splitlines()[0][:200]}
    times = []
    for _ in range(_RUNS):
        start = time.perf_counter()
        jax.block_until_ready(run(*arrays))
        times.append(time.perf_counter() - start)
    return {"ott_ms": rounded(1e3 * min(times))}
