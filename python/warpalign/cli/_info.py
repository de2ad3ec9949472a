"""`warpalign info`."""

from __future__ import annotations

import click

from warpalign import __version__
from warpalign._core.information import information, lines
from warpalign.cli._common import json_option, report


@click.command()
@json_option
def info(as_json: bool) -> None:
    """Print versions, libraries, instruction sets, threads, GPUs and optional packages."""
    values = information(__version__)
    if as_json:
        report(values, as_json=True)
        return
    for line in lines(values):
        click.echo(line)
