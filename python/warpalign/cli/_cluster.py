"""`warpalign cluster`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import click
import numpy as np
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
from warpalign.cli._series import Reader, reading_options


@click.command()
@click.argument("x")
@click.option("-k", "--clusters", type=click.IntRange(min=1), required=True, help="Number of clusters.")
@click.option(
    "--n-init",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Runs, of which the best counts.",
)
@click.option(
    "--max-iter", type=click.IntRange(min=1), default=50, show_default=True, help="Iterations at most."
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**32 - 1),
    default=0,
    show_default=True,
    help="Of the choice of first centers.",
)
@click.option(
    "-o", "--output", type=OutputType(".npy", ".csv"), help="Write the cluster of every series, from 0."
)
@click.option("--centers", type=OutputType(".npy"), help="Write the centers (K, N, D).")
@plot_option
@reading_options
@alignment_options
@computing("float64", gamma=">= 0, 0 being k-means under DTW", auto=True)
def cluster(
    x: str,
    clusters: int,
    n_init: int,
    max_iter: int,
    seed: int,
    output: Path | None,
    centers: Path | None,
    plot: Path | None,
    options: dict[str, Any],
    reader: Reader,
    gamma: float | Literal["auto"],
    as_json: bool,
) -> None:
    """k-means of the series of X under soft-DTW. Where the file has labels, the adjusted Rand index compares them."""
    series, labels = reader.all(x)
    if clusters > len(series):
        raise click.UsageError(f"-k: expected at most the {len(series)} series of {x}, got {clusters}")
    model = warpalign.SoftDTWKMeans(
        clusters,
        gamma,
        max_iter=max_iter,
        n_init=n_init,
        random_state=seed,
        metric_params=options,
        device=str(reader.device),
    )
    with waiting("clustering"):
        model.fit(series)
    result: dict[str, Any] = {
        "series": len(series),
        "clusters": clusters,
        "gamma": model.gamma_,
        "iterations": model.n_iter_,
        "inertia": model.inertia_,
        "sizes": np.bincount(model.labels_, minlength=clusters).tolist(),
    }
    if labels is not None:
        from sklearn.metrics import adjusted_rand_score

        result["adjusted_rand_index"] = float(adjusted_rand_score(labels, model.labels_))
    if output is not None:
        io.write_array(output, model.labels_)
        result["output"] = str(output)
    if centers is not None:
        io.write_array(centers, model.cluster_centers_)
        result["centers"] = str(centers)
    if plot is not None:
        save_plot(plot, lambda figure: draw(figure, series, model))
        result["plot"] = str(plot)
    report(result, as_json=as_json)


def draw(figure: Figure, series: list[torch.Tensor], model: warpalign.SoftDTWKMeans) -> None:
    from warpalign import plot

    figure.set_size_inches(
        2.6 * min(4, len(model.cluster_centers_)) + 1, 1 + 2.2 * -(-len(model.cluster_centers_) // 4)
    )
    plot.clusters(series, model, figure=figure)
