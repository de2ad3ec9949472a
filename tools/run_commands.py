"""Runs shell commands side by side. What failed is shown last, where a log is read first.

Usage: run_commands.py JOBS < COMMANDS     one command a line

A command that succeeds shows nothing. The exit code is 1 if a command failed, or if there was none.
"""

from __future__ import annotations

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

_NOISE = re.compile(r"^\d+ (warning|error)s?( and \d+ errors?)? generated\.$")
"""What clang-tidy says of every file: warnings in system headers, which it does not show."""
_COMPLAINT = re.compile(r"\berror\b|\bwarning\b", re.IGNORECASE)
_MOST_LISTED = 20


@dataclass
class Failure:
    command: str
    code: int
    output: list[str]

    def complaint(self) -> str:
        """The first line that names an error, or else the last line."""
        named = [line for line in self.output if _COMPLAINT.search(line)]
        return (named or self.output[-1:] or ["no output"])[0]


def run(command: str) -> Failure | None:
    """The command's failure; None: the command succeeded."""
    done = subprocess.run(
        command, shell=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    if done.returncode == 0:
        return None
    lines = [line for line in done.stdout.splitlines() if line.strip() and not _NOISE.match(line)]
    return Failure(command, done.returncode, lines)


def main(jobs: int, commands: list[str]) -> int:
    failures = []
    with ThreadPoolExecutor(jobs) as pool:
        for failure in pool.map(run, commands):
            if failure is not None:
                failures.append(failure)
                print(f"\n$ {failure.command}", *failure.output, sep="\n", flush=True)
    print(f"\n{len(commands) - len(failures)} of {len(commands)} commands succeeded")
    for failure in failures[:_MOST_LISTED]:
        print(f"failed with {failure.code}: {failure.command}\n  {failure.complaint()}")
    return 1 if failures or not commands else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), [line.strip() for line in sys.stdin if line.strip()]))
