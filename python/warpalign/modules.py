"""The modules of all operators, family by family."""

from warpalign._soft_dtw.modules import SoftDTW

__all__ = ["SoftDTW"]
