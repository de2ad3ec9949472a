"""`warpalign ctc-align`."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from torch import Tensor

import warpalign
from warpalign.cli._common import DTYPES, OutputType, placing, report
from warpalign.cli._progress import waiting
from warpalign.io._write import atomic_path


@click.command("ctc-align")
@click.argument("logits", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("tokens", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "-o",
    "--output",
    type=OutputType(".csv"),
    help="Write a row for each token: token, first and last frame, start and end, and its mean log-probability.",
)
@click.option(
    "--vocabulary",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file with a symbol per line, in the order of the classes. TOKENS are symbols then, not numbers.",
)
@click.option("--blank", type=int, default=0, show_default=True, help="The blank's class.")
@click.option("--star", help="A token that stands for any class but blank.")
@click.option("--log-probs", is_flag=True, help="LOGITS are log-probabilities already.")
@click.option(
    "--frame-seconds", type=float, default=1.0, show_default=True, help="Seconds from one frame to the next."
)
@placing("float32")
def ctc_align(
    logits: Path,
    tokens: Path,
    output: Path | None,
    vocabulary: Path | None,
    blank: int,
    star: str | None,
    log_probs: bool,
    frame_seconds: float,
    dtype: str,
    device: torch.device,
    as_json: bool,
) -> None:
    """Align TOKENS with the frames of LOGITS by CTC.

    LOGITS is a .npy file (T, C), a row of logits per frame. TOKENS is a text file of classes, numbers or (with --vocabulary)
    symbols, between spaces or line ends.
    """
    x = read_logits(logits).to(device, DTYPES[dtype])
    symbols = None if vocabulary is None else vocabulary.read_text().splitlines()
    words = tokens.read_text().split()
    targets, star_class = read_tokens(words, symbols, x.shape[1], star)
    with waiting("aligning"):
        found = warpalign.ctc_align(
            x, targets.to(device), blank=blank, star=star_class, from_log_probs=log_probs
        )
    if found.score.isinf():
        raise click.UsageError(
            f"{tokens}: expected tokens that {x.shape[0]} frames can hold, got {len(words)}, with a blank between equal ones"
        )
    result: dict[str, Any] = {
        "score": found.score.item(),
        "frames": x.shape[0],
        "classes": x.shape[1],
        "tokens": len(words),
    }
    if output is not None:
        write_spans(output, words, found, frame_seconds)
        result["output"] = str(output)
    report(result, as_json=as_json)


def read_logits(path: Path) -> Tensor:
    """(T, C)."""
    try:
        array = np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError):
        raise click.UsageError(f"{path}: expected a .npy file") from None
    if not isinstance(array, np.ndarray) or array.ndim != 2 or array.dtype.kind != "f":
        came = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else "an archive"
        raise click.UsageError(f"{path}: expected floating-point logits (T, C), got {came}")
    return torch.from_numpy(array)


def read_tokens(
    words: list[str], symbols: list[str] | None, classes: int, star: str | None
) -> tuple[Tensor, int | None]:
    """The classes of the words, and the star's."""
    numbers = {symbol: index for index, symbol in enumerate(symbols or map(str, range(classes)))}
    if star is not None:
        numbers[star] = classes
    for index, word in enumerate(words):
        if word not in numbers:
            where = "the vocabulary" if symbols is not None else f"0 to {classes - 1}"
            raise click.UsageError(f"TOKENS: expected tokens of {where}, got {word!r} at index {index}")
    targets = torch.tensor([numbers[word] for word in words], dtype=torch.int64)
    return targets, None if star is None else classes


def write_spans(path: Path, words: list[str], found: warpalign.CTCAlignment, seconds: float) -> None:
    spans, scores = found.spans.tolist(), found.scores.cpu()
    with atomic_path(path) as beside, open(beside, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("token", "first", "last", "start", "end", "score"))
        for word, (first, last) in zip(words, spans, strict=True):
            mean = scores[first : last + 1].mean().item()
            writer.writerow(
                (word, first, last, f"{first * seconds:.6g}", f"{(last + 1) * seconds:.6g}", f"{mean:.6g}")
            )
