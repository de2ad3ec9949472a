"""Tables of transport beside other packages in one run: the sizes of `make gpu-check`, plans of low rank, and slices of tissue."""

from __future__ import annotations

import math
from collections.abc import Callable

from benchmarks.harness.results import Row
from benchmarks.harness.tables import NOTHING, OURS, load, markdown, newest, number, origin, power, times

_BASELINES = {
    "loop_ms": "torch loop",
    "graph_loop_ms": "torch loop, in a graph",
    "compiled_ms": "torch.compile",
    "pot_ms": "POT",
    "ott_ms": "OTT-JAX",
    "geomloss_ms": "geomloss",
    "flash_ms": "flash-sinkhorn",
    "recorded_ms": "torchgw, published",
}
_SIZE = (
    *("B", "N", "M", "D", "dtype", "iterations", "kind", "updates", "epsilon_start", "gradient", "precision"),
    *("half", "divergence", "stored", "method"),
)


def _problem(row: Row) -> str:
    batch = f"{row['B']} × " if row.get("B", 1) > 1 else ""
    size = f"{batch}{row['N']} × {row['M']}"
    if "method" in row:
        ways = {
            "exact": f"Gromov–Wasserstein, {row['steps']} × {row['iterations']}",
            "landmark": f"sampled Gromov–Wasserstein from points, {row['steps']} steps",
            "precomputed": "torchgw's `sampled_gw` on given distances",
        }
        return ", ".join([ways[row["method"]], size, *_precision(row)])
    if "B" in row and "kind" not in row:
        return ", ".join(["`sinkhorn_normalize`", size, *_dtype(row)])
    kind = "divergence" if row["divergence"] else "points" if row["D"] else "costs"
    what = f"{kind}, {size}" + (f", D {row['D']}" if row["D"] else "")
    options = [row["kind"]] if row["kind"] != "balanced" else []
    options += ["symmetric updates"] if row["updates"] == "symmetric" and not row["D"] else []
    options += ["binary16 storage"] if row["half"] else []
    options += ["stored costs"] if row.get("stored") else []
    options += _precision(row)
    return ", ".join([what, *options, *_dtype(row)])


def _precision(row: Row) -> list[str]:
    return [] if row["precision"] in ("highest", None) else [f'"{row["precision"]}"']


def _dtype(row: Row) -> list[str]:
    return [] if row["dtype"] == "float32" else [row["dtype"]]


def _baseline(row: Row) -> tuple[str, float, float] | None:
    """The fastest baseline, its time, and that of warpalign in the same mode."""
    found = {name: row[column] for column, name in _BASELINES.items() if row.get(column) is not None}
    if not found:
        return None
    name = min(found, key=lambda one: found[one])
    ours = row.get("graph_solve_ms") if name.endswith("graph") else None
    setting = f" ({row['flash_setting']})" if name == "flash-sinkhorn" else ""
    return name + setting, found[name], row["solve_ms"] if ours is None else ours


def sizes_table() -> str:
    """Whole calls on a GPU with the fastest baseline of the same run, and errors against float64."""
    rows = [row for row in load("nvidia-*/*.json") if row["op"] == "transport" and "err_value" in row]
    rows = [row for row in rows if "err_gradient" in row or "err_loop" in row or "method" in row]
    rows = newest(rows, *_SIZE)
    if not rows:
        return NOTHING
    header = [
        *("problem", "gradient", "warpalign, ms", "in a graph", "fastest baseline", "ms", "faster"),
        *("value error", "gradient error"),
    ]
    body = []
    for row in rows:
        found = _baseline(row)
        cells = [
            *(_problem(row), "yes" if row.get("gradient") else "no", f"**{number(row['solve_ms'])}**"),
            number(row.get("graph_solve_ms")),
        ]
        if found is None:
            cells += ["–"] * 3
        else:
            # A figure from elsewhere is no comparison.
            ratio = "–" if found[0] == _BASELINES["recorded_ms"] else times(found[1] / found[2])
            cells += [found[0], number(found[1]), ratio]
        is_normalized = "err_loop" in row
        errors = (
            (None, row["err_value"])
            if is_normalized and row["gradient"]
            else (row["err_value"], row.get("err_gradient"))
        )
        body.append([*cells, *map(power, errors)])
    note = (
        "`make gpu-check`: whole calls, median; costs and points in float32 unless said, 100 iterations of given costs, 50 of "
        "batches and divergences, 20 of `sinkhorn_normalize`. Errors: relative, of gradients in L2, against the same iterations in "
        "float64. A baseline makes as many iterations of the same problem in the same run; flash-sinkhorn runs without its tuning, and "
        "torchgw's times are those of its published log, on other hardware."
    )
    return f"{markdown(header, body)}\n\n{origin(rows)}. {note}"


