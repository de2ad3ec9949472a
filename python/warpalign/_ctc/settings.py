"""What CTC's functions may be told besides logits, targets and lengths."""

from __future__ import annotations

from typing import Any, NamedTuple


class Settings(NamedTuple):
    """What all operators take besides their tensors: keyword arguments of their schemas."""

    blank: int = 0
    star: int = -1
    from_log_probs: bool = False
    zero_infinity: bool = False
    batch_invariant: bool = False


def as_keywords(settings: tuple[Any, ...]) -> dict[str, Any]:
    """Settings go through Function.apply as a plain tuple, which torch.compile of vmap understands."""
    return dict(zip(Settings._fields, settings, strict=True))
