"""Monotonic alignment search."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from warpalign._core.checks import naming_arguments
from warpalign._core.series import Lengths
from warpalign._core.torch_internals import is_forward_mode, is_transforming
from warpalign._core.transforms import Dim, apply, folded, unfold
from warpalign._ctc import ops
from warpalign._ctc.checks import check_floats, check_lengths
from warpalign._ctc.settings import MonotonicOutput, check_output


class _Search(torch.autograd.Function):
    """The operator, for torch.func."""

    @staticmethod
    def forward(
        scores: Tensor, text_lengths: Tensor | None, frame_lengths: Tensor | None, wants_path: bool
    ) -> tuple[Tensor, ...]:
        result: tuple[Tensor, ...] = ops.monotonic(scores, text_lengths, frame_lengths, wants_path)
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(*output)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return (None,) * 4

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[Dim, ...],
        scores: Tensor,
        text_lengths: Tensor | None,
        frame_lengths: Tensor | None,
        wants_path: bool,
    ) -> tuple[tuple[Tensor, ...], tuple[Dim, ...]]:
        inputs = folded((scores, text_lengths, frame_lengths), in_dims[:3], info.batch_size)
        return unfold(apply(_Search, *inputs, wants_path), info.batch_size)


def monotonic_alignment_search(
    scores: Tensor,
    text_lengths: Lengths | None = None,
    frame_lengths: Lengths | None = None,
    *,
    output: MonotonicOutput = "path",
) -> Tensor:
    """The monotonic alignment of greatest score, in which every position of the text has at least one frame.

    A path has one position per frame, begins at the first one, ends at the last one, and stays or goes on by one. Its score
    is the sum of the scores on it. Among paths of equal score, back from the last frame, the same position is taken rather
    than the one before.

    Source: Kim et al., "Glow-TTS", NeurIPS 2020, section 3.2.

    Args:
        scores: (B, S, T) or (S, T): of text position and frame, float64, float32, float16 or bfloat16, of any strides. A table
            (B, T, S) needs ``transpose(1, 2)`` alone.
        text_lengths: (B,) true numbers of positions S_b, 0 to S: integers, as a tensor on the scores' device, a list, a tuple
            or an array. None: all S.
        frame_lengths: (B,) true numbers of frames T_b, 0 to T. None: all T. Padding is ignored.
        output: "path" or "durations".

    Returns:
        (B, S, T) bools for "path", True where the frame belongs to the position; (B, S) int32 for "durations", the numbers
        of frames of each position. All False, or 0, where there is no path, because S_b > T_b, or where a score is NaN or +inf.
        Not differentiable.

    Raises:
        TypeError, ValueError: an argument is invalid.

    Examples:
        >>> scores = torch.randn(2, 5, 20)
        >>> monotonic_alignment_search(scores, output="durations").sum(1)
        tensor([20, 20])
    """
    scores = check_floats(scores, "scores", "S, T")
    output = check_output(output)
    unbatched = scores.dim() == 2
    table = scores.detach().unsqueeze(0) if unbatched else scores.detach()
    batch, positions, frames = table.shape
    whose = {"unbatched": unbatched, "whose": "the scores", "unit": "item"}
    texts = check_lengths(text_lengths, "text_lengths", table.device, batch, positions, "S", **whose)  # type: ignore[arg-type]
    lengths = check_lengths(frame_lengths, "frame_lengths", table.device, batch, frames, "T", **whose)  # type: ignore[arg-type]
    search = _Search if is_transforming() or is_forward_mode() else None
    with naming_arguments():
        if search is None:
            _, durations, path = ops.monotonic(table, texts, lengths, output == "path")
        else:
            _, durations, path = apply(search, table, texts, lengths, output == "path")
    found: Tensor = path if output == "path" else durations
    return found.squeeze(0) if unbatched else found
