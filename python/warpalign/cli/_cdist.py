"""`warpalign cdist`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Literal

import click
from matplotlib.figure import Figure
from numpy.typing import NDArray

import warpalign
from warpalign import io
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
from warpalign.cli._series import Reader, check_same_features, check_stdin, reading_options
from warpalign.io._write import print_table


@click.command()
@click.argument("x")
@click.argument("y", required=False)
@click.option(
    "--normalize", is_flag=True, help="Divergences s(x, y) - (s(x, x) + s(y, y)) / 2: 0 for equal series."
)
@click.option(
    "-o",
    "--output",
    type=OutputType(".npy", ".csv"),
    help="Write the table (n, m) there instead of to stdout.",
)
@plot_option
@reading_options
@alignment_options
@computing("float64", gamma=">= 0, 0 being hard DTW", auto=True)
def cdist(
    x: str,
    y: str | None,
    normalize: bool,
    output: Path | None,
    plot: Path | None,
    options: dict[str, Any],
    reader: Reader,
    gamma: float | Literal["auto"],
    as_json: bool,
) -> None:
    """Soft-DTW between all series of X and all of Y (default: of X itself)."""
    check_stdin(X=x, Y=y)
    rows, _ = reader.all(x)
    columns = None
    if y is not None:
        columns, _ = reader.all(y)
        check_same_features(x, rows[0], y, columns[0])
    gamma = known_gamma(gamma, rows)
    table = warpalign.cdist_soft_dtw(
        rows, columns, gamma=gamma, normalize=normalize, progress=show_progress(), **options
    )
    values = table.cpu().numpy()
    result: dict[str, Any] = {
        "n": values.shape[0],
        "m": values.shape[1],
        "gamma": gamma,
        "normalize": normalize,
    }
    if output is not None:  # before the plot, which a fault of matplotlib's may end
        io.write_array(output, values)
    if plot is not None:
        # Soft-DTW itself can be negative, and is not 0 for equal series: no distance to cluster by.
        is_distance = normalize or gamma == 0
        label = "divergence" if normalize else "soft-DTW"
        save_plot(plot, lambda figure: draw(figure, values, label, is_set=y is None, is_distance=is_distance))
        result["plot"] = str(plot)
    if output is not None:
        report({**result, "output": str(output)}, as_json=as_json)
    elif as_json:
        report({**result, "soft_dtw": values.tolist()}, as_json=True)
    else:
        print_table(sys.stdout, values)


def draw(figure: Figure, values: NDArray[Any], label: str, *, is_set: bool, is_distance: bool) -> None:
    """One set of series: similar ones side by side, under their dendrogram where the values are distances."""
    axes = figure.subplots()
    if is_set:
        from warpalign import plot

        plot.distances(values, ax=axes, dendrogram=is_distance, colorbar=True)
        return
    figure.colorbar(axes.imshow(values, cmap="viridis_r", aspect="auto"), ax=axes, label=label)
    axes.set(xlabel="series of Y", ylabel="series of X")
