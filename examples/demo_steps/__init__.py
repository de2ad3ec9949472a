"""The steps of examples/demo.py, one job per module."""
