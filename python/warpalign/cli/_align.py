"""`warpalign align`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import click
import torch
from matplotlib.figure import Figure

import warpalign
from warpalign import io
from warpalign.cli._common import (
    DTYPES,
    OutputType,
    device_option,
    dtype_option,
    gamma_option,
    json_option,
    plot_option,
    report,
    save_plot,
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
@click.option(
    "--bandwidth",
    type=click.IntRange(min=0),
    help="Radius of a band that the paths stay in.  [default: none]",
)
@click.option(
    "--band",
    type=click.Choice(["sakoe_chiba", "abs", "slanted", "itakura"]),
    default="sakoe_chiba",
    show_default=True,
    help="Its kind; itakura has --max-slope instead of --bandwidth.",
)
@click.option("--max-slope", type=float, help="Of --band itakura, >= 1.  [default: 2]")
@plot_option
@dtype_option("float64")
@device_option
@json_option
def align(
    a: str,
    b: str,
    gamma: float,
    output: Path | None,
    bandwidth: int | None,
    band: Literal["sakoe_chiba", "abs", "slanted", "itakura"],
    max_slope: float | None,
    plot: Path | None,
    dtype: str,
    device: torch.device,
    as_json: bool,
) -> None:
    """Align the series A with the series B.

    A and B are .npy, .npz or .csv files of one series (a row per time step), or FILE:INDEX.
    """
    x, y = (torch.from_numpy(io.read_series(source)).to(device, DTYPES[dtype]) for source in (a, b))
    if x.shape[1] != y.shape[1]:
        raise click.UsageError(f"{b}: expected {x.shape[1]} features, as {a} has, got {y.shape[1]}")
    result: dict[str, Any] = {"n": len(x), "m": len(y), "features": x.shape[1], "gamma": gamma}
    if output is None and plot is None:
        value = warpalign.soft_dtw(x, y, gamma=gamma, bandwidth=bandwidth, band=band, max_slope=max_slope)
    else:
        value, alignment = warpalign.soft_dtw_alignment(
            x, y, gamma=gamma, bandwidth=bandwidth, band=band, max_slope=max_slope
        )
    if output is not None:
        io.write_array(output, alignment.cpu().numpy())
        result["output"] = str(output)
    if plot is not None:
        names = Path(a).name, Path(b).name
        save_plot(plot, lambda figure: draw(figure, x, y, alignment, names))
        result["plot"] = str(plot)
    report({"soft_dtw": value.item(), **result}, as_json=as_json)


def draw(
    figure: Figure, x: torch.Tensor, y: torch.Tensor, alignment: torch.Tensor, names: tuple[str, str]
) -> None:
    from warpalign import plot

    plot.alignment(x, y, alignment, ax=figure.subplots(), names=names, colorbar=True)
