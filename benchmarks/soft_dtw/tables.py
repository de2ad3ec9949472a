"""Soft-DTW's tables by name, and those of GPUs; of CPUs in cpu_tables.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks.harness import tables
from benchmarks.harness.results import Row
from benchmarks.harness.tables import NOTHING, OURS, markdown, newest, number, origin, power, times
from benchmarks.soft_dtw.cpu_tables import (
    accuracy_table,
    band_table,
    cpu_table,
    estimator_table,
    one_pair_table,
    second_order_table,
    shape_cells,
    size_of,
)
from benchmarks.soft_dtw.limits import limit
from benchmarks.soft_dtw.peers import PEERS
from benchmarks.soft_dtw.sizes import Size
from benchmarks.soft_dtw.study_tables import TABLES as STUDIES


def gpu_rows(precision: str = "highest") -> list[Row]:
    rows = [row for row in tables.load("nvidia-*/*.json") if row["op"] == "soft_dtw" and "impl" not in row]
    rows = newest(rows, "device", "B", "N", "M", "D", "gamma", "dtype", "precision")
    return [row for row in rows if row.get("step_ms") is not None and row["precision"] == precision]


def sweep_rows() -> list[Row]:
    """The newest sweep over lengths on a GPU, from one run."""
    rows = [row for row in tables.load("nvidia-*/*-sweep.json") if row["op"] == "soft_dtw_sweep"]
    return [row for row in rows if (row["commit"], row["date"]) == (rows[-1]["commit"], rows[-1]["date"])]


def peers_of(size: Size, device: str, peers: list[Row]) -> list[Row]:
    """What other packages took at this size on this device, the fastest first."""
    shape = size[:5]
    found = [
        row for row in peers if size_of(row)[:5] == shape and row["device"] == device and row.get("step_ms")
    ]
    return sorted(found, key=lambda row: row["step_ms"])


def all_peers() -> list[Row]:
    """Every committed training step of another package: those recorded once, and those measured beside ours."""
    beside = [
        {**row, "impl": name, "step_ms": row[f"{name}_step_ms"], "mib": None, "err_gx": None}
        for row in tables.load("nvidia-*/*.json")
        for name in PEERS
        if row["op"] == "soft_dtw" and row.get(f"{name}_step_ms")
    ]
    return tables.load("peers/*.json") + beside


def gpu_table() -> str:
    """Training steps on a GPU next to the best published package."""
    rows, peers = gpu_rows(), all_peers()
    if not rows:
        return NOTHING
    header = ["pairs", "N × M", "D", "gamma", "step, ms", "best baseline, ms", "faster"]
    header += ["MiB", "smallest baseline, MiB", "gradient error", "best baseline"]
    body = []
    for row in rows:
        size = size_of(row)
        others = peers_of(size, row["device"], peers)
        fastest = min((other["step_ms"] for other in others), default=None)
        leanest = min((other["mib"] for other in others if other["mib"] is not None), default=None)
        exact = min((other["err_gx"] for other in others if other["err_gx"] is not None), default=None)
        body.append(
            [
                *shape_cells(size),
                f"**{number(row['step_ms'])}**",
                number(fastest),
                times(fastest / row["step_ms"]) if fastest else "–",
                f"**{number(row['mib'])}**",
                number(leanest),
                f"**{power(row['err_gx'])}**",
                power(exact),
            ]
        )
    note = (
        f"{origin(rows)}. A training step: forward pass, sum, backward pass to both series; float32, eager, median. "
        "Baselines: softdtw-cuda-torch (both modes), Maghoumi's soft_dtw_cuda and pysdtw, measured on the same "
        "GPU model; every column shows the best of them over all result files. Gradient error: relative L2 error of the gradient of x "
        "against float64."
    )
    return f"{markdown(header, body)}\n\n{note}"


def gpu_detail() -> str:
    """What a GPU run measured besides: forward alone, CUDA graphs, cells per second."""
    rows = gpu_rows()
    if not rows:
        return NOTHING
    header = ["pairs", "N × M", "D", "gamma", "forward, ms", "in a graph", "step, ms", "in a graph"]
    header += ["forward, 10⁹ cells/s", "loss error", "x error", "y error"]
    body = [
        [
            *shape_cells(size_of(row)),
            *(number(row[key]) for key in ("forward_ms", "graph_forward_ms", "step_ms", "graph_step_ms")),
            number(row["cells_per_s"] / 1e9),
            *(power(row[key]) for key in ("err_loss", "err_gx", "err_gy")),
        ]
        for row in rows
    ]
    floor = "".join(
        f" A step through an autograd.Function that computes nothing takes {number(row['step_ms'])} ms there."
        for row in newest(framework_steps(), "device")
    )
    return f"{markdown(header, body)}\n\n{origin(rows)}.{floor}{eager_times()}"


def framework_steps() -> list[Row]:
    """A step that computes nothing, in the runs of gpu_rows(): hosts differ."""
    runs = {("framework_step", row["commit"]) for row in gpu_rows()}
    return [row for row in tables.load("nvidia-*/*.json") if (row["op"], row["commit"]) in runs]


def eager_times() -> str:
    """The host's time of the smallest step, next to a function that computes nothing in the same run."""
    rows = newest([row for row in tables.load("nvidia-*/*.json") if row["op"] == "soft_dtw_eager"], "device")

    def said(row: Row, place: str, prefix: str) -> str:
        ours, empty, alone = (row[f"{prefix}{name}_us"] for name in ("soft_dtw", "nothing", "no_grad"))
        return (
            f" {place}: a step {number(ours)} µs, {ours / empty:.2f} times that of a function that computes nothing "
            f"({number(empty)} µs); a forward without gradients {number(alone)} µs, {alone / empty:.2f} times."
        )

    return "".join(
        f" The calling thread's CPU time of one pair of two steps ({origin([row])})."
        + said(row, "Tensors on the GPU", "")
        + said(row, "On the CPU", "cpu_")
        for row in rows
    )