def low_rank_table() -> str:
    """Plans of low rank beside POT's, with objectives and errors of marginals."""
    rows = newest(load("*/*-transport-low-rank.json"), "device", "kind", "N", "D", "rank", "impl", "setting")
    rows = [row for row in rows if row["device"].startswith("NVIDIA")]
    if not rows:
        return NOTHING
    problem = ("device", "kind", "N", "D", "rank")
    header = [
        "problem",
        "points",
        "D",
        "rank",
        "package",
        "s",
        "faster",
        "MiB",
        "objective",
        "error of marginals",
    ]
    ours: dict[tuple[object, ...], float] = {}
    for row in rows:
        if row["impl"] == OURS:
            key = tuple(row[name] for name in problem)
            ours[key] = min(row["seconds"], ours.get(key, math.inf))
    rows.sort(key=lambda row: ([str(row[key]) for key in ("device", "kind")], row["N"], row["impl"] != OURS))
    body = []
    for row in rows:
        own = ours[tuple(row[key] for key in problem)]
        is_ours, seconds = row["impl"] == OURS, row.get("seconds")
        setting = "" if row["setting"] == "defaults" else f", `{row['setting']}`"
        cells = [
            {"linear": "Sinkhorn", "gromov": "Gromov–Wasserstein"}[row["kind"]],
            f"{row['N']} × {row['M']}",
            *(str(row["D"]), str(row["rank"]), row["impl"] + setting),
        ]
        if seconds is None:
            cells += [f"over {row['least_s']}", f"over {times(row['least_s'] / own)}", *["–"] * 3]
        else:
            cells += [f"**{number(seconds)}**" if is_ours else number(seconds)]
            cells += ["–" if is_ours else times(seconds / own), number(row.get("mib"))]
            cells += [number(row["value"], 4), power(row["marginals"])]
        body.append(cells)
    note = (
        "`benchmarks/transport/low_rank.py`: squared distances between normal distributions, float32 on the GPU. POT runs on tensors "
        "there with its defaults, and with fewer iterations of its projection. Objective: smaller is better; error of marginals: sum of "
        "absolute deviations. Faster: against the fastest row of warpalign."
    )
    return f"{markdown(header, body)}\n\n{origin(rows)}. {note}"


def slices_table() -> str:
    """Alignments of two slices of tissue beside PASTE's formulation on POT's solver."""
    rows = newest(load("*/*-transport-slices.json"), "device", "N", "impl")
    if not rows:
        return NOTHING
    header = ["device", "spots", "solver", "s", "objective", "same layer", "median distance, spots"]
    body = []
    for row in sorted(rows, key=lambda row: (row["device"], row["N"])):
        cells = [row["device"], f"{row['N']} × {row['M']}", row["impl"]]
        if "seconds" in row:
            cells += [f"**{number(row['seconds'])}**" if row["impl"] != "POT" else number(row["seconds"])]
            cells += [number(row["objective"]), f"{100 * row['same_layer']:.1f} %", number(row["off"])]
        else:
            cells += [f"over {row['least_s']:g}", *["–"] * 3]
        body.append(cells)
    note = (
        "`benchmarks/transport/slices.py`: `compat.paste.pairwise_align` with its defaults, beside `fused_gromov_wasserstein` of POT with "
        "PASTE's objective and settings, float64 unless said. Objective: PASTE's, without an entropic term. One thread of a CPU (CPU "
        "time), or a GPU with POT's tensors on it."
    )
    return f"{markdown(header, body)}\n\n{origin(rows)}. {note}"


def solves_table() -> str:
    """Whole solves on one thread of a CPU beside other packages."""
    rows = [row for row in load("*/*-transport-solves.json") if "peer" in row]
    rows = newest(rows, "device", "op", "N", "M", "threads")
    if not rows:
        return NOTHING
    header = ["device", "solve", "threads", "warpalign, ms", "baseline", "ms", "faster"]
    body = [
        [
            *(row["device"], row["what"], str(row["threads"]), f"**{number(1e3 * row['seconds'])}**"),
            row["peer"],
            *(
                (number(1e3 * row["peer_seconds"]), times(row["peer_seconds"] / row["seconds"]))
                if row.get("peer_seconds")
                else ("–", "–")
            ),
        ]
        for row in rows
    ]
    note = "`benchmarks/transport/cpu_solves.py`: least of several runs; CPU time of one thread."
    return f"{markdown(header, body)}\n\n{origin(rows)}. {note}"


TABLES: dict[str, Callable[[], str]] = {
    "transport-sizes": sizes_table,
    "transport-low-rank": low_rank_table,
    "transport-slices": slices_table,
    "transport-solves": solves_table,
}
