"""The benchmark scripts run on the CPU, and the tables in the documents are those of the results."""

import argparse
import importlib
import itertools
import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from benchmarks import gpu_check, kernels, report
from benchmarks.harness import sanitizer, sanitizer_cases
from benchmarks.harness import tables as harness
from benchmarks.harness.kernels import launches
from benchmarks.soft_dtw import (
    accuracy,
    cdist_scaling,
    cpu_cells,
    cpu_tables,
    narrow_bands,
    second_order,
    sweep,
    tables,
)
from benchmarks.soft_dtw.limits import limit
from benchmarks.soft_dtw.peers import PEERS, peer_steps
from benchmarks.soft_dtw.plots import draw_sweep
from benchmarks.soft_dtw.sizes import Size
from benchmarks.soft_dtw.suite import SUITE
from tests.python.helpers import run_python
from warpalign._core import library

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """main() of a benchmark in this process, which has torch already: exit status, and what went to stdout and stderr."""

    def call(program: ModuleType, *arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", [program.__name__, *arguments])
        status = program.main()
        return status, *capsys.readouterr()

    return call


def test_tables_are_fresh(run: Run) -> None:
    status, told, _ = run(report, "--check")
    assert status == 0, told


def test_plots_are_those_that_the_page_shows(tmp_path: Path) -> None:
    """Every operator has one, drawn from the committed results, with a text in its place."""
    drawn = {path.name for module in report.MODULES for path in module.draw(tmp_path)}
    pages = ["benchmarks.md", "topics/recogniser.md"]
    text = "".join((report.ROOT / "docs" / page).read_text() for page in pages)
    shown = re.findall(r"!\[([^\]]+)\]\((?:\.\./)?images/([\w-]+\.png)\)", text)
    assert {name for _, name in shown} == drawn
    assert {name.partition("_")[0].removesuffix(".png") for name in drawn} >= {
        "soft",
        "ctc",
        "transducer",
        "transport",
        "lstm",
    }
    assert all(len(text) > 20 for text, _ in shown)
    assert all(5_000 < path.stat().st_size < 150_000 for path in tmp_path.glob("*.png"))


def test_gpu_check_on_the_cpu(tmp_path: Path) -> None:
    options = ["--device", "cpu", "--quick", "--no-build", "--skip-tests", "--rows", "^128x17", "--sweep"]
    done = run_python("benchmarks/gpu_check.py", *options, "--commit", "test", "--out", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    (file,) = tmp_path.glob("*/*-test.json")
    found = json.loads(file.read_text())
    (sweep,) = [row for row in found if row.get("name") == "sweep"]
    assert (sweep["status"], sweep["detail"].partition(",")[0]) == ("passed", "10 sizes")
    assert len(list(tmp_path.glob("*/*-test-sweep.json"))) == 1
    rows = [row for row in found if row["op"] == "soft_dtw"]
    assert [(row["B"], row["N"], row["M"]) for row in rows] == [(128, 17, 15)]
    assert rows[0]["step_ms"] > 0 and rows[0]["err_gx"] < 1e-5


def test_gpu_check_counts_no_kernels_on_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "build" / "dev" / "tests" / "cpp"
    folder.mkdir(parents=True)
    for name in ("soft_dtw_cuda_test", "simt_soft_dtw_cuda_test"):
        program = folder / name
        program.write_text("#!/bin/sh\necho '1 test from 1 test suite ran.'\necho '[  PASSED  ] 1 test.'\n")
        program.chmod(0o755)
    monkeypatch.setattr(gpu_check, "ROOT", tmp_path)
    assert gpu_check.cpp_tests()["detail"] == "1 passed, 0 failed, 1 programs"


@pytest.mark.parametrize(
    ("by_cases", "wrong", "kib", "status"),
    [
        ("wide", 0, 227, "passed"),
        ("wide", 1, 227, "failed"),
        ("small", 0, 227, "failed"),
        ("small", 0, 99, "skipped"),
    ],
)
def test_gpu_check_names_kernels_that_nothing_launched(
    monkeypatch: pytest.MonkeyPatch, by_cases: str, wrong: int, kib: int, status: str
) -> None:
    counts = {"small": 3, "wide": 0}

    def case() -> str | None:
        counts[by_cases] += 1
        return "value" if wrong else None

    monkeypatch.setitem(sys.modules, "cases", SimpleNamespace(cases=lambda device: [("a case", case)]))
    monkeypatch.setattr(gpu_check, "shared_kib", lambda device: kib)
    suite = replace(SUITE, sanitizer="cases", launches=counts.copy)
    (row,) = gpu_check.kernels(suite, torch.device("cuda"))
    assert (row["name"], row["suite"], row["status"]) == ("kernels", "soft_dtw", status)
    assert row["unmeasured"] == "wide"
    assert row["unreached"] == ("" if by_cases == "wide" else "wide")


def test_gpu_check_fails_where_a_library_lists_no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cases", SimpleNamespace(cases=lambda device: []))
    monkeypatch.setattr(gpu_check, "shared_kib", lambda device: 227)
    (row,) = gpu_check.kernels(replace(SUITE, sanitizer="cases", launches=dict), torch.device("cuda"))
    assert row["status"] == "failed"


def test_kernels_of_the_libraries() -> None:
    """The CPU library has none. The CUDA library names its own on any machine."""
    assert all(launches(operator, "cpu") == {} for operator in ("ctc", "soft_dtw", "transducer", "transport"))
    if not library.has_cuda:
        pytest.skip("no CUDA library was built")
    assert {"float32 tiles small gradients", "dual tiles all_options frugal"} <= launches("soft_dtw").keys()
    assert kernels.problems() == []


def test_a_kernel_that_is_not_in_the_list_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    listed: dict[str, kernels.Operator] = {"soft_dtw": {"budget": 1, "kernels": ["gone", "sweep"]}}
    monkeypatch.setattr(kernels, "committed", lambda: listed)
    monkeypatch.setattr(kernels, "launches", lambda name: {"sweep": 0, "new": 0})
    stale, many = kernels.problems()
    assert stale.endswith("added: ['new'], gone: ['gone']")
    assert many == "soft_dtw: 2 kernels, budget 1"
    assert "| `soft_dtw` | 2 | 1 | gone 1, sweep 1 |" in kernels.census_table()


@pytest.mark.parametrize(
    ("kernel", "status", "told"),
    [
        ("void warpalign::f()+0x10", "failed", "1 reports of our kernels, 0 of"),
        ("void warpalign::ring()+0x10", "passed", "0 reports of our kernels, 1 known to be false, 0 of"),
        ("nvjet_sm90_tst_64x8+0xaf0", "passed", "0 reports of our kernels, 1 of"),
    ],
)
def test_gpu_check_counts_races_of_our_kernels(
    kernel: str, status: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = f"========= Error: Race reported between Read access at {kernel}\n" + "frame\n" * 99
    said = report + "RACECHECK SUMMARY: 1 hazard displayed\n"
    monkeypatch.setattr(sanitizer, "PROCESSES", 1)
    monkeypatch.setattr(sanitizer.shutil, "which", lambda program: sys.executable)
    monkeypatch.setattr(sanitizer, "command", lambda *arguments, **environment: (0, said))
    row = sanitizer.sanitizer("racecheck", replace(SUITE, known_races=("ring",)), tmp_path / "logs")
    assert row["status"] == status
    assert row["detail"].startswith(told)
    if status == "failed":
        assert (tmp_path / "logs" / "racecheck-soft_dtw.txt").read_text() == said


def test_gpu_check_wants_a_sanitizers_summary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sanitizer.shutil, "which", lambda program: sys.executable)
    monkeypatch.setattr(sanitizer, "command", lambda *arguments, **environment: (0, "54 cases, 0 wrong\n"))
    for tool in sanitizer.SANITIZERS:
        row = sanitizer.sanitizer(tool, SUITE, tmp_path / "logs")
        assert (row["status"], row["detail"]) == (
            "failed",
            "process 1 of 5: exit status 0: 54 cases, 0 wrong",
        )


def test_the_sanitizer_takes_several_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sanitizer, "PROCESSES", 3)
    monkeypatch.setattr(sanitizer.shutil, "which", lambda program: sys.executable)
    report = "========= Error: Race reported between Read access at void warpalign::f()\n"
    parts: dict[str, tuple[int, str]] = {}

    def command(arguments: list[str], limit_s: float, **environment: str) -> tuple[int, str]:
        assert arguments[-2] == "--part"
        return parts.get(arguments[-1], (0, "12 cases, 0 wrong\nRACECHECK SUMMARY: 0 hazards displayed\n"))

    monkeypatch.setattr(sanitizer, "command", command)
    row = sanitizer.sanitizer("racecheck", SUITE, tmp_path / "logs")
    assert (row["status"], row["detail"][:28]) == ("passed", "0 reports of our kernels, 0 ")
    parts["2/3"] = (0, report + "RACECHECK SUMMARY: 1 hazard displayed\n")
    row = sanitizer.sanitizer("racecheck", SUITE, tmp_path / "logs")
    assert (row["status"], row["detail"][:28]) == ("failed", "1 reports of our kernels, 0 ")
    for said, told in (
        ((124, "RACECHECK SUMMARY: 0 hazards displayed\n"), "process 3 of 3: stopped after 540 s"),
        (
            (1, "WRONG: 3x3\nRACECHECK SUMMARY: 0 hazards displayed"),
            "process 3 of 3: exit status 1: RACECHECK",
        ),
        ((0, "12 cases, 0 wrong\n"), "process 3 of 3: exit status 0: 12 cases, 0 wrong"),
    ):
        parts["3/3"] = said
        row = sanitizer.sanitizer("racecheck", SUITE, tmp_path / "logs")
        assert row["status"] == "failed"
        assert row["detail"].startswith(told)
    monkeypatch.setattr(sanitizer, "command", lambda *_, **__: (0, "ERROR SUMMARY: 0 errors\n"))
    assert sanitizer.sanitizer("memcheck", SUITE, tmp_path / "logs")["status"] == "passed"


def test_parts_of_the_cases_are_all_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    ran: list[int] = []

    def case(number: int) -> sanitizer_cases.Case:
        def wrong() -> str | None:
            ran.append(number)
            return "loss" if number == 3 else None

        return f"case {number}", wrong

    failures = [sanitizer_cases.run(map(case, range(12)), part=(part, 5)) for part in range(1, 6)]
    assert sorted(ran) == list(range(12))
    assert failures == [0, 0, 0, 1, 0]
    out, errors = capsys.readouterr()
    assert "wrong: case 3\nok: case 8\n2 cases, 1 wrong\n" in out
    assert errors == "WRONG: case 3: loss\n"
    with pytest.raises(
        argparse.ArgumentTypeError, match="expected k/n with 1 <= k <= n, such as 2/5, got '6/5'"
    ):
        sanitizer_cases.part_of("6/5")


def test_the_steps_table_has_failures_last(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {
            "op": "check",
            "name": "memcheck",
            "suite": "ctc",
            "status": "failed",
            "detail": "3 errors",
            "seconds": 5.0,
        },
        {"op": "check", "name": "pytest", "status": "passed", "detail": "7 passed", "seconds": 61.0},
        {"op": "soft_dtw", "step_ms": 1.0},
    ]
    gpu_check.print_checks(rows)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines[-2:]] == [
        ["pytest", "passed", "61"],
        ["memcheck", "ctc", "failed"],
    ]


