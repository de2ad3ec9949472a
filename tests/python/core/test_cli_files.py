"""The command's files: what is said about them, how tables are read, where results may go, and progress."""

from __future__ import annotations

import fcntl
import gzip
import io as streams
import json
import os
import pty
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from matplotlib.axes import Axes

import warpalign
from warpalign import io, plot
from warpalign.cli import _app, _progress, _series

PACKAGE = str(Path(warpalign.__file__).parents[1])
TABLE = np.random.default_rng(0).normal(size=(4, 6))


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Exit code, stdout and stderr, in this process."""
    code = _app.run([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return code, out, err


def distances(text: str) -> list[list[float]]:
    found: list[list[float]] = json.loads(text)["soft_dtw"]
    return found


def expected(series: object, **options: object) -> list[list[float]]:
    found: list[list[float]] = warpalign.cdist_soft_dtw(series, **options).tolist()  # type: ignore[arg-type]
    return found


@pytest.fixture
def numbered(tmp_path: Path) -> Path:
    """What pandas' to_csv(index=False) writes of a table without column names."""
    path = tmp_path / "numbered.csv"
    np.savetxt(path, TABLE, delimiter=",", header="0,1,2,3,4,5", comments="", fmt="%.17g")
    return path


# What was read.


def test_pandas_numbers_are_a_header_unless_told_otherwise(
    capsys: pytest.CaptureFixture[str], numbered: Path
) -> None:
    for flags, table, said in (
        ([], TABLE, "4 series of 6 steps, first row taken as column names (0 1 2 … 5)"),
        (["--header"], TABLE, "4 series of 6 steps, first row taken as column names (0 1 2 … 5)"),
        (["--no-header"], np.vstack([np.arange(6), TABLE]), "5 series of 6 steps"),
    ):
        code, text, err = run(capsys, "cdist", numbered, "--json", *flags)
        assert (code, err) == (0, f"{numbered}: {said}\n")
        assert distances(text) == expected(table)


def test_transpose(capsys: pytest.CaptureFixture[str], numbered: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "table.npy", TABLE)
    for path in (numbered, tmp_path / "table.npy"):
        code, text, err = run(capsys, "cdist", path, "--transpose", "--json")
        assert code == 0 and f"{path}: 6 series of 4 steps" in err
        assert distances(text) == expected(TABLE.T.copy())
    _, text, err = run(capsys, "align", numbered, numbered, "--transpose", "--json")
    assert json.loads(text)["n"] == 6 and "1 series of 6 steps, 4 features" in err


@pytest.mark.parametrize("key", ["", ":both"])
def test_an_array_of_three_axes(capsys: pytest.CaptureFixture[str], tmp_path: Path, key: str) -> None:
    sets, path = np.random.default_rng(0).normal(size=(3, 5, 2)), tmp_path / "sets.npz"
    np.savez(path, **({"both": sets, "other": TABLE} if key else {"both": sets}))
    code, text, err = run(capsys, "cdist", f"{path}{key}", "--json")
    assert (code, err) == (0, f"{path}{key}: 3 series of 5 steps, 2 features\n")
    assert distances(text) == expected(sets)
    _, text, _ = run(capsys, "align", f"{path}{key}:0", f"{path}{key}:2", "--json")
    assert json.loads(text)["soft_dtw"] == expected(sets)[0][2]


def test_stdin(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, numbered: Path, tmp_path: Path
) -> None:
    np.save(tmp_path / "table.npy", TABLE)
    text = numbered.read_bytes()
    for contents in (text, gzip.compress(text), (tmp_path / "table.npy").read_bytes()):
        monkeypatch.setattr(sys, "stdin", streams.TextIOWrapper(streams.BytesIO(contents)))
        code, out, err = run(capsys, "cdist", "-", "--json")
        assert code == 0 and err.startswith("-: 4 series of 6 steps")
        assert distances(out) == expected(TABLE)


