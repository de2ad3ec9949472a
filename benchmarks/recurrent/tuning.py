"""How the LSTM's thresholds are measured: the problems of each (benchmarks/harness/tuning.py)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import torch

from benchmarks.harness.tuning import Choice, Crossing, Machine, Probe, Problem, Run
from benchmarks.recurrent.measure import Problem as Case
from benchmarks.recurrent.sizes import FORWARD, STREAM, Size
from warpalign.recurrent import LSTM

STEPS = 64
NEVER = 1 << 20  # above every quantity


def _make(size: Size, device: torch.device) -> Run:
    if size.options == STREAM:
        module = LSTM(size.I, size.H, num_layers=size.layers, dtype=size.torch_dtype, device=device).eval()
        stream, x = module.stream(size.B), torch.randn(size.B, size.I, device=device).to(size.torch_dtype)
        return torch.no_grad()(partial(stream.step, x))
    case = Case(size, device)
    return case.forward if FORWARD in size.options.split() else case.step


def problem(size: Size, quantity: float | None = None) -> Problem:
    """A training step, a forward pass alone, or one step of a stream, by the size's options."""
    return Problem(size.name, partial(_make, size), quantity)


def layers(
    hidden: Sequence[int],
    batches: Iterable[int],
    dtype: str = "bfloat16",
    options: str = "",
    count: int = 1,
    P: int = 0,
) -> list[Problem]:
    """Layers of I = H units, for each number of units and of rows."""
    rows = list(batches)
    return [
        problem(Size(STEPS, batch, P or width, width, count, P=P, dtype=dtype, options=options))
        for width in hidden
        for batch in rows
    ]


def per_multiprocessor(
    machine: Machine, units: Sequence[float], hidden: int, dtype: str, options: str = "", P: int = 0
) -> list[Problem]:
    """Batches that have these numbers of units of all rows for each multiprocessor."""
    batches = sorted({max(1, round(machine.multiprocessors * of_one / hidden)) for of_one in units})
    return layers([hidden], batches, dtype, options, P=P)


def streams(hidden: Sequence[int], batch: int, dtype: str) -> list[Problem]:
    return [problem(Size(1, batch, width, width, 2, dtype=dtype, options=STREAM), width) for width in hidden]


