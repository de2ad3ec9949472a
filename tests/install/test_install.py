"""What a user installs works outside this tree: the CMake package for C++ programs, the wheel for Python."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

import warpalign
from make_wheel import make_wheel

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("WARPALIGN_BUILD_DIR", ROOT / "build" / "dev"))

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

JAX_PROGRAM = """
import sys
sys.modules["torch"] = None
import jax, jax.numpy as jnp, warpalign.jax
x, y = jnp.array([[0.0], [1.0]]), jnp.array([[0.0], [2.0]])
value, gradient = jax.value_and_grad(warpalign.jax.soft_dtw)(x, y)
assert abs(value - 0.673437) < 1e-5, value
assert abs(gradient.ravel() - jnp.array([-0.052852, -1.469224])).max() < 1e-5, gradient
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
    # All classes have the probability 1/3. 15 of 81 sequences of 4 frames are paths of two labels, 6 of 27 of 3 frames
    # of one label. Among equal paths labels stand as early as they can, but the last one until the end. A beam of 4
    # prefixes finds these labels as the best ones.
    assert run([build / "ctc"]).splitlines() == [
        "loss 1.686399, gradient of class 1 at the first frame -0.333333",
        "  label 1: frames 0 to 0",
        "  label 2: frames 1 to 3",
        "loss 1.504077, gradient of class 1 at the first frame -0.166667",
        "  label 1: frames 0 to 2",
        "decoded, log-probability -1.686399: 1 at frame 0 2 at frame 1",
        "decoded, log-probability -1.504077: 1 at frame 0",
    ]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of a machine without nvcc. Its build folder stays, so that the next run compiles only what has changed."""
    build = BUILD / "wheel" if BUILD.exists() else tmp_path_factory.mktemp("build")
    settings = [f"build-dir={build}", "cmake.define.WARPALIGN_CUDA=OFF"]
    with pytest.MonkeyPatch.context() as patch:
        # As a compiler does that knows more warnings than those of today.
        patch.setenv("CXXFLAGS", "-Wfloat-equal")
        return make_wheel(tmp_path_factory.mktemp("wheel"), settings)


class Environment(NamedTuple):
    """A new virtual environment that the wheel was installed into, with torch from this one."""

    python: Path
    packages: Path

    def run(self, *command: str | Path, **variables: str) -> str:
        """Runs a program of the environment as on a machine without compilers and CMake: PATH has nothing else."""
        program = self.python.with_name(str(command[0]))
        return run([program, *command[1:]], PATH=str(self.python.parent), PYTHONPATH="", **variables)


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    packages = Path(run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]).strip())
    # torch is not installed a second time, for its size.
    packages.joinpath("torch.pth").write_text(sysconfig.get_path("purelib"))
    nothing = str(tmp_path_factory.mktemp("nothing"))
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel]
    run(pip, PATH=nothing, CC="/nothing", CXX="/nothing")
    return Environment(python, packages)


def test_the_wheel_serves_every_python_and_holds_the_python_part_alone(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    # Not the CUDA library that `make build` may have put beside the sources.
    libraries = sorted(name for name in names if name.endswith(".so"))
    front_ends = ["jax", "torch"] if find_spec("jaxlib") else ["torch"]
    assert libraries == [f"warpalign/lib/libwarpalign_{name}_cpu.so" for name in front_ends]
    assert "warpalign/py.typed" in names
    assert not [name for name in names if name.endswith((".a", ".h", ".cmake"))]
    outside = [name for name in names if not name.startswith("warpalign")]
    assert not outside, "everything belongs to warpalign/ or warpalign-*.dist-info/"


def test_the_wheels_tag_names_a_linux_that_is_old_enough(wheel: Path) -> None:
    """auditwheel has found no system library but those of the policy, and none newer than this machine's."""
    version = warpalign._version.__version__
    tag = re.fullmatch(rf"warpalign-{version}-py3-none-manylinux_2_(\d+)_(\w+)\.whl", wheel.name)
    assert tag, wheel.name
    assert tag[2] == platform.machine() and int(tag[1]) <= int(platform.libc_ver()[1].split(".")[1])
    said = zipfile.ZipFile(wheel).read(f"warpalign-{version}.dist-info/WHEEL").decode()
    assert f"Tag: py3-none-manylinux_2_{tag[1]}_{tag[2]}" in said


def test_the_installed_package_computes(environment: Environment) -> None:
    assert str(environment.packages) in environment.run("python", "-c", PROGRAM)


def test_the_installed_package_computes_in_jax_without_torch(environment: Environment) -> None:
    if find_spec("jax") is None:
        pytest.skip("JAX is not installed")
    assert str(environment.packages) in environment.run("python", "-c", JAX_PROGRAM)


@pytest.mark.parametrize("command", [["warpalign"], ["python", "-m", "warpalign"]], ids=["script", "module"])
def test_the_installed_command_runs(environment: Environment, command: list[str]) -> None:
    said = environment.run(*command, "info")
    assert "libwarpalign_torch_cpu.so" in said and "cuda operators" in said


def test_import_works_without_the_cuda_library(environment: Environment) -> None:
    """A CPU-only torch cannot load the CUDA library, so it must not be tried."""
    library = environment.packages / "warpalign" / "lib" / "libwarpalign_torch_cuda.so"
    library.write_bytes(b"not a library")
    hidden = "import torch; torch.version.cuda = None\n"
    try:
        environment.run("python", "-c", hidden + PROGRAM)
    finally:
        library.unlink()


@pytest.mark.skipif(shutil.which("nm") is None, reason="nm is needed to look into the library")
def test_the_library_needs_no_python_and_no_c_plus_plus_torch(environment: Environment) -> None:
    """Only LibTorch's C interface (the stable ABI) may be left to be found at load time."""
    library = environment.packages / "warpalign" / "lib" / "libwarpalign_torch_cpu.so"
    undefined = run(["nm", "--demangle", "--dynamic", "--undefined-only", library])
    names = [line.split(maxsplit=1)[1] for line in undefined.splitlines()]
    assert not [name for name in names if name.startswith(("Py", "_Py", "c10::", "at::", "torch::"))]
