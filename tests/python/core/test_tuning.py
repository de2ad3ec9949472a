"""Thresholds as data: the generated sources, and how a value is derived from times."""

from __future__ import annotations

import importlib
import json
import math
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import make_tuning
from benchmarks import tune
from benchmarks.harness.thresholds import forced, forced_values
from benchmarks.harness.tuning import (
    Choice,
    Crossing,
    Machine,
    Problem,
    Times,
    decide_choice,
    decide_crossing,
    found_quantity,
    sides,
)

ROOT = Path(__file__).resolve().parents[3]
FILES = sorted((ROOT / "tuning").glob("*.json"))
OPERATORS = [path.stem for path in FILES]

ENTRY = {
    "name": "few_rows",
    "unit": "rows",
    "decides": "Up to so many rows, a warp has one.",
    "command": "make tune OPERATOR=sort ONLY=few_rows",
    "values": {"8.0": 3, "9.0": 5},
}


def write_json(root: Path, **changes: Any) -> Path:
    """A tree with one operator and one threshold, some of whose keys are others; None: the key is missing."""
    entry = {key: value for key, value in (ENTRY | changes).items() if value is not None}
    for folder in ("tuning", "src/sort"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    path = root / "tuning" / "sort.json"
    path.write_text(json.dumps({"cuda": [entry]}))
    return path


def test_generated_sources_are_in_order() -> None:
    assert make_tuning.stale() == []


def test_a_stale_source_is_named(tmp_path: Path) -> None:
    write_json(tmp_path)
    assert make_tuning.stale(tmp_path) == ["src/sort/api_tuning.cpp", "src/sort/tuning.h"]
    for path, text in make_tuning.outputs(tmp_path).items():
        path.write_text(text)
    assert make_tuning.stale(tmp_path) == []
    write_json(tmp_path, values={"9.0": 6})
    assert make_tuning.stale(tmp_path) == ["src/sort/tuning.h"]
    (tmp_path / "tuning" / "sort.json").unlink()
    assert make_tuning.stale(tmp_path) == ["src/sort/api_tuning.cpp", "src/sort/tuning.h"]


def test_a_row_has_a_value_of_the_nearest_class_where_an_entry_has_none(tmp_path: Path) -> None:
    path = write_json(tmp_path)
    other = ENTRY | {
        "name": "columns",
        "command": ENTRY["command"].replace("few_rows", "columns"),
        "values": {"8.6": 7},
    }  # type: ignore[attr-defined]
    path.write_text(json.dumps({"cuda": [ENTRY, other]}))
    text = make_tuning.outputs(tmp_path)[tmp_path / "src/sort/tuning.h"]
    rows = [line.strip() for line in text.splitlines() if line.lstrip().startswith(".")]
    assert rows == [
        *(".device_class = 80,", ".few_rows = 3,", ".columns = 7,"),
        *(".device_class = 86,", ".few_rows = 3,", ".columns = 7,"),
        *(".device_class = 90,", ".few_rows = 5,", ".columns = 7,"),
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "Few"}, "expected a C\\+\\+ name"),
        ({"name": "f" * 64}, "expected a C\\+\\+ name"),
        ({"unit": None}, "expected the keys .*unit"),
        ({"value": 3}, "expected the keys"),
        ({"command": "make tune"}, "expected the command 'make tune OPERATOR=sort ONLY=few_rows'"),
        ({"values": {}}, "expected a value for one class"),
        ({"values": {"90": 1}}, "expected a compute capability such as '9.0', got '90'"),
        ({"values": {"avx2": 1}}, "expected a compute capability"),
        ({"values": {"9.0": 1.5}}, "expected an integer of 32 bits for 9.0, got 1.5"),
        ({"values": {"9.0": True}}, "expected an integer"),
        ({"values": {"9.0": 2**31}}, "expected an integer"),
        ({"measured": {"12.0": "a GPU"}}, "measured names a class that values does not have"),
    ],
)
def test_a_file_that_is_not_in_order_is_refused(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=f"sort.json: .*{message}"):
        make_tuning.read(write_json(tmp_path, **changes))


def test_lists_and_names_are_checked(tmp_path: Path) -> None:
    path = write_json(tmp_path)
    for lists, message in (
        ({"gpu": [ENTRY]}, "lists called cuda and cpu"),
        ({"cuda": [ENTRY, ENTRY]}, "once"),
        ({}, "lists"),
    ):
        path.write_text(json.dumps(lists))
        with pytest.raises(ValueError, match=message):
            make_tuning.read(path)


