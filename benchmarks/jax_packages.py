"""warpalign.jax beside optax, OTT-JAX and recursions by jax.lax.scan: one jitted value_and_grad on the default device.

    PYTHONPATH=python python -m benchmarks.jax_packages [--runs 10] [--out FILE.json]

Both sides of a row compute the same loss: values are compared, and so are gradients. Sinkhorn runs the same number of iterations.
Needs JAX; optax and ott-jax for their rows, which are left out without them, and said to be.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

import warpalign.jax as wj
from benchmarks.harness.results import current_commit, rounded, today, write_rows


class Row(NamedTuple):
    job: str
    package: str
    own: Callable[..., Array]
    """A loss of the first array."""
    other: Callable[..., Array]
    arrays: tuple[Array, ...]


def scan_soft_dtw(x: Array, y: Array, gamma: float) -> Array:
    """The sum of soft-DTW values (B,), a scan over anti-diagonals: the costs are skewed, and all pairs go along together."""
    cost = ((x[:, :, None] - y[:, None]) ** 2).sum(-1)
    batch, n, m = cost.shape
    skewed = jnp.full((batch, n, n + m - 1), jnp.inf, cost.dtype)
    rows = jnp.arange(n)
    skewed = skewed.at[:, rows[:, None], rows[:, None] + jnp.arange(m)].set(cost)

    def step(before: tuple[Array, Array], diagonal: Array) -> tuple[tuple[Array, Array], None]:
        last, second = before
        up = jnp.pad(last[:, :-1], ((0, 0), (1, 0)), constant_values=jnp.inf)
        both = jnp.pad(second[:, :-1], ((0, 0), (1, 0)), constant_values=jnp.inf)
        least = jnp.minimum(jnp.minimum(last, up), both)
        safe = jnp.where(jnp.isfinite(least), least, 0)
        total = sum(jnp.exp((safe - one) / gamma) for one in (last, up, both))
        soft = safe - gamma * jnp.log(jnp.where(total > 0, total, 1))
        now = jnp.where(jnp.isfinite(least) & jnp.isfinite(diagonal), diagonal + soft, jnp.inf)
        return (now, last), None

    nothing = jnp.full((batch, n), jnp.inf, cost.dtype)
    first = nothing.at[:, 0].set(cost[:, 0, 0])
    rest = jnp.moveaxis(skewed, 2, 0)[1:]
    (last, _), _ = jax.lax.scan(step, (first, nothing), rest)
    return last[:, n - 1].sum()


def scan_rnnt(logits: Array, labels: Array) -> Array:
    """The sum of RNN-T losses, blank first, a scan over anti-diagonals of the lattice."""
    batch, frames, states, _ = logits.shape
    scores = jax.nn.log_softmax(logits)
    blank = scores[..., 0]
    label = jnp.take_along_axis(scores[:, :, :-1], labels[:, None, :, None], 3)[..., 0]
    places = jnp.arange(frames)[:, None] + jnp.arange(states)

    def skewed(table: Array) -> Array:
        """(frames + states, B, states): a diagonal's arcs that leave its nodes."""
        wide = jnp.full((batch, frames + states, states), -1e30, table.dtype)
        columns = jnp.broadcast_to(jnp.arange(table.shape[2]), (frames, table.shape[2]))
        return jnp.moveaxis(wide.at[:, places[:, : table.shape[2]], columns].set(table), 1, 0)

    def step(alpha: Array, arcs: tuple[Array, Array]) -> tuple[Array, Array]:
        by_blank, by_label = alpha + arcs[0], alpha + arcs[1]
        shifted = jnp.pad(by_label[:, :-1], ((0, 0), (1, 0)), constant_values=-1e30)
        return jnp.logaddexp(by_blank, shifted), by_blank[:, states - 1]

    start = jnp.full((batch, states), -1e30, logits.dtype).at[:, 0].set(0)
    _, ends = jax.lax.scan(step, start, (skewed(blank), skewed(label)))
    return -ends[frames + states - 2].sum()


def soft_dtw_rows(key: Array) -> Iterator[Row]:
    for batch, length, features in ((64, 128, 4), (64, 512, 16)):
        x, y = jax.random.normal(key, (2, batch, length, features))
        yield Row(
            f"soft-DTW {batch} × {length} × {length}, D = {features}",
            "lax.scan",
            lambda x, y: wj.soft_dtw(x, y, gamma=1.0).sum(),
            partial(scan_soft_dtw, gamma=1.0),
            (x, y),
        )


