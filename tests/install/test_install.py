"""What a user installs works outside this tree: the CMake package for C++ programs, the wheel for Python."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("WARPALIGN_BUILD_DIR", ROOT / "build" / "dev"))

pytestmark = pytest.mark.xdist_group("install")  # one process makes the wheel

# The first pair of examples/cpp/soft_dtw.cpp. The costs are {0, 4; 1, 1}, so that three paths reach the last cell, of
# weights 1, e^-1 and e^-4: value = 1 - log w with w their sum, gradient = (-4 e^-4, 2 e^-1 - 2 w) / w.
PROGRAM = """
import torch, warpalign
x = torch.tensor([[0.0], [1.0]], requires_grad=True)
value = warpalign.soft_dtw(x, torch.tensor([[0.0], [2.0]]))
value.backward()
assert abs(value.item() - 0.673437) < 1e-5, value
assert (x.grad.flatten() - torch.tensor([-0.052852, -1.469224])).abs().max() < 1e-5, x.grad
print(warpalign.__version__, warpalign.__file__)
"""


def run(command: list[str | Path], **environment: str) -> str:
    # From the root of the file system, so that nothing of this tree is found by accident.
    result = subprocess.run(
        [str(part) for part in command],
        cwd="/",
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    free = shutil.disk_usage(ROOT).free >> 20
    assert result.returncode == 0, f"{command} with {free} MiB free\n{result.stdout}\n{result.stderr}"
    return result.stdout


def test_a_cmake_project_without_torch_uses_the_library(tmp_path: Path) -> None:
    if not (BUILD / "CMakeCache.txt").exists():
        pytest.skip("nothing is built; `make test` builds it")
    prefix, build = tmp_path / "prefix", tmp_path / "build"
    run(["cmake", "--install", BUILD, "--component", "cpp", "--prefix", prefix])
    # The installed files are all that the consumer may use, wherever they are moved to.
    moved = prefix.rename(tmp_path / "moved")
    run(["cmake", "-S", ROOT / "examples/cpp", "-B", build, f"-DCMAKE_PREFIX_PATH={moved}"])
    run(["cmake", "--build", build])
    # The second pair has one step in x, 3, against 3 and 4: one path, of cost 1, and the gradient 2 (3 - 4).
    assert run([build / "soft_dtw"]).splitlines() == [
        "value 0.673437, gradient (-0.052852, -1.469224)",
        "value 1.000000, gradient (-2.000000, 0.000000)",
        "refused: gamma: expected finite and >= 0, got -1",
    ]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of a machine without nvcc. Its build folder stays, so that the next run compiles only what has changed."""
    folder = tmp_path_factory.mktemp("wheel")
    build = BUILD / "wheel" if BUILD.exists() else tmp_path_factory.mktemp("build")
    pip = [sys.executable, "-m", "pip", "wheel", ROOT, "--no-deps", "--no-build-isolation", "-w", folder]
    settings = [f"build-dir={build}", "cmake.define.WARPALIGN_CUDA=OFF"]
    # As a compiler does that knows more warnings than those of today.
    run([*pip, *(f"--config-settings={setting}" for setting in settings)], CXXFLAGS="-Wfloat-equal")
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    run([sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--target", folder, wheel])
    return folder


def test_the_wheel_serves_every_python_and_holds_the_python_part_alone(wheel: Path) -> None:
    assert wheel.name.split("-")[2:4] == ["py3", "none"]
    names = zipfile.ZipFile(wheel).namelist()
    # Not the CUDA library that `make build` may have put beside the sources.
    libraries = [name for name in names if name.endswith(".so")]
    assert libraries == ["warpalign/lib/libwarpalign_torch_cpu.so"]
    assert "warpalign/py.typed" in names
    assert not [name for name in names if name.endswith((".a", ".h", ".cmake"))]
    outside = [name for name in names if not name.startswith("warpalign")]
    assert not outside, "everything belongs to warpalign/ or warpalign-*.dist-info/"


def test_the_installed_package_computes(site: Path) -> None:
    assert str(site) in run([sys.executable, "-c", PROGRAM], PYTHONPATH=str(site))


def test_the_installed_command_runs(site: Path) -> None:
    assert "libwarpalign_torch_cpu.so" in run([site / "bin" / "warpalign", "info"], PYTHONPATH=str(site))


def test_import_works_without_the_cuda_library(site: Path) -> None:
    """A CPU-only torch cannot load the CUDA library, so it must not be tried."""
    library = site / "warpalign" / "lib" / "libwarpalign_torch_cuda.so"
    library.write_bytes(b"not a library")
    hidden = "import torch; torch.version.cuda = None\n"
    try:
        run([sys.executable, "-c", hidden + PROGRAM], PYTHONPATH=str(site))
    finally:
        library.unlink()


@pytest.mark.skipif(shutil.which("nm") is None, reason="nm is needed to look into the library")
def test_the_library_needs_no_python_and_no_c_plus_plus_torch(site: Path) -> None:
    """Only LibTorch's C interface (the stable ABI) may be left to be found at load time."""
    library = site / "warpalign" / "lib" / "libwarpalign_torch_cpu.so"
    undefined = run(["nm", "--demangle", "--dynamic", "--undefined-only", library])
    names = [line.split(maxsplit=1)[1] for line in undefined.splitlines()]
    assert not [name for name in names if name.startswith(("Py", "_Py", "c10::", "at::", "torch::"))]