@pytest.mark.parametrize("path", FILES, ids=OPERATORS)
def test_writing_a_file_again_changes_nothing(path: Path, tmp_path: Path) -> None:
    make_tuning.write(tmp_path / path.name, make_tuning.read(path))
    assert (tmp_path / path.name).read_text() == path.read_text()


@pytest.mark.parametrize("operator", OPERATORS)
def test_every_threshold_has_a_probe_and_is_in_the_library(operator: str) -> None:
    tuning = make_tuning.read(ROOT / "tuning" / f"{operator}.json")
    names = {entry["name"]: kind for kind, entries in tuning.items() for entry in entries}
    probes = importlib.import_module(f"benchmarks.{operator}.tuning").PROBES
    assert set(probes) == set(names)
    assert set(forced_values(operator, "cpu")) == set(names)
    for name, probe in probes.items():
        assert set(probe.also) <= set(names) - {name}
        machine = Machine(torch.device(names[name]), 132, 8)
        problems = probe.problems(machine)
        assert len({problem.name for problem in problems}) == len(problems), name
        if isinstance(probe, Choice):
            entry = next(entry for entry in tuning[names[name]] if entry["name"] == name)
            assert set(entry["values"].values()) <= set(probe.values), name
        elif names[name] == "cpu":
            assert all(problem.quantity is not None for problem in problems), name


def test_a_threshold_is_forced_within_a_block_alone() -> None:
    with forced("soft_dtw", {"help_cells": 5}, "cpu"):
        with forced("soft_dtw", {"help_cells": 6, "help_pairs": 7}, "cpu"):
            now = forced_values("soft_dtw", "cpu")
            assert (now["help_cells"], now["help_pairs"], now["turn_warps"]) == (6, 7, None)
        now = forced_values("soft_dtw", "cpu")
        assert (now["help_cells"], now["help_pairs"]) == (5, None)
    assert set(forced_values("soft_dtw", "cpu").values()) == {None}
    with (
        pytest.raises(KeyError, match="soft_dtw has no threshold rows; it has meeting_strips"),
        forced("soft_dtw", {"rows": 1}, "cpu"),
    ):
        raise AssertionError("unreachable")


# Times of two ways: the earlier one takes q, the later one a constant.
def measured(
    quantities: Sequence[float], later: Callable[[float], float], noise: float = 0.0, at_most: bool = False
) -> list[Times]:
    dice = random.Random(0)

    def noisy(ms: float) -> list[float]:
        return [ms * (1 + noise * dice.uniform(-1, 1)) for _ in range(5)]

    to_later, to_earlier = sides(quantities, at_most)
    return [Times(f"q={q}", q, {to_later: noisy(later(q)), to_earlier: noisy(q)}) for q in quantities]


QUANTITIES = [1, 2, 4, 8, 16, 32]


def test_a_threshold_lies_where_the_ways_cross() -> None:
    decision = decide_crossing(measured(QUANTITIES, lambda _: 6.0), was=1, at_most=False)
    assert decision.value == 6  # the middle of 5 and 8
    assert decision.why == "moves: 3 problems take 66.7 % less time"  # 1, 2 and 4 in place of 6 each
    decision = decide_crossing(measured(QUANTITIES, lambda _: 6.0, at_most=True), was=32, at_most=True)
    assert decision.value == 5  # of 4 and 7: 8 goes the later way
    halves = [1.5, 2.5, 6.5, 7.5]
    assert decide_crossing(measured(halves, lambda _: 6.0), was=1, at_most=False).value == 4
    assert decide_crossing(measured(halves, lambda _: 6.0, at_most=True), was=9, at_most=True).value == 4


@pytest.mark.parametrize(("was", "at_most"), [(5, False), (6, False), (8, False), (4, True), (7, True)])
def test_a_threshold_stays_between_the_same_problems(was: int, at_most: bool) -> None:
    decision = decide_crossing(measured(QUANTITIES, lambda _: 6.0, at_most=at_most), was, at_most)
    assert decision.value == was
    assert decision.why == "stays"
    assert not decision.moved


def test_a_gain_within_the_noise_moves_nothing() -> None:
    close = measured(QUANTITIES, lambda q: q * (0.9 if q > 3 else 1.1), noise=0.3)
    assert decide_crossing(close, was=32, at_most=False).value == 32
    clear = measured(QUANTITIES, lambda q: q * (0.5 if q > 3 else 2), noise=0.1)
    assert decide_crossing(clear, was=32, at_most=False).value == 3


