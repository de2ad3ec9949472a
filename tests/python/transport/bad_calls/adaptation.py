"""Domain adaptation."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.neighbors import KNeighborsClassifier

from tests.python.bad_calls import BadCall, BadCalls, Given
from tests.python.transport.bad_calls.functional import OF_BOTH
from warpalign import DomainAdaptationClassifier, SinkhornTransport

XS, XT = np.zeros((4, 2)), np.ones((3, 2))
YS, YT = [0, 1, 0, 1], [0, 1, -1]


def fitted(
    error: type[BaseException], message: str, fit: dict[str, Any] | None = None, **options: Any
) -> BadCall:
    """A fit of good arguments but for those given."""
    arguments: dict[str, Any] = {"Xs": XS, "Xt": XT} | (fit or {})
    return BadCall(lambda given: SinkhornTransport(**options).fit(**arguments), error, message, cpu_only=True)


def after(call: Any, message: str, error: type[BaseException] = ValueError) -> BadCall:
    return BadCall(lambda given: call(SinkhornTransport().fit(XS, Xt=XT)), error, message, cpu_only=True)


def adapted(
    message: str,
    fit: dict[str, Any] | None = None,
    *,
    error: type[BaseException] = ValueError,
    estimator: Any = KNeighborsClassifier(1),  # noqa: B008
    **options: Any,
) -> BadCall:
    arguments: dict[str, Any] = {"Xs": XS, "ys": YS, "Xt": XT} | (fit or {})

    def call(given: Given) -> object:
        return DomainAdaptationClassifier(estimator, **options).fit(**arguments)

    return BadCall(call, error, message, cpu_only=True)


SHARED = ("epsilon", "cost", "cost_scale", "annealing", "max_iter", "tol")
CALLS: BadCalls = {
    **{
        f"SinkhornTransport: {name}": fitted(
            OF_BOTH[name].error, OF_BOTH[name].message, **{name: OF_BOTH[name].value}
        )
        for name in SHARED
    },
    "SinkhornTransport: cost_normalization": fitted(
        ValueError,
        'cost_normalization: expected "max", "mean" or None, got \'median\'',
        cost_normalization="median",
    ),
    "SinkhornTransport: rho_a": fitted(
        ValueError, "rho_a: expected a finite number >= 0, got -1.0", rho_a=-1.0
    ),
    "SinkhornTransport: rho_b": fitted(TypeError, "rho_b: expected a float, got str", rho_b="1"),
    "SinkhornTransport: mass": fitted(
        ValueError, "mass: expected at most the smaller sum of weights, got 2 at index 0", mass=2.0
    ),
    "SinkhornTransport: reference": fitted(
        ValueError, 'reference: expected "product" or "counting", got \'kl\'', reference="kl"
    ),
    "SinkhornTransport: limit_max": fitted(
        ValueError, "limit_max: expected a finite number >= 0, got -2.0", {"ys": YS, "yt": YT}, limit_max=-2.0
    ),
    "SinkhornTransport: out_of_sample": fitted(
        ValueError,
        'out_of_sample: expected "continuous" or "nearest", got \'ferradans\'',
        out_of_sample="ferradans",
    ),
    "SinkhornTransport: device": fitted(
        ValueError, "device: expected a torch.device, or its name, got 'abacus'", device="abacus"
    ),
    "SinkhornTransport: no target": fitted(
        ValueError, "Xt: expected target samples (nt, d), got None", {"Xt": None}
    ),
    "SinkhornTransport: features differ": fitted(
        ValueError, "Xt: expected 2 features, as Xs has, got 1", {"Xt": XT[:, :1]}
    ),
    "SinkhornTransport: too few labels": fitted(
        ValueError, "ys: expected 4 labels, one per sample, got 3", {"ys": YT, "yt": YT}
    ),
    "SinkhornTransport: new samples of other features": after(
        lambda model: model.transform(XS[:, :1]), "Xs: expected 2 features as in fit, got 1"
    ),
    "SinkhornTransport: names and ints": fitted(
        TypeError,
        "yt: expected names, as ys has, got ints: no label of one domain is one of the other",
        {"ys": ["a", "b", None, "a"], "yt": YT},
    ),
    "SinkhornTransport: labels of two axes": fitted(
        ValueError,
        "ys: expected 4 labels, one per sample, got an array of shape (4, 2)",
        {"ys": np.zeros((4, 2)), "yt": YT},
    ),
    "SinkhornTransport: measured labels": after(
        lambda model: model.transform_labels([0.5, 1.0, 2.0, np.nan]),
        "ys: expected labels of classes, ints or names, got the number 0.5: round numbers, or divide them into classes, before "
        "they are labels",
    ),
    "SinkhornTransport: labels that are tuples": after(
        lambda model: model.inverse_transform_labels(np.array([(1, 2), None, None], dtype=object)),
        "yt: expected labels of classes, ints or names, got tuple: write yt.astype(str)",
        TypeError,
    ),
    "SinkhornTransport: names among ints": after(
        lambda model: model.transform_labels([0, "a", None, 1]),
        "ys: expected ints or names, got both: write [str(label) for label in ys], which keeps −1 unlabelled",
        TypeError,
    ),
    "SinkhornTransport: no sample has a label": after(
        lambda model: model.transform_labels([None, -1, "-1", np.nan]),
        "ys: expected a sample that has a label, got none: −1, None and NaN say that there is none",
    ),
    "SinkhornTransport: labels of the other domain": after(
        lambda model: model.transform_labels(YT), "ys: expected 4 labels, one per sample, got 3"
    ),
    "DomainAdaptationClassifier: no labels": adapted(
        "ys: expected labels (ns,) of the source samples, got None", {"ys": None}
    ),
    "DomainAdaptationClassifier: no target": adapted(
        "Xt: expected target samples (nt, d), got None: write fit(Xs, ys, Xt), or params={'Xt': Xt} in cross_validate",
        {"Xt": None},
    ),
    "DomainAdaptationClassifier: no sample has a label": adapted(
        "ys: expected a sample that has a label, got none: −1, None and NaN say that there is none",
        {"ys": [-1, None, -1, -1]},
    ),
    "DomainAdaptationClassifier: a transport that moves nothing": adapted(
        "transport: expected SinkhornTransport, GromovTransport or an estimator alike, got KNeighborsClassifier",
        transport=KNeighborsClassifier(),
        error=TypeError,
    ),
    "DomainAdaptationClassifier: no classifier": adapted(
        "estimator: expected a scikit-learn classifier, got str: write estimator=LogisticRegression(), say",
        estimator="knn",
        error=TypeError,
    ),
}