def rnnt_rows(key: Array) -> Iterator[Row]:
    for batch, frames, labels, columns in ((8, 150, 40, 128), (8, 300, 80, 512)):
        logits = jax.random.normal(key, (batch, frames, labels + 1, columns))
        targets = jax.random.randint(key, (batch, labels), 1, columns)
        yield Row(
            f"RNN-T {batch} × {frames} × {labels + 1} × {columns}",
            "lax.scan",
            lambda logits, targets: wj.transducer_loss(logits, targets, blank=0, reduction="sum"),
            scan_rnnt,
            (logits, targets),
        )


def ctc_rows(key: Array) -> Iterator[Row]:
    if find_spec("optax") is None:
        print("left out: optax is not installed")
        return
    import optax

    for batch, frames, labels, classes in ((16, 200, 40, 32), (32, 800, 120, 128)):
        logits = jax.random.normal(key, (batch, frames, classes))
        targets = jax.random.randint(key, (batch, labels), 1, classes)
        paddings = jnp.zeros((batch, frames)), jnp.zeros((batch, labels))
        yield Row(
            f"CTC {batch} × {frames} × {classes}, U = {labels}",
            f"optax {version('optax')}",
            lambda logits, targets, *_: wj.ctc_loss(logits, targets, reduction="sum"),
            lambda logits, targets, a, b: optax.ctc_loss(logits, a, targets, b).sum(),
            (logits, targets, *paddings),
        )


def sinkhorn_rows(key: Array) -> Iterator[Row]:
    if find_spec("ott") is None:
        print("left out: ott-jax is not installed")
        return
    from ott.geometry import pointcloud
    from ott.problems.linear import linear_problem
    from ott.solvers.linear import sinkhorn

    iterations, epsilon = 100, 0.1
    solver = sinkhorn.Sinkhorn(threshold=-1.0, min_iterations=iterations, max_iterations=iterations)
    for points, features in ((500, 3), (4000, 3), (4000, 64)):
        x, y = jax.random.uniform(key, (2, points, features)) / features**0.5

        def of_ott(x: Array, y: Array) -> Array:
            cloud = pointcloud.PointCloud(x, y, epsilon=epsilon)
            value: Any = solver(linear_problem.LinearProblem(cloud)).reg_ot_cost
            return jnp.asarray(value)

        yield Row(
            f"Sinkhorn {points} × {points}, D = {features}, {iterations} iterations",
            f"OTT-JAX {version('ott-jax')}",
            lambda x, y: wj.sinkhorn(x, y, epsilon=epsilon, max_iter=iterations, tol=0).value,
            of_ott,
            (x, y),
        )


def measured(loss: Callable[..., Array], arrays: tuple[Array, ...], runs: int) -> tuple[float, Any]:
    """The median time of a call in ms, and (value, gradient)."""
    function = jax.jit(jax.value_and_grad(loss))
    result = jax.block_until_ready(function(*arrays))
    times = []
    for _ in range(runs):
        begin = time.perf_counter()
        jax.block_until_ready(function(*arrays))
        times.append(1e3 * (time.perf_counter() - begin))
    return sorted(times)[runs // 2], result


def error(found: Array, wanted: Array) -> float:
    """Relative, in the L2 norm."""
    return float(jnp.linalg.norm((found - wanted).ravel()) / jnp.linalg.norm(wanted.ravel()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--commit", default=None, help="name of the commit, where there is no git checkout")
    given = parser.parse_args()
    key = jax.random.key(0)
    rows = [*soft_dtw_rows(key), *rnnt_rows(key), *ctc_rows(key), *sinkhorn_rows(key)]
    device = jax.devices()[0].device_kind
    results = []
    print(f"{device}, JAX {jax.__version__}")
    print(
        "| job | baseline | warpalign.jax, ms | baseline, ms | speed-up | value | gradient |\n"
        + "| --- " * 7
        + "|"
    )
    for row in rows:
        own, (value, gradient) = measured(row.own, row.arrays, given.runs)
        other, (same_value, same_gradient) = measured(row.other, row.arrays, given.runs)
        apart = error(value, same_value), error(gradient, same_gradient)
        results.append(
            {
                **{"op": "jax-packages", "job": row.job, "device": device, "dtype": "float32"},
                **{"other": row.package, "ms": rounded(own), "other_ms": rounded(other)},
                **{"value_difference": rounded(apart[0]), "gradient_difference": rounded(apart[1])},
                **{"jax": jax.__version__, "commit": given.commit or current_commit(), "date": today()},
            }
        )
        print(
            f"| {row.job} | {row.package} | {own:.3f} | {other:.3f} | {other / own:.1f} × | {apart[0]:.0e} | {apart[1]:.0e} |",
            flush=True,
        )
    if given.out:
        write_rows(results, given.out)


if __name__ == "__main__":
    main()
