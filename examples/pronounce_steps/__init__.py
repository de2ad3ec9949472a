"""The parts of pronounce.py."""
