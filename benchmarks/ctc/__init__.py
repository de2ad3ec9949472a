"""Measurements of CTC."""
