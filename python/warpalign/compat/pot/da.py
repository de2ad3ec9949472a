"""Drop-in for ot.da.SinkhornTransport (pip install 'warpalign[estimators]')."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from warpalign import estimators
from warpalign.compat.pot._common import Kind, costs_of, kind_of, metric_of

# isort: split
from sklearn.base import BaseEstimator

__all__ = ["SinkhornTransport", "distribution_estimation_uniform"]

_NORMS: dict[str, Callable[[Tensor], Tensor]] = {"median": Tensor.median, "max": Tensor.max}


def distribution_estimation_uniform(X: Any) -> Any:
    """(n,) weights 1 / n of samples.

    Args:
        X: (n, d) samples, an array or a tensor, whose kind and dtype the weights take.
    """
    kind = kind_of(X)
    return kind.out(torch.full((len(X),), 1 / len(X), dtype=kind.dtype, device=kind.device))


class SinkhornTransport(BaseEstimator):  # type: ignore[misc]
    """Domain adaptation with POT's names; :class:`warpalign.SinkhornTransport` computes.

    Args:
        reg_e: epsilon.
        method: changes nothing.
        max_iter: as numItermax of :func:`warpalign.compat.pot.sinkhorn`.
        tol: as stopThr of :func:`warpalign.compat.pot.sinkhorn`.
        verbose: changes nothing.
        log: changes nothing.
        metric: "sqeuclidean", "euclidean", "cityblock" or "cosine".
        norm: None, "median", "max", "log" or "loglog": what is done to the costs first.
        distribution_estimation: a function of samples that returns their weights; None: uniform ones.
        out_of_sample_map: "continuous" (the entropic map) or "ferradans" (with the nearest fitted sample).
        limit_max: with labels of both domains, what a pair of two different labels costs at least, in multiples of the largest
            cost.

    Attributes:
        coupling_: the plan (ns, nt).
        cost_: the costs (ns, nt).
        mu_s, mu_t: weights.
        xs_, xt_: the fitted samples.
        log_: {"log_u", "log_v"}: logarithms of scaling vectors.
    """

    def __init__(
        self,
        reg_e: float = 1.0,
        method: str = "sinkhorn_log",
        max_iter: int = 1000,
        tol: float = 1e-8,
        verbose: bool = False,
        log: bool = False,
        metric: str = "sqeuclidean",
        norm: str | None = None,
        distribution_estimation: Callable[[Any], Any] | None = None,
        out_of_sample_map: str = "continuous",
        limit_max: float = math.inf,
    ) -> None:
        if out_of_sample_map not in ("ferradans", "continuous"):
            raise ValueError("Unknown out_of_sample_map method")
        self.reg_e = reg_e
        self.method = method
        self.max_iter = max_iter
        self.tol = tol
        self.verbose = verbose
        self.log = log
        self.metric = metric
        self.norm = norm
        self.limit_max = limit_max
        self.distribution_estimation = distribution_estimation
        self.out_of_sample_map = out_of_sample_map

    def fit(self, Xs: Any = None, ys: Any = None, Xt: Any = None, yt: Any = None) -> SinkhornTransport:
        """Finds the plan from Xs (ns, d) to Xt (nt, d); labels of both domains, −1 where there is none, forbid pairs."""
        if Xs is None:
            raise ValueError("Xs: expected source samples (ns, d), got None")
        self._kind = kind_of(Xs, Xt)
        metric_of(self.metric)
        if self.norm not in (None, "median", "max", "log", "loglog"):
            raise ValueError(
                f"Norm {self.norm} is not a valid option.\nValid options are:\nmedian, max, log, loglog"
            )
        self.xs_, self.xt_ = Xs, Xt
        self._labels = (_as_array(ys), _as_array(yt))
        self.norm_cost_: float | None = None
        if Xt is not None and self.norm in _NORMS:
            costs = costs_of(self.metric, self._kind.tensor(Xs), self._kind.tensor(Xt))
            self.norm_cost_ = float(_median(costs) if self.norm == "median" else costs.max())
        weights = self.distribution_estimation or distribution_estimation_uniform
        self.mu_s = weights(Xs)
        self.mu_t = None if Xt is None else weights(Xt)
        self._model = estimators.SinkhornTransport(
            self.reg_e,
            cost=self._costs,
            cost_normalization=None,
            limit_max=self.limit_max,
            out_of_sample="continuous" if self.out_of_sample_map == "continuous" else "nearest",
            max_iter=self.max_iter,
            tol=max(self.tol, 4 * torch.finfo(self._kind.dtype).eps),
        )
        self._model.fit(*map(_as_array, (Xs, ys, Xt, yt)), a=_as_array(self.mu_s), b=_as_array(self.mu_t))
        return self

    def fit_transform(self, Xs: Any = None, ys: Any = None, Xt: Any = None, yt: Any = None) -> Any:
        """:meth:`fit`, then :meth:`transform` of Xs."""
        return self.fit(Xs, ys, Xt, yt).transform(Xs)

    def transform(
        self, Xs: Any = None, ys: Any = None, Xt: Any = None, yt: Any = None, batch_size: int = 128
    ) -> Any:
        """(n, d): source samples moved to the target domain; batch_size changes nothing."""
        return self._out(self._model.transform(_as_array(Xs)))

    def inverse_transform(
        self, Xs: Any = None, ys: Any = None, Xt: Any = None, yt: Any = None, batch_size: int = 128
    ) -> Any:
        """(n, d): target samples moved to the source domain."""
        return self._out(self._model.inverse_transform(_as_array(Xt)))

    def transform_labels(self, ys: Any = None) -> Any:
        """(nt, classes): shares of the source's labels in each target sample's mass; −1 is a class, as in POT."""
        return self._out(self._model.transform_labels(_all_classes(ys)))

    def inverse_transform_labels(self, yt: Any = None) -> Any:
        """(ns, classes): shares of the target's labels in each source sample's mass; −1 is a class, as in POT."""
        return self._out(self._model.inverse_transform_labels(_all_classes(yt)))

    @property
    def coupling_(self) -> Any:
        return self._out(self._model.coupling_)

    @property
    def cost_(self) -> Any:
        x, y = self._kind.tensor(self.xs_), self._kind.tensor(self.xt_)
        if any(labels is None for labels in self._labels):
            return self._kind.out(self._costs(x[None], y[None])[0])
        return self._kind.out(self._model._labelled_costs(x, y, *self._labels))

    @property
    def log_(self) -> dict[str, Any]:
        plan = self._model.plan_
        scaled = (
            (plan.f / self.reg_e + self._kind.tensor(self.mu_s).log().to(plan.f)),
            (plan.g / self.reg_e + self._kind.tensor(self.mu_t).log().to(plan.g)),
        )
        return {name: self._kind.out(one) for name, one in zip(("log_u", "log_v"), scaled, strict=True)}

    def _costs(self, x: Tensor, y: Tensor) -> Tensor:
        """(1, n, m): costs of points after the norm."""
        costs = costs_of(self.metric, x[0], y[0])[None]
        if self.norm_cost_ is not None:
            return costs / self.norm_cost_
        if self.norm == "log":
            return costs.log1p()
        return costs.log1p().log1p() if self.norm == "loglog" else costs

    def _out(self, array: Any) -> Any:
        kind: Kind = self._kind
        return torch.from_numpy(array).to(kind.device) if kind.is_torch else array


def _median(costs: Tensor) -> Tensor:
    """NumPy's median: the mean of both middle ones where their number is even."""
    ordered = costs.flatten().sort().values
    middle = ordered.numel() // 2
    return ordered[middle] if ordered.numel() % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def _as_array(given: Any) -> Any:
    return given.detach().cpu().numpy() if isinstance(given, Tensor) else given


def _all_classes(labels: Any) -> Any:
    """Numbers from 0 on of labels in rising order, of −1 too: POT's propagation has no unlabelled samples."""
    return np.unique(_as_array(labels), return_inverse=True)[1].reshape(-1)
