"""The drop-in for ot.gromov: POT's texts where users may depend on them."""

from __future__ import annotations

import numpy as np

from tests.python.bad_calls import BadCalls
from tests.python.transport.bad_calls.compat import M, of
from warpalign.compat import pot

C, D = np.ones((3, 3)), np.ones((2, 2))
GW = pot.gromov
SIMPLEX = "expected a number > 0, because warpalign has no network simplex and no other exact solver"

CALLS: BadCalls = {
    "pot.gromov: loss": of(
        lambda: GW.entropic_gromov_wasserstein(C, D, loss_fun="l1"),
        "Unknown `loss_fun='l1'`. Use one of: ('square_loss', 'kl_loss').",
    ),
    "pot.gromov: solver": of(
        lambda: GW.entropic_gromov_wasserstein(C, D, solver="BAPG"),
        "Unknown solver 'BAPG'. Pick one in ['PGD', 'PPA'].",
    ),
    "pot.gromov: epsilon 0": of(
        lambda: GW.entropic_gromov_wasserstein(C, D, epsilon=0),
        "epsilon: expected a number > 0, got 0",
        NotImplementedError,
    ),
    "pot.gromov: other sizes without entropy": of(
        lambda: GW.gromov_wasserstein(C, D),
        "p, q: expected as many points with equal weights on both sides, because warpalign has no network simplex, got 3 and 2 "
        "points: entropic_gromov_wasserstein with solver='PPA' takes them",
        NotImplementedError,
    ),
    "pot.gromov: NaN without entropy": of(
        lambda: GW.gromov_wasserstein(C, C * np.nan),
        "C2: expected finite numbers, and none below 0 with the KL loss, got nan",
    ),
    "pot.gromov: costs that overflow": of(
        lambda: GW.gromov_wasserstein(C * 1e154, C * 1e154),
        "C1, C2: expected costs within the range of the dtype, got an overflow: write C1 and C2 divided by their largest entry",
    ),
    "pot.gromov: a named start": of(
        lambda: GW.semirelaxed_gromov_wasserstein(C, D, G0="fluid"),
        "G0: expected a plan (n, m), \"product\" or None, got 'fluid'",
        NotImplementedError,
    ),
    "pot.gromov: unbalanced without entropy": of(
        lambda: GW.fused_unbalanced_gromov_wasserstein(C, D),
        "epsilon: expected a number > 0, because Sinkhorn's is the only solver, got 0",
        NotImplementedError,
    ),
    "pot.gromov: divergence": of(
        lambda: GW.fused_unbalanced_gromov_wasserstein(C, D, epsilon=1, divergence="tv"),
        "divergence: expected \"kl\", got 'tv'",
        NotImplementedError,
    ),
    "pot.gromov: unbalanced solver": of(
        lambda: GW.fused_unbalanced_gromov_wasserstein(C, D, epsilon=1, unbalanced_solver="emd"),
        'Unknown method="emd"',
        NotImplementedError,
    ),
    "pot.gromov: NaN": of(
        lambda: GW.fused_unbalanced_gromov_wasserstein(C * np.nan, D, epsilon=1, max_iter=1),
        "There is NaN in coupling. Adjust the relaxation or regularization parameters.",
    ),
    "pot.solve_gromov: no reg": of(
        lambda: pot.solve_gromov(C, D), f"reg: {SIMPLEX}, got None", NotImplementedError
    ),
    "pot.solve_gromov: loss": of(
        lambda: pot.solve_gromov(C, D, reg=1, loss="L1"), 'Not implemented GW loss="L1"', NotImplementedError
    ),
    "pot.solve_gromov: reg_type": of(
        lambda: pot.solve_gromov(C, D, reg=1, reg_type="L2"),
        'Not implemented reg_type="L2"',
        NotImplementedError,
    ),
    "pot.solve_gromov: unbalanced_type": of(
        lambda: pot.solve_gromov(C, D, reg=1, unbalanced_type="L2"),
        'Unknown unbalanced_type="L2"',
        NotImplementedError,
    ),
    "pot.solve_gromov: method": of(
        lambda: pot.solve_gromov(C, D, reg=1, method="BAPG"),
        "Unknown solver 'BAPG'. Pick one in ['PGD', 'PPA'].",
    ),
    "pot.solve_gromov: KL loss unbalanced": of(
        lambda: pot.solve_gromov(C, D, reg=1, unbalanced=1, loss="KL"),
        "loss: expected \"L2\" with unbalanced, got 'KL'",
        NotImplementedError,
    ),
    "pot.solve_gromov_batch: loss": of(
        lambda: pot.batch.solve_gromov_batch(C[None], D[None], loss="l1"), "Unknown loss function: l1"
    ),
    "pot.solve_gromov_batch: M without alpha": of(
        lambda: pot.batch.solve_gromov_batch(C[None], D[None], M=M[None]),
        "If M is provided, alpha must also be provided for Fused Gromov-Wasserstein problem",
    ),
    "pot.solve_gromov_batch: grad": of(
        lambda: pot.batch.solve_gromov_batch(C[None], D[None], grad="autodiff"),
        'grad: expected "envelope", "detach" or None, got \'autodiff\'',
        NotImplementedError,
    ),
    "pot.solve_gromov_batch: logits": of(
        lambda: pot.batch.solve_gromov_batch(C[None], D[None], logits=True),
        "logits: expected None or False, got True",
        NotImplementedError,
    ),
}
