"""Estimators of scikit-learn's interface: clustering, neighbours, domain adaptation. They need scikit-learn."""

from warpalign._soft_dtw.estimators.kmeans import SoftDTWKMeans
from warpalign._soft_dtw.estimators.neighbors import SoftDTWKNeighborsClassifier, SoftDTWKNeighborsRegressor
from warpalign._transport.estimators.domain_classifier import DomainAdaptationClassifier
from warpalign._transport.estimators.gromov import GromovTransport
from warpalign._transport.estimators.sinkhorn import SinkhornTransport

__all__ = [
    "DomainAdaptationClassifier",
    "GromovTransport",
    "SinkhornTransport",
    "SoftDTWKMeans",
    "SoftDTWKNeighborsClassifier",
    "SoftDTWKNeighborsRegressor",
]