def gpu_precision() -> str:
    """What the matrix units make of the sizes that were measured on them: times in a CUDA graph, errors of the gradient of x."""
    by_size = {
        precision: {size_of(row)[:5]: row for row in gpu_rows(precision)}
        for precision in ("highest", "high", "medium")
    }
    shared = [size for size in by_size["high"] if all(size in rows for rows in by_size.values())]
    if not shared:
        return NOTHING
    header, body = ["pairs", "N × M", "D", "gamma"], []
    for precision in by_size:
        header += [f"{precision}: forward, ms", "step, ms", "error"]
    for size in shared:
        cells = shape_cells(Size(*size))
        for rows in by_size.values():
            row = rows[size]
            cells += [
                number(row["graph_forward_ms"]),
                f"**{number(row['graph_step_ms'])}**",
                power(row["err_gx"]),
            ]
        body.append(cells)
    shown = [rows[size] for rows in by_size.values() for size in shared]
    note = (
        f"{origin(shown)}. Measured in CUDA graphs. Error: relative L2 error of the gradient of x against float64. With at most 16 "
        "features, and for pairs that are computed in tiles, every precision computes as highest does."
    )
    return f"{markdown(header, body)}\n\n{note}"


def gpu_limits() -> str:
    """Each row next to the limit that binds it: forward and training step in a CUDA graph, and the step in eager mode."""
    empty = {row["device"]: row["step_ms"] for row in framework_steps()}
    body, shown = [], []
    for row in gpu_rows():
        size, cells = size_of(row), []
        for column, overhead in (
            ("graph_forward_ms", 0.0),
            ("graph_step_ms", 0.0),
            ("step_ms", empty.get(row["device"], 0.0)),
        ):
            bound = limit(size, row["device"], step="step" in column, overhead_ms=overhead)
            measured = row.get(column)
            if bound is None or measured is None:
                cells += ["–"] * 3
                continue
            cells += [number(bound.ms), bound.name, f"**{100 * bound.ms / measured:.0f} %**"]
        if set(cells) != {"–"}:
            body.append([*shape_cells(size), *cells])
            shown.append(row)
    if not body:
        return NOTHING
    header = ["pairs", "N × M", "D", "gamma"]
    for what in ("forward", "step", "eager step"):
        header += [f"{what}: limit, ms", "binds", "reached"]
    note = (
        f"{origin(shown)}. `benchmarks/soft_dtw/limits.py` computes the limits. Forward and step are measured in a CUDA graph, the last three columns "
        "in eager mode, where PyTorch's own time for a step is a limit, too. Reached: limit divided by measured time."
    )
    return f"{markdown(header, body)}\n\n{note}"


