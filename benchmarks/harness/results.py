"""Result files: JSON lists of flat rows in benchmarks/results/<machine>/<date>-<commit>[-<what>].json."""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

Row = dict[str, Any]

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"


def today() -> str:
    return datetime.datetime.now(datetime.timezone.utc).date().isoformat()


def stamp(commit: str) -> Row:
    """What every row says about its origin; date and time are UTC."""
    now = datetime.datetime.now(datetime.timezone.utc)
    return {"torch": _torch_version(), "commit": commit, "date": today(), "time": f"{now:%H:%M:%S}"}


def _torch_version() -> str:
    import torch

    return str(torch.__version__)


def current_commit() -> str:
    """The commit that is checked out, or "unknown" outside a git checkout."""
    command = ["git", "-C", str(ROOT), "rev-parse", "--short=10", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def slug(name: str) -> str:
    """A folder name: "NVIDIA H200" -> "nvidia-h200"."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def cpu_name() -> str:
    """The processor's model, with the widest instruction set of those that matter here."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.machine() or "cpu"
    model = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    name = re.sub(r"\((R|TM)\)|CPU|Processor|@.*", "", model[1]) if model else platform.machine()
    flags = set(text.split())
    width = next((label for flag, label in (("avx512f", "AVX-512"), ("avx2", "AVX2")) if flag in flags), "")
    return " ".join(f"{name} {width}".split())


def write_rows(rows: list[Row], path: Path) -> None:
    """One row per line, so that differences between two files can be read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(row, allow_nan=False) for row in rows)
    path.write_text(f"[\n{lines}\n]\n")


def read_rows(path: Path) -> list[Row]:
    rows: list[Row] = json.loads(path.read_text())
    return rows


def rounded(value: float | None, digits: int = 4) -> float | None:
    """Rounded to significant digits: more than a measurement's spread is noise in a committed file."""
    return None if value is None else float(f"{value:.{digits}g}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where results go, and which commit they are of."""
    parser.add_argument("--commit", default=None, help="name of the commit, where there is no git checkout")
    parser.add_argument(
        "--out", type=Path, default=RESULTS, help="results folder (default: benchmarks/results)"
    )


def device_name(device: torch.device) -> str:
    import torch

    return torch.cuda.get_device_name(device) if device.type == "cuda" else cpu_name()


def result_path(arguments: argparse.Namespace, device: str, what: str = "") -> tuple[Path, str]:
    """The file for the results of add_arguments()'s program, and the commit."""
    commit = arguments.commit or current_commit()
    return arguments.out / slug(device) / f"{today()}-{commit}{what}.json", commit
