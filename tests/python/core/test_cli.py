"""The command `warpalign`: results, files, and one line with exit code 2 for whatever is wrong with the input."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest
import torch

import warpalign
from tests.python.soft_dtw.reference import soft_dtw_reference
from warpalign import io
from warpalign.cli import _app

PACKAGE = str(Path(warpalign.__file__).parents[1])


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Exit code, stdout and stderr, in this process."""
    code = _app.run([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return code, out, err


def unread(err: str) -> str:
    """Stderr without the lines that say what was read."""
    return "".join(line for line in err.splitlines(keepends=True) if not re.search(r": \d+ series of ", line))


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one line that a refused command says."""
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    said = unread(err)
    assert said.startswith("warpalign: ") and said.count("\n") == 1 and err.endswith(said), err
    return said[len("warpalign: ") : -1]


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """Two series of 7 and 9 time steps with 2 features, as .csv and .npy."""
    generator = np.random.default_rng(0)
    a, b = tmp_path / "a.csv", tmp_path / "b.npy"
    np.savetxt(a, generator.normal(size=(7, 2)), delimiter=",", header="u,v", comments="", fmt="%.17g")
    np.save(b, generator.normal(size=(9, 2)))
    return a, b


# align


def test_align(capsys: pytest.CaptureFixture[str], pair: tuple[Path, Path], tmp_path: Path) -> None:
    a, b = pair
    x, y = np.loadtxt(a, delimiter=",", skiprows=1), np.load(b)
    expected = soft_dtw_reference(x, y, 0.3)
    out = tmp_path / "e.npy"
    code, text, err = run(capsys, "align", a, b, "--gamma", 0.3, "-o", out, "--json")
    assert (code, unread(err)) == (0, "")
    result = json.loads(text)
    assert result.pop("soft_dtw") == pytest.approx(expected.value, rel=1e-12)
    assert result == {"n": 7, "m": 9, "features": 2, "gamma": 0.3, "output": str(out)}
    assert np.allclose(np.load(out), expected.alignment, rtol=0, atol=1e-12)
    _, text, _ = run(capsys, "align", a, b, "--gamma", 0.3)
    assert text.splitlines()[0].split() == ["soft", "dtw", f"{expected.value:.10g}"]


def test_align_in_float32(
    capsys: pytest.CaptureFixture[str], pair: tuple[Path, Path], tmp_path: Path
) -> None:
    out = tmp_path / "e.npy"
    assert run(capsys, "align", *pair, "--dtype", "float32", "-o", out)[0] == 0
    assert np.load(out).dtype == np.float32


def test_align_in_a_band(capsys: pytest.CaptureFixture[str], pair: tuple[Path, Path]) -> None:
    x, y = (torch.from_numpy(io.read_series(path)) for path in pair)
    for flags, options in (
        (["--bandwidth", 1], {"bandwidth": 1}),
        (["--bandwidth", 3, "--band", "abs"], {"bandwidth": 3, "band": "abs"}),
        (["--band", "itakura", "--max-slope", 3], {"band": "itakura", "max_slope": 3.0}),
        (
            ["--cost", "l1", "--step-penalty", 0.5, "--gamma", 0],
            {"cost": "l1", "step_penalty": 0.5, "gamma": 0.0},
        ),
    ):
        _, text, _ = run(capsys, "align", *pair, *flags, "--json")
        assert json.loads(text)["soft_dtw"] == warpalign.soft_dtw(x, y, **options).item()
    assert refused(capsys, "align", *pair, "--bandwidth", 1, "--band", "abs").startswith("band: expected")
    assert refused(capsys, "align", *pair, "--max-slope", 3).startswith("max_slope: expected None")


def test_align_normalized(
    capsys: pytest.CaptureFixture[str], pair: tuple[Path, Path], tmp_path: Path
) -> None:
    x, y = (torch.from_numpy(io.read_series(path)) for path in pair)
    expected = warpalign.soft_dtw(x, y, normalize=True).item()
    for extra in ([], ["-o", tmp_path / "e.npy"]):
        _, text, _ = run(capsys, "align", *pair, "--normalize", "--json", *extra)
        assert json.loads(text)["divergence"] == expected


def test_plots(
    capsys: pytest.CaptureFixture[str], pair: tuple[Path, Path], waves: Path, tmp_path: Path
) -> None:
    for command in (
        ["align", *pair],
        ["cdist", waves, "--normalize"],
        ["barycenter", waves, "--max-iter", 0],
        ["cluster", waves, "-k", 2, "--max-iter", 1],
    ):
        out = tmp_path / "plot.png"
        code, text, err = run(capsys, *command, "--plot", out, "--json")
        assert (code, unread(err)) == (0, "") and json.loads(text)["plot"] == str(out)
        # Not blank: ink of more than a few colors.
        pixels = matplotlib.image.imread(out)
        assert len(np.unique(pixels.reshape(-1, pixels.shape[-1]), axis=0)) > 50
        out.unlink()
    assert "ends in .png" in refused(capsys, "align", *pair, "--plot", tmp_path / "plot.pdf")


def test_align_series_of_a_data_set(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "toy.tsv"
    path.write_text("1\t0\t1\n2\t0\t2\n")
    code, text, _ = run(capsys, "align", f"{path}:0", f"{path}:1", "--json")
    assert code == 0
    # The pair of tests/install/test_install.py, where the number is derived by hand.
    assert json.loads(text)["soft_dtw"] == pytest.approx(0.673437, abs=1e-6)


def test_a_refused_gamma_writes_nothing(
    capsys: pytest.CaptureFixture[str], pair: tuple[Path, Path], tmp_path: Path
) -> None:
    before = sorted(tmp_path.iterdir())
    refused(capsys, "align", *pair, "--gamma", -1, "-o", tmp_path / "e.npy")
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.gpu
def test_align_on_a_gpu(
    capsys: pytest.CaptureFixture[str], cuda: torch.device, pair: tuple[Path, Path]
) -> None:
    values = [
        json.loads(run(capsys, "align", *pair, "--device", name, "--json")[1]) for name in ("cpu", "cuda")
    ]
    assert values[1]["soft_dtw"] == pytest.approx(values[0]["soft_dtw"], rel=1e-10)
    _, text, _ = run(capsys, "info", "--json")
    assert "cuda:0" in json.loads(text)["devices"][1]


# cdist, barycenter, cluster


@pytest.fixture
def waves(tmp_path: Path) -> Path:
    """Twelve noisy series of two classes and of unequal lengths, labelled, as .ts."""
    generator = np.random.default_rng(0)
    rows = ["@timeStamps false", "@classLabel true sine square", "@data"]
    for index in range(12):
        time = np.linspace(0, 6, 30 + index) + generator.uniform(0, 0.5)
        wave = np.sin(time) if index % 2 else np.sign(np.sin(time))
        values = wave + generator.normal(scale=0.05, size=len(time))
        rows.append(",".join(map(repr, values.tolist())) + ":" + ("sine" if index % 2 else "square"))
    path = tmp_path / "waves.ts"
    path.write_text("\n".join(rows))
    return path


def series_of(path: Path) -> list[torch.Tensor]:
    return [torch.from_numpy(series) for series in io.read_dataset(path).series]


@pytest.mark.parametrize("normalize", [False, True])
def test_cdist(capsys: pytest.CaptureFixture[str], waves: Path, tmp_path: Path, normalize: bool) -> None:
    expected = warpalign.cdist_soft_dtw(series_of(waves), gamma=0.1, normalize=normalize).numpy()
    flags = ["--gamma", 0.1, *(["--normalize"] if normalize else [])]
    code, text, err = run(capsys, "cdist", waves, *flags)
    assert (code, unread(err)) == (0, "")
    assert np.array_equal(np.array([line.split(",") for line in text.splitlines()], dtype=float), expected)
    _, text, _ = run(capsys, "cdist", waves, *flags, "--json")
    assert json.loads(text) == {
        "n": 12, "m": 12, "gamma": 0.1, "normalize": normalize, "soft_dtw": expected.tolist()
    }  # fmt: skip
    out = tmp_path / "d.npy"
    _, text, _ = run(capsys, "cdist", waves, *flags, "-o", out, "--json")
    assert json.loads(text)["output"] == str(out) and np.array_equal(np.load(out), expected)


def test_gamma_may_be_that_of_the_data(capsys: pytest.CaptureFixture[str], waves: Path) -> None:
    series = series_of(waves)
    steps = torch.cat(series).double()
    found = []
    for command in (["cdist"], ["barycenter", "--max-iter", 1], ["cluster", "-k", 2, "--max-iter", 1]):
        code, text, _ = run(capsys, command[0], waves, *command[1:], "--gamma", "auto", "--json")
        assert code == 0
        found.append(json.loads(text))
    gamma = found[0]["gamma"]
    assert [one["gamma"] for one in found] == [gamma] * 3
    # gamma comes from 100 time steps. It is about twice the length times the squared median distance of all steps.
    assert gamma == pytest.approx(2 * len(series[0]) * float(torch.pdist(steps).median()) ** 2, rel=0.5)
    assert found[0]["soft_dtw"] == warpalign.cdist_soft_dtw(series, gamma=gamma).tolist()
    assert "expected a number or auto, got 'most'" in refused(capsys, "cdist", waves, "--gamma", "most")
    assert "'auto' is not a valid float" in refused(
        capsys, "align", f"{waves}:0", f"{waves}:1", "--gamma", "auto"
    )


def test_equal_shapes_bring_no_warning(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The command has no batches."""
    series = tmp_path / "series.npy"
    np.save(series, np.zeros((6, 3)))
    code, text, err = run(capsys, "align", series, series)
    assert code == 0 and text and "one series of N time steps" not in err


def test_cdist_of_two_files(capsys: pytest.CaptureFixture[str], waves: Path, tmp_path: Path) -> None:
    other, wide = tmp_path / "other.npy", tmp_path / "wide.npy"
    np.save(other, np.zeros((2, 20)))
    np.save(wide, np.zeros((2, 20, 3)))
    _, text, _ = run(capsys, "cdist", waves, other, "--dtype", "float32")
    expected = warpalign.cdist_soft_dtw([s.float() for s in series_of(waves)], torch.zeros(2, 20, 1)).numpy()
    got = np.array([line.split(",") for line in text.splitlines()], dtype=np.float32)
    assert np.array_equal(got, expected)
    assert refused(capsys, "cdist", waves, wide) == f"{wide}: expected 1 features, as {waves} has, got 3"


def test_barycenter(capsys: pytest.CaptureFixture[str], waves: Path, tmp_path: Path) -> None:
    out = tmp_path / "b.csv"
    code, text, err = run(
        capsys, "barycenter", waves, "--gamma", 0.1, "--size", 25, "--max-iter", 5, "-o", out, "--json"
    )
    assert code == 0 and unread(err).startswith("barycenter: expected convergence, got loss -26.")
    result = json.loads(text)
    expected = warpalign.soft_dtw_barycenter(series_of(waves), gamma=0.1, barycenter_size=25, max_iter=5)
    assert np.array_equal(io.read_series(out), expected.barycenter.numpy())
    assert result["loss"] == expected.losses[-1].item() < result["loss_of_start"]
    assert result["series"] == 12 and result["size"] == 25 and result["iterations"] == 5
    assert result["converged"] is False


def test_cluster(capsys: pytest.CaptureFixture[str], waves: Path, tmp_path: Path) -> None:
    out, centers = tmp_path / "labels.csv", tmp_path / "centers.npy"
    code, text, err = run(
        capsys,
        "cluster",
        waves,
        "-k",
        2,
        "--gamma",
        0.1,
        "--n-init",
        2,
        "-o",
        out,
        "--centers",
        centers,
        "--json",
    )
    assert (code, unread(err)) == (0, "")
    result = json.loads(text)
    model = warpalign.SoftDTWKMeans(2, gamma=0.1, n_init=2, random_state=0).fit(series_of(waves))
    assert np.loadtxt(out, dtype=int).tolist() == model.labels_.tolist()
    assert np.array_equal(np.load(centers), model.cluster_centers_)
    assert result["inertia"] == model.inertia_ and result["adjusted_rand_index"] == 1.0
    assert sorted(result["sizes"]) == [6, 6]
    assert (
        refused(capsys, "cluster", waves, "-k", 13)
        == f"-k: expected at most the 12 series of {waves}, got 13"
    )
    assert refused(capsys, "cluster", waves) == "Missing option '-k' / '--clusters'."


# What the commands take alike: flags, and the arguments of soft_dtw that they stand for.
OPTIONS: list[tuple[list[object], dict[str, Any]]] = [
    (["--bandwidth", 12], {"bandwidth": 12}),
    (["--bandwidth", 1, "--band", "slanted"], {"bandwidth": 1, "band": "slanted"}),
    (["--band", "itakura", "--max-slope", 3], {"band": "itakura", "max_slope": 3.0}),
    (["--cost", "huber", "--step-penalty", 0.5], {"cost": "huber", "step_penalty": 0.5}),
]


@pytest.mark.parametrize(("flags", "options"), OPTIONS, ids=range(len(OPTIONS)))
def test_options_of_all_commands(
    capsys: pytest.CaptureFixture[str], waves: Path, flags: list[object], options: dict[str, Any]
) -> None:
    series = series_of(waves)
    _, text, _ = run(capsys, "cdist", waves, "--json", *flags)
    assert json.loads(text)["soft_dtw"] == warpalign.cdist_soft_dtw(series, **options).tolist()
    _, text, _ = run(capsys, "barycenter", waves, "--max-iter", 3, "--json", *flags)
    barycenter = warpalign.soft_dtw_barycenter(series, max_iter=3, **options)
    assert json.loads(text)["loss"] == barycenter.losses[-1].item()
    _, text, _ = run(capsys, "cluster", waves, "-k", 2, "--max-iter", 1, "--json", *flags)
    model = warpalign.SoftDTWKMeans(2, max_iter=1, random_state=0, metric_params=options).fit(series)
    assert json.loads(text)["inertia"] == model.inertia_
    plain = warpalign.SoftDTWKMeans(2, max_iter=1, random_state=0).fit(series)
    assert model.inertia_ != plain.inertia_


# bench, explain, info


def test_bench(capsys: pytest.CaptureFixture[str]) -> None:
    code, text, err = run(capsys, "bench", "--pairs", 2, "--length", 16, "--repeats", 3, "--json")
    assert (code, err) == (0, "")
    result = json.loads(text)
    assert result["threads"] == torch.get_num_threads() and result["device"] == "cpu"
    for name in ("forward", "step"):
        cells = 2 * 16 * 16
        assert result[f"{name}_ns_per_cell"] == pytest.approx(1e6 * result[f"{name}_ms"] / cells)
        assert result[f"{name}_ms"] > 0
    assert "0 is not in the range x>=1" in refused(capsys, "bench", "--pairs", 0)


def test_info(capsys: pytest.CaptureFixture[str]) -> None:
    code, text, _ = run(capsys, "info", "--json")
    result = json.loads(text)
    assert code == 0
    assert result["warpalign"] == warpalign.__version__ and result["torch"] == torch.__version__
    assert "libwarpalign_torch_cpu.so" in result["libraries"]
    assert len(result["devices"]) == 1 + torch.cuda.device_count() and result["devices"][0] == "cpu"
    assert result["instruction_sets"]
    assert result["cuda_architectures"] == [] or "libwarpalign_torch_cuda.so" in result["libraries"]
    packages = {line.split()[0] for line in result["optional_packages"]}
    assert packages.isdisjoint(result["missing_packages"]) and {"click", "numpy"} <= packages
    _, text, _ = run(capsys, "info")
    assert f"warpalign {warpalign.__version__}".split() in [line.split() for line in text.splitlines()]


def test_explain(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ("explain", "soft_dtw", "--sizes", "4x700x650x3", "--threads", 2)
    code, text, err = run(capsys, *sizes)
    assert (code, err) == (0, "")
    assert text.startswith("soft_dtw on CPU, 2 threads, ") and "4 pairs of 700 x 650 steps" in text
    assert "across_batch: named by Execution::way" in run(capsys, *sizes, "--way", "across_batch")[1]
    assert 'has no way "fast"; its ways are across_batch, within_items' in refused(
        capsys, *sizes, "--way", "fast"
    )
    assert run(capsys, *sizes, "--ways") == (0, "across_batch\nwithin_items\n", "")
    assert "expected numbers such as 32x512x512x64, got '4xN'" in refused(
        capsys, "explain", "soft_dtw", "--sizes", "4xN"
    )
    assert "expected 4 numbers" in refused(capsys, "explain", "soft_dtw", "--sizes", "4,5")


# The group.


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    code, text, _ = run(capsys, "--help")
    assert code == 0
    for name in _app.warpalign.commands:
        assert name in text
        assert run(capsys, name, "-h")[0] == 0
    assert run(capsys, "--version") == (0, f"warpalign {warpalign.__version__}\n", "")


def test_bugs_keep_their_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what this package raises itself is about the user's input."""
    monkeypatch.setattr(_app.warpalign, "main", lambda **_: np.zeros(2).reshape(3))
    with pytest.raises(ValueError, match="cannot reshape"):
        _app.run([])


def test_failures_that_are_nobodys_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_app.warpalign, "main", fail)
    assert run(capsys) == (1, "", "warpalign: No space left on device\n")


# As a process.


def command(*arguments: object, **options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "warpalign", *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": PACKAGE, **options},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_process(pair: tuple[Path, Path]) -> None:
    done = command("align", *pair)
    assert (done.returncode, unread(done.stderr)) == (0, "")
    bad = command("align", *pair, "--gamma", "nan")
    assert (bad.returncode, bad.stdout) == (2, "")
    assert unread(bad.stderr) == "warpalign: gamma: expected a finite number >= 0, got nan\n"


def test_a_missing_package_is_named(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise ModuleNotFoundError('No module named click', name='click')")
    done = command("cdist", "x.npy", PYTHONPATH=f"{tmp_path}{os.pathsep}{PACKAGE}")
    assert done.returncode == 1
    assert done.stderr == (
        'warpalign: the command needs click, which is missing: pip install "warpalign[cli]"\n'
    )


def test_info_needs_no_further_package(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise ModuleNotFoundError('No module named click', name='click')")
    done = command("info", PYTHONPATH=f"{tmp_path}{os.pathsep}{PACKAGE}")
    assert (done.returncode, done.stderr) == (0, "")
    assert ["warpalign", warpalign.__version__] in [line.split() for line in done.stdout.splitlines()]


def test_a_reader_that_has_enough() -> None:
    """warpalign ... | head -0: the process ends without a word."""
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "warpalign", "info"],
        env={**os.environ, "PYTHONPATH": PACKAGE},
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")
