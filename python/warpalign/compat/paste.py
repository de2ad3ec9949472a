"""``paste.pairwise_align`` (PASTE): spots of two slices, aligned by expression and by where they lie.

What differs: PASTE's plan is a vertex of the polytope of plans, found by conditional gradients with an exact solver in
each step; this one has an entropic term, whose strength is ``epsilon``, and is dense and smooth. ``plan.argmax()`` of
rows gives PASTE's kind of matching. Slices stay where ``device`` says, a GPU if there is one.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

from warpalign._transport.checks import check_plan
from warpalign._transport.options import GROMOV_ERROR
from warpalign.transport import ConvergenceWarning, GromovResult, from_anndata, gromov_wasserstein


def pairwise_align(
    sliceA: Any,
    sliceB: Any,
    alpha: float = 0.1,
    dissimilarity: str = "kl",
    use_rep: str | None = None,
    G_init: Any = None,
    a_distribution: Any = None,
    b_distribution: Any = None,
    norm: bool = False,
    numItermax: int = 200,
    backend: Any = None,
    use_gpu: bool = False,
    return_obj: bool = False,
    verbose: bool = False,
    gpu_verbose: bool = True,
    *,
    epsilon: float = 1e-4,
    device: Any = None,
    dtype: torch.dtype = torch.float64,
    **kwargs: Any,
) -> Any:
    """Aligns the spots of two slices by fused Gromov-Wasserstein transport.

    The plan minimises (1 − alpha) ⟨M, T⟩ + alpha Σ (Da[i, k] − Db[j, l])² T[i, j] T[k, l] and an entropic term. M is the
    dissimilarity of expression; Da and Db are the Euclidean distances within the slices.

    Args:
        sliceA: an AnnData of n spots with coordinates in ``obsm["spatial"]``.
        sliceB: an AnnData of m spots. Genes that only one of them has are left out.
        alpha: the weight of the coordinates, 0 to 1.
        dissimilarity: "kl", the Kullback-Leibler divergence of the spots' shares of expression, 0.01 added, or "euclidean",
            squared Euclidean distances.
        use_rep: the key of a representation in ``obsm`` in place of the expression.
        G_init: (n, m) the first plan. None: the product of the weights.
        a_distribution: (n,) weights of the spots of sliceA. None: equal ones.
        b_distribution: (m,) weights of the spots of sliceB. None: equal ones.
        norm: whether the smallest distance between two spots of a slice becomes 1.
        numItermax: the largest number of steps.
        backend: has no effect: torch computes.
        use_gpu: whether a GPU is required; without one this warns and a CPU computes.
        return_obj: whether the value of the objective, without its entropic term, is returned too.
        verbose: has no effect.
        gpu_verbose: has no effect.
        epsilon: the strength of the entropic term, in units of the largest squared distance of both slices. Its root is the distance
            over which matches blur: by default a hundredth of the largest one.
        device: where to compute. None: on a GPU if ``use_gpu`` and there is one, else on the CPU.
        dtype: of the computation, torch.float64 or torch.float32, which takes half of the memory and less time.
        **kwargs: have no effect, of which a warning tells.

    Returns:
        The plan, an (n, m) float64 array; with ``return_obj`` also a number.

    Warns:
        ConvergenceWarning: the plan still moved after numItermax steps, or is not finite.
        UserWarning: an argument that has no effect, or there is no GPU.
    """
    if dissimilarity.lower() not in ("kl", "euclidean", "euc"):
        raise ValueError(f"dissimilarity: expected 'kl' or 'euclidean', got {dissimilarity!r}")
    if kwargs:
        warnings.warn(f"{', '.join(kwargs)}: no effect here, where another solver runs", stacklevel=2)
    if use_gpu and not torch.cuda.is_available():
        warnings.warn("use_gpu: there is no GPU here: computed on the CPU", stacklevel=2)
    if device is None:
        device = "cuda" if use_gpu and torch.cuda.is_available() else "cpu"
    genes = None
    if use_rep is None:
        others = set(sliceB.var_names)
        genes = [name for name in sliceA.var_names if name in others]
        if not genes:
            raise ValueError("sliceB: expected a gene of sliceA, got none")
    read = {"use_rep": use_rep, "genes": genes, "dtype": dtype, "device": device}
    (of_a, expression_a), (of_b, expression_b) = from_anndata(sliceA, **read), from_anndata(sliceB, **read)
    assert of_a is not None and of_b is not None
    # Exactly 0 between a spot and itself, which the expansion of squares would not give.
    exact = "donot_use_mm_for_euclid_dist"
    distances = [torch.cdist(points, points, compute_mode=exact) for points in (of_a, of_b)]
    if norm:
        distances = [found / found[found > 0].min() for found in distances]
    largest = torch.stack([found.max() for found in distances]).max()
    # In units of the largest distance, where epsilon is a share: the objective's ratio of both terms stays.
    cost = _dissimilarity(expression_a, expression_b, dissimilarity.lower()) / largest.square()
    weights = [
        None if given is None else torch.as_tensor(np.asarray(given), dtype=dtype, device=device)
        for given in (a_distribution, b_distribution)
    ]
    first: Any = "product" if G_init is None else torch.as_tensor(np.asarray(G_init)).to(cost)
    if isinstance(first, Tensor):
        check_plan(first, "G_init")
    found = gromov_wasserstein(
        distances=(distances[0] / largest, distances[1] / largest),
        cost_normalization=None,
        feature_cost=cost,
        feature_weight=1 - alpha,
        epsilon=epsilon,
        a=weights[0],
        b=weights[1],
        init=first,
        annealing=None,  # steps go on from the first plan
        max_iter=numItermax,
    )
    if not bool(found.converged):
        warnings.warn(_not_converged(found, numItermax), ConvergenceWarning, stacklevel=2)
    plan = found.plan.to_dense()
    array: np.ndarray[Any, Any] = plan.double().cpu().numpy()
    if not return_obj:
        return array
    value = (1 - alpha) * (cost * plan).sum() + alpha * found.distortion
    return array, float(value * largest.square())


def _not_converged(found: GromovResult, steps: int) -> str:
    error = float(found.error)
    if not error <= GROMOV_ERROR:
        return f"epsilon: expected one whose plan has an error <= {GROMOV_ERROR}, got {error:.3g}: write a larger epsilon"
    return (
        f"numItermax: expected a plan that stands still within {steps} steps, got one whose last step moved "
        f"{float(found.history[-1]):.2g} of the mass: write a larger numItermax or epsilon"
    )


def _dissimilarity(x: Tensor, y: Tensor, kind: str) -> Tensor:
    if kind != "kl":
        return torch.cdist(x, y).square()
    p, q = ((rows + 0.01) / (rows + 0.01).sum(1, keepdim=True) for rows in (x, y))
    return (p * p.log()).sum(1, keepdim=True) - p @ q.log().T
