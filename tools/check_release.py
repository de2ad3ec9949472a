"""Checks the files of a release as users get them (`make release`).

Usage: check_release.py FOLDER [--glibc 2.28] [--python PYTHON ...] [--torch VERSION ...] [--index-url URL] [--build-sdist]

FOLDER holds a source distribution and a wheel or more. Each file must satisfy twine; a wheel must run on the Linux that --glibc
names and be below 300 MB. Each wheel is installed into a new environment of every Python with every torch. There
tools/smoke.py runs, then the README's Python blocks one after the other, as a reader pastes them, and `warpalign info`.
Then the wheel is uninstalled without a trace. Without --torch the environments take the torch of this one. With
--build-sdist a wheel without CUDA is built of the source distribution too, with this environment's torch, and tried.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LARGEST = 300_000_000
"""Bytes of a wheel."""


def run(*command: str | Path) -> str:
    """What a command prints; its failure ends the program with everything it said."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    # A folder without a package of this tree, so that nothing is imported by accident.
    done = subprocess.run(
        [str(word) for word in command],
        cwd=tempfile.gettempdir(),
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def faults_of_wheel(name: str, size: int, glibc: str) -> list[str]:
    """What is wrong with a wheel's name and size."""
    faults = [] if size <= LARGEST else [f"{name}: expected at most {LARGEST} bytes, got {size}"]
    tag = re.fullmatch(r"warpalign-[^-]+-py3-none-manylinux_(\d+)_(\d+)_\w+\.whl", name)
    if tag is None:
        return [*faults, f"{name}: expected warpalign-VERSION-py3-none-manylinux_MAJOR_MINOR_MACHINE.whl"]
    newest = tuple(map(int, glibc.split(".")))
    if (int(tag[1]), int(tag[2])) > newest:
        faults.append(
            f"{name}: expected a wheel for glibc {glibc} or older, got {tag[1]}.{tag[2]}: build it in a manylinux container"
        )
    return faults


def readme_code() -> str:
    """The Python blocks of the README as one program."""
    readme = (ROOT / "README.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    if not blocks:
        raise SystemExit("README.md: expected Python blocks, got none")
    return "\n".join(blocks)


def build_archive(archive: Path, folder: Path) -> Path:
    """The wheel of a source distribution."""
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation")
    run(*pip, "-C", "cmake.define.WARPALIGN_CUDA=OFF", "-w", folder, archive)
    (wheel,) = folder.glob("*.whl")
    return wheel


def folder_of_torch() -> Path:
    """Where this environment has its torch; it may be another environment's, that a .pth file names."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        raise SystemExit("torch is not installed here: name versions with --torch")
    return Path(found.origin).parents[1]


def try_wheel(wheel: Path, python: str, torch: str | None, index: list[str]) -> str:
    """Installs, runs and uninstalls the wheel in a new environment; the last line of the smoke test."""
    with tempfile.TemporaryDirectory() as folder:
        run(python, "-m", "venv", "--without-pip", folder)
        inside = Path(folder, "bin", "python")
        packages = Path(run(inside, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
        pip = (sys.executable, "-m", "pip", "--python", str(inside))
        if torch is None:
            packages.joinpath("torch.pth").write_text(str(folder_of_torch()))
        else:
            run(*pip, "install", "--quiet", f"torch=={torch}", *index)
        run(*pip, "install", "--quiet", "--no-deps", "--no-index", wheel)
        said = run(inside, ROOT / "tools" / "smoke.py")
        place = run(inside, "-c", "import warpalign; print(warpalign.__file__)")
        if not place.startswith(str(packages)):
            raise SystemExit(f"{wheel.name}: expected the installed package, got {place}")
        run(inside, "-c", readme_code())
        run(inside, "-m", "warpalign", "info")
        run(*pip, "uninstall", "--quiet", "--yes", "warpalign")
        left = [*packages.glob("warpalign*"), *Path(folder, "bin").glob("warpalign*")]
        if left:
            raise SystemExit(f"{wheel.name}: uninstalling left {', '.join(path.name for path in left)}")
        return said.splitlines()[-1]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--glibc", default="2.28", help="the oldest C library that the wheels must run with")
    parser.add_argument("--python", nargs="+", default=[sys.executable])
    parser.add_argument("--torch", nargs="+", default=[None])
    parser.add_argument("--index-url", help="where torch comes from, such as an index of CPU builds")
    parser.add_argument("--build-sdist", action="store_true", help="build the source distribution, too")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    wheels, archives = sorted(folder.rglob("*.whl")), sorted(folder.glob("*.tar.gz"))
    if not wheels or len(archives) != 1:
        raise SystemExit(f"{folder}: expected one .tar.gz and at least one .whl, got {archives} and {wheels}")
    print(run(sys.executable, "-m", "twine", "check", "--strict", *archives, *wheels).strip())
    faults = [
        fault for one in wheels for fault in faults_of_wheel(one.name, one.stat().st_size, arguments.glibc)
    ]
    if faults:
        raise SystemExit("\n".join(faults))
    index = ["--index-url", arguments.index_url] if arguments.index_url else []
    for wheel, python, torch in product(wheels, arguments.python, arguments.torch):
        print(f"{wheel.relative_to(folder)}: {try_wheel(wheel, python, torch, index)}")
    if arguments.build_sdist:
        with tempfile.TemporaryDirectory() as built:
            wheel = build_archive(archives[0], Path(built))
            print(f"{archives[0].name}: {try_wheel(wheel, sys.executable, None, index)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
