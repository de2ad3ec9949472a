"""Steps of a loop in a CUDA graph. Each loop captures its own, in the memory of the thread's graph before."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch

from warpalign._core.hypotheses import State, leaves, mapped

Run = Callable[[Any], tuple[Any, State]]
"""From a state to the next state, of the same shapes, and what else is made of it. It may overwrite the state and return it."""


class _Kept(threading.local):
    """A thread's stream for captures and its last graph, by device.

    A graph's memory goes on to the next one. PyTorch lets a graph take memory only from a graph that is there.
    """

    def __init__(self) -> None:
        self.streams: dict[torch.device, torch.cuda.Stream] = {}
        self.graphs: dict[torch.device, torch.cuda.CUDAGraph] = {}


_kept = _Kept()


class Replayed:
    """``run``, captured in a CUDA graph: each call takes ``state`` on in place and returns copies of what ``run`` returns.

    ``run`` must have run before on tensors of the same shapes, because libraries set themselves up in a first call. A
    thread's graphs share their memory, so that only the last one may be called.
    """

    def __init__(self, run: Run, state: State, device: torch.device) -> None:
        self.state = mapped(torch.clone, state)
        self._graph = torch.cuda.CUDAGraph()
        stream = _kept.streams.setdefault(device, torch.cuda.Stream(device))
        before = _kept.graphs.pop(device, None)
        current = torch.cuda.current_stream(device)
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            # Other threads may go on meanwhile.
            self._graph.capture_begin(None if before is None else before.pool(), "thread_local")
            try:
                after, self._made = run(self.state)
                for place, value in zip(leaves(self.state), leaves(after), strict=True):
                    if value is not place:
                        place.copy_(value)
            except Exception:
                with suppress(RuntimeError):
                    self._graph.capture_end()
                # A capture that fails leaves PyTorch's generator in it: all later random numbers would be errors.
                generator = torch.cuda.default_generators[current.device.index]
                generator.graphsafe_set_state(generator.clone_state())
                raise
            self._graph.capture_end()
        _kept.graphs[device] = self._graph
        self._device = device
        current.wait_stream(stream)

    @property
    def is_last(self) -> bool:
        """Whether the thread has captured no other graph since."""
        return _kept.graphs.get(self._device) is self._graph

    def __call__(self) -> State:
        if not self.is_last:
            raise RuntimeError(
                "expected the thread's last CUDA graph, got one before it: its memory has been used again"
            )
        self._graph.replay()
        return mapped(torch.clone, self._made)


def can_capture(device: torch.device) -> bool:
    """Whether the device is a GPU, and this thread captures nothing on it yet."""
    if device.type != "cuda":
        return False
    with torch.cuda.device(device):
        return not torch.cuda.is_current_stream_capturing()
