"""Times forced alignment on a CPU beside the way of whisperX: a trellis that a Python loop fills, a frame at a time.

whisperX aligns one utterance after another. Its trellis has a column for each number of labels that are already spoken. A
frame is a blank, or the next label: a label lasts for one frame, and equal neighbours need no blank between them. So its
paths are CTC's where no frame repeats a label, as in outputs that are sure of their classes. CPU time of one thread, the
least of several runs: other programs may run beside it. Writes benchmarks/results/<cpu>/<date>-<commit>-ctc-trellis.json.
"""

from __future__ import annotations

import argparse
import math

import torch
from torch import Tensor

import warpalign
from benchmarks.harness.results import Row, add_arguments, cpu_name, result_path, rounded, stamp, write_rows
from benchmarks.harness.timing import least_thread_s

SIZES = [(500, 32, 100), (1500, 32, 300), (15000, 32, 3000)]  # frames, classes, labels


def trellis_align(log_probs: Tensor, targets: Tensor, blank: int = 0) -> Tensor:
    """(T,) classes of the best path through log-probabilities (T, C) in which each label (U,) has exactly one frame."""
    frames, count = len(log_probs), len(targets)
    # table[t, u]: the greatest log-probability of t frames that speak u labels.
    table = log_probs.new_full((frames + 1, count + 1), -math.inf)
    table[0, 0] = 0
    for t in range(frames):
        stay = table[t] + log_probs[t, blank]
        table[t + 1, 0] = stay[0]
        torch.maximum(stay[1:], table[t, :-1] + log_probs[t, targets], out=table[t + 1, 1:])
    if table[frames, count] == -math.inf:
        raise ValueError(
            f"expected at least as many frames as labels, got {frames} frames and {count} labels"
        )
    path = torch.full((frames,), blank)
    u = count
    for t in range(frames - 1, -1, -1):
        if u == 0:
            break
        stay = table[t, u] + log_probs[t, blank]
        if table[t, u - 1] + log_probs[t, targets[u - 1]] > stay:
            u -= 1
            path[t] = targets[u]
    return path


def problem(frames: int, classes: int, labels: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Log-probabilities (T, C) that are sure of their classes, and the labels (U,) that they speak, evenly spread."""
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randint(1, classes, (labels,), generator=generator)
    spoken = torch.zeros(frames, dtype=torch.int64)
    spoken[torch.arange(labels) * frames // labels] = targets
    logits = torch.randn(frames, classes, generator=generator)
    logits[torch.arange(frames), spoken] += 9
    return logits.log_softmax(-1), targets


def measure(size: tuple[int, int, int], runs: int) -> Row:
    """Milliseconds of one utterance by both ways, whether the paths are equal, and the bytes of the trellis."""
    frames, _, labels = size
    log_probs, targets = problem(*size)

    def align() -> Tensor:
        return warpalign.ctc_align(log_probs, targets, from_log_probs=True).labels

    if not torch.equal(align().long(), trellis_align(log_probs, targets)):
        raise RuntimeError(f"{size}: the paths differ")
    return {
        "align_ms": rounded(1e3 * least_thread_s(align, runs)),
        "trellis_ms": rounded(1e3 * least_thread_s(lambda: trellis_align(log_probs, targets), 3)),
        "trellis_mib": rounded(4 * (frames + 1) * (labels + 1) / 2**20),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--runs", type=int, default=9, help="of which the least time counts (default: 9)")
    add_arguments(parser)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    path, commit = result_path(arguments, cpu_name(), "-ctc-trellis")
    rows = []
    for size in SIZES:
        place: Row = {"op": "ctc_trellis", "device": cpu_name(), "threads": 1}
        rows.append(
            place | dict(zip("TCL", size, strict=True)) | measure(size, arguments.runs) | stamp(commit)
        )
        print(rows[-1], flush=True)
    write_rows(rows, path)
    print(path, warpalign.__version__)


if __name__ == "__main__":
    main()
