"""Measurements of language models in decoding."""