def test_what_is_said_about_unequal_labelled_series(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "toy.tsv"
    path.write_text("1\t0\t1\t2\n2\t0\t2\n1\t3\n")
    _, _, err = run(capsys, "cdist", path, "--json")
    assert err == f"{path}: 3 series of 1 to 3 steps, 2 labels\n"


# Scaling.


@pytest.mark.parametrize("scale", ["--standardize", "--min-max"])
def test_scaled_features(capsys: pytest.CaptureFixture[str], tmp_path: Path, scale: str) -> None:
    table = TABLE * np.array([[1], [10], [1e3], [1e-3]]) + np.array([[0], [5], [-1e4], [0.1]])
    path = tmp_path / "table.npy"
    np.save(path, table)
    if scale == "--standardize":
        wanted = (table - table.mean(1, keepdims=True)) / table.std(1, keepdims=True)
    else:
        wanted = (table - table.min(1, keepdims=True)) / np.ptp(table, axis=1, keepdims=True)
    _, text, _ = run(capsys, "cdist", path, scale, "--json")
    assert np.allclose(distances(text), expected(wanted), rtol=1e-9, atol=1e-9)  # another order of summing
    _, text, _ = run(capsys, "barycenter", path, scale, "--max-iter", 0, "--json")
    start = warpalign.soft_dtw_barycenter(wanted, max_iter=0).losses[0].item()
    assert json.loads(text)["loss"] == pytest.approx(start, rel=1e-9)
    _, text, _ = run(capsys, "cluster", path, "-k", 2, scale, "--max-iter", 1, "--json")
    model = warpalign.SoftDTWKMeans(2, max_iter=1, random_state=0).fit(wanted)
    assert json.loads(text)["inertia"] == pytest.approx(model.inertia_, rel=1e-9)


def test_a_constant_feature_is_scaled_to_zero() -> None:
    series = np.stack([np.full(7, 0.1), np.arange(7.0)], axis=1)
    for scaled in (_series.standardized, _series.min_max_scaled):
        found = scaled(series)
        assert (found[:, 0] == 0).all() and np.ptp(found[:, 1]) > 0.9


# Where results may go.


def test_outputs_are_checked_before_anything_is_read(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("b.npy", TABLE)
    for arguments, message in (
        (
            ["nothing.npy", "-o", "nowhere/e.npy"],
            "Invalid value for '-o' / '--output': nowhere is not a folder",
        ),
        (
            ["nothing.npy", "-o", "/proc/e.npy"],
            "Invalid value for '-o' / '--output': /proc/e.npy cannot be written: ",
        ),
    ):
        code, out, err = run(capsys, "cdist", *arguments)
        assert (code, out) == (2, "") and err.startswith(f"warpalign: {message}"), err
    code, _, err = run(capsys, "cluster", "b.npy", "-k", 2, "-o", "l.npy", "--centers", "./l.npy")
    assert code == 2 and err == "warpalign: Invalid value for '--centers': l.npy is written twice\n"
    assert os.listdir() == ["b.npy"]


def test_a_file_that_cannot_be_written_is_named_as_the_user_does(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk, say: the name of the unfinished file beside it is none of the user's concern."""
    monkeypatch.chdir(tmp_path)
    np.save("b.npy", TABLE)

    def full(path: object, *_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(np, "save", full)
    code, out, err = run(capsys, "cdist", "b.npy", "-o", "d.npy")
    assert (code, out) == (1, "")
    assert err.splitlines()[-1] == "warpalign: d.npy: No space left on device"
    assert os.listdir() == ["b.npy"]


# Plots.


def test_a_dendrogram_is_drawn_of_distances_alone(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Soft-DTW itself can be negative, and two sets have no tree in common."""
    np.save(tmp_path / "b.npy", TABLE)
    drawn, distances = list[bool](), plot.distances

    def draw(table: object, **how: Any) -> Axes:
        drawn.append(how["dendrogram"])
        return distances(table, **how)

    monkeypatch.setattr(plot, "distances", draw)
    for flags in (["--normalize"], ["--gamma", 0], [], [tmp_path / "b.npy", "--normalize"]):
        arguments = [tmp_path / "b.npy", *flags, "--plot", tmp_path / "d.png"]
        assert run(capsys, "cdist", *arguments)[0] == 0
    assert drawn == [True, True, False]


# Progress.


def test_progress_is_for_terminals(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_progress, "_DELAY_S", 0.02)
    with _progress.waiting("aligning"):
        time.sleep(0.1)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(_progress, "show_progress", lambda: True)
    with _progress.waiting("aligning"):
        time.sleep(0.1)
    said = capsys.readouterr().err
    assert said.startswith("\raligning: 0 s") and said.endswith("\r\033[K")
    with _progress.waiting("aligning"):
        pass
    assert capsys.readouterr().err == ""


def test_a_terminal_sees_the_pairs_of_cdist(tmp_path: Path) -> None:
    np.save(tmp_path / "b.npy", TABLE)
    ours, theirs = pty.openpty()
    fcntl.ioctl(
        theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0)
    )  # rows, columns; else there are none
    done = subprocess.run(
        [sys.executable, "-m", "warpalign", "cdist", str(tmp_path / "b.npy")],
        env={**os.environ, "PYTHONPATH": PACKAGE},
        stdout=subprocess.PIPE,
        stderr=theirs,
        check=False,
    )
    os.close(theirs)
    said = os.read(ours, 65536).decode()
    os.close(ours)
    assert done.returncode == 0 and "100%" in said, said


def test_series_of_the_library_are_those_of_the_command(numbered: Path) -> None:
    assert np.array_equal(np.stack(io.read_dataset(numbered).series)[..., 0], TABLE)


# An index column.

FRAME = pandas.DataFrame(TABLE.round(3), columns=[f"t{i}" for i in range(6)])
INDEXED: dict[str, tuple[dict[str, Any], str]] = {
    "named": ({"index_label": "subject"}, "first column passed over as an index (subject), first row taken as"),
    "nameless": ({}, "first column passed over as an index (?), first row taken as"),
    "without names": ({"header": False}, "first column passed over as an index (?)\n"),
    "semicolons": ({"sep": ";", "decimal": ",", "index_label": "subject"}, "first column passed over as an index (subject)"),
}  # fmt: skip


def commands(path: object) -> dict[str, list[object]]:
    """A call of every command that reads tables."""
    return {
        "align": ["align", path, path],
        "cdist": ["cdist", path],
        "barycenter": ["barycenter", path, "--max-iter", 1],
        "cluster": ["cluster", path, "-k", 2, "--max-iter", 1],
        "transport": ["transport", path, path],
    }


@pytest.mark.parametrize("name", INDEXED)
def test_an_index_column_is_passed_over(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str
) -> None:
    options, said = INDEXED[name]
    FRAME.to_csv(tmp_path / "plain.csv", index=False)
    FRAME.to_csv(tmp_path / "indexed.csv", **options)
    for command, arguments in commands(tmp_path / "indexed.csv").items():
        code, text, err = run(capsys, *arguments, "--index-column", "--json")
        assert code == 0 and said in err, err
        assert text == run(capsys, *commands(tmp_path / "plain.csv")[command], "--json")[1]
    table = io.read_series(tmp_path / "indexed.csv", index_column=True)
    np.testing.assert_array_equal(table, FRAME.to_numpy())
    one = io.read_dataset(f"{tmp_path}/indexed.csv:1", index_column=True)
    np.testing.assert_array_equal(one.series[0][:, 0], FRAME.to_numpy()[1])


def test_dates_and_numbered_columns_beside_an_index(tmp_path: Path) -> None:
    days = pandas.date_range("2026-01-01", periods=4, name="day")
    pandas.DataFrame(TABLE.round(3), index=days).to_csv(tmp_path / "days.csv")  # day,0,1,2,3,4,5
    with pytest.raises(io.InputError, match=r"got 'day': if the first column is an index, --index-column"):
        io.read_series(tmp_path / "days.csv")
    for header in (None, True):
        found = io.read_dataset(tmp_path / "days.csv", header=header, index_column=True)
        assert found.columns == list("012345") and found.index == "day"
        np.testing.assert_array_equal(np.stack(found.series)[..., 0], TABLE.round(3))
    turned = io.read_dataset(tmp_path / "days.csv", transpose=True, index_column=True)
    np.testing.assert_array_equal(np.stack(turned.series)[..., 0], TABLE.round(3).T)


def test_a_first_column_of_values_is_kept(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "indexed.csv"
    FRAME.to_csv(path)  # ,t0,...
    indexed = np.hstack([np.arange(4.0)[:, None], FRAME.to_numpy()])
    _, text, err = run(capsys, "cdist", path, "--no-index-column", "--json")
    assert distances(text) == expected(indexed) and err.startswith(f"{path}: 4 series of 7 steps, first row")
    assert err.count("\n") == 1
    FRAME.to_csv(path, index_label="subject")
    _, text, err = run(capsys, "cdist", path, "--json")  # as before, but it is said
    assert distances(text) == expected(indexed)
    assert (
        "the first column counts from 0 to 3: --index-column passes over an index, --no-index-column" in err
    )
    _, _, err = run(capsys, "align", path, path, "--json")
    assert err.count("the first column counts from 0 to 3") == 2


# Channels first.


def test_channels_first_are_named_with_the_commands_remedy(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "first.npy"
    np.save(path, TABLE[:, None, :])
    said = f"{path}: one time step with 6 features: if these are 6 time steps, add --transpose\n"
    for arguments in (
        ["cdist", path],
        ["barycenter", path, "--max-iter", 0],
        ["cluster", path, "-k", 2, "--max-iter", 1],
    ):
        code, _, err = run(capsys, *arguments, "--json")
        assert (code, err) == (0, f"{path}: 4 series of 1 step, 6 features\n{said}")
    _, _, err = run(capsys, "align", f"{path}:0", f"{path}:1", "--json")
    assert said.replace(str(path), f"{path}:0") in err
    code, text, err = run(capsys, "cdist", path, "--transpose", "--json")
    assert (code, err) == (0, f"{path}: 4 series of 6 steps\n")
    assert distances(text) == expected(TABLE)
    np.testing.assert_array_equal(io.read_series(f"{path}:2", transpose=True)[:, 0], TABLE[2])
