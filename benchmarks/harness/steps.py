"""The steps of `gpu_check.py`: commands with a time limit, and what a step leaves behind."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from benchmarks.harness.results import ROOT, Row, rounded

PYTHON = ROOT / "python"


def command(arguments: list[str], limit_s: float, **environment: str) -> tuple[int, str]:
    """Runs a command with the package on its path: exit status (124: too slow, 127: missing) and output."""
    paths = [str(PYTHON), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **environment}
    try:
        done = subprocess.run(
            arguments,
            cwd=ROOT,
            env=environment,
            timeout=limit_s,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
    except subprocess.TimeoutExpired as late:
        output = late.stdout or b""
        return 124, (output.decode(errors="replace") if isinstance(output, bytes) else output)
    except OSError as error:
        return 127, str(error)
    return done.returncode, done.stdout


def check(name: str, status: str, detail: str, start: float, suite: str | None = None) -> Row:
    """One row about a step that is no measurement; status: passed, failed or skipped; suite: of one operator."""
    seconds = time.perf_counter() - start
    print(f"{name:14} {suite or '':12} {status:8} {detail}  ({seconds:.0f} s)", flush=True)
    row: Row = {"op": "check", "name": name, "status": status, "detail": detail}
    return row | ({} if suite is None else {"suite": suite}) | {"seconds": rounded(seconds, 3)}


def last_line(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "no output"


def tail(output: str, count: int = 25) -> None:
    print("\n".join("    " + line for line in output.splitlines()[-count:]), flush=True)


def keep(output: str, log: Path) -> None:
    """The whole output of a step that failed: what matters may stand far above its last lines."""
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(output)
    print(f"    whole output: {log}", flush=True)
