"""Estimators of scikit-learn's interface for domain adaptation. Public names: warpalign.estimators."""
