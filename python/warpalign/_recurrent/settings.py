"""What the LSTM's operators are told besides their tensors, and how weights are handed over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from torch import Tensor

from warpalign._core.checks import PRECISIONS
from warpalign._core.torch_internals import matmul_precision

LSTMActivation = Literal["soft", "hard"]
ACTIVATIONS: tuple[LSTMActivation, ...] = ("soft", "hard")  # by their numbers in the operators


class LSTMWeights(NamedTuple):
    """Weights of one layer and direction, in gate order i, f, g, o. I is the layer's input size, P the size of h."""

    ih: Tensor
    """(4H, I)."""
    hh: Tensor
    """(4H, P)."""
    bias_ih: Tensor | None = None
    """(4H,). Both biases are given, or neither."""
    bias_hh: Tensor | None = None
    """(4H,)."""
    hr: Tensor | None = None
    """(P, H): the projection."""
    ln_ih: Tensor | None = None
    """(4H,). All four of layer norm's are given, or none."""
    ln_hh: Tensor | None = None
    """(4H,)."""
    ln_cell: Tensor | None = None
    """(H,)."""
    ln_cell_bias: Tensor | None = None
    """(H,)."""


NAMES = LSTMWeights(
    "weight_ih",  # type: ignore[arg-type]
    "weight_hh",  # type: ignore[arg-type]
    "bias_ih",  # type: ignore[arg-type]
    "bias_hh",  # type: ignore[arg-type]
    "weight_hr",  # type: ignore[arg-type]
    "weight_ln_ih",  # type: ignore[arg-type]
    "weight_ln_hh",  # type: ignore[arg-type]
    "weight_ln_c",  # type: ignore[arg-type]
    "bias_ln_c",  # type: ignore[arg-type]
)
"""What the modules call them."""


def precision_of_torch() -> int:
    """That of torch's own float32 products now, which are of TF32 ("medium") with torch's "high", too."""
    return PRECISIONS.index("highest" if matmul_precision() == "highest" else "medium")


class Options(NamedTuple):
    """What an LSTM may be told besides its sizes: checked, and as the operators take it."""

    activation: int = 0
    hard_slope: float = 0.125
    hard_offset: float = 0.5
    layer_norm_eps: float = 1e-5
    dropout: float = 0.0
    weight_dropout: float = 0.0
    zoneout_hidden: float = 0.0
    zoneout_cell: float = 0.0
    precision: int | None = 0
    """None: that of torch's own float32 products when a call is made."""
    batch_invariant: bool = False

    def of_call(self) -> dict[str, Any]:
        """As the operators take them now."""
        return self._asdict() | {
            "precision": precision_of_torch() if self.precision is None else self.precision
        }

    def draws_masks(self) -> bool:
        """Whether a training call needs random numbers."""
        return max(self.dropout, self.weight_dropout, self.zoneout_hidden, self.zoneout_cell) > 0


def directions(bidirectional: bool) -> int:
    return 2 if bidirectional else 1


def suffixes(layers: int, bidirectional: bool) -> Sequence[str]:
    """The endings of parameters' names, by layer and direction."""
    ways = ("", "_reverse") if bidirectional else ("",)
    return [f"_l{layer}{way}" for layer in range(layers) for way in ways]