def scaling_table() -> str:
    """cdist_soft_dtw on several GPUs."""
    rows = newest(tables.load("nvidia-*/*-scaling.json"), "device", "case", "how", "devices")
    rows = [row for row in rows if row.get("seconds") is not None]
    if not rows:
        return NOTHING
    how = {"devices": "one process, `devices=[...]`", "torchrun": "a process each, NCCL"}
    header = ["pairs", "length", "D", "GPUs", "how", "seconds", "efficiency", "10⁹ cells/s", "MiB", "bits"]
    body = [
        [
            f"{row['n']} × {row['m']}",
            *(str(row[key]) for key in ("length", "D", "devices")),
            how[row["how"]],
            f"**{number(row['seconds'])}**",
            "–" if row["efficiency"] is None else f"{100 * row['efficiency']:.0f} %",
            number(row["cells_per_s"] / 1e9),
            number(row["mib"]),
            "identical" if row["same_bits"] else "**differ**",
        ]
        for row in sorted(rows, key=lambda row: (row["D"], row["how"], row["devices"]))
    ]
    note = (
        f"{origin(rows)}. `benchmarks/soft_dtw/cdist_scaling.py`: the best of a few runs. Efficiency: the time on one GPU divided by "
        "(GPUs × time). MiB: the largest peak of any GPU, including series and result. Last column: bitwise comparison with the result of one GPU."
    )
    return f"{markdown(header, body)}\n\n{note}"


def stays_in_tiles(case: str, pairs: int, n: int) -> bool:
    """Whether more than four features are computed in tiles with this option (docs/developer/kernels/soft_dtw.md, "Turns").

    Bands and penalties are, of so many pairs of n x n that they would take turns in a panel, and Euclidean distances.
    """
    takes_turns = pairs == 32 and n == 2048 and case.startswith(("bandwidth", "step_penalty"))
    return takes_turns or case in ("euclidean", "gamma 0", "Hessian-vector product")


def options_table() -> str:
    """What options and second order cost on a GPU."""
    rows = newest(tables.load("nvidia-*/*-options.json"), "device", "case", "B", "n", "D")
    # Rows of more features are older than panels of costs, and true for tiles alone.
    rows = [row for row in rows if row["D"] <= 4 or stays_in_tiles(row["case"], row["B"], row["n"])]
    if not rows:
        return NOTHING
    columns = ("forward_ms", "step_ms", "product_ms")
    body = [
        [
            row["case"],
            f"{row['B']}",
            f"{row['n']}²",
            str(row["D"]),
            *(number(row[key]) if key in row else "–" for key in columns),
        ]
        for row in sorted(rows, key=lambda row: (row["D"], row["B"]))
    ]
    header = ["option", "pairs", "N × M", "D", "forward, ms", "step, ms", "product, ms"]
    note = (
        f"{origin(rows)}. float32, eager. Step: value and the gradients of both series. Product: the Hessian of "
        "the sum times a tangent of x; only the series are stored between the passes."
    )
    return f"{markdown(header, body)}\n\n{note}"


def panel_option_rows() -> list[tuple[Row, float]]:
    """Steps with options and many features, each with the time of the same step without options, ms."""

    def size(row: Row) -> tuple[object, ...]:
        return tuple(row[key] for key in ("device", "B", "N", "M", "D"))

    rows = [row for row in tables.load("nvidia-*/*-programs.json") if row["op"] == "soft_dtw_panel"]
    rows = [row for row in rows if row.get("dtype") == "float32" and row.get("graph_step_ms")]
    plain = {size(row): row["graph_step_ms"] for row in rows if row.get("precision") == "highest"}
    rows = [row for row in rows if "option" in row and not stays_in_tiles(row["option"], row["B"], row["N"])]
    return [(row, plain[size(row)]) for row in newest(rows, "device", "option", "B", "N", "M", "D")]


def panel_options_table() -> str:
    """What options cost with many features, next to a step without options."""
    rows = panel_option_rows()
    if not rows:
        return NOTHING
    body = [
        [
            *(row["option"], str(row["B"]), f"{row['N']} × {row['M']}", str(row["D"])),
            *(number(row["graph_step_ms"]), number(none), times(row["graph_step_ms"] / none)),
        ]
        for row, none in rows
    ]
    header = ["option", "pairs", "N × M", "D", "step, ms", "without, ms", "ratio"]
    note = f"{origin([row for row, _ in rows])}. float32, one step inside a CUDA graph: value and the gradients of both series."
    return f"{markdown(header, body)}\n\n{note}"


