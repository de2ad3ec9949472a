"""`warpalign transport`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import click
import numpy as np
import torch
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from warpalign import io
from warpalign._core.costs import COSTS, Cost
from warpalign._transport.costs import pair_costs, size_of_costs
from warpalign.cli._common import OutputType, placing, plot_option, report, save_plot
from warpalign.cli._progress import waiting
from warpalign.cli._series import Reader, check_same_features, check_stdin, reading_options
from warpalign.transport import SinkhornResult, sinkhorn

SHARE = 0.05  # epsilon as a share of the mean cost, where no epsilon is given
SHOWN = 400  # rows of A whose matches are drawn


@click.command()
@click.argument("a")
@click.argument("b")
@click.option(
    "--epsilon",
    type=float,
    help=f"Regularisation strength, in units of the cost; > 0.  [default: {SHARE} of the mean cost]",
)
@click.option(
    "--cost",
    type=click.Choice(get_args(Cost)),
    default="sqeuclidean",
    show_default=True,
    help="Cost of a pair of points.",
)
@click.option(
    "--rho-a",
    type=float,
    help="Strength of the KL penalty on A's marginal.  [default: it equals the weights]",
)
@click.option("--rho-b", type=float, help="Strength of the KL penalty on B's marginal.")
@click.option("--mass", type=float, help="Partial transport of this much of the mass of 1.")
@click.option(
    "--max-iter",
    type=click.IntRange(min=1),
    default=10000,
    show_default=True,
    help="Maximum number of iterations.",
)
@click.option(
    "--tol",
    type=float,
    default=1e-5,
    show_default=True,
    help="Iterations end when no marginal is off by more than this share.",
)
@click.option(
    "-o",
    "--output",
    type=OutputType(".npy", ".csv"),
    help="Write a row for each point of A: its partner in B, counted from 0, and what share of its mass goes there.",
)
@click.option(
    "--plan",
    type=OutputType(".npy", ".npz"),
    help="Write the plan (N, M): all of it as .npy, or each row's --top entries as .npz, which scipy.sparse.load_npz reads.",
)
@click.option(
    "--top", type=click.IntRange(min=1), default=10, show_default=True, help="Entries of a row in .npz."
)
@plot_option
@reading_options
@placing("float64")
def transport(
    a: str,
    b: str,
    epsilon: float | None,
    cost: Cost,
    rho_a: float | None,
    rho_b: float | None,
    mass: float | None,
    max_iter: int,
    tol: float,
    output: Path | None,
    plan: Path | None,
    top: int,
    plot: Path | None,
    reader: Reader,
    as_json: bool,
) -> None:
    """Match the points A with the points B by entropic optimal transport.

    A and B are .npy, .npz or .csv files of one set (a row per point, a column per feature), FILE:INDEX, FILE.npz:NAME, or - for
    stdin. All points of a set weigh the same.
    """
    check_stdin(A=a, B=b)
    x, y = reader.one(a), reader.one(b)
    check_same_features(a, x, b, y)
    if epsilon is None:
        epsilon = SHARE * mean_cost(x, y, cost)
    with waiting("matching"):
        options: dict[str, Any] = {"cost": cost, "rho_a": rho_a, "rho_b": rho_b, "mass": mass}
        found = sinkhorn(x, y, epsilon=epsilon, max_iter=max_iter, tol=tol, **options)
        result: dict[str, Any] = {"transport": found.linear.item(), "value": found.value.item()}
    result |= {"n": len(x), "m": len(y), "features": x.shape[1], "epsilon": epsilon}
    result |= {"iterations": int(found.iterations), "error": found.error.item()}
    if not result["error"] <= tol and tol > 0:
        click.echo(
            f"error {result['error']:.3g} after {max_iter} iterations: a larger --epsilon or --max-iter brings it below --tol",
            err=True,
        )
    if output is not None:
        io.write_array(output, matches(found).cpu().numpy())
        result["output"] = str(output)
    if plan is not None:
        write_plan(plan, found, top)
        result["plan"] = str(plan)
    if plot is not None:
        names = Path(a).name, Path(b).name
        save_plot(plot, lambda figure: draw(figure, x, y, found, names))
        result["plot"] = str(plot)
    report(result, as_json=as_json)


def mean_cost(x: torch.Tensor, y: torch.Tensor, cost: Cost) -> float:
    kind = COSTS.index(cost)
    sizes = (1, len(x), len(y))
    return float(
        size_of_costs("mean", lambda rows: pair_costs(kind, x[None, rows], y[None]), sizes, (None, None))
    )


def matches(found: SinkhornResult) -> torch.Tensor:
    """(N, 2): each row's partner, and its share of the row's mass."""
    top = found.plan.topk(1)
    mass = found.plan.marginal(1)
    share = top.values[:, 0] / mass.where(mass > 0, 1.0)
    return torch.stack([top.indices[:, 0].to(share.dtype), share], 1)


def write_plan(path: Path, found: SinkhornResult, top: int) -> None:
    if path.suffix == ".npy":
        io.write_array(path, found.plan.to_dense().cpu().numpy())
        return
    sparse = found.plan.to_sparse(k=min(top, found.plan.shape[1]))
    parts = {
        "data": sparse.values(),
        "indices": sparse.col_indices().int(),
        "indptr": sparse.crow_indices().int(),
    }
    arrays = {name: part.cpu().numpy() for name, part in parts.items()}
    io.write_arrays(path, arrays | {"shape": np.array(sparse.shape), "format": np.array(b"csr")})


def draw(
    figure: Figure, x: torch.Tensor, y: torch.Tensor, found: SinkhornResult, names: tuple[str, str]
) -> None:
    """Both sets on the plane of most variance, and lines between partners."""
    axes = figure.subplots()
    points = torch.cat([x, y]).cpu().double()
    centred = points - points.mean(0)
    if points.shape[1] > 2:
        centred = centred @ torch.linalg.svd(centred, full_matrices=False).Vh[:2].T
    if points.shape[1] == 1:
        side = torch.cat([torch.zeros(len(x)), torch.ones(len(y))]).double()
        centred = torch.stack([centred[:, 0], side], 1)
    first, second = centred[: len(x)], centred[len(x) :]
    step = max(1, len(x) // SHOWN)
    partner = found.plan.argmax().cpu()
    lines = torch.stack([first, second[partner]], 1)[::step]
    axes.add_collection(LineCollection(list(lines.numpy()), colors="#9AA0A6", linewidths=0.5, zorder=0))
    axes.scatter(first[:, 0], first[:, 1], s=8, label=names[0], color="#0072B2")
    axes.scatter(second[:, 0], second[:, 1], s=8, label=names[1], color="#D55E00")
    axes.set_aspect("equal" if points.shape[1] > 1 else "auto")
    axes.legend()
