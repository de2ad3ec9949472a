"""`warpalign explain`."""

from __future__ import annotations

from typing import Any

import click
import torch

from warpalign._core.explain import CLASSES, SIZES, explain
from warpalign._core.ways import ways

_DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}


class Sizes(click.ParamType[tuple[int, ...]]):
    """Numbers with an x or a comma between them."""

    name = "sizes"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """The numbers."""
        try:
            return tuple(int(part) for part in str(value).replace(",", "x").split("x"))
        except ValueError:
            self.fail(f"expected numbers such as 32x512x512x64, got {value!r}", param, ctx)


@click.command("explain")
@click.argument("operator", type=click.Choice(list(SIZES)))
@click.option("--sizes", type=Sizes(), required=True, help="Such as 32x512x512x64; see below.")
@click.option(
    "--device",
    default="cpu",
    show_default=True,
    metavar="DEVICE",
    help=f"cpu, cuda, or a compute capability, with or without such a GPU: {', '.join(CLASSES)}.",
)
@click.option("--dtype", type=click.Choice(list(_DTYPES)), default="float32", show_default=True)
@click.option("--gradient/--no-gradient", default=True, show_default=True, help="With or without gradients.")
@click.option(
    "--precision",
    type=click.Choice(["highest", "high", "medium"]),
    default="highest",
    show_default=True,
    help="Of float32 products on a GPU.",
)
@click.option("--batch-invariant", is_flag=True, help="Results that do not depend on the rest of the batch.")
@click.option("--way", default="", help="The way to take.  [default: the plan chooses]")
@click.option("--threads", type=click.IntRange(min=1), help="CPU threads.  [default: torch's]")
@click.option("--ways", "list_ways", is_flag=True, help="Print the names of the ways instead.")
def explain_command(
    operator: str,
    sizes: tuple[int, ...],
    device: str,
    dtype: str,
    gradient: bool,
    precision: str,
    batch_invariant: bool,
    way: str,
    threads: int | None,
    list_ways: bool,
) -> None:
    """Print how a call would run: its way and why, sizes, memory by part, and launches. Nothing is computed.

    \b
    SIZES
      soft_dtw          pairs x x-steps x y-steps x features (0: a cost matrix)
      sinkhorn          problems x x-points x y-points x features (0: a cost matrix)
      transducer        utterances x frames x labels x columns
      transducer_joint  utterances x frames x labels x columns x hidden
      ctc               utterances x frames x classes x labels
      lstm              steps x batch x inputs x hidden
    """
    if list_ways:
        click.echo("\n".join(ways(operator, "cpu" if device == "cpu" else "cuda")))
        return
    click.echo(
        explain(
            operator,
            sizes,
            device=device,
            dtype=_DTYPES[dtype],
            gradient=gradient,
            precision=precision,
            batch_invariant=batch_invariant,
            way=way,
            threads=threads,
        ),
        nl=False,
    )