def test_a_gain_below_three_percent_moves_nothing() -> None:
    assert decide_crossing(measured(QUANTITIES, lambda q: q * 0.98), was=16, at_most=False).value == 16
    assert decide_crossing(measured(QUANTITIES, lambda q: q * 0.95), was=16, at_most=False).value == 1


@pytest.mark.parametrize(
    ("factor", "value", "told"),
    [
        (0.5, 1, "the later way always wins"),
        (2.0, 33, "the earlier way always wins"),
        (1.0, 8, "equal times"),
    ],
)
def test_ways_that_do_not_cross_are_told(factor: float, value: int, told: str) -> None:
    decision = decide_crossing(measured(QUANTITIES, lambda q: factor * q), was=8, at_most=False)
    assert decision.value == value
    assert decision.why.endswith(f"no crossing: {told}")


def test_ways_that_cross_more_than_once_are_told() -> None:
    decision = decide_crossing(
        measured(QUANTITIES, lambda q: 2 * q if q in (1, 8) else q / 2), was=1, at_most=False
    )
    assert decision.value == 2
    assert decision.why.endswith("not monotone: the best threshold, 2, still loses at some problems")


@pytest.mark.parametrize("quantity", [0, 1, 7, 7.5, 1000])
@pytest.mark.parametrize("at_most", [False, True])
def test_a_quantity_is_found_by_what_is_launched(quantity: float, at_most: bool) -> None:
    def launched(value: int) -> str:
        return "later" if (quantity > value if at_most else quantity >= value) else "earlier"

    if at_most and quantity == 0:
        assert found_quantity(launched, at_most) is None  # no threshold sends it the later way
        return
    found = found_quantity(launched, at_most)
    assert found == (math.ceil(quantity) if at_most else math.floor(quantity))


def test_a_quantity_that_changes_nothing_is_not_found() -> None:
    assert found_quantity(lambda _: "the same", at_most=False) is None


