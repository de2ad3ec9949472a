"""The parts of align_speech.py."""
