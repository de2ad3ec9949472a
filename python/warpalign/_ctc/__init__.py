"""CTC and monotonic alignment, behind warpalign.ctc."""
