"""Benchmarks of soft-DTW, and of what is built on it."""
