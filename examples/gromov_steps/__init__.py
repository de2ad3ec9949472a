"""The parts of examples/gromov.py."""
