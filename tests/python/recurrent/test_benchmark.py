"""The LSTM benchmark runs on the CPU."""

import pytest
import torch

from benchmarks.recurrent import hard
from benchmarks.recurrent import map as map_of_shapes
from benchmarks.recurrent.sizes import FORWARD, QUICK_SIZES, Size
from benchmarks.recurrent.suite import SUITE


@pytest.mark.parametrize("size", QUICK_SIZES, ids=lambda size: size.name)
def test_measures_a_row(size: Size) -> None:
    row = SUITE.measure(size, torch.device("cpu"), 0.01)
    assert "error" not in row
    assert isinstance(row["step_ms"], float) and row["step_ms"] > 0
    assert set(SUITE.columns) <= row.keys()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_hard_gates_beside_a_plain_loop(dtype: str) -> None:
    row = hard.measure(Size(6, 3, 5, 8, 2, dtype=dtype, activation="hard"), torch.device("cpu"), 0.001)
    most = 1e-5 if dtype == "float32" else 0.05
    assert all(row[prefix + name] < most for prefix in ("", "plain_") for name in hard.ERRORS)
    assert min(row[f"{prefix}step_ms"] for prefix in ("", "soft_", "plain_")) > 0
    problem = hard.Problem(Size(6, 3, 5, 8, dtype="float64"), torch.device("cpu"))
    exact = problem.plain_step()
    # Soft gates are another function: the errors see the difference.
    assert hard.errors(problem.step(problem.soft), exact)["err_y"] > 0.01
    assert hard.errors(problem.step(problem.hard), exact)["err_gr"] < 1e-12


def test_a_row_of_forward_passes_takes_no_training_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.recurrent.measure.Problem.step", None)
    row = SUITE.measure(Size(4, 2, 3, 5, dtype="float32", options=FORWARD), torch.device("cpu"), 0.01)
    assert row["step_ms"] > 0


def test_results_are_reproducible() -> None:
    assert SUITE.not_reproducible(torch.device("cpu"), 2) == []


def test_the_map_says_where_ours_is_slower() -> None:
    size, equal = Size(64, 8, 16, 16), {"ms": 1.0, "cudnn_ms": 1.0}
    assert map_of_shapes.text(size, equal) == "B8 1/1"
    assert map_of_shapes.text(size, equal | {"cudnn_ms": 0.5}) == "B8 1/0.5 SLOWER"
    with_tf32 = equal | {"ms_tf32": 0.75, "cudnn_ms_tf32": 0.5}
    assert map_of_shapes.text(size, with_tf32) == "B8 1/1 tf32 0.75/0.5 SLOWER"
    assert len(set(map_of_shapes.SIZES)) == len(map_of_shapes.SIZES)


def test_the_map_times_steps_and_forward_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(map_of_shapes, "graph_ms", lambda run, *_: float(len(run())))  # results, not time
    step, forward = Size(4, 2, 3, 5, dtype="float32"), Size(4, 2, 3, 5, dtype="float64", options=FORWARD)
    both = dict.fromkeys(("ms", "cudnn_ms", "ms_tf32", "cudnn_ms_tf32"), 1.0 + 1 + 4)  # y, and all gradients
    assert map_of_shapes.measure(step, torch.device("cpu")) == both
    assert map_of_shapes.measure(forward, torch.device("cpu")) == {"ms": 1.0, "cudnn_ms": 1.0}