def training_table() -> str:
    """Whole trainings with warpalign's loss and with others'."""
    rows = [row for row in tables.load("nvidia-*/*-training.json") if row.get("seconds_per_epoch")]
    runs = {(row["device"], row["task"], row["impl"], row["commit"]) for row in newest(rows, *RUN)}
    rows = [row for row in rows if tuple(row[key] for key in (*RUN, "commit")) in runs]
    if not rows:
        return NOTHING
    body = []
    for task in dict.fromkeys(row["task"] for row in rows):
        of_task = [row for row in rows if row["task"] == task]
        ours = min(row["seconds_per_epoch"] for row in of_task if row["impl"] == OURS)
        for impl in dict.fromkeys((OURS, *(row["impl"] for row in of_task))):
            seeds = [row for row in of_task if row["impl"] == impl]
            body.append(training_line(seeds, ours))
    header = [
        "training",
        "loss",
        "shape",
        "epochs per hour",
        "time, to warpalign's",
        "loss, ms",
        "peak MiB",
        "largest batch",
        "metric, before → after",
    ]
    note = (
        f"{origin(rows)}. `benchmarks/soft_dtw/training_impact.py`: the same weights, batches and seeds for every loss; "
        "the fastest of the seeds, and the least and the largest metric. Loss: one forward and backward pass."
    )
    if any(row.get("largest_batch") for row in rows):
        note += " Largest batch: of the loss alone, the largest power of 2 within 8 GiB; none above 65536 was tried."
    if any(row["impl"] == "tslearn" for row in rows):
        note += " tslearn computes on the CPU, and was trained for one epoch."
    return f"{markdown(header, body)}\n\n{note}"


RUN = ("device", "task", "impl")


def training_line(seeds: list[Row], ours: float) -> list[str]:
    row = min(seeds, key=lambda one: one["seconds_per_epoch"])
    before, after = (
        [one[name] for one in seeds if one[name] is not None] for name in ("metric_before", "metric_after")
    )
    batches = [one["largest_batch"] for one in seeds if one.get("largest_batch") is not None]
    return [
        row["task"],
        row["impl"],
        f"{row['B']} × {row['N']} × {row['M']}, D = {row['D']}",
        f"**{3600 / row['seconds_per_epoch']:,.0f}**".replace(",", " "),
        f"{row['seconds_per_epoch'] / ours:.1f} ×" if row["impl"] != OURS else "",
        number(row["loss_ms"]),
        number(row["mib"]) if row["impl"] != "tslearn" else "–",
        str(max(batches)) if batches else "–",
        f"{row['metric']} {spread(before)} → {spread(after)}",
    ]


def spread(values: list[float]) -> str:
    """The least and the largest value; one number where they are equal."""
    if not values:
        return "–"
    least, largest = number(min(values)), number(max(values))
    return least if least == largest else f"{least} … {largest}"


def images() -> str:
    """Links to the plots, where there are results to draw."""
    names = {"time": "Time of a training step against N and D", "memory": "Memory against N and D"}
    if not gpu_rows():
        return NOTHING
    if sweep_rows():
        names["sweep"] = "Time over every length"
    return "\n\n".join(f"![{text}](images/soft_dtw_{name}.png)" for name, text in names.items())


def draw(folder: Path) -> list[Path]:
    """The plots that images() links to."""
    from benchmarks.soft_dtw import plots

    if not gpu_rows():
        return []
    drawn = plots.draw(gpu_rows(), tables.load("peers/*.json"), folder)
    return [*drawn, plots.draw_sweep(sweep_rows(), folder)] if sweep_rows() else drawn


TABLES: dict[str, Callable[[], str]] = {
    "gpu-all": gpu_table,
    "gpu-detail": gpu_detail,
    "gpu-precision": gpu_precision,
    "gpu-limits": gpu_limits,
    "options": options_table,
    "panel-options": panel_options_table,
    "scaling": scaling_table,
    "training": training_table,
    "cpu": cpu_table,
    "bands": band_table,
    "one-pair": one_pair_table,
    "estimators": estimator_table,
    "second-order": second_order_table,
    "accuracy": accuracy_table,
    "images": images,
    **STUDIES,
}
