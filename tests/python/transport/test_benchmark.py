"""The transport benchmark runs on the CPU."""

import ctypes
import struct
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.transport import cpu_peers, cpu_solves, gromov_cpu, keops_nvcc, slices
from benchmarks.transport.gromov import QUICK_GROMOV_SIZES, GromovSize
from benchmarks.transport.normalize import QUICK_NORMALIZE_SIZES, NormalizeSize
from benchmarks.transport.sizes import QUICK_SIZES, Size
from benchmarks.transport.suite import SUITE


@pytest.mark.parametrize(
    "size", [*QUICK_SIZES, *QUICK_GROMOV_SIZES, *QUICK_NORMALIZE_SIZES], ids=lambda size: size.name
)
def test_measures_a_row(size: Size | GromovSize | NormalizeSize) -> None:
    row = SUITE.measure(size, torch.device("cpu"), 0.01)
    assert "error" not in row
    assert isinstance(row["solve_ms"], float) and row["solve_ms"] > 0
    assert row.keys() & set(SUITE.columns) >= {"solve_ms", "mib", "pot_ms"}


@pytest.mark.parametrize("features", [0, 2])
def test_measures_a_core(features: int) -> None:
    row = cpu_peers.measured(cpu_peers.Size(40, 30, features, "float32", 200), 3)
    assert row["iteration_ns"] > 0 and row["around_ms"] > 0


def test_measures_a_sampled_solve() -> None:
    threads = torch.get_num_threads()
    here, there = Pipe(duplex=False)
    try:
        gromov_cpu.measured(gromov_cpu.OURS, 80, 90, 5e-3, there)
    finally:
        torch.set_num_threads(threads)
    row = here.recv()
    assert row["seconds"] > 0 and row["mib"] >= 0
    assert 0 < row["distortion"] < 0.1


def test_measures_whole_solves() -> None:
    row = cpu_solves.gromov(40, 50, 0)
    assert row["seconds"] > 0 and row["steps"] > 0 and 0 < row["estimate"] < 1 and row["off_sums"] < 1
    assert cpu_solves.sinkhorn_row(30, 40, 9, 2)["seconds"] > 0
    assert cpu_solves.divergence(20, 30, 2)["seconds"] > 0


def test_measures_an_alignment_of_slices() -> None:
    of = slices.pair(50)
    row = slices.quality(of, slices.ours(of, torch.device("cpu")))
    assert row["same_layer"] > 0.8 and row["off"] < 1 and row["off_sums"] < 1e-6


def test_results_are_reproducible() -> None:
    assert SUITE.not_reproducible(torch.device("cpu"), 2) == []


@pytest.mark.parametrize("fails", [False, True])
def test_nvcc_compiles_formulas_of_keops(
    fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """With a stand-in for nvcc, which copies the source: KeOps' file has the binary's size before it."""
    nvcc = tmp_path / "nvcc"
    body = "echo no such type >&2; exit 1" if fails else 'echo "$@" >&1; cp "${5}" "${4}"'
    nvcc.write_text(f"#!/bin/sh\n{body}\n")
    nvcc.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    target, code = str(tmp_path / "cubin").encode(), b"__global__ void f();"
    given = [ctypes.create_string_buffer(text) for text in (target, code)]
    compiler: Any = keops_nvcc._Compiler
    result = compiler.Compile(*given, *map(ctypes.c_int, (0, 1, 0)), None)
    assert result == int(fails)
    if fails:
        assert "no such type" in capfd.readouterr().out
    else:
        assert (tmp_path / "cubin").read_bytes() == struct.pack("N", len(code)) + code
