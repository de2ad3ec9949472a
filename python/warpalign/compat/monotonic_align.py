"""``monotonic_align.maximum_path`` of VITS: scores (B, T_t, T_s) of frames and text.

What differs: sums are float64, nothing is copied to the host, and where there is more text than frames the path is 0. Glow-TTS'
function of the same name has the text first: :mod:`warpalign.compat.monotonic_alignment_search`.
"""

from __future__ import annotations

from torch import Tensor

from warpalign.ctc import monotonic_alignment_search as _search


def maximum_path(neg_cent: Tensor, mask: Tensor) -> Tensor:
    """(B, T_t, T_s), of neg_cent's dtype: 1 on the best path, else 0.

    Args:
        neg_cent: (B, T_t, T_s) scores of frames and text, floating-point.
        mask: (B, T_t, T_s): 1 where both axes are within their true lengths, else 0.
    """
    frames, texts = mask.sum(1)[:, 0].long(), mask.sum(2)[:, 0].long()
    return _search(neg_cent.transpose(1, 2), texts, frames).transpose(1, 2).to(neg_cent.dtype)
