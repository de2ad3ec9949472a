"""The parts of recognise_speech.py."""
