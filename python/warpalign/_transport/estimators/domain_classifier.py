"""A classifier of one domain, for another one: an estimator around an estimator. scikit-learn is needed from here on."""

from __future__ import annotations

from typing import Any

import numpy as np

from warpalign._core import optional
from warpalign._transport.estimators.domain_transport import Array, as_given_labels
from warpalign._transport.labels import label_places

optional.load("sklearn", "warpalign.estimators", "estimators")

from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone  # noqa: E402
from sklearn.utils.metaestimators import available_if  # noqa: E402
from sklearn.utils.validation import check_is_fitted  # noqa: E402


def _has(method: str) -> Any:
    def found(model: Any) -> bool:
        """The fitted classifier's own AttributeError says what is missing."""
        getattr(getattr(model, "estimator_", model.estimator), method)
        return True

    return available_if(found)


class DomainAdaptationClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Trains a classifier on source samples that were mapped to the target domain, and predicts on unchanged target samples.

    A transport within a scikit-learn ``Pipeline`` is wrong: a Pipeline calls ``transform`` on what it predicts, too, and so maps target
    samples as if they were source samples. This estimator moves source samples alone, in :meth:`fit`.

    Source: Courty et al., "Optimal transport for domain adaptation", TPAMI 2017.

    Args:
        estimator: the classifier. A clone of it is fitted.
        transport: what moves source samples: :class:`warpalign.SinkhornTransport`, :class:`warpalign.GromovTransport` or another estimator
            with fit(Xs, ys, Xt, yt) and transform(Xs). A clone of it is fitted. None: ``SinkhornTransport()``.

    Attributes:
        estimator_: the fitted classifier.
        transport_: the fitted transport.
        classes_: the classes of the source's labels.
        n_features_in_: the target's number of features.

    Examples:
        >>> import numpy as np
        >>> from sklearn.linear_model import LogisticRegression
        >>> from warpalign import SinkhornTransport
        >>> random = np.random.default_rng(0)
        >>> Xs, ys = random.normal(size=(40, 2)), np.arange(40) % 2
        >>> Xs[:, 0] += 6 * ys
        >>> Xt = Xs + [20, 5]
        >>> model = DomainAdaptationClassifier(LogisticRegression(), SinkhornTransport())
        >>> float(model.fit(Xs, ys, Xt).score(Xt, ys))
        1.0
    """

    classes_: Array
    n_features_in_: int

    def __init__(self, estimator: Any, transport: Any = None) -> None:
        self.estimator = estimator
        self.transport = transport

    def fit(
        self, Xs: Any, ys: Any = None, Xt: Any = None, yt: Any = None, **weights: Any
    ) -> DomainAdaptationClassifier:
        """Finds the plan between the domains, and trains the classifier on the source samples that it moves.

        Args:
            Xs: (ns, d) source samples.
            ys: (ns,) their labels, ints or names. Samples without a label (−1, "-1", None, NaN or missing in pandas) shape the plan, and
                do not train the classifier.
            Xt: (nt, e) target samples; e = d but for :class:`warpalign.GromovTransport`.
            yt: (nt,) labels of the target, of the same kind, or None. They restrict the plan as in the transport's fit.
            weights: a (ns,) and b (nt,), handed on to the transport's fit.

        Raises:
            TypeError: estimator is no classifier, or transport cannot move samples.
            ValueError: labels or target samples are missing, or do not fit.
        """
        if ys is None:
            raise ValueError("ys: expected labels (ns,) of the source samples, got None")
        if Xt is None:
            raise ValueError(
                "Xt: expected target samples (nt, d), got None: write fit(Xs, ys, Xt), or params={'Xt': Xt} in cross_validate"
            )
        if not all(hasattr(self.estimator, method) for method in ("fit", "predict", "get_params")):
            raise TypeError(
                f"estimator: expected a scikit-learn classifier, got {type(self.estimator).__name__}: "
                "write estimator=LogisticRegression(), say"
            )
        transport = clone(self._transport())
        # Labels of the source alone do not change a plan; with yt they do.
        self.transport_ = transport.fit(Xs, None if yt is None else ys, Xt, yt, **weights)
        moved = np.asarray(self.transport_.transform(Xs))
        places, classes = label_places(ys, "ys", len(moved))
        labelled = places >= 0
        if not labelled.any():
            raise ValueError(
                "ys: expected a sample that has a label, got none: −1, None and NaN say that there is none"
            )
        self.estimator_ = clone(self.estimator).fit(
            moved[labelled], as_given_labels(places[labelled], classes)
        )
        self.classes_ = self.estimator_.classes_
        self.n_features_in_ = moved.shape[1]
        return self

    def predict(self, Xt: Any) -> Array:
        """The classes (n,) of target samples, which are not moved.

        Args:
            Xt: (n, e) target samples.
        """
        check_is_fitted(self, "estimator_")
        return self.estimator_.predict(Xt)  # type: ignore[no-any-return]

    @_has("predict_proba")  # type: ignore[untyped-decorator]
    def predict_proba(self, Xt: Any) -> Array:
        """The probabilities (n, classes) of target samples' classes, if the classifier has them.

        Args:
            Xt: (n, e) target samples.
        """
        check_is_fitted(self, "estimator_")
        return self.estimator_.predict_proba(Xt)  # type: ignore[no-any-return]

    @_has("decision_function")  # type: ignore[untyped-decorator]
    def decision_function(self, Xt: Any) -> Array:
        """The classifier's decision function, (n,) or (n, classes), if it has one.

        Args:
            Xt: (n, e) target samples.
        """
        check_is_fitted(self, "estimator_")
        return self.estimator_.decision_function(Xt)  # type: ignore[no-any-return]

    def _transport(self) -> Any:
        if self.transport is None:
            from warpalign._transport.estimators.sinkhorn import SinkhornTransport

            return SinkhornTransport()
        if not all(hasattr(self.transport, method) for method in ("fit", "transform", "get_params")):
            raise TypeError(
                f"transport: expected SinkhornTransport, GromovTransport or an estimator alike, got {type(self.transport).__name__}"
            )
        return self.transport
