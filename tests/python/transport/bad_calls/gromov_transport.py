"""Domain adaptation between different spaces."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.python.bad_calls import BadCall, BadCalls
from warpalign import GromovTransport

XS, XT = np.random.default_rng(0).normal(size=(4, 2)), np.random.default_rng(1).normal(size=(3, 3))
YS, YT = [0, 1, 0, 1], [0, 1, -1]


def fitted(
    message: str, error: type[BaseException] = ValueError, fit: dict[str, Any] | None = None, **options: Any
) -> BadCall:
    """A fit of good arguments but for those given."""
    arguments: dict[str, Any] = {"Xs": XS, "Xt": XT} | (fit or {})
    return BadCall(lambda given: GromovTransport(**options).fit(**arguments), error, message, cpu_only=True)


def after(call: Any, message: str) -> BadCall:
    return BadCall(
        lambda given: call(GromovTransport(max_iter=1).fit(XS, Xt=XT)), ValueError, message, cpu_only=True
    )


PARTS: BadCalls = {
    "no target": fitted("Xt: expected target samples (nt, d), got None", fit={"Xt": None}),
    "labels": fitted("ys: expected 4 labels, one per sample, got 3", fit={"ys": YT, "yt": YT}),
    "epsilon": fitted("epsilon: expected a finite number > 0, got 0.0", epsilon=0.0),
    "geometry": fitted(
        'geometry: expected "euclidean", "sqeuclidean", "geodesic" or a Geodesic, got \'l1\'', geometry="l1"
    ),
    "cost_normalization": fitted(
        'cost_normalization: expected "max", "mean", "common" or None, got \'median\'',
        cost_normalization="median",
    ),
    "rho_a": fitted("rho_a: expected a finite number >= 0, got -1.0", rho_a=-1.0),
    "rho_b": fitted("rho_b: expected a float, got str", TypeError, rho_b="1"),
    "mass": fitted("mass: expected at most the smaller sum of weights, got 2 at index 0", mass=2.0),
    "label_weight": fitted(
        "label_weight: expected a number from 0 to 1, got 2.0", fit={"ys": YS, "yt": YT}, label_weight=2.0
    ),
    "n_anchors": fitted("n_anchors: expected at least 1, got 0", n_anchors=0),
    "restarts": fitted("restarts: expected at least 1, got 0", restarts=0),
    "out_of_sample": fitted(
        'out_of_sample: expected "continuous" or "nearest", got \'ferradans\'', out_of_sample="ferradans"
    ),
    "a map that sampling does not have": fitted(
        "out_of_sample: expected \"nearest\" with n_anchors, got 'continuous'",
        n_anchors=5,
        out_of_sample="continuous",
    ),
    "annealing": fitted("annealing: expected a finite number > 0, got 0.0", annealing=0.0),
    "max_iter": fitted("max_iter: expected at least 1, got 0", max_iter=0),
    "tol": fitted("tol: expected a finite number >= 0, got -1.0", tol=-1.0),
    "device": fitted("device: expected a torch.device, or its name, got 'abacus'", device="abacus"),
    "features": after(lambda model: model.transform(XT), "Xs: expected 2 features as in fit, got 3"),
    "features of the target": after(
        lambda model: model.inverse_transform(XS), "Xt: expected 3 features as in fit, got 2"
    ),
}
CALLS: BadCalls = {f"GromovTransport: {name}": call for name, call in PARTS.items()}
