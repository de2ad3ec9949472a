"""Options and output that sub-commands share."""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import click
import torch
from matplotlib.figure import Figure

from warpalign._core.costs import Cost
from warpalign._core.series import as_series
from warpalign._soft_dtw.gamma import gamma_of_set
from warpalign._soft_dtw.settings import Band
from warpalign.io._write import atomic_path

Command = TypeVar("Command", bound=Callable[..., Any])

DTYPES = {"float32": torch.float32, "float64": torch.float64}


class DeviceType(click.ParamType[torch.device]):
    """A device that torch can compute on here."""

    name = "device"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> torch.device:
        if isinstance(value, torch.device):
            return value
        kind, _, index = str(value).partition(":")
        if kind not in ("cpu", "cuda") or (":" in str(value) and not index.isdecimal()):
            self.fail(f"expected cpu, cuda or cuda:N, got {value!r}", param, ctx)
        if kind == "cuda" and int(index or 0) >= torch.cuda.device_count():
            self.fail(f"expected a device of this machine, which has {_devices()}, got {value!r}", param, ctx)
        return torch.device(value)


def _devices() -> str:
    return ", ".join(["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))])


class OutputType(click.ParamType[Path]):
    """A file to be written, whose kind its suffix tells. Refused before anything is computed for it."""

    name = "file"

    def __init__(self, *suffixes: str) -> None:
        self.suffixes = suffixes

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = Path(value)
        if path.suffix not in self.suffixes:
            self.fail(
                f"expected a name that ends in {' or '.join(self.suffixes)}, got {str(path)!r}", param, ctx
            )
        if not path.parent.is_dir():
            self.fail(f"{path.parent} is not a folder", param, ctx)
        if path.is_dir():
            self.fail(f"{path} is a folder", param, ctx)
        try:
            tempfile.TemporaryFile(dir=path.parent).close()  # permissions alone do not tell
        except OSError as error:
            self.fail(f"{path} cannot be written: {error.strerror}", param, ctx)
        written: dict[Path, click.Parameter | None] = (
            {} if ctx is None else ctx.meta.setdefault("written", {})
        )
        if path.absolute() in written:
            self.fail(f"{path} is written twice", param, ctx)
        written[path.absolute()] = param
        return path


class GammaType(click.ParamType["float | Literal['auto']"]):
    """A number, or "auto"."""

    name = "float"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float | Literal["auto"]:
        if value == "auto":
            return "auto"
        try:
            return float(value)
        except ValueError:
            self.fail(f"expected a number or auto, got {value!r}", param, ctx)


def known_gamma(gamma: float | Literal["auto"], series: list[torch.Tensor]) -> float:
    """What is computed with, and reported."""
    return gamma_of_set(gamma, as_series(series, "X")) if gamma == "auto" else gamma


def computing(dtype: str, *, gamma: str = "> 0", auto: bool = False) -> Callable[[Command], Command]:
    """What every command that computes takes: --gamma, --dtype (by default `dtype`), --device and --json.

    Args:
        auto: whether the command's series can say what gamma is.
    """
    heuristic = '; "auto": tslearn\'s heuristic for X' if auto else ""
    return all_of(
        click.option(
            "--gamma",
            type=GammaType() if auto else float,
            default=1.0,
            show_default=True,
            help=f"Smoothing, in units of the cost; {gamma}{heuristic}.",
        ),
        placing(dtype),
    )


def placing(dtype: str) -> Callable[[Command], Command]:
    """--dtype (by default `dtype`), --device and --json."""
    return all_of(
        click.option(
            "--dtype",
            type=click.Choice(list(DTYPES)),
            default=dtype,
            show_default=True,
            help="What is computed in.",
        ),
        click.option(
            "--device", type=DeviceType(), default="cpu", show_default=True, help="cpu, cuda or cuda:N."
        ),
        json_option,
    )


def alignment_options(command: Callable[..., None]) -> Callable[..., None]:
    """--cost, the band and --step-penalty; the command gets them as `options`, arguments of soft_dtw."""

    @functools.wraps(command)
    def with_options(**given: Any) -> None:
        options = {name: given.pop(name) for name in _ALIGNMENT_OPTIONS}
        if options["band"] in ("abs", "slanted") and options["bandwidth"] is None:
            raise click.UsageError(f"--band {options['band']}: expected --bandwidth too")
        command(**given, options=options)

    return all_of(*_ALIGNMENT_OPTIONS.values())(with_options)


def all_of(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Several options as one decorator, listed by --help in this order."""
    return lambda command: functools.reduce(lambda taken, option: option(taken), reversed(options), command)


json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
_ALIGNMENT_OPTIONS = {
    "cost": click.option(
        "--cost",
        type=click.Choice(get_args(Cost)),
        default="sqeuclidean",
        show_default=True,
        help="Cost of a pair of time steps.",
    ),
    "bandwidth": click.option(
        "--bandwidth",
        type=click.IntRange(min=0),
        help="Radius of a band that the paths stay in.  [default: none]",
    ),
    "band": click.option(
        "--band",
        type=click.Choice(get_args(Band)),
        default="sakoe_chiba",
        show_default=True,
        help="Its kind; itakura has --max-slope instead of --bandwidth.",
    ),
    "max_slope": click.option("--max-slope", type=float, help="Of --band itakura, >= 1.  [default: 2]"),
    "step_penalty": click.option(
        "--step-penalty",
        type=float,
        default=0.0,
        show_default=True,
        help="Cost of every step that is not diagonal.",
    ),
}


plot_option = click.option("--plot", type=OutputType(".png"), help="Draw the result.")


def save_plot(path: Path, draw: Callable[[Figure], None]) -> None:
    """Draws a figure without a display and writes it whole or not at all."""
    figure = Figure(figsize=(6.4, 5.2), layout="constrained", dpi=150)
    draw(figure)
    with atomic_path(path) as beside:
        figure.savefig(beside)


def report(values: dict[str, Any], *, as_json: bool) -> None:
    """The result on stdout: as one JSON object, or a line per value."""
    if as_json:
        click.echo(json.dumps(values))
        return
    width = max(len(name) for name in values) + 2
    for name, value in values.items():
        if isinstance(value, float):
            value = f"{value:.10g}"
        elif isinstance(value, list):
            value = " ".join(f"{item:.10g}" if isinstance(item, float) else str(item) for item in value)
        click.echo(f"{name.replace('_', ' '):{width}}{value}")
