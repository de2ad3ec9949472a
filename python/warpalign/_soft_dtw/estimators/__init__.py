"""Estimators of scikit-learn's interface for time series. Public names: warpalign.estimators."""
