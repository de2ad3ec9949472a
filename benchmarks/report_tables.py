"""The benchmark tables, made from the committed result files. Where a size was measured more than once, the newest row counts."""

from __future__ import annotations

from results import RESULTS, Row, read_rows
from soft_dtw_limits import limit
from soft_dtw_rows import Size

OURS = "warpalign"
NOTHING = "Not measured yet."
CELLS = "`benchmarks/soft_dtw_cpu_cells.py`, float32, the least of many runs."


def size_of(row: Row) -> Size:
    return Size(row["B"], row["N"], row["M"], row["D"], row["gamma"], row.get("precision", "highest"))


def load(pattern: str) -> list[Row]:
    """Rows of all files that match, the oldest first."""
    rows = [row for path in sorted(RESULTS.glob(pattern)) for row in read_rows(path)]
    return sorted(rows, key=lambda row: (row["date"], row.get("time", "")))


def newest(rows: list[Row], *keys: str) -> list[Row]:
    """The last of the rows that agree in `keys`."""
    return list({tuple(row.get(key) for key in keys): row for row in rows}.values())


def gpu_rows(precision: str = "highest") -> list[Row]:
    rows = [row for row in load("nvidia-*/*.json") if row["op"] == "soft_dtw" and "impl" not in row]
    rows = newest(rows, "device", "B", "N", "M", "D", "gamma", "dtype", "precision")
    return [row for row in rows if row.get("step_ms") is not None and row["precision"] == precision]


def sweep_rows() -> list[Row]:
    """The newest sweep over lengths on a GPU, from one run."""
    rows = [row for row in load("nvidia-*/*-sweep.json") if row["op"] == "soft_dtw_sweep"]
    return [row for row in rows if (row["commit"], row["date"]) == (rows[-1]["commit"], rows[-1]["date"])]


def peers_of(size: Size, device: str, peers: list[Row]) -> list[Row]:
    """What other packages took at this size on this device, the fastest first."""
    shape = size[:5]
    found = [
        row for row in peers if size_of(row)[:5] == shape and row["device"] == device and row.get("step_ms")
    ]
    return sorted(found, key=lambda row: row["step_ms"])


def number(value: float | None, digits: int = 3) -> str:
    """Significant digits without an exponent."""
    if value is None:
        return "–"
    text = f"{value:.{digits}g}"
    return f"{value:.0f}" if "e" in text and value >= 1 else f"{value:.3f}" if "e" in text else text


def power(value: float | None) -> str:
    return "–" if value is None else f"{value:.0e}".replace("e-0", "e-")


def times(value: float) -> str:
    """A ratio of two times: "12 x"."""
    return f"{value:.0f} ×" if value >= 10 else f"{value:.1f} ×"


def markdown(header: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + " ---: |" * len(header)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def origin(rows: list[Row]) -> str:
    """Where the numbers come from, for the line under a table; torch is not always part of it."""
    devices = ", ".join(sorted({row["device"] for row in rows}))
    commits = ", ".join(sorted({f"`{row['commit']}`" for row in rows}))
    dates = sorted({row["date"] for row in rows})
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    torch = f"torch {max(row['torch'] for row in rows)}, " if "torch" in rows[0] else ""
    return f"{devices}, {torch}commit {commits}, {when}"


def shape_cells(size: Size) -> list[str]:
    return [str(size.B), f"{size.N} × {size.M}", str(size.D), f"{size.gamma:g}"]


def gpu_table(sizes: list[Size] | None) -> str:
    """Training steps on a GPU next to the best published package, for some sizes or for all."""
    rows, peers = gpu_rows(), load("peers/*.json")
    if sizes is not None:
        rows = [row for row in rows if size_of(row) in sizes]
    if not rows:
        return NOTHING
    header = ["pairs", "N × M", "D", "gamma", "step, ms", "best peer, ms", "faster"]
    header += ["MiB", "leanest peer, MiB", "gradient error", "peers' best"]
    body = []
    for row in rows:
        size = size_of(row)
        others = peers_of(size, row["device"], peers)
        fastest = others[0]["step_ms"] if others else None
        leanest = min((other["mib"] for other in others), default=None)
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
        f"{origin(rows)}. A training step: forward, sum, backward to both series, float32, eager, median. "
        "Peers: softdtw-cuda-torch (both modes), Maghoumi's soft_dtw_cuda and pysdtw, measured on the same "
        "GPU model; in every column the best of them. Gradient error: relative L2 error of the gradient of x "
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
    empty = newest([row for row in load("nvidia-*/*.json") if row["op"] == "framework_step"], "device")
    floor = "".join(
        f" A step through an autograd.Function that computes nothing takes {number(row['step_ms'])} ms there."
        for row in empty
    )
    return f"{markdown(header, body)}\n\n{origin(rows)}.{floor}"


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
        f"{origin(shown)}. In CUDA graphs. Error: relative L2 error of the gradient of x against float64. Of more than 64 "
        "features the matrix units make the value alone: steps and errors are float32's."
    )
    return f"{markdown(header, body)}\n\n{note}"


