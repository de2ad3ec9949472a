"""Soft-DTW; warpalign.functional and warpalign.modules hand on what is public."""