def test_a_choice_is_the_value_with_the_least_mean() -> None:
    def times(factor: float, noise: float = 0.0) -> list[Times]:
        dice = random.Random(0)

        def noisy(ms: float) -> list[float]:
            return [ms * (1 + noise * dice.uniform(-1, 1)) for _ in range(5)]

        return [Times(f"{k}", 0, {1: noisy(k), 2: noisy(k * factor), 4: noisy(2 * k)}) for k in (1.0, 5.0)]

    assert decide_choice(times(0.8), was=1).value == 2
    assert decide_choice(times(0.98), was=1).value == 1
    assert decide_choice(times(0.9, noise=0.5), was=1).value == 1
    assert decide_choice(times(1.5), was=4).value == 1


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`make tune` of soft-DTW with files of its own, no GPU, and fake times: threads help from 100 000 cells on."""
    monkeypatch.setattr(tune, "FOLDER", tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(tune.subprocess, "run", lambda *_, **__: None)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(tune.os, "getloadavg", lambda: (0.2, 9.0, 9.0))
    (tmp_path / "soft_dtw.json").write_text((ROOT / "tuning" / "soft_dtw.json").read_text())
    return tmp_path


def run_tune(monkeypatch: pytest.MonkeyPatch, folder: Path, *arguments: str) -> int:
    monkeypatch.setattr(
        sys, "argv", ["tune", "--operator", "soft_dtw", "--out", str(folder), "--commit", "test", *arguments]
    )
    return tune.main()


def test_a_machine_without_a_gpu_says_what_it_cannot_measure(
    alone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_tune(monkeypatch, alone, "--only", "turn_warps") == 1
    assert "tune: this machine has no GPU: left out turn_warps" in capsys.readouterr().out
    assert run_tune(monkeypatch, alone, "--device", "cuda") == 1
    monkeypatch.setattr(tune.os, "getloadavg", lambda: (1.4, 0.0, 0.0))
    assert run_tune(monkeypatch, alone, "--device", "cpu") == 1
    told = "tune: the load is 1.4, and times beside other programs mislead (--busy measures all the same): left out"
    assert f"{told} help_cells, help_pairs" in capsys.readouterr().out
    assert run_tune(monkeypatch, alone, "--only", "turns,turn_warps") == 2
    assert "soft_dtw has no threshold turns; it has meeting_strips" in capsys.readouterr().out


def test_measured_values_are_written(
    alone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def make(cells: int) -> Callable[[torch.device], Callable[[], object]]:
        return lambda _: lambda: cells

    def time_call(
        self: tune.Tuner, problem: Problem, run: Callable[[], int], values: dict[str, int]
    ) -> Callable[[], float]:
        shared = run() >= values["help_cells"]
        return lambda: 1.0 + run() / 100_000 if not shared else 2.0

    cells = (1000, 90_000, 150_000, 500_000)
    probe = Crossing(lambda _: [Problem(str(n), make(n), n) for n in cells], needs_threads=True)
    monkeypatch.setattr(tune, "probes_of", lambda _: {"help_cells": probe})
    monkeypatch.setattr(tune.Tuner, "timer", time_call)
    monkeypatch.setattr(tune, "class_of", lambda _: "avx512")
    before = make_tuning.read(alone / "soft_dtw.json")
    assert run_tune(monkeypatch, alone, "--only", "help_cells", "--dry-run") == 0
    assert make_tuning.read(alone / "soft_dtw.json") == before
    assert run_tune(monkeypatch, alone, "--only", "help_cells") == 0
    assert "help_cells" in capsys.readouterr().out
    entries = {entry["name"]: entry for entry in make_tuning.read(alone / "soft_dtw.json")["cpu"]}
    assert entries["help_cells"]["values"] == {"avx2": 131072, "avx512": 131072}  # between the same problems
    assert set(entries["help_cells"]["measured"]) == {"avx512"}
    assert entries["help_pairs"] == next(entry for entry in before["cpu"] if entry["name"] == "help_pairs")
    (times,) = alone.glob("*/*-test-tuning-soft_dtw.json")
    rows = json.loads(times.read_text())
    assert len(rows) == 2 * len(cells) + 1
    assert rows[-1]["value"] == 131072


def test_one_thread_leaves_thresholds_of_threads_as_they_are(
    alone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    before = make_tuning.read(alone / "soft_dtw.json")
    assert run_tune(monkeypatch, alone) == 0
    assert "skipped: needs two threads or more" in capsys.readouterr().out
    assert make_tuning.read(alone / "soft_dtw.json") == before


def tensors_of(result: object) -> list[torch.Tensor]:
    """All tensors of a call's results, in their order."""
    if isinstance(result, torch.Tensor):
        return [result.detach()]
    parts = (
        result
        if isinstance(result, tuple | list)
        else vars(result).values()
        if hasattr(result, "__dict__")
        else ()
    )
    return [tensor for part in parts for tensor in tensors_of(part)]


THRESHOLDS = [
    pytest.param(
        path.stem,
        kind,
        entry["name"],
        marks=pytest.mark.gpu if kind == "cuda" else (),
        id=f"{path.stem}-{entry['name']}",
    )
    for path in FILES
    for kind, entries in make_tuning.read(path).items()
    for entry in entries
]


@pytest.mark.parametrize(("operator", "kind", "name"), THRESHOLDS)
def test_both_sides_of_a_threshold_have_the_same_results(operator: str, kind: str, name: str) -> None:
    if kind == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU")
    device = torch.device(kind)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        tuner = tune.Tuner(operator, device)
        probe = tune.probes_of(operator)[name]
        problems = probe.problems(tuner.machine)
        values = (
            probe.values
            if isinstance(probe, Choice)
            else sides([p.quantity or 0 for p in problems], probe.at_most)
        )
        results = []
        for value in (values[0], values[-1], 1 << 20 if isinstance(probe, Crossing) else values[0]):
            torch.manual_seed(
                0
            )  # a problem of its own, of the same numbers: a stream's run changes its state
            run = problems[0].make(device)
            with tuner.forced({**probe.also, name: value}):
                results.append(tensors_of(run()))
    finally:
        torch.set_num_threads(threads)
    assert results[0]
    for other in results[1:]:
        for expected, got in zip(results[0], other, strict=True):
            most = (
                1e-4 if expected.dtype in (torch.float32, torch.float64) else 2e-2
            )  # half types: sums of other parts
            difference = (expected.double() - got.double()).norm()
            assert difference <= most * expected.double().norm() + 1e-6


@pytest.mark.gpu
def test_a_gpu_measures_a_threshold(
    cuda: torch.device, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    status = run_tune(monkeypatch, tmp_path, "--only", "wide_lanes_warps", "--dry-run", "--device", cuda.type)
    assert status == 0
