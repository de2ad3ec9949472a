"""`warpalign barycenter`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args

import click
import torch
from matplotlib.figure import Figure

import warpalign
from warpalign import io
from warpalign._soft_dtw.barycenter_checks import Method
from warpalign.cli._common import (
    OutputType,
    alignment_options,
    computing,
    known_gamma,
    plot_option,
    report,
    save_plot,
)
from warpalign.cli._progress import show_progress
from warpalign.cli._series import Reader, reading_options


@click.command()
@click.argument("x")
@click.option(
    "--size", type=click.IntRange(min=1), help="Time steps of the result.  [default: the longest series']"
)
@click.option(
    "--method",
    type=click.Choice(get_args(Method)),
    default="lbfgs",
    show_default=True,
    help="How it is sought; dba is DTW barycenter averaging, without gamma.",
)
@click.option(
    "--max-iter", type=click.IntRange(min=0), default=100, show_default=True, help="Iterations at most."
)
@click.option("-o", "--output", type=OutputType(".npy", ".csv"), help="Write the barycenter (N, D).")
@plot_option
@reading_options
@alignment_options
@computing("float64", auto=True)
def barycenter(
    x: str,
    size: int | None,
    method: Method,
    max_iter: int,
    output: Path | None,
    plot: Path | None,
    options: dict[str, Any],
    reader: Reader,
    gamma: float | Literal["auto"],
    as_json: bool,
) -> None:
    """The series with the least sum of soft-DTW to all series of X: an average that keeps their shape."""
    series, _ = reader.all(x)
    gamma = known_gamma(gamma, series)
    found = warpalign.soft_dtw_barycenter(
        series,
        gamma=gamma,
        barycenter_size=size,
        method=method,
        max_iter=max_iter,
        progress=show_progress(),
        **options,
    )
    center = found.barycenter.cpu().numpy()
    result: dict[str, Any] = {
        "series": len(series),
        "size": center.shape[0],
        "features": center.shape[1],
        "gamma": gamma,
        "iterations": len(found.losses) - 1,
        "converged": bool(found.converged),
        "loss_of_start": found.losses[0].item(),
        "loss": found.losses[-1].item(),
    }
    if not result["converged"] and max_iter > 0:
        click.echo(
            f"barycenter: expected convergence, got loss {result['loss']:.6g} after {result['iterations']} iterations: write a larger "
            "--max-iter, or scale the values down if the loss is not finite",
            err=True,
        )
    if output is not None:
        io.write_array(output, center)
        result["output"] = str(output)
    if plot is not None:
        save_plot(plot, lambda figure: draw(figure, series, found))
        result["plot"] = str(plot)
    report(result, as_json=as_json)


def draw(figure: Figure, series: list[torch.Tensor], found: warpalign.BarycenterResult) -> None:
    from warpalign import plot

    plot.barycenter(series, found, ax=figure.subplots())
