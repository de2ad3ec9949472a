"""The drop-ins: the originals' texts where users may depend on them."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from tests.python.bad_calls import BadCall, BadCalls
from warpalign.compat import pysdtw, soft_dtw_cuda, softdtw_cuda, tslearn
from warpalign.compat._common import ShapeError
from warpalign.compat.tslearn.clustering import EmptyClusterError

A, B = torch.zeros(2, 3, 1), torch.zeros(2, 4, 1)
NAN_OR_EMPTY = "One of the input time series contains only nans or has zero length."
NO_SLOPE = "'itakura_max_slope' constraint is unfeasible (ie. leads to no admissible path) for the provided time series sizes"
BOTH = (
    "global_constraint is not set for DTW, but both sakoe_chiba_radius and itakura_max_slope are set, hence "
    "global_constraint cannot be inferred and no global constraint will be used."
)

BGU: dict[str, tuple[Callable[[], object], str]] = {
    "SoftDTW: gamma 0": (lambda: softdtw_cuda.SoftDTW(gamma=0), "gamma must be > 0, got 0.0"),
    "SoftDTW: gamma inf": (lambda: softdtw_cuda.SoftDTW(gamma=math.inf), "gamma must be finite, got inf"),
    "softdtw: axes": (
        lambda: softdtw_cuda.softdtw(torch.zeros(3), torch.zeros(3)),
        "Expected x,y to have shape (B,N,D) and (B,M,D) (or unbatched (N,D)). Got x=(3,), y=(3,)",
    ),
    "softdtw: normalize": (
        lambda: softdtw_cuda.softdtw(A, B, normalize=True),
        "normalize=True currently requires equal sequence lengths (N==M) because it uses the concatenation trick. "
        "Got N=3, M=4.",
    ),
    "softdtw: features": (
        lambda: softdtw_cuda.softdtw(A, torch.zeros(2, 4, 2)), "Feature dims must match. Got x.shape[-1]=1, y.shape[-1]=2"
    ),
    "softdtw: batch": (lambda: softdtw_cuda.softdtw(A, B[:1]), "Batch sizes must match. Got x.shape[0]=2, y.shape[0]=1"),
    "softdtw: empty": (lambda: softdtw_cuda.softdtw(A[:, :0], B), "Sequence lengths must be > 0. Got N=0, M=4."),
    "softdtw: fused": (lambda: softdtw_cuda.softdtw(A, B, fused=True), "fused=True requires CUDA tensors and dist='sqeuclidean'."),
    "softdtw: dist": (lambda: softdtw_cuda.softdtw(A, B, dist="L1"), "Unknown dist='l1'. Supported: 'sqeuclidean', 'cosine'"),
    "softdtw_barycenter: gamma": (lambda: softdtw_cuda.softdtw_barycenter(A, gamma=-1), "gamma must be > 0, got -1.0"),
    "distances.sqeuclidean: axes": (
        lambda: softdtw_cuda.distances.sqeuclidean(A[0], B), "Expected x,y as (B,N,D)/(B,M,D). Got (3, 1) and (2, 4, 1)"
    ),
    "distances.sqeuclidean: batch": (
        lambda: softdtw_cuda.distances.sqeuclidean(A, B[:1]), "Batch/features mismatch: (2, 3, 1) vs (1, 4, 1)"
    ),
    "DTW: fused": (lambda: softdtw_cuda.DTW(fused=True)(A, B), "fused=True requires CUDA tensors and dist='sqeuclidean'."),
    "dtw: axes": (
        lambda: softdtw_cuda.dtw(torch.zeros(3), B),
        "Expected x,y to have shape (B,N,D)/(B,M,D) (or unbatched (N,D)). Got x=(3,), y=(2, 4, 1)",
    ),
    "dtw: batch": (lambda: softdtw_cuda.dtw(A, B[:1]), "Batch sizes must match. Got 2 vs 1"),
    "dtw: features": (lambda: softdtw_cuda.dtw(A, torch.zeros(2, 4, 2)), "Feature dims must match. Got 1 vs 2"),
    "dtw: empty": (lambda: softdtw_cuda.dtw(A, B[:, :0]), "Sequence lengths must be > 0. Got N=3, M=0."),
    "dtw_barycenter: axes": (lambda: softdtw_cuda.dtw_barycenter(A[0]), "Expected X of shape (B, N, F). Got (3, 1)"),
    "dtw_barycenter: empty": (lambda: softdtw_cuda.dtw_barycenter(A[:0]), "Empty input: B=0, N=3."),
    "dtw_barycenter: too few weights": (
        lambda: softdtw_cuda.dtw_barycenter(A, weights=torch.ones(1)), "weights must have 2 entries. Got 1."
    ),
    "dtw_barycenter: negative weights": (
        lambda: softdtw_cuda.dtw_barycenter(A, weights=-torch.ones(2)), "weights must be nonnegative with positive sum."
    ),
    "dtw_barycenter: init": (
        lambda: softdtw_cuda.dtw_barycenter(A, init=torch.zeros(5, 3)), "init must be (T, 1). Got (5, 3)"
    ),
}  # fmt: skip

# Modules whose originals assert their shapes.
ASSERTING: dict[str, Callable[[], torch.nn.Module]] = {
    "soft_dtw_cuda.SoftDTW": lambda: soft_dtw_cuda.SoftDTW(False),
    "pysdtw.SoftDTW": lambda: pysdtw.SoftDTW(use_cuda=False),
    "tslearn.SoftDTWLossPyTorch": tslearn.SoftDTWLossPyTorch,
}
SHAPES: dict[str, tuple[tuple[int, ...], tuple[int, ...], str]] = {
    "batches": ((2, 5, 1), (3, 5, 1), "Y: expected a batch of 2, as X has, got 3"),
    "a batch of 1": ((2, 5, 1), (1, 5, 1), "Y: expected a batch of 2, as X has, got 1"),
    "features": ((2, 5, 1), (2, 5, 2), "Y: expected 1 features, as X has, got 2"),
    "unbatched": ((5, 1), (5, 1), "X: expected a batch of 3 axes, got shape (5, 1)"),
}

SAME = torch.zeros(4, 5, 1).numpy()
TSLEARN: dict[str, tuple[Callable[[], object], type[BaseException], str]] = {
    "a name that there is not": (lambda: tslearn.gak, AttributeError, "module 'warpalign.compat.tslearn' has no attribute 'gak'"),  # type: ignore[attr-defined]
    "dtw: empty": (lambda: tslearn.dtw([], [1.0]), ValueError, NAN_OR_EMPTY),
    "TimeSeriesKMeans: an unknown metric": (
        lambda: tslearn.TimeSeriesKMeans(metric="sax").fit(SAME), ValueError,
        "Incorrect metric: sax (should be one of 'dtw', 'softdtw', 'euclidean')",
    ),
    "TimeSeriesKMeans: an unknown init": (
        lambda: tslearn.TimeSeriesKMeans(init="best").fit(SAME), ValueError, "Value 'best' for parameter 'init' is invalid"
    ),
    "TimeSeriesKMeans: too few centers": (
        lambda: tslearn.TimeSeriesKMeans(init=SAME[:2]).fit(SAME), ValueError, "init: expected 3 centers, got 2"
    ),
    "TimeSeriesKMeans: equal series": (
        lambda: tslearn.TimeSeriesKMeans(2, metric="dtw").fit(SAME), EmptyClusterError,
        "Cluster assignments lead to at least one empty cluster",
    ),
    "KNeighborsTimeSeriesClassifier: an unknown metric": (
        lambda: tslearn.KNeighborsTimeSeriesClassifier(metric="frechet").fit(SAME, [0, 1, 0, 1]), ValueError,
        "Unrecognized time series metric string: frechet (should be one of 'dtw', 'softdtw', 'euclidean', 'sqeuclidean', 'cityblock')",
    ),
    "soft_dtw: only NaN": (lambda: tslearn.soft_dtw([math.nan] * 2, [1.0]), ValueError, NAN_OR_EMPTY),
    "soft_dtw: features": (
        lambda: tslearn.soft_dtw([[1.0, 2.0]], [[1.0]]), ValueError, "All input time series must have the same feature size."
    ),
    "soft_dtw_normalized: empty": (lambda: tslearn.soft_dtw_normalized([], [1.0]), ValueError, NAN_OR_EMPTY),
    "soft_dtw_alignment: empty": (lambda: tslearn.soft_dtw_alignment([1.0], []), ValueError, NAN_OR_EMPTY),
    "soft_dtw: two bands": (
        lambda: tslearn.soft_dtw([1.0], [1.0], sakoe_chiba_radius=1, itakura_max_slope=2.0), RuntimeWarning, BOTH
    ),
    "soft_dtw: no path": (
        lambda: tslearn.soft_dtw([1.0] * 7, [1.0] * 3, itakura_max_slope=1.0), RuntimeWarning, NO_SLOPE
    ),
    "soft_dtw: an unknown constraint": (
        lambda: tslearn.soft_dtw([1.0], [1.0], global_constraint="slanted"), KeyError, "'slanted'"
    ),
    "soft_dtw: a negative gamma": (
        lambda: tslearn.soft_dtw([1.0], [1.0], gamma=-1.0), ValueError, "gamma: expected a finite number >= 0, got -1.0"
    ),
    "cdist_soft_dtw: features": (
        lambda: tslearn.cdist_soft_dtw([[[1.0, 2.0]]], [[[1.0]]]), ValueError, "dataset2: expected D = 2 features as in dataset1, got 1"
    ),
    "cdist_soft_dtw_normalized: two bands": (
        lambda: tslearn.cdist_soft_dtw_normalized([[1.0]], None, 1.0, None, 1, 2.0), RuntimeWarning, BOTH
    ),
    "softdtw_barycenter: an unknown option": (
        lambda: tslearn.softdtw_barycenter([[1.0, 2.0]], radius=1), TypeError,
        "Band.__init__() got an unexpected keyword argument 'radius'",
    ),
}  # fmt: skip

CALLS: BadCalls = {
    **{
        f"compat.softdtw_cuda.{name}": BadCall(lambda g, c=call: c(), ValueError, message)
        for name, (call, message) in BGU.items()
    },
    **{
        f"compat.{module}: {what}": BadCall(
            lambda g, m=make, x=x, y=y: m()(torch.zeros(x), torch.zeros(y)), ShapeError, message
        )
        for module, make in ASSERTING.items()
        for what, (x, y, message) in SHAPES.items()
    },
    **{
        f"compat.tslearn.{name}": BadCall(lambda g, c=call: c(), error, message)
        for name, (call, error, message) in TSLEARN.items()
    },
}
