"""Domain adaptation between spaces without a common feature, as a scikit-learn estimator; handed on by adaptation.py."""

from __future__ import annotations

import warnings
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from warpalign._core.checks import check_number
from warpalign._core.costs import COSTS
from warpalign._core.randomness import generator_of_state
from warpalign._transport.checks import check_distance_normalization
from warpalign._transport.costs import DistanceNormalization, pair_costs
from warpalign._transport.estimators.domain_transport import (
    EPSILON,
    Array,
    ConvergenceWarning,
    DomainTransport,
    as_array,
    check_is_fitted,
    differing_labels,
)
from warpalign._transport.gromov import gromov_wasserstein
from warpalign._transport.gromov_geometry import divisors, of_sides, table_of
from warpalign._transport.gromov_result import GromovResult
from warpalign._transport.gromov_sampled import gromov_wasserstein_sampled
from warpalign._transport.options import GROMOV_ERROR, Annealing, Geodesic, Geometry
from warpalign._transport.plan import TransportPlan

OutOfSample = Literal["continuous", "nearest"]
_GEOMETRIES = ("euclidean", "sqeuclidean", "geodesic")


class GromovTransport(DomainTransport):
    """Maps samples of a source domain to the space of a target domain by Gromov-Wasserstein transport.

    The domains need no features in common: only intra-domain distances are compared. Names are those of
    :class:`warpalign.SinkhornTransport`.

    Sources: Peyré, Cuturi & Solomon, "Gromov-Wasserstein averaging of kernel and distance matrices", ICML 2016; Demetci et al., "SCOT:
    single-cell multi-omics alignment with optimal transport", J. Comput. Biol. 2022 ("geodesic", barycentric maps).

    Args:
        epsilon: the regularisation strength, a number > 0 in units of the normalised squared distances.
        geometry: the intra-domain distances: "euclidean", "sqeuclidean", "geodesic" (shortest paths on graphs of neighbours) or a
            :class:`warpalign.transport.Geodesic` with the options of the latter.
        cost_normalization: "max" or "mean" divides each domain's distances by their largest or their mean, "common" both domains' by the
            largest of both. New samples' distances are divided by the same numbers. None: distances are used as they are.
        rho_a: the strength of the KL penalty on the source's marginal, >= 0, in the units of epsilon. None: it equals the weights; 0: it
            is free.
        rho_b: the strength of the KL penalty on the target's marginal, as rho_a.
        mass: partial transport of this mass, above 0 and at most the smaller sum of weights; without rho_a and rho_b. None: all.
        label_weight: with labels of both domains, the weight from 0 to 1 of a cost that is 1 for two different labels.
        n_anchors: None: the exact gradient, with stored distance matrices. An int, at least 1: the gradient of so many sampled pairs in
            each step, as :func:`warpalign.transport.gromov_wasserstein_sampled` computes it; restarts and tol are then ignored.
        restarts: the number of initialisations, at least 1, of which the best result is kept.
        random_state: None, an int or a numpy.random.RandomState, for restarts and n_anchors.
        out_of_sample: how new samples move. "continuous": to the average of target samples that their own row of the last
            linearised cost gives; it needs the exact gradient. "nearest": as the fitted sample that is nearest to them.
        annealing: a :class:`warpalign.transport.Annealing`, or a number > 0, the first epsilon. None: all steps have epsilon.
        max_iter: the maximum number of steps, at least 1.
        tol: steps end when less than this share of the mass moves at the final epsilon; >= 0.
        device: the device of the computation, for instance "cuda". None: the CPU.

    Attributes:
        plan_: the :class:`warpalign.transport.TransportPlan` (ns, nt).
        coupling_: the plan as an array (ns, nt), computed on access.
        cost_: the distortion, a float: an estimate with n_anchors.
        n_iter_: steps. scikit-learn's ConvergenceWarning says where they have not converged.
        xs_, xt_: the fitted samples.
        n_features_in_: the source's number of features.
        n_features_out_: the target's.

    In every method Xs (ns, d) and Xt (nt, e) are array-like. float32 is computed in float32, all
    else in float64.

    Examples:
        >>> import numpy as np
        >>> Xs = np.random.default_rng(0).normal(size=(30, 2))
        >>> Xt = np.concatenate([Xs, np.zeros((30, 1))], 1)
        >>> GromovTransport().fit(Xs, Xt=Xt).transform(Xs).shape
        (30, 3)
    """

    cost_: float
    n_iter_: int
    n_features_in_: int
    n_features_out_: int

    def __init__(
        self,
        epsilon: float = EPSILON,
        *,
        geometry: Geometry = "euclidean",
        cost_normalization: DistanceNormalization | None = "max",
        rho_a: float | None = None,
        rho_b: float | None = None,
        mass: float | None = None,
        label_weight: float = 0.5,
        n_anchors: int | None = None,
        restarts: int = 1,
        random_state: Any = None,
        out_of_sample: OutOfSample = "nearest",
        annealing: Annealing | float | None = 1e-2,
        max_iter: int = 200,
        tol: float = 1e-3,
        device: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.geometry = geometry
        self.cost_normalization = cost_normalization
        self.rho_a = rho_a
        self.rho_b = rho_b
        self.mass = mass
        self.label_weight = label_weight
        self.n_anchors = n_anchors
        self.restarts = restarts
        self.random_state = random_state
        self.out_of_sample = out_of_sample
        self.annealing = annealing
        self.max_iter = max_iter
        self.tol = tol
        self.device = device

    def fit(
        self, Xs: Any, ys: Any = None, Xt: Any = None, yt: Any = None, *, a: Any = None, b: Any = None
    ) -> GromovTransport:
        """Finds the plan between the domains.

        Args:
            Xs: (ns, d) source samples.
            ys: (ns,) labels of the source, ints or names; −1, "-1", None, NaN or missing in pandas: unlabelled. Used with yt alone.
            Xt: (nt, e) target samples.
            yt: (nt,) labels of the target, of the same kind.
            a: (ns,) weights >= 0 of the source samples; None: 1 / ns each.
            b: (nt,) weights of the target samples.
        """
        if self.out_of_sample not in get_args(OutOfSample):
            raise ValueError(f'out_of_sample: expected "continuous" or "nearest", got {self.out_of_sample!r}')
        if self.geometry not in _GEOMETRIES and not isinstance(self.geometry, Geodesic):
            names = ", ".join(f'"{name}"' for name in _GEOMETRIES)
            raise ValueError(f"geometry: expected {names} or a Geodesic, got {self.geometry!r}")
        if self.n_anchors is not None and self.out_of_sample == "continuous":
            raise ValueError("out_of_sample: expected \"nearest\" with n_anchors, got 'continuous'")
        self._read_domains(Xs, Xt)
        self.n_features_in_, self.n_features_out_ = self.xs_.shape[1], self.xt_.shape[1]
        x, y = self._tensor(self.xs_), self._tensor(self.xt_)
        options: dict[str, Any] = {
            "epsilon": self.epsilon,
            "a": self._weights(a, "a", x),
            "b": self._weights(b, "b", y),
            "rho_a": self.rho_a,
            "rho_b": self.rho_b,
            "mass": self.mass,
            "annealing": self.annealing,
            "max_iter": self.max_iter,
            "generator": generator_of_state(self.random_state),
        }
        self._share = 1.0
        if ys is not None and yt is not None:
            options["feature_cost"] = differing_labels(ys, yt, (len(x), len(y))).to(x)
            options["feature_weight"] = self._label_weight()
        if self.n_anchors is None:
            self._fit_exact(x, y, options)
        else:
            self._fit_sampled(x, y, self.n_anchors, options)
        self._a, self._b = options["a"], options["b"]
        return self

    def transform(self, Xs: Any) -> Array:
        """Source samples moved into the target's space, (n, e).

        Args:
            Xs: (n, d) samples, fitted ones or new ones.
        """
        check_is_fitted(self, "plan_")
        x = self._tensor(self._array(Xs, "Xs", self.n_features_in_))
        return as_array(self._moved(x, transposed=False))

    def inverse_transform(self, Xt: Any) -> Array:
        """Target samples moved into the source's space, (n, d).

        Args:
            Xt: (n, e) samples, fitted ones or new ones.
        """
        check_is_fitted(self, "plan_")
        x = self._tensor(self._array(Xt, "Xt", self.n_features_out_))
        return as_array(self._moved(x, transposed=True))

    def fit_transform(
        self, Xs: Any, ys: Any = None, Xt: Any = None, yt: Any = None, *, a: Any = None, b: Any = None
    ) -> Array:
        """:meth:`fit`, then :meth:`transform` of Xs."""
        return self.fit(Xs, ys, Xt, yt, a=a, b=b).transform(Xs)

    def _label_weight(self) -> float:
        weight = check_number(self.label_weight, "label_weight")
        if weight > 1:
            raise ValueError(f"label_weight: expected a number from 0 to 1, got {self.label_weight}")
        return weight

    def _fit_exact(self, x: Tensor, y: Tensor, options: dict[str, Any]) -> None:
        tables = [table_of(side) for side in of_sides((x, y), None, None, geometry=self.geometry)]
        normalization = check_distance_normalization(self.cost_normalization)
        self._sizes = [float(size) for size in divisors(tables[0][None], tables[1][None], normalization)]
        self._tables = [table / size for table, size in zip(tables, self._sizes, strict=True)]
        result = gromov_wasserstein(
            distances=(self._tables[0], self._tables[1]),
            cost_normalization=None,
            restarts=self.restarts,
            tol=self.tol,
            **options,
        )
        self._keep(result)
        self._share = 1 - options.get("feature_weight", 0.0)

    def _fit_sampled(self, x: Tensor, y: Tensor, n_anchors: int, options: dict[str, Any]) -> None:
        result = gromov_wasserstein_sampled(
            x,
            y,
            geometry=self.geometry,
            cost_normalization=self.cost_normalization,
            n_anchors=n_anchors,
            **options,
        )
        self._keep(result)

    def _keep(self, result: GromovResult) -> None:
        self.plan_, self.cost_, self.n_iter_ = result.plan, float(result.distortion), int(result.iterations)
        if bool(result.converged):
            return
        error = float(result.error)
        if error <= GROMOV_ERROR:
            message = f"not converged after n_iter_ = {self.n_iter_} steps: write a larger max_iter, epsilon or tol."
        else:
            message = f"expected a plan with an error of at most {GROMOV_ERROR}, got {error:.3g}: write a larger epsilon"
        warnings.warn(f"GromovTransport: {message}", ConvergenceWarning, stacklevel=4)

    def _moved(self, x: Tensor, *, transposed: bool) -> Tensor:
        plan = self.plan_.T if transposed else self.plan_
        arrays = (self.xt_, self.xs_) if transposed else (self.xs_, self.xt_)
        fitted, values = (self._tensor(array) for array in arrays)
        nearest = self._nearest(x, fitted)
        if self.out_of_sample == "nearest":
            device = plan.f.device
            return plan.barycentric_map(values.to(device))[nearest.to(device)]
        return self._shares(x, fitted, nearest, plan, transposed=transposed) @ values

    def _shares(
        self, x: Tensor, fitted: Tensor, nearest: Tensor, plan: TransportPlan, *, transposed: bool
    ) -> Tensor:
        """(n, m): how the mass of each of x goes to the other domain's samples, by the derivative of the objective at the plan."""
        own, other = (1, 0) if transposed else (0, 1)
        if self.geometry not in COSTS:
            # A path to a fitted sample begins with the straight line to the nearest one.
            first = torch.linalg.vector_norm(x - fitted[nearest], dim=1, keepdim=True) / self._sizes[own]
            distances = first + self._tables[own][nearest]
        else:
            distances = (
                pair_costs(COSTS.index(str(self.geometry)), x[None], fitted[None])[0] / self._sizes[own]
            )
        table, dense = self._tables[other], plan.to_dense()
        cost = table.square() @ plan.marginal(0) - 2 * distances @ (dense @ table.mT)
        weights = (self._b, self._a)[own]
        logits = (plan.g - 2 * self._share * cost) / plan.epsilon
        shares: Tensor = (logits if weights is None else logits + weights.log()).softmax(1)
        return shares
