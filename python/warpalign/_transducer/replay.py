"""Steps of a search in a CUDA graph."""

from __future__ import annotations

import torch

from warpalign._core.hypotheses import State
from warpalign._core.replay import Replayed, Run


def captured(run: Run, state: State, device: torch.device) -> Replayed:
    """Replayed(run, state, device), with an error that names what the user's networks must not do."""
    try:
        return Replayed(run, state, device)
    except Exception as error:
        raise RuntimeError(
            "cuda_graph: expected a predictor and a joint whose steps a CUDA graph can hold, without waits for the "
            f"device and with tensors of the same shapes in each step, got {type(error).__name__}: {error}"
        ) from error
