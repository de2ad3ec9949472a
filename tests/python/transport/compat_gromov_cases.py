"""Calls of ot.gromov: each is made with POT to record its answers, and with the drop-in to be compared.

compat_gromov_values.json holds POT's answers. To record them again, with POT 0.9.7.post1 installed:
python -m tests.python.transport.compat_gromov_cases
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.python.transport.compat_cases import Case, answers
from tests.python.transport.pot_gromov import asymmetric, gauss

RECORDED = Path(__file__).with_name("compat_gromov_values.json")

_random = np.random.RandomState(3)
C1, C2 = gauss(7, 42)[0], gauss(5, 7)[0]
# The kl loss has logarithms of distances; so has POT, with 1e-18 within.
K1, K2 = C1 + 0.1, C2 + 0.1
D1, D2 = asymmetric()
D1, D2 = D1[:7, :7] / 10, D2[:5, :5] / 10
M = _random.uniform(size=(7, 5))
P, Q = _random.dirichlet(np.full(7, 3.0)), _random.dirichlet(np.full(5, 3.0))
G0 = np.outer(P, Q) * (1 + 0.1 * _random.uniform(-1, 1, (7, 5)))
B1 = np.stack([gauss(8, seed)[0] for seed in (0, 1)])
B2 = np.stack([gauss(8, seed)[0] for seed in (2, 3)])
BM = _random.uniform(size=(2, 8, 8))
FEW: dict[str, Any] = {"max_iter": 6, "tol": 0.0, "log": True}
INNER: dict[str, Any] = {"numItermax": 20000, "stopThr": 1e-13}


def blocks(symmetric: bool) -> tuple[Any, Any]:
    """A graph of two blocks of 30 and 15 nodes, and the chances of edges."""
    state = np.random.RandomState(0)
    sizes, chances = (30, 15), np.array([[0.8, 0.1], [0.1 if symmetric else 0.05, 1.0]])
    labels = np.repeat([0, 1], sizes)
    edges = (state.rand(45, 45) < chances[labels[:, None], labels[None]]).astype(float)
    return np.triu(edges, 1) + (np.triu(edges, 1).T if symmetric else np.tril(edges, -1)), chances


def row_sums(plan: Any) -> list[Any]:
    return [plan, plan.sum(0)]


def of_result(result: Any) -> dict[str, Any]:
    return {name: getattr(result, name) for name in ("plan", "value", "value_linear", "value_quad")}


def losses(gw: Any, name: str, *arguments: Any, **options: Any) -> dict[str, Any]:
    """A loss with its log, whose order of keys is not compared."""
    value, log = getattr(gw, name)(*arguments, log=True, **options)
    return {"value": value} | {
        key: log[key]
        for key in sorted(log)
        if key not in ("u", "v", "cost", "warning", "result_code", "loss")
    }


def gradients(ot: Any) -> list[Any]:
    """Gradients of semirelaxed_gromov_wasserstein2 by both matrices and the weights."""
    C, D = (torch.from_numpy(c).clone().requires_grad_() for c in (C1, C2))
    value = ot.gromov.semirelaxed_gromov_wasserstein2(C, D, torch.from_numpy(P))
    by_c, by_d = torch.autograd.grad(value, [C, D])
    return [value.detach(), by_c, by_d]


CASES: dict[str, Case] = {
    **{
        f"entropic, {solver}, {loss}": lambda ot, solver=solver, loss=loss: ot.gromov.entropic_gromov_wasserstein(
            K1, K2, P, Q, loss, epsilon=0.05, solver=solver, **FEW, **INNER
        )
        for solver in ("PGD", "PPA")
        for loss in ("square_loss", "kl_loss")
    },
    "entropic, defaults": lambda ot: ot.gromov.entropic_gromov_wasserstein(C1, C2),
    "entropic, asymmetric": lambda ot: ot.gromov.entropic_gromov_wasserstein(D1, D2, P, Q, epsilon=0.05, **FEW, **INNER),
    "entropic, from a start": lambda ot: ot.gromov.entropic_gromov_wasserstein(
        C1, C2, P, Q, epsilon=0.05, G0=G0, **FEW, **INNER
    ),
    "entropic, PGD of many steps": lambda ot: ot.gromov.entropic_gromov_wasserstein2(
        *gauss(10, 42), epsilon=0.1, max_iter=1000, solver="PGD", numItermax=5000
    ),
    "entropic, kl loss of 10 steps": lambda ot: ot.gromov.entropic_gromov_wasserstein2(
        *gauss(10, 42), loss_fun="kl_loss", epsilon=0.01, max_iter=10, **INNER
    ),
    "entropic2": lambda ot: losses(ot.gromov, "entropic_gromov_wasserstein2", C1, C2, P, Q, epsilon=0.05),
    "entropic fused": lambda ot: ot.gromov.entropic_fused_gromov_wasserstein(
        M, C1, C2, P, Q, epsilon=0.05, alpha=0.3, **FEW, **INNER
    ),
    "entropic fused2": lambda ot: losses(
        ot.gromov, "entropic_fused_gromov_wasserstein2", M, C1, C2, P, Q, epsilon=0.05, alpha=0.3
    ),
    "entropic fused, asymmetric": lambda ot: ot.gromov.entropic_fused_gromov_wasserstein(
        M, D1, D2, P, Q, epsilon=0.05, solver="PPA", **FEW, **INNER
    ),
    **{
        f"semirelaxed entropic, {loss}": lambda ot, loss=loss: ot.gromov.entropic_semirelaxed_gromov_wasserstein(
            K1, K2, P, loss, epsilon=0.05, **FEW
        )
        for loss in ("square_loss", "kl_loss")
    },
    "semirelaxed entropic, asymmetric": lambda ot: ot.gromov.entropic_semirelaxed_gromov_wasserstein(D1, D2, P, **FEW),
    "semirelaxed entropic2": lambda ot: losses(ot.gromov, "entropic_semirelaxed_gromov_wasserstein2", C1, C2, epsilon=0.05, max_iter=20),
    "semirelaxed entropic fused2": lambda ot: losses(
        ot.gromov, "entropic_semirelaxed_fused_gromov_wasserstein2", M, C1, C2, P, epsilon=0.05, alpha=0.3, max_iter=20
    ),
    **{
        f"semirelaxed entropic, blocks, {symmetric}": lambda ot, symmetric=symmetric: row_sums(
            ot.gromov.entropic_semirelaxed_gromov_wasserstein(*blocks(symmetric), epsilon=0.1, max_iter=200)
        )[1]
        for symmetric in (True, False)
    },
    **{
        f"semirelaxed, {loss}": lambda ot, loss=loss: ot.gromov.semirelaxed_gromov_wasserstein(K1, K2, P, loss)
        for loss in ("square_loss", "kl_loss")
    },
    "semirelaxed2": lambda ot: losses(ot.gromov, "semirelaxed_gromov_wasserstein2", C1, C2),
    "semirelaxed fused2": lambda ot: losses(
        ot.gromov, "semirelaxed_fused_gromov_wasserstein2", M, C1, C2, P, alpha=0.6
    ),
    "semirelaxed, gradients": gradients,
    "exact": lambda ot: ot.gromov.gromov_wasserstein(*gauss(12, 5)),
    "exact2": lambda ot: losses(ot.gromov, "gromov_wasserstein2", *gauss(12, 5)),
    "exact fused2": lambda ot: losses(
        ot.gromov, "fused_gromov_wasserstein2", BM[0], B1[0], B2[0], alpha=0.4
    ),
    "partial entropic": lambda ot: ot.gromov.entropic_partial_gromov_wasserstein(
        C1, C2, P, Q, reg=0.05, m=0.6, numItermax=6, tol=0.0, log=True
    ),
    "partial entropic, asymmetric": lambda ot: ot.gromov.entropic_partial_gromov_wasserstein(
        D1, D2, reg=0.1, m=0.6, numItermax=6, tol=0.0
    ),
    "partial entropic2, all mass": lambda ot: losses(
        ot.gromov, "entropic_partial_gromov_wasserstein2", C1, C2, reg=0.1, numItermax=6
    ),
    "partial entropic fused2 without costs": lambda ot: losses(
        ot.gromov, "entropic_partial_fused_gromov_wasserstein2", 0 * M, C1, C2, P, Q, reg=0.05, m=0.6, alpha=0.7, numItermax=6
    ),
    **{
        f"unbalanced, {rho}": lambda ot, rho=rho: ot.gromov.fused_unbalanced_gromov_wasserstein(
            C1, C2, P, Q, rho, 0.05, unbalanced_solver="sinkhorn", alpha=0.4, M=M, max_iter=5, tol=0.0,
            max_iter_ot=20000, tol_ot=1e-14,
        )
        for rho in (0.5, (0.5, 2.0))
    },
    "unbalanced2": lambda ot: ot.gromov.fused_unbalanced_gromov_wasserstein2(
        C1, C2, P, Q, 0.5, 0.05, unbalanced_solver="sinkhorn", alpha=0.4, M=M, max_iter=5, tol=0.0, max_iter_ot=20000, tol_ot=1e-14
    ),
    # POT's fused form has epsilon 0.1, whatever reg is.
    "solve_gromov, semirelaxed": lambda ot: of_result(
        ot.solve_gromov(C1, C2, M, P, Q, reg=0.1, alpha=0.6, unbalanced_type="semirelaxed", max_iter=6)
    ),
    "solve_gromov, partial": lambda ot: of_result(
        ot.solve_gromov(C1, C2, None, P, Q, reg=0.05, unbalanced=0.6, unbalanced_type="partial", max_iter=6)
    )["plan"],
    "solve_gromov, features alone": lambda ot: ot.solve_gromov(
        C1, C2, M, P, Q, reg=0.05, alpha=0, max_iter=20000, tol=1e-14
    ).plan,
    **{
        f"solve_gromov_batch, {kind}": lambda ot, kind=kind: of_result(
            ot.batch.solve_gromov_batch(
                B1, B2, reg=0.2, max_iter=8, tol=0.0, max_iter_inner=5000, tol_inner=1e-13,
                **({"M": BM, "alpha": 0.6} if kind == "fused" else {}),
            )
        )
        for kind in ("plain", "fused")
    },
}  # fmt: skip


def record() -> None:
    import ot

    # Kernels underflow in POT's plain iterations; the drop-in computes in the log domain.
    ot.gromov._bregman.sinkhorn = lambda *arguments, method, **options: ot.sinkhorn(
        *arguments, method="sinkhorn_log", **options
    )
    RECORDED.write_text(json.dumps({"version": ot.__version__, "POT": answers(ot, CASES)}) + "\n")


if __name__ == "__main__":
    record()
