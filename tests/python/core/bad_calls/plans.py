"""Plans by sizes, and ways by name."""

from __future__ import annotations

from unittest import mock

from tests.python.bad_calls import BadCall, BadCalls, Given
from warpalign._core import library
from warpalign._core.explain import explain
from warpalign._core.ways import forced


def force(operator: str, way: str) -> None:
    with forced(operator, way):
        pass


def on_gpu_without_operators(given: Given) -> None:
    with mock.patch.object(library, "has_cuda", False):
        explain("ctc", [2, 3, 4, 1], device="9.0")


CALLS: BadCalls = {
    "explain: an operator that there is not": BadCall(
        lambda _: explain("dtw", [1, 2, 3, 4]),
        ValueError,
        "operator: expected one of soft_dtw, sinkhorn, transducer, transducer_joint, ctc, lstm, got 'dtw'",
    ),
    "explain: too few sizes": BadCall(
        lambda _: explain("lstm", [1, 2, 3]),
        ValueError,
        "sizes: expected 4 numbers (steps, batch, inputs, hidden units), got 3",
    ),
    "explain: a device that there is not": BadCall(
        lambda _: explain("ctc", [2, 3, 4, 1], device="tpu"),
        ValueError,
        "device: expected cpu, cuda or a compute capability out of 7.5, 8.0, 8.6, 8.9, 9.0, 10.0, 12.0, got 'tpu'",
    ),
    "explain: a GPU without CUDA operators": BadCall(
        on_gpu_without_operators,
        ValueError,
        "device: expected cpu, because this installation has no CUDA operators, got '9.0'",
    ),
    "explain: sizes that the operator refuses": BadCall(
        lambda _: explain("soft_dtw", [2, 0, 4, 1]),
        ValueError,
        "n: expected at least 1 time step in x, got 0",
    ),
    "forced: an operator without ways": BadCall(
        lambda _: force("dtw", "fast"),
        ValueError,
        "operator: expected one that has ways, such as 'soft_dtw', got 'dtw'",
    ),
}
