"""Domain adaptation by optimal transport, as scikit-learn estimators (pip install 'warpalign[estimators]')."""

from __future__ import annotations

import math
import warnings
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from warpalign._core.checks import check_number
from warpalign._core.costs import Cost, CostFunction, check_cost
from warpalign._transport.checks import check_normalization, check_settings
from warpalign._transport.costs import CostNormalization, pair_costs, size_of_costs
from warpalign._transport.estimators.domain_transport import (
    EPSILON,
    Array,
    ConvergenceWarning,
    DomainTransport,
    as_array,
    check_is_fitted,
    differing_labels,
)
from warpalign._transport.estimators.gromov import OutOfSample
from warpalign._transport.functional import sinkhorn
from warpalign._transport.options import Annealing
from warpalign._transport.plan import TransportPlan
from warpalign._transport.problem import problem
from warpalign._transport.softmin import mapped


class SinkhornTransport(DomainTransport):
    """Maps samples of a source domain to a target domain by entropic optimal transport.

    A model that is trained on moved source samples with the source's labels then fits the target domain:
    :class:`warpalign.DomainAdaptationClassifier` does both. Within a scikit-learn ``Pipeline`` the transport would move the target samples
    again that the model predicts. Names are those of POT's ``ot.da.SinkhornTransport``;
    :class:`warpalign.compat.pot.da.SinkhornTransport` has its signature too.

    Sources: Courty et al., "Optimal transport for domain adaptation", TPAMI 2017; Pooladian & Niles-Weed, "Entropic estimation
    of optimal transport maps", arXiv 2109.12004 ("continuous"); Ferradans et al., "Regularized discrete optimal transport", SIAM
    J. Imaging Sci. 2014 ("nearest").

    Args:
        epsilon: the regularisation strength, a number > 0 in units of the normalised cost. The plan of 0.001 follows the costs closely,
            that of 0.1 is blurred.
        cost: "sqeuclidean", "euclidean", "l1", "cosine" or "huber", or a function of x (B, n, d) and y (B, m, d) that returns (B, n, m).
        cost_scale: a factor > 0 of the cost.
        cost_normalization: "max" or "mean" divides costs by their largest or their mean. New samples' costs are divided by the same
            number. None: costs are used as they are.
        rho_a: the strength of the KL penalty on the source's marginal, >= 0, in units of the normalised cost. None: it equals the weights;
            0: it is free.
        rho_b: the strength of the KL penalty on the target's marginal, as rho_a.
        mass: partial transport of this mass, above 0 and at most the smaller sum of weights; without rho_a and rho_b. None: all.
        reference: the measure that the entropy is relative to, "product" of the weights or "counting". Balanced plans do not depend on it.
        limit_max: with labels of both domains, the least cost of a pair of two different labels, a number >= 0 in multiples of the
            largest cost. inf forbids such pairs.
        out_of_sample: how new samples move. "continuous": by the entropic map, which all samples of a domain share. "nearest": with
            the fitted sample that is nearest to them.
        annealing: a :class:`warpalign.transport.Annealing`, or a number > 0, the first epsilon. None: all iterations have epsilon.
        max_iter: the maximum number of iterations at the final epsilon, at least 1.
        tol: iterations end when no potential moves by more than tol · epsilon; >= 0. 0: they end at max_iter.
        device: the device of the computation, for instance "cuda". None: the CPU.

    Attributes:
        plan_: the :class:`warpalign.transport.TransportPlan` (ns, nt), which stores no table.
        coupling_: the plan as an array (ns, nt), computed on access.
        cost_: ⟨C, P⟩, a float.
        n_iter_: iterations. scikit-learn's ConvergenceWarning says where they ended above tol.
        normalizer_: the number that costs were divided by.
        xs_, xt_: the fitted samples.
        n_features_in_: their number of features.

    In every method Xs (ns, d) and Xt (nt, d) are array-like. float32 is computed in float32, all
    else in float64.

    Examples:
        >>> import numpy as np
        >>> random = np.random.default_rng(0)
        >>> Xs, Xt = random.normal(size=(30, 2)), random.normal(size=(40, 2)) + 3
        >>> SinkhornTransport(epsilon=0.05).fit(Xs, Xt=Xt).transform(Xs).shape
        (30, 2)
    """

    cost_: float
    normalizer_: float
    n_iter_: int
    n_features_in_: int

    def __init__(
        self,
        epsilon: float = EPSILON,
        *,
        cost: Cost | CostFunction = "sqeuclidean",
        cost_scale: float = 1.0,
        cost_normalization: CostNormalization | None = "max",
        rho_a: float | None = None,
        rho_b: float | None = None,
        mass: float | None = None,
        reference: Literal["product", "counting"] = "product",
        limit_max: float = math.inf,
        out_of_sample: OutOfSample = "continuous",
        annealing: Annealing | float | None = None,
        max_iter: int = 1000,
        tol: float = 1e-5,
        device: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.cost = cost
        self.cost_scale = cost_scale
        self.cost_normalization = cost_normalization
        self.rho_a = rho_a
        self.rho_b = rho_b
        self.mass = mass
        self.reference = reference
        self.limit_max = limit_max
        self.out_of_sample = out_of_sample
        self.annealing = annealing
        self.max_iter = max_iter
        self.tol = tol
        self.device = device

    def fit(
        self, Xs: Any, ys: Any = None, Xt: Any = None, yt: Any = None, *, a: Any = None, b: Any = None
    ) -> SinkhornTransport:
        """Finds the plan between the domains.

        Args:
            Xs: (ns, d) source samples.
            ys: (ns,) labels of the source, ints or names; −1, "-1", None, NaN or missing in pandas: unlabelled. Used with yt alone.
            Xt: (nt, d) target samples.
            yt: (nt,) labels of the target, of the same kind.
            a: (ns,) weights >= 0 of the source samples; None: 1 / ns each.
            b: (nt,) weights of the target samples.
        """
        if self.out_of_sample not in get_args(OutOfSample):
            raise ValueError(f'out_of_sample: expected "continuous" or "nearest", got {self.out_of_sample!r}')
        self._read_domains(Xs, Xt)
        if self.xs_.shape[1] != self.xt_.shape[1]:
            raise ValueError(f"Xt: expected {self.xs_.shape[1]} features, as Xs has, got {self.xt_.shape[1]}")
        self.n_features_in_ = self.xs_.shape[1]
        x, y = self._tensor(self.xs_), self._tensor(self.xt_)
        self.normalizer_ = self._normalizer(x, y)
        options: dict[str, Any] = {"x": x, "y": y, "cost": self.cost}
        if ys is not None and yt is not None:
            options = {"cost_matrix": self._labelled_costs(x, y, ys, yt)}
        result = sinkhorn(
            **options,
            epsilon=self.epsilon,
            a=self._weights(a, "a", x),
            b=self._weights(b, "b", y),
            cost_scale=check_number(self.cost_scale, "cost_scale", None) / self.normalizer_,
            rho_a=self.rho_a,
            rho_b=self.rho_b,
            mass=self.mass,
            reference=self.reference,
            annealing=self.annealing,
            max_iter=self.max_iter,
            tol=self.tol,
        )
        self.plan_ = result.plan
        self.cost_, self.n_iter_ = float(result.linear), int(result.iterations)
        error = float(result.error)
        if not error <= self.tol and self.tol > 0:
            warnings.warn(
                f"SinkhornTransport: after {self.n_iter_} iterations the error is {error:.3g}, above tol={self.tol:g}. "
                "Weights and labels may allow no plan, or max_iter may be too small for this epsilon.",
                ConvergenceWarning,
                stacklevel=2,
            )
        self._b = self._weights(b, "b", y)
        self._a = self._weights(a, "a", x)
        return self

    def transform(self, Xs: Any) -> Array:
        """Source samples moved to the target domain, (n, d).

        Args:
            Xs: (n, d) samples, fitted ones or new ones.
        """
        check_is_fitted(self, "plan_")
        return self._moved(
            self._array(Xs, "Xs", self.n_features_in_), self.plan_, self.xs_, self.xt_, self._b
        )

    def inverse_transform(self, Xt: Any) -> Array:
        """Target samples moved to the source domain, (n, d).

        Args:
            Xt: (n, d) samples, fitted ones or new ones.
        """
        check_is_fitted(self, "plan_")
        return self._moved(
            self._array(Xt, "Xt", self.n_features_in_), self.plan_.T, self.xt_, self.xs_, self._a
        )

    def fit_transform(
        self, Xs: Any, ys: Any = None, Xt: Any = None, yt: Any = None, *, a: Any = None, b: Any = None
    ) -> Array:
        """:meth:`fit`, then :meth:`transform` of Xs."""
        return self.fit(Xs, ys, Xt, yt, a=a, b=b).transform(Xs)

    def _normalizer(self, x: Tensor, y: Tensor) -> float:
        normalization, kind = check_normalization(self.cost_normalization), check_cost(self.cost)
        if normalization is None:
            return 1.0
        sizes = (1, len(x), len(y))
        size = size_of_costs(
            normalization, lambda rows: pair_costs(kind, x[None, rows], y[None]), sizes, (None, None)
        )
        return float(size)

    def _labelled_costs(self, x: Tensor, y: Tensor, ys: Any, yt: Any) -> Tensor:
        """(ns, nt) costs of points, and limit_max times the largest one at least for pairs of two different labels."""
        differ = differing_labels(ys, yt, (len(x), len(y)))
        costs = pair_costs(check_cost(self.cost), x[None], y[None])[0]
        limit = math.inf if self.limit_max == math.inf else check_number(self.limit_max, "limit_max")
        least = costs.max() * limit if math.isfinite(limit) else costs.new_tensor(math.inf)
        return torch.where(differ.to(costs.device), costs.maximum(least), costs)

    def _moved(
        self, X: Array, plan: TransportPlan, own: Array, other: Array, weights: Tensor | None
    ) -> Array:
        if self.out_of_sample == "nearest":
            x, fitted = self._tensor(X), self._tensor(own)
            nearest = self._nearest(x, fitted)
            moved = plan.barycentric_map(self._tensor(other))
            return as_array(moved[nearest] + x - fitted[nearest])
        settings = check_settings(
            cost_scale=self.cost_scale / self.normalizer_,
            reference=self.reference,
            updates="symmetric",
            max_iter=1,
            tol=0.0,
        )
        values = self._tensor(other)
        of = problem(
            self._tensor(X),
            values,
            None,
            cost=self.cost,
            a=None,
            b=weights,
            x_lengths=None,
            y_lengths=None,
            epsilon=self.epsilon,
            init=None,
            settings=settings,
        )
        return as_array(mapped(of, plan.g[None], values))
