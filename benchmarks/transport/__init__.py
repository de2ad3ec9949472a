"""Benchmarks of optimal transport."""
