"""The drop-ins for POT, geomloss and flash-sinkhorn: the originals' texts where users may depend on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tests.python.bad_calls import BadCall, BadCalls
from warpalign.compat import flash_sinkhorn, geomloss, pot

A, B, M = np.full(3, 1 / 3), np.full(2, 1 / 2), np.ones((3, 2))
X, Y = torch.zeros(3, 2), torch.zeros(4, 2)
METRICS = '"sqeuclidean", "euclidean", "cityblock", "cosine"'
SIMPLEX = "expected a number > 0, because warpalign has no network simplex and no other exact solver"


def of(call: Callable[[], object], message: str, error: type[BaseException] = ValueError) -> BadCall:
    return BadCall(lambda given: call(), error, message, cpu_only=True)


def adapted(message: str, fit: dict[str, Any] | None = None, **options: Any) -> BadCall:
    arguments = {"Xs": X.numpy(), "Xt": Y.numpy()} | (fit or {})
    return of(lambda: pot.da.SinkhornTransport(**options).fit(**arguments), message)


POT: BadCalls = {
    "pot.sinkhorn: method": of(
        lambda: pot.sinkhorn(A, B, M, 1, method="simplex"), "Unknown method 'simplex'."
    ),
    "pot.sinkhorn: reg 0": of(
        lambda: pot.sinkhorn(A, B, M, 0), f"reg: {SIMPLEX}, got 0", NotImplementedError
    ),
    "pot.sinkhorn: sums": of(
        lambda: pot.sinkhorn(2 * A, B, M, 1),
        "a: expected the sum of b, 1: write a / a.sum(), or relax the marginals with ot.unbalanced, got 2",
    ),
    "pot.sinkhorn_unbalanced: sums of hard sides": of(
        lambda: pot.sinkhorn_unbalanced(A, 3 * B, M, 1, float("inf")),
        "b: expected the sum of a, 1: write b / b.sum(), or give a finite reg_m, got 3",
    ),
    "pot.solve: no reg": of(lambda: pot.solve(M), f"reg: {SIMPLEX}, got None", NotImplementedError),
    "pot.solve: reg_type": of(
        lambda: pot.solve(M, reg=1, reg_type="L2"),
        "reg_type: expected kl or entropy, got 'L2'",
        NotImplementedError,
    ),
    "pot.solve: unbalanced_type": of(
        lambda: pot.solve(M, reg=1, unbalanced=1, unbalanced_type="TV"),
        "unbalanced_type: expected KL, got 'TV'",
        NotImplementedError,
    ),
    "pot.solve_sample: method": of(
        lambda: pot.solve_sample(X, Y, reg=1, method="gaussian"),
        "method: expected None, got 'gaussian'",
        NotImplementedError,
    ),
    "pot.solve_sample: debias": of(
        lambda: pot.solve_sample(X, Y, reg=1, debias="split"),
        "debias: expected a bool, got 'split'",
        NotImplementedError,
    ),
    "pot.solve_sample: metric": of(
        lambda: pot.solve_sample(X, Y, reg=1, metric="jaccard"),
        f"metric: expected one of {METRICS}, got 'jaccard'",
        NotImplementedError,
    ),
    "pot.solve: a last step of none": of(
        lambda: pot.solve(M, reg=1, grad="last_step", max_iter=0),
        'max_iter: expected at least 1 with grad="last_step", which is a step, got 0',
    ),
    "pot.dist: metric": of(
        lambda: pot.dist(X, Y, "jaccard"),
        'metric: expected one of "sqeuclidean", "euclidean", "cityblock", "cosine", "minkowski", "correlation" for tensors, got '
        "'jaccard': with backend=\"scipy\" SciPy computes it, without gradients",
        NotImplementedError,
    ),
    "pot.unbalanced: method": of(
        lambda: pot.sinkhorn_unbalanced(A, B, M, 1, 1, method="mm"), "Unknown method 'mm'."
    ),
    "pot.unbalanced2: method": of(
        lambda: pot.sinkhorn_unbalanced2(A, B, M, 1, 1, method="mm"), "Unknown method mm."
    ),
    "pot.unbalanced2: returnCost": of(
        lambda: pot.sinkhorn_unbalanced2(A, B, M, 1, 1, returnCost="dual"), "Unknown returnCost = dual"
    ),
    "pot.unbalanced: three strengths": of(
        lambda: pot.sinkhorn_unbalanced(A, B, M, 1, (1, 2, 3)), "reg_m: expected a number or two, got 3"
    ),
    "pot.unbalanced: reg_type": of(
        lambda: pot.sinkhorn_unbalanced(A, B, M, 1, 1, reg_type="l2"),
        'reg_type: expected "kl" or "entropy", got \'l2\'',
    ),
    "pot.partial: method": of(
        lambda: pot.partial.entropic_partial_wasserstein(A, B, M, 1, method="mm"), "Unknown method 'mm'."
    ),
    "pot.partial: mass below 0": of(
        lambda: pot.partial.entropic_partial_wasserstein(A, B, M, 1, m=-1),
        "Problem infeasible. Parameter m should be greater than 0.",
    ),
    "pot.partial: more mass than there is": of(
        lambda: pot.partial.entropic_partial_wasserstein(A, B, M, 1, m=2),
        "Problem infeasible. Parameter m should lower or equal than min(|a|_1, |b|_1).",
    ),
    "pot.batch: method": of(
        lambda: pot.batch.solve_batch(M[None], 1, method="proximal"),
        "method: expected one of auto, sinkhorn, log_sinkhorn, got 'proximal'",
        NotImplementedError,
    ),
    "pot.batch: reg_type": of(
        lambda: pot.batch.solve_batch(M[None], 1, reg_type="l2"),
        "Unknown reg_type: l2. Must be one of ['kl', 'entropy'].",
    ),
    "pot.batch: grad": of(
        lambda: pot.batch.solve_batch(M[None], 1, grad="all"),
        "Unknown grad: all. Must be one of ['envelope', 'autodiff', 'last_step', 'detach'].",
    ),
    "pot.da: map": adapted("Unknown out_of_sample_map method", out_of_sample_map="nearest"),
    "pot.da: norm": adapted(
        "Norm mean is not a valid option.\nValid options are:\nmedian, max, log, loglog", norm="mean"
    ),
    "pot.da: no source": adapted("Xs: expected source samples (ns, d), got None", {"Xs": None}),
}

LOSSES: BadCalls = {
    "geomloss: loss": of(
        lambda: geomloss.SamplesLoss("energy"),
        "loss: expected \"sinkhorn\", the one that is transport, got 'energy'",
        NotImplementedError,
    ),
    "geomloss: p": of(lambda: geomloss.SamplesLoss(p=3), "p: expected 1 or 2, got 3"),
    "geomloss: a formula": of(
        lambda: geomloss.SamplesLoss(cost="Norm2(X-Y)"),
        "cost: expected a function of tensors, got the KeOps formula 'Norm2(X-Y)'",
        NotImplementedError,
    ),
    "geomloss: backend": of(
        lambda: geomloss.SamplesLoss(backend="triton"),
        'backend: expected one of "auto", "tensorized", "online", "multiscale", got \'triton\'',
    ),
    "geomloss: labels": of(
        lambda: geomloss.SamplesLoss(backend="online")(X, X[:, 0], X, Y, Y[:, 0], Y),
        'Explicit cluster labels are only supported with the "auto" and "multiscale" backends.',
    ),
    "geomloss: three arguments": of(
        lambda: geomloss.SamplesLoss()(X, Y, Y),
        "A SamplesLoss accepts two (x, y), four (α, x, β, y) or six (l_x, α, x, l_y, β, y) arguments.",
    ),
    "geomloss: axes": of(
        lambda: geomloss.SamplesLoss()(X[None, None], Y[None, None]),
        "Input samples 'x' and 'y' should be encoded as (N,D) or (B,N,D) (batch) tensors.",
    ),
    "geomloss: one batch": of(
        lambda: geomloss.SamplesLoss()(X[None], Y),
        "Input samples 'x' and 'y' should have the same number of dimensions.",
    ),
    "geomloss: features": of(
        lambda: geomloss.SamplesLoss()(X[:, :1], Y),
        "Input samples 'x' and 'y' should have the same last dimension.",
    ),
    "geomloss: batches": of(
        lambda: geomloss.SamplesLoss()(X.expand(2, 3, 2), Y.expand(3, 4, 2)),
        "Samples 'x' and 'y' should have the same batchsize.",
    ),
    "geomloss: weights": of(
        lambda: geomloss.SamplesLoss()(X[:, 0], X, X[:, 0], Y),
        "Weights 'β' and samples 'y' should have compatible shapes.",
    ),
    "geomloss: blur": of(
        lambda: geomloss.SamplesLoss(blur=0)(X, Y), "blur: expected a finite number > 0, got 0"
    ),
    "geomloss: scaling": of(
        lambda: geomloss.SamplesLoss(scaling=1)(X, Y),
        "scaling: expected a number between 0 and 1, got 1: write 0.5, or 0.9 for more epsilons",
    ),
    "geomloss: diameter": of(
        lambda: geomloss.SamplesLoss(diameter=0)(X, Y), "diameter: expected a finite number > 0, got 0"
    ),
    "flash_sinkhorn: blur": of(
        lambda: flash_sinkhorn.SamplesLoss(blur=0)(X, Y), "blur: expected a finite number > 0, got 0.0"
    ),
    "flash_sinkhorn: diameter": of(
        lambda: flash_sinkhorn.SamplesLoss(diameter=0)(X, Y),
        "diameter: expected a finite number > 0, got 0.0",
    ),
    "flash_sinkhorn: loss": of(
        lambda: flash_sinkhorn.SamplesLoss("energy"), 'Only loss="sinkhorn" is supported.'
    ),
    "flash_sinkhorn: p": of(
        lambda: flash_sinkhorn.SamplesLoss(p=1), "Only p=2 (squared Euclidean cost) is supported."
    ),
    "flash_sinkhorn: multiscale": of(
        lambda: flash_sinkhorn.SamplesLoss(backend="multiscale"),
        'backend: expected "symmetric" or "alternating", got "multiscale": write warpalign.transport.sinkhorn',
        NotImplementedError,
    ),
    "flash_sinkhorn: backend": of(
        lambda: flash_sinkhorn.SamplesLoss(backend="keops"),
        'Only backend in {"symmetric","alternating","multiscale","triton","auto"} is supported.',
    ),
    "flash_sinkhorn: label costs": of(
        lambda: flash_sinkhorn.SamplesLoss(label_cost_matrix=X),
        "label_cost_matrix: expected None, because costs with labels are not here, got a tensor",
        NotImplementedError,
    ),
    "flash_sinkhorn: alternating with scaling": of(
        lambda: flash_sinkhorn.SamplesLoss(backend="alternating"),
        'backend="alternating" requires use_epsilon_scaling=False. Provide fixed eps and n_iters instead.',
    ),
    "flash_sinkhorn: alternating without eps": of(
        lambda: flash_sinkhorn.SamplesLoss(backend="alternating", use_epsilon_scaling=False),
        'backend="alternating" requires eps and n_iters to be specified.',
    ),
    "flash_sinkhorn: tol": of(
        lambda: flash_sinkhorn.SamplesLoss(tol=0.1), 'tol applies only to backend="multiscale".'
    ),
    "flash_sinkhorn: reach": of(
        lambda: flash_sinkhorn.SamplesLoss(reach_x=0),
        "reach_x must be positive (or None: the side is balanced).",
    ),
    "flash_sinkhorn: no eps": of(
        lambda: flash_sinkhorn.SamplesLoss(use_epsilon_scaling=False)(X, Y),
        "When use_epsilon_scaling=False, provide eps and n_iters.",
    ),
    "flash_sinkhorn: no iterations": of(
        lambda: flash_sinkhorn.SamplesLoss(n_iters=0)(X, Y + 1), "eps_list is empty after applying n_iters."
    ),
    "flash_sinkhorn: three arguments": of(
        lambda: flash_sinkhorn.SamplesLoss()(X, Y, Y),
        "SamplesLoss expects either (x, y) or (a, x, b, y). Got 3 arguments.",
        TypeError,
    ),
    "flash_sinkhorn: axes": of(
        lambda: flash_sinkhorn.SamplesLoss()(X[None], Y), "x and y must be shaped (N,D) or (B,N,D)."
    ),
    "flash_sinkhorn: batches": of(
        lambda: flash_sinkhorn.SamplesLoss()(X.expand(2, 3, 2), Y.expand(3, 4, 2)),
        "x and y must have the same batch size.",
    ),
    "flash_sinkhorn: features": of(
        lambda: flash_sinkhorn.SamplesLoss()(X[:, :1], Y), "x and y must have the same feature dimension."
    ),
    "flash_sinkhorn: weights": of(
        lambda: flash_sinkhorn.SamplesLoss()(X[:, 0], X, X[:, 0], Y),
        "b must have shape (…, n) or (…, n, 1) matching y.",
    ),
}
ATTRIBUTES: BadCalls = {
    "pot: an unknown name": of(
        lambda: pot.emd, "module 'warpalign.compat.pot' has no attribute 'emd'", AttributeError
    ),
}

CALLS: BadCalls = POT | LOSSES | ATTRIBUTES