def stream_groups(machine: Machine, dtype: str, options: Sequence[int]) -> list[Problem]:
    """Steps of 64 rows of layers that have these numbers of units for each multiprocessor."""
    widths = sorted({max(8, machine.multiprocessors * of_one // 8 * 8) for of_one in options})
    return [
        problem(Size(1, 64, width, width, 2, dtype=dtype, options=STREAM), width // machine.multiprocessors)
        for width in widths
    ]


def tiles_of_grid(_: Machine) -> list[Problem]:
    return layers([768, 1024, 1536], (8, 16, 24, 32, 48, 64))


def tiles_of_products(_: Machine) -> list[Problem]:
    return layers([512, 1024], (64, 96, 128, 160, 256))


def tiles_of_float_products(_: Machine) -> list[Problem]:
    return layers([128], (256, 512, 1024, 2048), "float32")


def stacks_in_pairs(_: Machine) -> list[Problem]:
    return layers([768, 1024], (16, 32, 48, 64), count=2)


def steps_of_pairs(_: Machine) -> list[Problem]:
    return [problem(Size(steps, 8, 1024, 1024, 2), steps) for steps in (16, 32, 48, 64, 96, 128)]


def long_stacks(hidden: int, batch: int, dtype: str, count: int) -> list[Problem]:
    return [problem(Size(steps, batch, hidden, hidden, count, dtype=dtype)) for steps in (128, 256, 512)]


def lone_blocks(machine: Machine) -> list[Problem]:
    batch = machine.multiprocessors * 3 // 2
    return [problem(Size(STEPS, batch, width, width), width) for width in (16, 24, 32, 40, 48, 64)]


def rows_of(dtype: str, hidden: int, batches: Sequence[int], options: str = "") -> list[Problem]:
    return [
        problem(Size(STEPS, rows, hidden, hidden, dtype=dtype, options=options), rows) for rows in batches
    ]


def tf32_widths(machine: Machine) -> list[Problem]:
    options = f"{FORWARD} medium"
    return [
        problem(Size(STEPS, 64, width, width, dtype="float32", options=options), width)
        for width in (512, 640, 768, 896, 1024)
    ]


PROBES: dict[str, Probe] = {
    "split_tiles": Crossing(tiles_of_grid),
    "product_tiles": Crossing(tiles_of_products),
    "float_product_tiles": Crossing(tiles_of_float_products),
    "pair_tiles": Crossing(stacks_in_pairs, at_most=True),
    "pair_steps": Crossing(steps_of_pairs),
    "pair_chunk_start": Choice(lambda _: long_stacks(1024, 16, "bfloat16", 2), values=[7, 10, 14, 20, 28]),
    "block_chunk_start": Choice(lambda _: long_stacks(64, 8, "float32", 4), values=[10, 20, 28, 40]),
    "cluster_chunk_start": Choice(lambda _: long_stacks(512, 8, "bfloat16", 6), values=[5, 10, 20]),
    "step_chunk_start": Choice(lambda _: long_stacks(512, 8, "float32", 4), values=[2, 5, 10]),
    "lone_block_units": Crossing(lone_blocks),
    "product_rows": Crossing(
        lambda _: rows_of("float64", 1024, (4, 8, 16, 24, 32)), also={"float64_product_units": 0}
    ),
    "projected_product_units": Crossing(
        lambda machine: per_multiprocessor(machine, (124, 248, 496, 992), 2048, "bfloat16", P=640)
    ),
    "tf32_product_units": Crossing(
        lambda machine: per_multiprocessor(machine, (124, 248, 372, 496, 992), 1024, "float32", "medium")
    ),
    "float32_product_units": Crossing(
        lambda machine: per_multiprocessor(machine, (248, 496, 992, 1984), 1024, "float32")
    ),
    "float64_product_units": Crossing(
        lambda machine: per_multiprocessor(machine, (31, 62, 93, 124, 248), 512, "float64")
    ),
    "float_unit_rows": Crossing(
        lambda _: rows_of("float32", 1024, (2, 4, 8, 12, 16)), also={"float_lane_turns": 0}
    ),
    "float_lane_turns": Crossing(lambda _: layers([512, 1024], (8, 16, 24, 32), "float32"), at_most=True),
    "wide_block_units": Crossing(
        lambda machine: per_multiprocessor(machine, (124, 248, 496, 992), 1024, "bfloat16", P=256),
        also={"projected_product_units": NEVER},
    ),
    "wide_float_block_units": Crossing(
        lambda machine: per_multiprocessor(machine, (124, 248, 496, 992), 1024, "float32"),
        also={"float32_product_units": NEVER},
    ),
    "tile_rows": Crossing(
        lambda _: rows_of("float32", 1024, (32, 64, 128, 192, 256), FORWARD), also={"tile_blocks": 0}
    ),
    "tile_blocks": Crossing(
        lambda _: layers([256, 512, 1024], (128, 256), "float32", FORWARD), also={"tile_rows": 0}
    ),
    "square_tile_blocks": Crossing(lambda _: layers([512, 1024], (128, 192, 256, 512), "float32", FORWARD)),
    "tf32_tile_rows": Crossing(lambda _: rows_of("float32", 512, (8, 16, 32, 64), f"{FORWARD} medium")),
    "tf32_tile_units": Crossing(tf32_widths, at_most=True, also={"tf32_tile_blocks": NEVER}),
    "tf32_tile_blocks": Crossing(
        lambda _: layers([512], (128, 256, 384, 512), "float32", f"{FORWARD} medium"),
        at_most=True,
        also={"tf32_tile_units": NEVER},
    ),
    "small_tile_blocks": Crossing(
        lambda _: layers([256, 512, 1024], (32, 64), "float32", f"{FORWARD} medium"),
        also={"small_tile_layer_blocks": NEVER},
    ),
    "small_tile_layer_blocks": Crossing(
        lambda _: layers([512], (32, 64), "float32", f"{FORWARD} medium", count=4),
        also={"small_tile_blocks": NEVER},
    ),
    "single_row_units": Crossing(lambda _: streams((512, 640, 768, 1024, 1536), 1, "float16")),
    "wide_group_units": Crossing(lambda machine: stream_groups(machine, "float16", (4, 6, 8, 10, 12))),
    "wide_float_group_units": Crossing(lambda machine: stream_groups(machine, "float32", (6, 8, 10, 12, 14))),
    "wide_row_units": Crossing(lambda machine: stream_groups(machine, "float16", (8, 10, 12, 14))),
}
