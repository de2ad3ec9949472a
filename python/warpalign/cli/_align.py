"""`warpalign align`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import torch

import warpalign
from warpalign import io
from warpalign.cli._common import (
    DTYPES,
    OutputType,
    device_option,
    dtype_option,
    gamma_option,
    json_option,
    report,
)


@click.command()
@click.argument("a")
@click.argument("b")
@gamma_option
@click.option(
    "-o",
    "--output",
    type=OutputType(".npy", ".csv"),
    help="Write the expected alignment (N, M): the probability that a path visits a pair of time steps.",
)
@dtype_option("float64")
@device_option
@json_option
def align(
    a: str, b: str, gamma: float, output: Path | None, dtype: str, device: torch.device, as_json: bool
) -> None:
    """Align the series A with the series B.

    A and B are .npy, .npz or .csv files of one series (a row per time step), or FILE:INDEX.
    """
    x, y = (torch.from_numpy(io.read_series(source)).to(device, DTYPES[dtype]) for source in (a, b))
    if x.shape[1] != y.shape[1]:
        raise click.UsageError(f"{b}: expected {x.shape[1]} features, as {a} has, got {y.shape[1]}")
    result: dict[str, Any] = {"n": len(x), "m": len(y), "features": x.shape[1], "gamma": gamma}
    if output is None:
        value = warpalign.soft_dtw(x, y, gamma=gamma)
    else:
        value, alignment = warpalign.soft_dtw_alignment(x, y, gamma=gamma)
        io.write_array(output, alignment.cpu().numpy())
        result["output"] = str(output)
    report({"soft_dtw": value.item(), **result}, as_json=as_json)