def gpu_limits() -> str:
    """Each row next to the limit that binds it: forward and training step in a CUDA graph, and the step in eager mode."""
    empty = {
        row["device"]: row["step_ms"] for row in load("nvidia-*/*.json") if row["op"] == "framework_step"
    }
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
        f"{origin(shown)}. Limits: `benchmarks/soft_dtw_limits.py`. Forward and step are inside a CUDA graph, the last three columns "
        "in eager mode, where PyTorch's own time for a step is a limit too. Reached: limit over measured time."
    )
    return f"{markdown(header, body)}\n\n{note}"


def gpu_checks() -> str:
    rows = newest([row for row in load("nvidia-*/*.json") if row["op"] == "check"], "name")
    if not rows:
        return NOTHING
    body = [[row["name"], row["status"], row["detail"], f"`{row['commit']}`", row["date"]] for row in rows]
    return markdown(["check", "status", "detail", "commit", "date"], body)


def scaling_table() -> str:
    """cdist_soft_dtw on several GPUs."""
    rows = newest(load("nvidia-*/*-scaling.json"), "device", "case", "how", "devices")
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
            "the same" if row["same_bits"] else "**differ**",
        ]
        for row in sorted(rows, key=lambda row: (row["D"], row["how"], row["devices"]))
    ]
    note = (
        f"{origin(rows)}. `benchmarks/cdist_scaling.py`: the best of a few runs. Efficiency: the time on one GPU over "
        "(GPUs × time). MiB: the largest peak of any GPU, series and result included. Bits: compared with one GPU's result."
    )
    return f"{markdown(header, body)}\n\n{note}"


def options_table() -> str:
    """What options and second order cost on a GPU."""
    rows = newest(load("nvidia-*/*-options.json"), "device", "case", "B", "n", "D")
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
        f"{origin(rows)}. float32, eager. Step: value and the gradients of both series. Product: of the Hessian of "
        "the sum with a tangent of x, between two passes that keep the series alone."
    )
    return f"{markdown(header, body)}\n\n{note}"


def training_table() -> str:
    """Whole trainings with warpalign's loss and with others'."""
    rows = newest(load("nvidia-*/*-training.json"), "device", "task", "impl")
    rows = [row for row in rows if row.get("seconds_per_epoch") is not None]
    if not rows:
        return NOTHING
    steps = {(row["device"], size_of(row)): row["step_ms"] for row in gpu_rows()}
    peers = load("peers/*.json")
    body = []
    for task in dict.fromkeys(row["task"] for row in rows):
        trained = [row for row in rows if row["task"] == task]
        for row in trained:
            body.append(
                [
                    task,
                    row["impl"],
                    f"{row['B']} × {row['N']} × {row['M']}, D = {row['D']}",
                    f"**{number(row['seconds_per_epoch'])}**",
                    number(row["loss_ms"]),
                    number(row["mib"]),
                    f"{row['metric']} {number(row['metric_before'])} → {number(row['metric_after'])}",
                ]
            )
        for row in (row for row in trained if row["impl"] == OURS):
            size = size_of(row)._replace(gamma=1.0)
            ours = steps.get((row["device"], size))
            names = {other["impl"] for other in trained}
            others = [peer for peer in peers_of(size, row["device"], peers) if peer["impl"] not in names]
            for peer in others if ours is not None else []:
                more = row["steps"] * row["calls"] * (peer["step_ms"] - ours) / 1e3
                epoch = number(row["seconds_per_epoch"] + more)
                body.append([task, f"{peer['impl']}, reckoned", "", epoch, number(peer["step_ms"]), "–", "–"])
    header = [
        "training",
        "loss",
        "shape",
        "seconds per epoch",
        "loss, ms",
        "peak MiB",
        "metric, before → after",
    ]
    note = (
        f"{origin(rows)}. `benchmarks/training_impact.py`: the same weights, batches and seeds for every loss that was trained. "
        "Loss: one forward and backward by itself. Reckoned: warpalign's epoch with the difference of the recorded "
        "steps of that package and of warpalign at this shape (forward and both gradients, table above) in it."
    )
    return f"{markdown(header, body)}\n\n{note}"