def test_gpu_check_without_such_a_device(run: Run, tmp_path: Path) -> None:
    status, _, errors = run(gpu_check, "--device", "cuda:99", "--no-build", "--out", str(tmp_path))
    assert status == 2
    assert len(errors.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("operator", "part"),
    [("ctc", "1/4"), ("recurrent", "1/8"), ("soft_dtw", "1/1"), ("transducer", "1/6"), ("transport", "1/4")],
)
def test_sanitizer_cases_on_the_cpu(
    operator: str, part: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = importlib.import_module(f"benchmarks.{operator}.sanitize").cases
    monkeypatch.setattr(sys, "argv", ["sanitize", "--device", "cpu", "--part", part])
    assert sanitizer_cases.main("Cases.", cases) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith(" cases, 0 wrong")


@pytest.mark.parametrize(
    ("operator", "limits"),
    [
        ("ctc", "LIMIT"),
        ("recurrent", "WRONG"),
        ("soft_dtw", "TOLERANCE"),
        ("transducer", "LIMIT"),
        ("transport", "WRONG"),
    ],
)
def test_sanitizer_cases_see_a_wrong_result(
    operator: str, limits: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module(f"benchmarks.{operator}.sanitize")
    monkeypatch.setattr(module, limits, dict.fromkeys(getattr(module, limits), 0.0))
    found = itertools.islice(module.cases(torch.device("cpu")), 12)
    assert sanitizer_cases.run(found) > 0


def test_sweep_on_the_cpu(run: Run, tmp_path: Path) -> None:
    status, told, _ = run(sweep, "--device", "cpu", "--quick", "--out", str(tmp_path))
    assert status == 0, told
    (file,) = tmp_path.glob("*/*-sweep.json")
    rows = json.loads(file.read_text())
    assert [(row["D"], row["N"]) for row in rows] == [(d, n) for d in (1, 64) for n in (1, 2, 31, 32, 33)]
    assert all(row["step_ms"] > 0 and row["forward_ms"] > 0 for row in rows)
    graphed = [{**row, "graph_forward_ms": row["forward_ms"], "graph_step_ms": None} for row in rows]
    assert draw_sweep(graphed, tmp_path).stat().st_size > 10_000


def test_bands_on_the_cpu(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(narrow_bands, "--device", "cpu", "--quick", "--out", str(tmp_path))
    (file,) = tmp_path.glob("*/*-bands.json")
    rows = json.loads(file.read_text())
    # Of 70 x 70 cells those with |i - j| <= 18, 7 and 1.
    assert [row["cells"] for row in rows] == [1.0, 0.459, 0.203, 0.0424, 1.0]
    assert all(row["step_ms"] > 0 and row["one_end_values_ms"] > 0 for row in rows)
    monkeypatch.setattr(harness, "load", lambda pattern: rows)
    (line,) = [line for line in tables.TABLES["few-pairs-in-a-band"]().splitlines() if "band of 10 %" in line]
    assert f"| {100 * rows[2]['step_ms'] / rows[0]['step_ms']:.0f} % |" in line


def test_a_sweep_without_time_says_so(run: Run, tmp_path: Path) -> None:
    status, told, _ = run(sweep, "--device", "cpu", "--quick", "--limit", "0", "--out", str(tmp_path))
    assert status == 1
    assert "0 sizes, 0 with a failure, 10 not measured for want of time" in told


def test_scaling_on_the_cpu(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads and two processes of torchrun give one device's bits."""
    options = ["--device", "cpu", "--quick", "--repeats", "1", "--commit", "test", "--out", str(tmp_path)]
    status, told, errors = run(cdist_scaling, *options)
    assert status == 0, told + errors
    (file,) = tmp_path.glob("*/*-test-scaling.json")
    rows = json.loads(file.read_text())
    shapes = [(row["D"], row["how"], row["devices"]) for row in rows]
    assert sorted(shapes) == [
        (d, *how) for d in (1, 16) for how in (("devices", 1), ("devices", 2), ("torchrun", 2))
    ]
    assert all(row["same_bits"] and row["seconds"] > 0 for row in rows)

    monkeypatch.setattr(harness, "load", lambda pattern: rows)
    table = tables.scaling_table()
    assert table.count("identical |") == 6 and "differ" not in table


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Worked out by hand from the rates."""

    def bound(*shape: int, step: bool = False, overhead_ms: float = 0.0) -> tuple[str, Any]:
        found = limit(Size(*shape), "NVIDIA H200", step=step, overhead_ms=overhead_ms)
        assert found is not None
        return found.name, pytest.approx(found.ms, rel=1e-3)

    cells = 2048 * 512 * 512
    assert bound(2048, 512, 512, 1) == ("integer units", 1e3 * 11 * cells / (4 * 4.18e12))
    assert bound(32, 512, 512, 1) == ("latency", 1e3 * 70 * 1023 / 2 * 16 * 132 / 4.18e12)
    assert bound(2048, 512, 512, 64, step=True) == ("issue", 1e3 * (22 + 6 * 64) * cells / (8 * 4.18e12))
    assert bound(10**6, 1, 1, 1000) == ("memory", 1e3 * 8e9 / 4.3e12)
    assert bound(32, 128, 128, 1, step=True, overhead_ms=0.137) == ("framework", 0.137)
    assert limit(Size(1, 1, 1, 1), "another GPU", step=False) is None


def test_a_training_without_its_peer(tmp_path: Path) -> None:
    """A row that fails is told, and the others are there."""
    (tmp_path / "pysdtw.py").write_text("raise ImportError('not today')")
    options = [
        "--device",
        "cpu",
        "--quick",
        "--tasks",
        "forecast",
        "--seeds",
        "1",
        "--out",
        str(tmp_path / "out"),
    ]
    done = run_python("-m", "benchmarks.soft_dtw.training_impact", *options, "--peer-path", str(tmp_path))
    assert done.returncode == 1
    assert ["forecast", "pysdtw", "0", "ImportError:", "not", "today"] in map(
        str.split, done.stdout.splitlines()
    )
    assert "2 rows, 1 with a failure" in done.stdout


PROGRAM = """#!/bin/sh
cat <<END
{"context": {"instruction set": "avx2"}, "benchmarks": [
  {"run_type": "iteration", "run_name": "value/float32/N:2048/D:1/threads:1/band:-1/pairs:1/real_time", "ns_per_cell": 1.5},
  {"run_type": "iteration", "run_name": "value/float32/N:2048/D:1/threads:1/band:-1/pairs:1/real_time", "ns_per_cell": 1.0},
  {"run_type": "iteration", "run_name": "value/float32/N:2048/D:1/threads:1/band:64/pairs:1/real_time", "ns_per_cell": 0.1},
  {"run_type": "iteration", "run_name": "gradient/float32/N:2048/D:1/threads:1/band:-1/pairs:1/real_time", "ns_per_cell": 2.0},
  {"run_type": "iteration", "run_name": "gradient/float32/N:2048/D:1/threads:1/band:64/pairs:1/real_time", "ns_per_cell": 0.5},
  {"run_type": "aggregate", "run_name": "value/float32/N:2048/D:1/threads:1/band:64/pairs:1/real_time", "ns_per_cell": 9.0}
]}
END
"""


def test_the_least_of_several_runs_counts(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "program"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    status, _, errors = run(cpu_cells, str(program), "--commit", "test", "--out", str(tmp_path))
    assert status == 0, errors
    (file,) = tmp_path.glob("*/*-test-cells.json")
    rows = json.loads(file.read_text())
    assert [(row["what"], row["radius"], row["ns_per_cell"]) for row in rows] == [
        *(("value", None, 1.0), ("value", 64, 0.1), ("gradient", None, 2.0), ("gradient", 64, 0.5))
    ]

    monkeypatch.setattr(harness, "load", lambda pattern: rows)
    assert "| 2048 × 2048 | 1 | 64 | **0.419** | 10.0 % | **2.1** | 25.0 % |" in cpu_tables.band_table()
    status, _, errors = run(cpu_cells, str(tmp_path / "missing"), "--out", str(tmp_path))
    assert status == 2 and len(errors.splitlines()) == 1


def test_peers_that_are_not_installed_leave_no_row_and_errors_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, y = (torch.zeros(1, 2, 1, requires_grad=True) for _ in range(2))
    for module in ("softdtw_cuda", "pysdtw"):
        monkeypatch.setitem(sys.modules, module, None)
    assert len(PEERS) == 2
    assert peer_steps(x, y, 1.0, 0.01) == {}

    def refuses(gamma: float, use_cuda: bool) -> Callable[..., Any]:
        def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            raise ValueError(f"refused with gamma {gamma:g}, {use_cuda}")

        return loss

    monkeypatch.setitem(sys.modules, "pysdtw", SimpleNamespace(SoftDTW=refuses))  # type: ignore[arg-type]
    assert peer_steps(x, y, 0.5, 0.01) == {"pysdtw_error": "refused with gamma 0.5, True"}


def test_accuracy_and_second_order_on_the_cpu(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y, gamma = accuracy.problems(2)["x, y ~ N(0, 1)"]
    monkeypatch.setattr(accuracy, "problems", lambda features: {"normal": (x, y, gamma)})
    monkeypatch.setattr(second_order, "SIZES", ((2, 16, 1),))
    monkeypatch.setattr(second_order.torch, "set_num_threads", lambda count: None)
    for program in (accuracy, second_order):
        assert run(program, "--commit", "test", "--out", str(tmp_path))[0] in (0, None)
    (errors,) = [json.loads(file.read_text()) for file in tmp_path.glob("*/*-test-accuracy.json")]
    (times,) = [json.loads(file.read_text()) for file in tmp_path.glob("*/*-test-second-order.json")]
    assert [row["precision"] for row in errors] == ["highest", "plain"]
    assert all(0 < row["err_value"] < 1e-5 and row["err_gradient"] < 1e-3 for row in errors)
    assert [row["dtype"] for row in times] == ["float32", "float64"]
    assert all(row["product_ns"] > 0 and row["forward_mode_ns"] > 0 for row in times)

    monkeypatch.setattr(harness, "load", lambda pattern: errors if "accuracy" in pattern else times)
    assert cpu_tables.accuracy_table().count("| normal | 1 |") == 1
    assert cpu_tables.second_order_table().count("| 2 | 16 × 16 | 1 | float") == 2


def test_options_of_many_features_are_those_of_todays_path() -> None:
    assert tables.stays_in_tiles("bandwidth 64", 32, 2048)
    assert not tables.stays_in_tiles("bandwidth 64", 32, 512)
    assert not tables.stays_in_tiles("l1", 32, 2048)
    assert "| bandwidth 64 | 32 | 512 × 512 | 64 |" in tables.panel_options_table()
    assert "| none | 32 | 2048² | 64 |" not in tables.options_table()


def test_the_best_peer_is_that_of_all_committed_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slower run of the same package beside a newer row of ours hides no faster one."""
    size = {
        "op": "soft_dtw",
        "B": 2,
        "N": 8,
        "M": 8,
        "D": 128,
        "gamma": 1.0,
        "device": "GPU",
        "torch": "2.11",
    }
    ours = size | {"dtype": "float32", "precision": "highest", "step_ms": 1.0, "mib": 1.0, "err_gx": 1e-7}
    older = ours | {"commit": "a", "date": "2026-01-01", "pysdtw_step_ms": 3.0}
    newer = ours | {"commit": "b", "date": "2026-01-02", "pysdtw_step_ms": 5.0}
    recorded = size | {"impl": "other", "step_ms": 4.0, "mib": 8.0, "err_gx": 1e-3}
    files = {"nvidia-*/*.json": [older, newer], "peers/*.json": [recorded]}
    monkeypatch.setattr(harness, "load", files.__getitem__)
    assert "| 2 | 8 × 8 | 128 | 1 | **1** | 3 | 3.0 × | **1** | 8 | **1e-7** | 1e-3 |" in tables.gpu_table()
