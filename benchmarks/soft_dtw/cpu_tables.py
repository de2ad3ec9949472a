"""Soft-DTW's tables of CPUs, and of accuracy."""

from __future__ import annotations

from benchmarks.harness import tables
from benchmarks.harness.results import Row
from benchmarks.harness.tables import NOTHING, OURS, markdown, newest, number, origin, power, times
from benchmarks.soft_dtw.sizes import Size

CELLS = "`benchmarks/soft_dtw/cpu_cells.py`, float32, the least of many runs."


def size_of(row: Row) -> Size:
    return Size(row["B"], row["N"], row["M"], row["D"], row["gamma"], row.get("precision", "highest"))


def shape_cells(size: Size) -> list[str]:
    return [str(size.B), f"{size.N} × {size.M}", str(size.D), f"{size.gamma:g}"]


def cpu_table() -> str:
    """warpalign, tslearn and pysdtw on a CPU, from one run of the side-by-side script."""
    rows = tables.load("*/*-peers.json")
    if not rows:
        return NOTHING
    latest = max((row["date"], row["time"]) for row in rows if row["impl"] == OURS)
    commit = next(row["commit"] for row in rows if (row["date"], row["time"]) == latest)
    rows = newest(
        [row for row in rows if row["commit"] == commit and row["date"] == latest[0]],
        *("impl", "threads", "device", "B", "N", "M", "D", "gamma"),
    )
    keys = ("B", "N", "M", "D", "gamma", "threads", "device")
    header = ["pairs", "N × M", "D", "threads", "forward, ns/cell", "best baseline", "faster"]
    header += ["step, ns/cell", "best baseline", "faster", "gradient error"]
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
        f"{origin(rows)}. One run of `benchmarks/soft_dtw/cpu_peers.py`, float32; wall-clock time divided by "
        "B·N·M cells, median. Baseline: the faster of tslearn and pysdtw (Numba), with the same number of threads."
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
    rows = [row for row in tables.load("*/*-cells.json") if row["dtype"] == "float32"]
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
    rows = tables.load("*/*-estimators.json")
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
        f"{origin(rows)}, {rows[0]['threads']} threads. `benchmarks/soft_dtw/estimators_vs_tslearn.py` on the data set Trace: the same starts for "
        "both. Losses and inertias are sums of soft-DTW values: lower is better, and they can be negative."
    )
    return f"{markdown(header, body)}\n\n{note}"


def second_order_table() -> str:
    """Hessian-vector products on one core of a CPU, next to the first-order step."""
    rows = newest(tables.load("*/*-second-order.json"), "device", "B", "N", "D", "dtype")
    if not rows:
        return NOTHING
    header = ["pairs", "N × M", "D", "dtype", "step", "product", "product / step", "forward mode alone"]
    body = [
        [
            *(str(row["B"]), f"{row['N']} × {row['N']}", str(row["D"]), row["dtype"]),
            *(number(row["step_ns"]), number(row["product_ns"])),
            *(times(row["product_ns"] / row["step_ns"]), number(row["forward_mode_ns"])),
        ]
        for row in rows
    ]
    note = (
        "`benchmarks/soft_dtw/second_order.py`: ns per cell, the least CPU time of one thread, gamma = 1. Step: the value and "
        "both gradients."
    )
    return f"{markdown(header, body)}\n\n{origin(rows)}. {note}"


def accuracy_table() -> str:
    """Errors on data that are hard for float32, by device and precision."""
    rows = newest(tables.load("*/*-accuracy.json"), "device", "data", "precision", "D")
    if not rows:
        return NOTHING
    columns = dict.fromkeys((row["device"], row["precision"]) for row in rows)
    cells = {(row["data"], row["device"], row["precision"]): row for row in rows}
    body = [
        [data, f"{gamma:g}"]
        + [
            f"{power(row['err_value'])}, {power(row['err_gradient'])}" if row else "–"
            for row in (cells.get((data, *column)) for column in columns)
        ]
        for data, gamma in dict.fromkeys((row["data"], row["gamma"]) for row in rows)
    ]
    header = ["data", "gamma", *(f"{device}, {precision}" for device, precision in columns)]
    return f"{markdown(header, body)}\n\n{origin(rows)}. `benchmarks/soft_dtw/accuracy.py`."
