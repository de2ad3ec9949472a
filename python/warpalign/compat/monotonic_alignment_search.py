"""``monotonic_alignment_search.maximum_path`` (Glow-TTS, Coqui): values (B, T_x, T_y) of text and frames.

What differs: sums are float64, nothing is copied to the host, and where there is more text than frames the path is 0.
``monotonic_align.maximum_path`` of VITS has the frames first: :mod:`warpalign.compat.monotonic_align`.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from warpalign.ctc import monotonic_alignment_search as _search


def maximum_path(value: Tensor, mask: Tensor, implementation: str = "cython", **kwargs: Any) -> Tensor:
    """(B, T_x, T_y), of value's dtype: 1 on the best path, else 0.

    Args:
        value: (B, T_x, T_y) scores of text and frames, floating-point.
        mask: (B, T_x, T_y): 1 where both axes are within their true lengths, else 0.
        implementation: "cython" or "numpy", which are the same here.
        kwargs: have no effect.
    """
    if implementation not in ("cython", "numpy"):
        raise NotImplementedError(f'implementation: expected "cython" or "numpy", got {implementation!r}')
    texts, frames = mask.sum(1)[:, 0].long(), mask.sum(2)[:, 0].long()
    return _search(value, texts, frames).to(value.dtype)


def maximum_path_cython(value: Tensor, mask: Tensor) -> Tensor:
    """:func:`maximum_path`.

    Args:
        value: (B, T_x, T_y) scores of text and frames, floating-point.
        mask: (B, T_x, T_y): 1 where both axes are within their true lengths, else 0.
    """
    return maximum_path(value, mask)


def maximum_path_numpy(value: Tensor, mask: Tensor, *, max_neg_val: float | None = None) -> Tensor:
    """:func:`maximum_path`.

    Args:
        value: (B, T_x, T_y) scores of text and frames, floating-point.
        mask: (B, T_x, T_y): 1 where both axes are within their true lengths, else 0.
        max_neg_val: has no effect.
    """
    return maximum_path(value, mask)
