"""`warpalign align`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import torch
from matplotlib.figure import Figure

import warpalign
from warpalign import io
from warpalign.cli._common import (
    OutputType,
    alignment_options,
    computing,
    plot_option,
    report,
    save_plot,
)
from warpalign.cli._progress import waiting
from warpalign.cli._series import Reader, check_same_features, check_stdin, reading_options


@click.command()
@click.argument("a")
@click.argument("b")
@click.option(
    "-o",
    "--output",
    type=OutputType(".npy", ".csv"),
    help="Write the expected alignment (N, M): the probability that a path visits a pair of time steps.",
)
@click.option(
    "--normalize", is_flag=True, help="The divergence s(a, b) - (s(a, a) + s(b, b)) / 2: 0 for equal series."
)
@plot_option
@reading_options
@alignment_options
@computing("float64", gamma=">= 0, 0 being hard DTW")
def align(
    a: str,
    b: str,
    output: Path | None,
    normalize: bool,
    plot: Path | None,
    options: dict[str, Any],
    reader: Reader,
    gamma: float,
    as_json: bool,
) -> None:
    """Align the series A with the series B.

    A and B are .npy, .npz or .csv files of one series (a row per time step), FILE:INDEX, FILE.npz:NAME, or - for stdin.
    """
    check_stdin(A=a, B=b)
    x, y = reader.one(a), reader.one(b)
    check_same_features(a, x, b, y)
    if len(x) == len(y) == 1:
        reader.say_of_one_step(a, x)
    result: dict[str, Any] = {"n": len(x), "m": len(y), "features": x.shape[1], "gamma": gamma}
    with waiting("aligning"):
        if normalize or (output is None and plot is None):
            value = warpalign.soft_dtw(x, y, gamma=gamma, normalize=normalize, unbatched=True, **options)
        if output is not None or plot is not None:
            found = warpalign.soft_dtw_alignment(x, y, gamma=gamma, **options)
            value, alignment = (value if normalize else found.value), found.alignment
    if output is not None:
        io.write_array(output, alignment.cpu().numpy())
        result["output"] = str(output)
    if plot is not None:
        names = Path(a).name, Path(b).name
        save_plot(plot, lambda figure: draw(figure, x, y, alignment, names, options))
        result["plot"] = str(plot)
    report({"divergence" if normalize else "soft_dtw": value.item(), **result}, as_json=as_json)


def draw(
    figure: Figure,
    x: torch.Tensor,
    y: torch.Tensor,
    alignment: torch.Tensor,
    names: tuple[str, str],
    options: dict[str, Any],
) -> None:
    """The series with the steps that the best path matches, and the expected alignment below."""
    from warpalign import plot

    figure.set_size_inches(6.4, 7.6)
    above, below = figure.subplots(2, 1, height_ratios=(1, 2))
    path = warpalign.dtw_path(x, y, **options)
    plot.matching(x, y, path, ax=above, names=names, every=max(1, max(len(x), len(y)) // 50))
    plot.alignment(x, y, alignment, ax=below, names=names)
