"""Times CTC's loss, alignments, decoding and monotonic alignment search on a CPU, beside other packages where they are installed.

CPU time of one thread, the least of several runs: other programs may run beside it. Batches are smaller than in the tables of
GPUs: utterances are independent on a CPU. `first_ms` is the first call, `gradient_ms` the second one, `step_ms` a training step
through autograd; torch's step is log_softmax, ctc_loss and their backward pass. Errors are the largest absolute ones of the
gradient, against torch in float64. Writes benchmarks/results/<cpu>/<date>-<commit>-ctc-cpu.json.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import warpalign
from benchmarks.ctc.decode import PEERS, peaky
from benchmarks.harness.results import (
    Row,
    add_arguments,
    cpu_name,
    result_path,
    rounded,
    stamp,
    write_rows,
)
from benchmarks.harness.timing import least_thread_s
from warpalign._ctc import ops

LOSSES = [
    (4, 400, 1024, 100),
    (2, 1500, 32, 300),
    (4, 200, 5000, 40),
    (2, 1000, 128, 200),
    (32, 128, 64, 30),
    (1, 12000, 32, 3000),
]
ALIGNMENTS = [(1, 1500, 32, 300), (1, 15000, 32, 3500), (1, 60000, 32, 15000)]
SEARCHES = [(4, 128, 512), (2, 512, 2048)]
DECODING = [(1, 400, 1024, 16), (1, 1500, 32, 32)]  # the last one: beam


def ms(run: Callable[[], object], count: int) -> float | None:
    return rounded(1e3 * least_thread_s(run, count))


def function_of(module: str, name: str) -> Callable[..., Any] | None:
    try:
        function: Callable[..., Any] = getattr(import_module(module), name)
    except (ImportError, OSError):
        return None
    return function


def torch_gradient(logits: Tensor, targets: Tensor) -> Tensor:
    batch, frames, _ = logits.shape
    x = logits.detach().requires_grad_()
    lengths = torch.full((batch,), frames), torch.full((batch,), targets.shape[1])
    loss = F.ctc_loss(x.log_softmax(-1).transpose(0, 1), targets, *lengths, reduction="sum")
    return torch.autograd.grad(loss, x)[0]


def own_gradient(logits: Tensor, targets: Tensor) -> Tensor:
    x = logits.detach().requires_grad_()
    return torch.autograd.grad(warpalign.ctc_loss(x, targets, reduction="sum"), x)[0]


def loss_row(size: tuple[int, ...], runs: int) -> Row:
    batch, frames, classes, labels = size
    logits, targets = torch.randn(batch, frames, classes), torch.randint(1, classes, (batch, labels))
    inputs = (logits, targets, None, None, None)
    loss, saved = ops.loss(*inputs, True)
    upstream = torch.ones_like(loss)
    exact = torch_gradient(logits.double(), targets)
    return {
        "first_ms": ms(lambda: ops.loss(*inputs, True), runs),
        "gradient_ms": ms(lambda: ops.gradient(*inputs, saved, upstream), runs),
        "step_ms": ms(lambda: own_gradient(logits, targets), runs),
        "peer_step_ms": ms(lambda: torch_gradient(logits, targets), 2),
        "error": float((own_gradient(logits, targets) - exact).abs().max()),
        "peer_error": float((torch_gradient(logits, targets) - exact).abs().max()),
    }


def align_row(size: tuple[int, ...], runs: int) -> Row:
    batch, frames, classes, labels = size
    log_probs = torch.randn(batch, frames, classes).log_softmax(-1)
    targets = torch.randint(1, classes, (batch, labels))
    peer = function_of("torchaudio.functional", "forced_align")
    return {
        "align_ms": ms(lambda: warpalign.ctc_align(log_probs, targets, from_log_probs=True), runs),
        "peer_align_ms": None if peer is None else ms(lambda: peer(log_probs, targets), 1),
    }


def search_row(size: tuple[int, ...], runs: int) -> Row:
    scores = torch.randn(size)
    mask = torch.ones_like(scores)
    peer = function_of("monotonic_alignment_search", "maximum_path")
    return {
        "search_ms": ms(lambda: warpalign.monotonic_alignment_search(scores, output="durations"), runs),
        "peer_search_ms": None if peer is None else ms(lambda: peer(scores, mask), runs),
    }


def decode_row(size: tuple[int, ...], runs: int) -> Row:
    batch, frames, classes, beam = size
    logits = peaky(batch, frames, classes, torch.Generator().manual_seed(0))
    log_probs = logits.log_softmax(-1)

    def run() -> warpalign.Hypotheses:
        return warpalign.ctc_beam_decode(log_probs, beam=beam, from_log_probs=True)[0]

    found = run()
    labels = found.tokens[0, : int(found.lengths[0])].tolist()
    row: Row = {
        "beam_ms": ms(run, runs),
        "greedy_ms": ms(lambda: warpalign.ctc_greedy_decode(log_probs, from_log_probs=True), runs),
    }
    for name, made in PEERS.items():
        search = made(classes, beam)
        if search is not None:
            row[f"{name}_ms"] = ms(partial(search, log_probs[0]), 3)
            row[f"{name}_equal"] = search(log_probs[0]) == labels
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument(
        "--only", help="one operator: ctc_loss, ctc_align, monotonic_alignment_search, ctc_decode"
    )
    parser.add_argument("--runs", type=int, default=7, help="of which the least time counts (default: 7)")
    add_arguments(parser)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    path, commit = result_path(arguments, cpu_name(), "-ctc-cpu")
    parts: list[tuple[str, str, list[tuple[int, ...]], Callable[[tuple[int, ...], int], Row]]] = [
        ("ctc_loss", "BTCL", list(LOSSES), loss_row),
        ("ctc_align", "BTCL", list(ALIGNMENTS), align_row),
        ("monotonic_alignment_search", "BST", list(SEARCHES), search_row),
        ("ctc_decode", "BTCK", list(DECODING), decode_row),
    ]
    rows = []
    for name, axes, sizes, measured in parts:
        if arguments.only not in (None, name):
            continue
        for size in sizes:
            found = measured(size, arguments.runs)
            print(name, size, found, flush=True)
            place: Row = {
                "op": name,
                "device": cpu_name(),
                "threads": 1,
                **dict(zip(axes, size, strict=True)),
            }
            rows.append(place | found | stamp(commit))
    write_rows(rows, path)
    print(path, warpalign.__version__)


if __name__ == "__main__":
    main()
