"""`warpalign ctc-decode`."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import click
import torch

import warpalign
from warpalign.cli._common import DTYPES, OutputType, placing, report
from warpalign.cli._ctc_align import read_logits
from warpalign.cli._progress import waiting
from warpalign.io._write import atomic_path


@click.command("ctc-decode")
@click.argument("logits", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "-o",
    "--output",
    type=OutputType(".txt", ".csv"),
    help=".txt: write the tokens, as ctc-align reads them. .csv: a row for each token: token, frame, and start.",
)
@click.option(
    "--vocabulary",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file with a symbol per line, in the order of the classes. Tokens are symbols then, not numbers.",
)
@click.option(
    "--beam",
    type=click.IntRange(1, 128),
    default=16,
    show_default=True,
    help="Prefixes that the search keeps.",
)
@click.option(
    "--arpa",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="n-grams of the tokens in the ARPA format, also with .gz, which score tokens while the search runs.",
)
@click.option(
    "--lm-weight",
    type=click.FloatRange(min=0),
    default=0.5,
    show_default=True,
    help="What the n-grams' log-probabilities are multiplied by.",
)
@click.option("--blank", type=int, default=0, show_default=True, help="The blank's class.")
@click.option("--log-probs", is_flag=True, help="LOGITS are log-probabilities already.")
@click.option(
    "--frame-seconds", type=float, default=1.0, show_default=True, help="Seconds from one frame to the next."
)
@placing("float32")
def ctc_decode(
    logits: Path,
    output: Path | None,
    vocabulary: Path | None,
    beam: int,
    arpa: Path | None,
    lm_weight: float,
    blank: int,
    log_probs: bool,
    frame_seconds: float,
    dtype: str,
    device: torch.device,
    as_json: bool,
) -> None:
    """Find the most probable tokens of LOGITS by prefix beam search of CTC.

    LOGITS is a .npy file (T, C), a row of logits per frame.
    """
    x = read_logits(logits).to(device, DTYPES[dtype])
    symbols = list(map(str, range(x.shape[1]))) if vocabulary is None else vocabulary.read_text().splitlines()
    if len(symbols) < x.shape[1]:
        raise click.UsageError(
            f"{vocabulary}: expected a symbol for each of {x.shape[1]} classes, got {len(symbols)}"
        )
    model = None
    if arpa is None:
        given = click.get_current_context().get_parameter_source("lm_weight")
        if given is not click.core.ParameterSource.DEFAULT:
            raise click.UsageError(
                f"--lm-weight: expected --arpa beside it, got {lm_weight:g} alone: write --arpa FILE"
            )
        lm_weight = 0.0
    else:
        model = warpalign.NGramLanguageModel(arpa, symbols[: x.shape[1]], blank=blank).to(device)
    with waiting("decoding"):
        (found,) = warpalign.ctc_beam_decode(
            x, beam=beam, blank=blank, from_log_probs=log_probs, language_model=model, lm_weight=lm_weight
        )
    count = int(found.lengths)
    tokens = [symbols[token] for token in found.tokens[:count].tolist()]
    result: dict[str, Any] = {
        "score": found.scores.item(),
        "frames": x.shape[0],
        "classes": x.shape[1],
        "tokens": count,
        "text": " ".join(tokens),
    }
    if output is not None:
        write_tokens(output, tokens, found.frames[:count].tolist(), frame_seconds)
        result["output"] = str(output)
    report(result, as_json=as_json)


def write_tokens(path: Path, tokens: list[str], frames: list[int], seconds: float) -> None:
    with atomic_path(path) as beside, open(beside, "w", newline="") as file:
        if path.suffix == ".txt":
            file.write(" ".join(tokens) + "\n")
            return
        writer = csv.writer(file)
        writer.writerow(("token", "frame", "start"))
        for token, frame in zip(tokens, frames, strict=True):
            writer.writerow((token, frame, f"{frame * seconds:.6g}"))
