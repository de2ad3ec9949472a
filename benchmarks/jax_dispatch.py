"""Whether calls of warpalign.jax return before earlier work of their device has ended, and the time of a step.

    PYTHONPATH=python python -m benchmarks.jax_dispatch [--torch] [--out FILE.json]

Behind products of matrices that keep the device busy, each jitted step is called once, under jax.transfer_guard("disallow"): a call that
waited for the device, or copied something to the host, would return when the products have ended, or raise. On a CPU JAX runs calls as
they come. --torch: soft-DTW of PyTorch tensors runs in the same process before.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

import warpalign.jax as wj
from benchmarks.harness.results import current_commit, rounded, today, write_rows

RUNS = 10
TRANSPORT: dict[str, Any] = {"epsilon": 0.5, "max_iter": 50, "tol": 0.0}


def normal(*shape: int) -> Array:
    return jax.random.normal(jax.random.fold_in(jax.random.key(0), sum(shape)), shape)


def steps() -> dict[str, tuple[Callable[[Array], Any], Array]]:
    """Functions of an array, and the array."""
    y, others = normal(64, 120, 4), normal(4, 280, 3)
    labels, few = jnp.ones((16, 40), jnp.int32), jnp.ones((4, 20), jnp.int32)
    lengths = jnp.full((16,), 150, jnp.int32)
    encoder, predictor = normal(4, 60, 128), normal(4, 21, 128)

    def from_joint(weight: Any) -> Array:
        return wj.transducer_loss_from_joint(encoder, predictor, few, wj.JointWeights(weight))

    def curvature(x: Array) -> Any:
        return jax.jvp(jax.grad(lambda z: wj.soft_dtw(z, y, gamma=0.1).sum()), (x,), (x,))[1]

    losses: dict[str, tuple[Callable[[Array], Any], Array]] = {
        "soft_dtw": (lambda x: wj.soft_dtw(x, y, gamma=0.1).sum(), normal(64, 128, 4)),
        "dtw_path": (lambda x: wj.dtw_path(x, y).value.sum(), normal(64, 128, 4)),
        "cdist_soft_dtw": (
            lambda x: wj.cdist_soft_dtw(x, gamma=0.1, block_size=1024).sum(),
            normal(60, 60, 2),
        ),
        "ctc_loss": (lambda z: wj.ctc_loss(z, labels, lengths), normal(16, 200, 32)),
        "transducer_loss": (lambda z: wj.transducer_loss(z, few), normal(4, 60, 21, 64)),
        "transducer_loss_from_joint": (from_joint, normal(64, 128)),
        "sinkhorn": (lambda z: wj.sinkhorn(z, others, **TRANSPORT).value.sum(), normal(4, 300, 3)),
        "sinkhorn, linear part": (
            lambda z: wj.sinkhorn(z, others, **TRANSPORT).linear.sum(),
            normal(4, 300, 3),
        ),
        "sinkhorn_divergence": (
            lambda z: wj.sinkhorn_divergence(z, others, **TRANSPORT).sum(),
            normal(4, 300, 3),
        ),
        "gromov_wasserstein": (
            lambda z: wj.gromov_wasserstein(z, others, epsilon=0.05).value.sum(),
            normal(4, 300, 3),
        ),
    }
    gradients: dict[str, tuple[Callable[[Array], Any], Array]] = {
        name: (jax.value_and_grad(loss), array) for name, (loss, array) in losses.items()
    }
    return gradients | {"soft_dtw, Hessian times vector": (curvature, losses["soft_dtw"][1])}


def milliseconds(call: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - begin)


def run_torch() -> None:
    import torch

    import warpalign

    device = "cuda" if torch.cuda.is_available() else "cpu"
    x = torch.randn(4, 50, 3, device=device, requires_grad=True)
    warpalign.soft_dtw(x, torch.randn(4, 60, 3, device=device), gamma=0.1).sum().backward()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torch", action="store_true")
    parser.add_argument("--size", type=int, default=8192, help="of the matrices of the earlier work")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.torch:
        run_torch()
    table = jnp.ones((given.size, given.size))
    product = jax.jit(
        lambda a: jax.lax.fori_loop(0, 40, lambda _, m: jnp.matmul(m, a, precision="highest") * 1e-4, a)
    )
    jax.block_until_ready(product(table))
    earlier = milliseconds(lambda: jax.block_until_ready(product(table)))
    device = jax.devices()[0].device_kind
    print(f"{device}, JAX {jax.__version__}; earlier work: {earlier:.0f} ms")
    print(
        "| step | ms | the call returns after, ms | the work ends after, ms |\n| --- | ---: | ---: | ---: |"
    )
    rows = []
    for name, (function, array) in steps().items():
        step = jax.jit(function)
        jax.block_until_ready(step(array))
        alone = sorted(milliseconds(lambda: jax.block_until_ready(step(array))) for _ in range(RUNS))  # noqa: B023
        with jax.transfer_guard("disallow"):
            pending = product(table)
            begin = time.perf_counter()
            result = step(array)
            returns = 1e3 * (time.perf_counter() - begin)
            jax.block_until_ready((pending, result))
            ends = 1e3 * (time.perf_counter() - begin)
        print(f"| {name} | {alone[RUNS // 2]:.3f} | {returns:.2f} | {ends:.1f} |", flush=True)
        rows.append(
            {
                **{
                    "op": "jax-dispatch",
                    "step": name,
                    "device": device,
                    "dtype": "float32",
                    "torch": given.torch,
                },
                **{"ms": rounded(alone[RUNS // 2]), "returns_ms": rounded(returns), "ends_ms": rounded(ends)},
                **{"earlier_ms": rounded(earlier), "jax": jax.__version__},
                **{"commit": current_commit(), "date": today()},
            }
        )
    if given.out:
        write_rows(rows, given.out)


if __name__ == "__main__":
    main()
