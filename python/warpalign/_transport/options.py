"""Options of transport that come in groups: objects that functions, modules and estimators take alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from warpalign._core.scalars import check_count, check_number

SINKHORN_FACTOR = 0.5
GROMOV_FACTOR = 0.9
GROMOV_ERROR = 0.1
"""Of a Gromov-Wasserstein plan: one with a larger error has not converged."""


@dataclass(frozen=True, kw_only=True)
class Annealing:
    """A schedule of regularisation strengths that shrinks towards epsilon.

    Iterations begin with ``start``, multiply it by ``factor`` after each iteration, and stay at epsilon once they have reached it. Where
    epsilon is not smaller than ``start``, they begin with epsilon. A large epsilon is solved in few iterations, and its solution is a good
    start for a smaller one. In Gromov-Wasserstein transport a large first epsilon also finds better minima.

    Args:
        start: the first epsilon, a finite number > 0 in the units of epsilon.
        factor: above 0 and below 1. None: 0.5 for the iterations of Sinkhorn's algorithm, 0.9 for the steps of Gromov-Wasserstein
            transport.

    Raises:
        TypeError, ValueError: an argument is no number, or out of its range.

    Examples:
        >>> from warpalign.transport import sinkhorn
        >>> x, y = torch.randn(20, 2), torch.randn(30, 2)
        >>> bool(sinkhorn(x, y, epsilon=0.5, annealing=Annealing(start=5.0)).converged)
        True
    """

    start: float
    factor: float | None = None

    def __post_init__(self) -> None:
        check_number(self.start, "start", None)
        if self.factor is not None and check_number(self.factor, "factor", None) >= 1:
            raise ValueError(f"factor: expected a number above 0 and below 1, got {self.factor}")


@dataclass(frozen=True, kw_only=True)
class Geodesic:
    """Shortest paths on a graph, as the intra-domain distances of Gromov-Wasserstein transport.

    Of points it is the graph that :func:`warpalign.transport.knn_graph` makes, with components joined; of ``graphs=`` the given graph.

    Args:
        k: the neighbours of each point in the graph of points, at least 1. It has no meaning for a given graph.
        n_landmarks: None: exact shortest paths. An int, at least 1: the largest difference of the paths to so many nodes far from each
            other, a lower bound of the shortest path that is exact from a landmark. It takes a search per landmark only.

    Raises:
        TypeError, ValueError: an argument is no int, or below 1.

    Examples:
        >>> from warpalign.transport import gromov_wasserstein
        >>> x, y = torch.randn(60, 2), torch.randn(50, 3)
        >>> gromov_wasserstein(x, y, epsilon=5e-3, geometry=Geodesic(k=5)).plan.shape
        torch.Size([60, 50])
    """

    k: int = 30
    n_landmarks: int | None = None

    def __post_init__(self) -> None:
        check_count(self.k, "k")
        if self.n_landmarks is not None:
            check_count(self.n_landmarks, "n_landmarks")


Geometry = Literal["euclidean", "sqeuclidean", "geodesic"] | Geodesic


def check_annealing(annealing: object, factor: float) -> tuple[float, float]:
    """The first epsilon, 0 without annealing, and the factor, for which the argument stands where the caller has none."""
    if annealing is None:
        return 0.0, factor
    if isinstance(annealing, Annealing):
        return float(annealing.start), factor if annealing.factor is None else float(annealing.factor)
    if isinstance(annealing, bool) or not isinstance(annealing, (int, float)):
        raise TypeError(
            f"annealing: expected an Annealing, a number > 0 or None, got {type(annealing).__name__}"
        )
    return check_number(annealing, "annealing", None), factor
