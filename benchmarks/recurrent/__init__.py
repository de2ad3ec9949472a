"""Benchmarks of the LSTM."""
