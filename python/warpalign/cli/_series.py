"""Reading series for a command: its options, what it says about a file, scaling."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import click
import numpy as np
import torch

from warpalign.cli._common import DTYPES, all_of
from warpalign.cli._progress import waiting
from warpalign.io import Dataset, Series, _read
from warpalign.io._series import Layout


class Reader(NamedTuple):
    """How the files of one command are read, and into what."""

    layout: Layout
    standardize: bool
    min_max: bool
    dtype: torch.dtype
    device: torch.device

    def one(self, source: str) -> torch.Tensor:
        """The series (N, D) of a file, or the one that a key picks."""
        return self._taken(source, _read.one)[0][0]

    def all(self, source: str) -> tuple[list[torch.Tensor], list[str] | None]:
        """The series (N_i, D) of a file, and their labels if it has them."""
        found = self._taken(source, _read.dataset)
        if all(len(series) == 1 for series in found[0]):
            self.say_of_one_step(source, found[0][0])
        return found

    def say_of_one_step(self, source: str, series: torch.Tensor) -> None:
        """A series (1, D), of which nothing can be aligned, may have been meant for one of D steps."""
        features = series.shape[1]
        if features > 1 and not self.layout.transpose:
            click.echo(
                f"{source}: one time step with {features} features: if these are {features} time steps, add --transpose",
                err=True,
            )

    def _taken(
        self, source: str, read: Callable[[str, Layout], Dataset]
    ) -> tuple[list[torch.Tensor], list[str] | None]:
        with waiting(f"reading {source}"):
            data = read(source, self.layout)
        click.echo(f"{source}: {description(data)}", err=True)
        if data.index is None and self.layout == Layout(self.layout.header) and ".csv" in source:
            column = data.series[0][:, 0] if read is _read.one else [series[0, 0] for series in data.series]
            if len(column) > 2 and np.array_equal(column, np.arange(len(column))):
                click.echo(
                    f"{source}: the first column counts from 0 to {len(column) - 1}: --index-column passes over an index, "
                    "--no-index-column says that it is none",
                    err=True,
                )
        return [self._tensor(series) for series in data.series], data.labels

    def _tensor(self, series: Series) -> torch.Tensor:
        return torch.from_numpy(self._scaled(series)).to(self.device, self.dtype)

    def _scaled(self, series: Series) -> Series:
        if self.standardize:
            return standardized(series)
        return min_max_scaled(series) if self.min_max else series


def reading_options(command: Callable[..., None]) -> Callable[..., None]:
    """--header, --index-column, --transpose, --standardize and --min-max; the command gets them as `reader`, with its dtype and device."""

    @functools.wraps(command)
    def with_reader(**given: Any) -> None:
        layout = Layout(**{name: given.pop(name) for name in Layout._fields})
        standardize, min_max = given.pop("standardize"), given.pop("min_max")
        if standardize and min_max:
            raise click.UsageError("--min-max: expected one of --standardize and --min-max, got both")
        reader = Reader(
            layout, standardize, min_max, dtype=DTYPES[given.pop("dtype")], device=given.pop("device")
        )
        command(**given, reader=reader)

    return all_of(
        click.option(
            "--header/--no-header",
            default=None,
            help="Whether the first row of a .csv is column names.  [default: guessed]",
        ),
        click.option(
            "--index-column/--no-index-column",
            default=None,
            help="Whether the first column of a .csv is an index, which is passed over.  [default: if it has no name]",
        ),
        click.option(
            "--transpose",
            is_flag=True,
            help="The columns of a table are the series; an array of three axes has time last.",
        ),
        click.option(
            "--standardize",
            is_flag=True,
            help="Scale every feature of every series to mean 0 and standard deviation 1.",
        ),
        click.option(
            "--min-max", is_flag=True, help="Scale every feature of every series to the range from 0 to 1."
        ),
    )(with_reader)


def check_stdin(**sources: str | None) -> None:
    """At most one of the files is stdin."""
    named = [
        name for name, source in sources.items() if source is not None and source.split(":")[0] == _read.STDIN
    ]
    if len(named) > 1:
        raise click.UsageError(f"{named[1]}: expected a file, because {named[0]} is stdin, got {_read.STDIN}")


def check_same_features(first: str, x: torch.Tensor, second: str, y: torch.Tensor) -> None:
    """x and y, (steps, features), which were read from these files, have as many features."""
    if x.shape[1] != y.shape[1]:
        raise click.UsageError(f"{second}: expected {x.shape[1]} features, as {first} has, got {y.shape[1]}")


def description(data: Dataset) -> str:
    """What was read, in a line: 44 series of 24 steps."""
    lengths = [len(series) for series in data.series]
    shortest, longest = min(lengths), max(lengths)
    steps = (
        f"{longest} step{'s' * (longest > 1)}" if shortest == longest else f"{shortest} to {longest} steps"
    )
    features = data.series[0].shape[1]
    parts = [f"{len(lengths)} series of {steps}"]
    if features > 1:
        parts.append(f"{features} features")
    if data.labels is not None:
        classes = len(set(data.labels))
        parts.append(f"{classes} label{'s' * (classes > 1)}")
    if data.index is not None:
        parts.append(f"first column passed over as an index ({data.index})")
    if data.columns is not None:
        shown = data.columns if len(data.columns) < 5 else [*data.columns[:3], "…", data.columns[-1]]
        parts.append(f"first row taken as column names ({' '.join(shown)})")
    return ", ".join(parts)


def standardized(series: Series) -> Series:
    """Every feature of a series (N, D) with mean 0 and standard deviation 1; a constant feature becomes 0."""
    return _divided(series, series.mean(axis=0), series.std(axis=0))


def min_max_scaled(series: Series) -> Series:
    """Every feature of a series (N, D) from 0 to 1; a constant feature becomes 0."""
    return _divided(series, series.min(axis=0), np.ptp(series, axis=0))


def _divided(series: Series, middle: Series, width: Series) -> Series:
    # The standard deviation of a constant feature is what rounding leaves of it, not 0.
    is_constant = series.min(axis=0) == series.max(axis=0)
    moved: Series = np.where(is_constant, 0.0, series - middle)
    return moved / np.where(is_constant, 1.0, width)
