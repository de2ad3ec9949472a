"""`warpalign align`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import click
import torch
from matplotlib.figure import Figure

import warpalign
from warpalign import io
from warpalign._checks import Band, Cost
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

COSTS, BANDS = get_args(Cost), get_args(Band)


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
    type=click.Choice(BANDS),
    default=BANDS[0],
    show_default=True,
    help="Its kind; itakura has --max-slope instead of --bandwidth.",
)
@click.option(
    "--cost",
    type=click.Choice(COSTS),
    default=COSTS[0],
    show_default=True,
    help="Cost of a pair of time steps.",
)
@click.option(
    "--step-penalty",
    type=float,
    default=0.0,
    show_default=True,
    help="Cost of every step that is not diagonal.",
)
@click.option(
    "--normalize", is_flag=True, help="The divergence s(a, b) - (s(a, a) + s(b, b)) / 2: 0 for equal series."
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
    band: Band,
    cost: Cost,
    step_penalty: float,
    normalize: bool,
    max_slope: float | None,
    plot: Path | None,
    dtype: str,
    device: torch.device,
    as_json: bool,
) -> None:
    """Align the series A with the series B. --gamma 0 is hard DTW.

    A and B are .npy, .npz or .csv files of one series (a row per time step), or FILE:INDEX.
    """
    x, y = (torch.from_numpy(io.read_series(source)).to(device, DTYPES[dtype]) for source in (a, b))
    if x.shape[1] != y.shape[1]:
        raise click.UsageError(f"{b}: expected {x.shape[1]} features, as {a} has, got {y.shape[1]}")
    result: dict[str, Any] = {"n": len(x), "m": len(y), "features": x.shape[1], "gamma": gamma}
    options: dict[str, Any] = {
        "gamma": gamma,
        "cost": cost,
        "step_penalty": step_penalty,
        "bandwidth": bandwidth,
        "band": band,
        "max_slope": max_slope,
    }
    if normalize or (output is None and plot is None):
        value = warpalign.soft_dtw(x, y, normalize=normalize, **options)
    if output is not None or plot is not None:
        found = warpalign.soft_dtw_alignment(x, y, **options)
        value, alignment = (value if normalize else found.value), found.alignment
    if output is not None:
        io.write_array(output, alignment.cpu().numpy())
        result["output"] = str(output)
    if plot is not None:
        names = Path(a).name, Path(b).name
        save_plot(plot, lambda figure: draw(figure, x, y, alignment, names))
        result["plot"] = str(plot)
    report({"divergence" if normalize else "soft_dtw": value.item(), **result}, as_json=as_json)


def draw(
    figure: Figure, x: torch.Tensor, y: torch.Tensor, alignment: torch.Tensor, names: tuple[str, str]
) -> None:
    from warpalign import plot

    plot.alignment(x, y, alignment, ax=figure.subplots(), names=names, colorbar=True)
