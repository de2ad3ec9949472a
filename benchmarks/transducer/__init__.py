"""Benchmarks of the transducer losses, and of what is built on it."""
