"""Soft-DTW; public names are in warpalign.timeseries and warpalign.estimators."""
