"""Every measured figure of README.md and docs/ is that of a committed result file."""

import json
from pathlib import Path

import pytest

from benchmarks import figures
from benchmarks.harness import figures as harness
from benchmarks.harness.figures import Given, at, faults, figures_of, measured_columns
from benchmarks.harness.results import ROOT


def test_figures_agree_with_their_result_files() -> None:
    told = figures.all_faults()
    assert not told, "\n".join(["benchmarks/figures.py names the source of each figure:", *told])


def test_the_pages_of_users_are_looked_up() -> None:
    found = {str(page.relative_to(ROOT)) for page in figures.pages()}
    assert {"README.md", "docs/index.md", "docs/benchmarks.md", "docs/howto/migrating.md"} <= found
    skipped = {str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md")} - found
    records = ("docs/developer/kernels/", "docs/developer/libraries.md")
    assert all(page.startswith(records) for page in skipped)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("takes 0.46 s and 133 MiB", ["0.46 s", "133 MiB"]),
        ("1.5 to 1.8 % less, 20–70 times", ["1.5 %", "1.8 %", "20 times", "70 times"]),
        ("1.2, 3 and 4.5 GiB", ["1.2 GiB", "3 GiB", "4.5 GiB"]),
        ("| **0.31** s | 3.2 × |", ["0.31 s", "3.2 ×"]),
        ("a step of 6.5\ntimes", ["6.5 times"]),
        ("9 µs, 80 ns, 5 minutes", ["9 µs", "80 ns", "5 minutes"]),
        ("4000 × 5000 points, 3 × N, 16×400×101×1024, 2 seeds, version 2.10, H200 with 64 bytes", []),
        ("```\n3 ms\n```\n`4 ms` [text](5%20ms) <!-- 6 ms -->", []),
        ("<!-- report: gpu -->\n| 3 ms |\n<!-- /report -->", []),
    ],
)
def test_what_a_figure_is(text: str, expected: list[str]) -> None:
    assert [figure.text for figure in figures_of(text)] == expected


@pytest.mark.parametrize(
    ("text", "value", "agrees"),
    [
        ("0.46 s", 0.4649, True),
        ("0.46 s", 0.4651, False),
        ("35 ms", 0.03469, True),
        ("133 MiB", 132.8 * 2**20, True),
        ("3.1 GiB", 3149 * 2**20, True),
        ("15 %", 0.1537, True),
        ("2.2 times", 2.26, False),
    ],
)
def test_figures_agree_to_the_digits_that_are_shown(text: str, value: float, agrees: bool) -> None:
    (figure,) = figures_of(text)
    assert figure.agrees(value) is agrees


@pytest.mark.parametrize(
    ("text", "named", "expected"),
    [
        ("takes 3 ms", [("3 ms", 3e-3)], []),
        ("takes 3 ms", [("3 ms", 4e-3)], ["page:1 has '3 ms', its result file 4"]),
        ("takes\n3 ms", [], ["page:2 has '3 ms', unnamed"]),
        ("takes 4 ms", [("3 ms", 3e-3)], ["page:1 has '4 ms', benchmarks/figures.py names '3 ms'"]),
        ("takes", [("3 ms", 3e-3)], ["page has nothing more, benchmarks/figures.py names '3 ms'"]),
        ("2 MiB", [("2 MiB", Given("LICENSE", "MIT License"))], []),
        (
            "2 MiB",
            [("2 MiB", Given("LICENSE", "2 << 20"))],
            ["page:1: LICENSE does not say '2 << 20'"],
        ),
        ("| N | step, ms |\n| --- | --- |", [], ["page: the column 'step, ms' of a table is not generated"]),
    ],
)
def test_faults(text: str, named: figures.Named, expected: list[str]) -> None:
    assert faults("page", text, named) == expected


def test_columns_of_measurements() -> None:
    header = "| N × M | MiB | faster | error | ns/cell | device | bound |\n| --- | ---: | --- | --- | --- | --- | --- |"
    assert measured_columns(header) == ["MiB", "faster", "error", "ns/cell"]


def test_one_row_of_the_newest_file_is_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(name: str, *rows: dict[str, object]) -> None:
        (tmp_path / "gpu").mkdir(exist_ok=True)
        (tmp_path / "gpu" / name).write_text(json.dumps(rows))

    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    row = {"op": "lstm", "B": 1, "step_ms": 3.0, "mib": 2.0, "seconds": 5.0, "ratio": 7.0}
    write("old.json", {**row, "date": "2026-01-01"}, {**row, "date": "2026-01-01", "B": 2})
    units = {"step_ms": 3e-3, "mib": 2.0 * 2**20, "seconds": 5.0, "ratio": 7.0}
    assert {column: at("gpu/old.json", "lstm", column, B=1) for column in units} == pytest.approx(units)
    with pytest.raises(ValueError, match="expected one row with step_ms .* got 2"):
        at("gpu/old.json", "lstm", "step_ms")
    with pytest.raises(ValueError, match="expected a row with .* got none"):
        at("gpu/old.json", "lstm", "step_ms", B=3)
    write("new.json", {**row, "date": "2026-01-02"})
    with pytest.raises(ValueError, match=r"old.json: new.json has newer rows"):
        at("gpu/old.json", "lstm", "step_ms", B=1)