def cpu_table() -> str:
    """warpalign, tslearn and pysdtw on a CPU, from one run of the side-by-side script."""
    rows = load("*/*-peers.json")
    if not rows:
        return NOTHING
    latest = max((row["date"], row["time"]) for row in rows if row["impl"] == OURS)
    commit = next(row["commit"] for row in rows if (row["date"], row["time"]) == latest)
    rows = newest(
        [row for row in rows if row["commit"] == commit and row["date"] == latest[0]],
        *("impl", "threads", "device", "B", "N", "M", "D", "gamma"),
    )
    keys = ("B", "N", "M", "D", "gamma", "threads", "device")
    header = ["pairs", "N × M", "D", "threads", "forward, ns/cell", "best peer", "faster"]
    header += ["step, ns/cell", "best peer", "faster", "gradient error"]
    body = []
    for row in (row for row in rows if row["impl"] == OURS):
        size = size_of(row)
        cells = [*shape_cells(size)[:3], str(row["threads"])]
        for column in ("forward_ms", "step_ms"):
            peer = min(
                other[column]
                for other in rows
                if other["impl"] != OURS and other[column] and all(other[key] == row[key] for key in keys)
            )
            scale = 1e6 / size.cells
            ours = row[column]
            cells += [f"**{number(scale * ours)}**", number(scale * peer), times(peer / ours)]
        body.append([*cells, power(row["err_gx"])])
    note = (
        f"{origin(rows)}. One run of `benchmarks/soft_dtw_cpu_peers.py`, float32; wall-clock time over "
        "B·N·M cells, median. Peers: the best of tslearn and pysdtw (Numba), on as many threads."
    )
    return f"{markdown(header, body)}\n\n{note}"


def band_table() -> str:
    """Times within bands on a CPU, and the share of the time without a band."""
    rows = [row for row in cell_rows() if row["threads"] == 1]
    whole = {
        (row["device"], row["what"], row["N"], row["D"]): row["ns_per_cell"]
        for row in rows
        if row["radius"] is None
    }
    body, shown = [], []
    for row in rows:
        if row["radius"] is None or row["what"] != "value":
            continue
        cells = [f"{row['N']} × {row['M']}", str(row["D"]), str(row["radius"])]
        for what in ("value", "gradient"):
            twin = next(
                other
                for other in rows
                if other["what"] == what and all(other[k] == row[k] for k in ("device", "N", "D", "radius"))
            )
            without = whole[row["device"], what, row["N"], row["D"]]
            ms = twin["ns_per_cell"] * row["N"] * row["M"] / 1e6
            cells += [f"**{number(ms)}**", f"{100 * twin['ns_per_cell'] / without:.1f} %"]
        body.append(cells)
        shown.append(row)
    if not body:
        return NOTHING
    header = ["N × M", "D", "radius", "value, ms", "of no band", "with gradients, ms", "of no band"]
    return f"{markdown(header, body)}\n\n{origin(shown)}. {CELLS} One pair, one thread."


def cell_rows() -> list[Row]:
    """What soft_dtw_cpu_cells.py has measured in float32."""
    rows = [row for row in load("*/*-cells.json") if row["dtype"] == "float32"]
    return newest(rows, "device", "what", "N", "D", "threads", "B", "radius")


def one_pair_table() -> str:
    """One pair on one thread and on several, on a CPU."""
    rows = [row for row in cell_rows() if row["radius"] is None and row["B"] == 1]
    body, shown = [], []
    for row in rows:
        if row["threads"] == 1 or row["what"] != "value":
            continue
        cells = [f"{row['N']} × {row['M']}", str(row["D"]), str(row["threads"])]
        for what in ("value", "gradient"):
            times_of = {
                other["threads"]: other["ns_per_cell"]
                for other in rows
                if other["what"] == what and all(other[k] == row[k] for k in ("device", "N", "D"))
            }
            alone, together = times_of.get(1), times_of[row["threads"]]
            cells += [number(alone) if alone else "–", f"**{number(together)}**"]
            cells += [times(alone / together) if alone else "–"]
        body.append(cells)
        shown.append(row)
    if not body:
        return NOTHING
    header = [
        "N × M",
        "D",
        "threads",
        "value on one",
        "on all",
        "faster",
        "with gradients on one",
        "on all",
        "faster",
    ]
    return f"{markdown(header, body)}\n\n{origin(shown)}. {CELLS} One pair, ns per cell."


def estimator_table() -> str:
    """Barycenters, k-means and neighbours next to tslearn's."""
    rows = load("*/*-estimators.json")
    rows = [row for row in rows if (row["commit"], row["date"]) == (rows[-1]["commit"], rows[-1]["date"])]
    if not rows:
        return NOTHING
    header = ["job", "quantity", "warpalign", "tslearn", "warpalign, s", "tslearn, s", "faster"]
    body = [
        [
            row["job"],
            row["quantity"],
            number(row["ours"], 5),
            number(row["theirs"], 5),
            f"**{number(row['our_seconds'])}**",
            number(row["their_seconds"]),
            times(row["their_seconds"] / row["our_seconds"]),
        ]
        for row in rows
    ]
    note = (
        f"{origin(rows)}, {rows[0]['threads']} threads. `benchmarks/estimators_vs_tslearn.py` on the data set Trace: the same starts for "
        "both. Losses and inertias are sums of soft-DTW values: lower is better, and they can be negative."
    )
    return f"{markdown(header, body)}\n\n{note}"
