"""Tables of studies: sampled alignments, learned metrics, gamma, half types, several GPUs, bands, and packed series."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.harness import tables
from benchmarks.harness.results import Row
from benchmarks.harness.tables import NOTHING, markdown, newest, number, origin, times


def sampling_table() -> str:
    """Drawing paths, beside the same in torch."""
    rows = newest(tables.load("*/*-sampling.json"), "device", "B", "N", "D", "paths")
    if not rows:
        return NOTHING
    header = ["device", "pairs", "N × M", "D", "paths", "ms", "torch, ms", "faster", "MiB", "torch, MiB"]
    body = [
        [
            *(row["device"], str(row["B"]), f"{row['N']} × {row['N']}", str(row["D"]), str(row["paths"])),
            *(f"**{number(row['warpalign_ms'])}**", number(row["torch_ms"]), times(row["times"])),
            *(number(row["warpalign_mib"]), number(row["torch_mib"])),
        ]
        for row in rows
    ]
    note = (
        f"{origin(rows)}. `benchmarks/soft_dtw/sampling.py`: float32, gamma 1, CPUs with one thread; MiB of a GPU above the inputs, the "
        "paths included. torch: the table in float64 by anti-diagonals, then one step of all paths at a time."
    )
    return f"{markdown(header, body)}\n\n{note}"


def with_deviation(row: Row, name: str, digits: int = 3) -> str:
    return f"{number(row[name], digits)} ± {number(row[f'{name}_deviation'], 2)}"


def linear_metric_table() -> str:
    """Accuracy with squared distances and with a learned metric."""
    rows = newest(tables.load("*/*-linear-metric.json"), "drift")
    if not rows:
        return NOTHING
    header = ["drift, standard deviation", "squared distances", "learned metric"]
    body = [
        [f"{row['drift']:g}"]
        + [
            f"{row[f'accuracy_{name}']:.3f} ± {row[f'deviation_{name}']:.2g}"
            for name in ("squared", "learned")
        ]
        for row in rows
    ]
    note = (
        f"Accuracy of one nearest neighbour, mean and standard deviation of {rows[0]['seeds']} seeds; {rows[0]['train']} known series, "
        f"{rows[0]['test']} new ones, {rows[0]['steps']} steps of Adam, pixels in [0, 1]. {origin(rows)}. "
        "`benchmarks/soft_dtw/linear_metric.py`."
    )
    return f"{markdown(header, body)}\n\n{note}"


def gamma_rows(task: str) -> list[Row]:
    rows = [row for row in tables.load("*/*-gamma.json") if row["task"] == task]
    return sorted(newest(rows, "fraction", "normalize", "scheduled"), key=lambda row: row["fraction"])


def gamma_tasks_table() -> str:
    """Accuracy of neighbours and of barycenters, by gamma."""
    found = {task: gamma_rows(task) for task in ("neighbours", "barycenters")}
    if not all(found.values()):
        return NOTHING
    header = ["gamma / median"] + [
        f"{task}, {name}" for task in found for name in ("value", "`normalize=True`")
    ]
    fractions = dict.fromkeys(row["fraction"] for row in found["neighbours"])
    body = [
        [f"{fraction:g}"]
        + [
            with_deviation(row, "accuracy")
            for rows in found.values()
            for normalize in (False, True)
            for row in rows
            if (row["fraction"], row["normalize"]) == (fraction, normalize)
        ]
        for fraction in fractions
    ]
    return f"{markdown(header, body)}\n\nAccuracy, three seeds. {origin(found['neighbours'])}. `benchmarks/soft_dtw/gamma_study.py`."


def gamma_training_table() -> str:
    """Forecasts of networks trained with several gammas."""
    rows = gamma_rows("training")
    if not rows:
        return NOTHING
    cells = {(row["fraction"], row["normalize"], row["scheduled"]): row for row in rows}
    kinds = ((False, False), (True, False), (False, True), (True, True))
    header = [
        "gamma / median",
        "value",
        "`normalize=True`",
        "value, scheduled",
        "`normalize=True`, scheduled",
    ]
    body = []
    for fraction in dict.fromkeys(row["fraction"] for row in rows):
        found = [cells.get((fraction, *kind)) for kind in kinds]
        shown = [
            "–" if row is None else f"{number(row['dtw'])}, {number(row['squared_error'])}" for row in found
        ]
        body.append([f"{fraction:g}", *shown])
    note = (
        f"Hard DTW and squared error of forecasts per time step, means of three seeds: lower is better. {origin(rows)}. "
        "`benchmarks/soft_dtw/gamma_study.py`."
    )
    return f"{markdown(header, body)}\n\n{note}"


def mixed_precision_table() -> str:
    """Trainings under autocast, beside float32."""
    rows = newest(tables.load("*/*-mixed-precision.json"), "device", "task", "mode", "seed")
    if not rows:
        return NOTHING
    header = ["training", "type", "s / epoch", "MiB", "loss, last epoch", "metric on unseen series"]
    body = []
    for task, mode in dict.fromkeys((row["task"], row["mode"]) for row in rows):
        of = [row for row in rows if (row["task"], row["mode"]) == (task, mode)]
        seconds = min(row["seconds_per_epoch"] for row in of)
        losses = [row["losses"][-1] for row in of]
        scores = [row["metric_after"] for row in of]
        spans = [f"{number(min(values), 4)} … {number(max(values), 4)}" for values in (losses, scores)]
        body.append([task, mode, number(seconds), number(of[0]["mib"]), *spans])
    note = (
        f"{origin(rows)}. `benchmarks/soft_dtw/mixed_precision.py`: the two trainings above from the same start, the least and the largest of three "
        "seeds, the least of the seconds; float16 with a GradScaler. Metrics: DTW per step, and phase error."
    )
    return f"{markdown(header, body)}\n\n{note}"


def half_types_table() -> str:
    """Steps on half types, beside float32."""
    rows = newest(tables.load("nvidia-*/*-half-types.json"), "device", "B", "N", "D", "precision", "dtype")
    if not rows:
        return NOTHING
    header = ["pairs × N² × D", "precision", "type", "step, ms", "in a graph, ms", "faster", "MiB"]
    header += ["error of value", "of gradients"]
    body = [
        [
            f"{row['B']} × {row['N']}² × {row['D']}",
            *(row["precision"], row["dtype"], number(row["step_ms"]), number(row["graph_step_ms"])),
            *("–" if row["dtype"] == "float32" else times(row["times"]), number(row["mib"])),
            *(f"{row[name]:.1e}" for name in ("err_loss", "err_gradient")),
        ]
        for row in rows
    ]
    note = (
        f"{origin(rows)}. `benchmarks/soft_dtw/half_types.py`: a step with both gradients; faster: than float32 in a graph; MiB above the series "
        "and less the gradients; errors relative to float64 on the rounded series. A gradient in the series' type is rounded once: "
        "about 2e-4 in float16, 2e-3 in bfloat16."
    )
    return f"{markdown(header, body)}\n\n{note}"


def ddp_table() -> str:
    """Trainings with DistributedDataParallel."""
    rows = newest(tables.load("nvidia-*/*-ddp.json"), "device", "B", "N", "processes")
    if not rows:
        return NOTHING
    rows.sort(key=lambda row: (row["device"], row["N"], row["B"], row["processes"]))
    header = [
        "pairs per GPU",
        "steps",
        "GPUs",
        "step, ms",
        "without DDP, ms",
        "pairs per second",
        "efficiency",
    ]
    body = [
        [
            *(str(row["B"]), f"{row['N']} × {row['M']}", str(row["processes"]), number(row["step_ms"])),
            *(number(row["step_alone_ms"]), f"**{row['pairs_per_s']:,.0f}**".replace(",", " ")),
            f"{100 * row['efficiency']:.0f} %",
        ]
        for row in rows
    ]
    same = all(row["same_weights"] for row in rows)
    note = (
        f"{origin(rows)}. `benchmarks/soft_dtw/ddp_training.py`: a process for each GPU of one host, NCCL; pairs of all GPUs. "
        f"All processes {'end' if same else 'do not end'} with the same weights."
    )
    return f"{markdown(header, body)}\n\n{note}"


def few_pairs_in_a_band_table() -> str:
    """Few pairs in a band, from one end and from both."""
    rows = newest(tables.load("nvidia-*/*-bands.json"), "device", "B", "N", "D", "options")
    if not rows:
        return NOTHING
    header = ["pairs × N² × D", "options", "cells", "values, one end, ms", "values, ms"]
    header += ["step, one end, ms", "step, ms", "faster", "of all cells' step"]
    whole = {(row["B"], row["N"], row["D"]): row["step_ms"] for row in rows if row["options"] == "none"}
    body = [
        [
            *(f"{row['B']} × {row['N']}² × {row['D']}", row["options"], f"{100 * row['cells']:.0f} %"),
            *(number(row[name]) for name in ("one_end_values_ms", "values_ms", "one_end_step_ms")),
            *(f"**{number(row['step_ms'])}**", times(row["one_end_step_ms"] / row["step_ms"])),
            f"{100 * row['step_ms'] / whole[row['B'], row['N'], row['D']]:.0f} %",
        ]
        for row in rows
    ]
    note = (
        f"{origin(rows)}. `benchmarks/soft_dtw/narrow_bands.py`: in a CUDA graph, float32, gamma 1; the band's radius in % of N; both "
        "columns of a kind in one run, with sweeps from the first step alone and as chosen."
    )
    return f"{markdown(header, body)}\n\n{note}"


def packed_table() -> str:
    """Packed series beside padded ones."""
    rows = newest(tables.load("nvidia-*/*-packed.json"), "device", "B", "longest", "D", "lengths")
    if not rows:
        return NOTHING
    header = ["pairs", "longest", "D", "lengths", "padding"]
    header += [f"{way}, {unit}" for unit in ("ms", "MiB") for way in ("padded", "pads", "packed")]
    body = [
        [
            *(
                str(row["B"]),
                str(row["longest"]),
                str(row["D"]),
                row["lengths"],
                f"{100 * row['padding']:.0f} %",
            ),
            *(number(row[f"{way}_{unit}"]) for unit in ("ms", "mib") for way in ("padded", "pads", "packed")),
        ]
        for row in rows
    ]
    note = (
        f"{origin(rows)}. `benchmarks/soft_dtw/packed_batches.py`: an eager step with both gradients; MiB: the peak, series and gradients "
        "included. padded: series padded before the step; pads: packed series that are padded within it; packed: jagged nested tensors. Lengths: "
        "even, 50 to 100 % of the longest; speech, log-normal around 40 %; heavy tail, log-normal around 10 %."
    )
    return f"{markdown(header, body)}\n\n{note}"


def barycenters_table() -> str:
    """Soft barycenters beside DBA, with outliers."""
    rows = newest(tables.load("*/*-barycenters.json"), "device", "outliers", "method", "gamma", "start")
    if not rows:
        return NOTHING
    shares = list(dict.fromkeys(row["outliers"] for row in rows))
    header = ["method", "gamma / median", "start"]
    header += [f"error, {100 * share:g} % outliers" for share in shares] + ["seconds", "iterations"]
    body = []
    for method, gamma, start in dict.fromkeys((row["method"], row["gamma"], row["start"]) for row in rows):
        of = [row for row in rows if (row["method"], row["gamma"], row["start"]) == (method, gamma, start)]
        body.append(
            [
                *("DBA" if method == "dba" else "soft-DTW", "–" if gamma is None else f"{gamma:g}", start),
                *(number(row["error"]) for row in of),
                *(number(of[0]["seconds"]), f"{of[0]['iterations']:g}"),
            ]
        )
    first = rows[0]
    note = (
        f"{origin(rows)}. `benchmarks/soft_dtw/barycenter_study.py`: {first['series']} series of {first['N']} steps, means of {first['seeds']} seeds. Error: "
        "hard DTW between the barycenter and the template of the series, per time step. gamma is a multiple of the median cost of two series per step; "
        "seconds and iterations (at most 50) without outliers."
    )
    return f"{markdown(header, body)}\n\n{note}"


def elastic_table() -> str:
    """Elastic distances, beside aeon on a CPU."""
    rows = newest(tables.load("*/*-elastic.json"), "device", "metric", "B", "N", "D")
    rows.sort(key=lambda row: str(row["device"]))
    if not rows:
        return NOTHING
    header = [
        "device",
        "metric",
        "pairs × N² × D",
        "value, ms",
        "with gradients, ms",
        "MiB",
        "aeon, value, ms",
    ]
    body = [
        [
            *(row["device"], row["metric"], f"{row['B']} × {row['N']}² × {row['D']}"),
            *(
                "–" if row[key] is None else number(row[key])
                for key in ("forward_ms", "step_ms", "mib", "aeon_ms")
            ),
        ]
        for row in rows
    ]
    note = (
        f"{origin(rows)}. `benchmarks/soft_dtw/elastic.py`: float32, the metrics' default parameters; aeon 1.6 in float64. CPU: the time "
        "of one thread. MiB: the peak with gradients, above the series."
    )
    return f"{markdown(header, body)}\n\n{note}"


TABLES: dict[str, Callable[[], str]] = {
    "sampling": sampling_table,
    "linear-metric": linear_metric_table,
    "gamma-tasks": gamma_tasks_table,
    "gamma-training": gamma_training_table,
    "mixed-precision": mixed_precision_table,
    "half-types": half_types_table,
    "ddp": ddp_table,
    "few-pairs-in-a-band": few_pairs_in_a_band_table,
    "packed": packed_table,
    "barycenters": barycenters_table,
    "elastic": elastic_table,
}
