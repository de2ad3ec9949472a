#!/usr/bin/env python3
"""warpalign at work on real series: distances, barycenters, alignments, a forecaster; tables and plots.

Runs on the GPU where there is one. Data: see demo_steps/data.py; nothing is downloaded.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from pathlib import Path

import torch
from torch import nn

import warpalign
from command_line import choose_device, parse_arguments
from demo_steps import compare, data, plots
from demo_steps.barycenter import Barycenter, barycenter
from demo_steps.forecast import Forecaster, split, train_forecaster
from demo_steps.pairwise import classify, closest_windows
from demo_steps.recurrent import Trained, train_kinds

GAMMA = 0.1  # the series are z-normalised: at gamma 1 the many possible alignments would outweigh the costs
EEG_WINDOW, EEG_HOP = 80, 4  # samples: one second, every twentieth of a second
SEED = 0


def device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU, {torch.get_num_threads()} threads"


def draw_alignments(trace: data.Trace, device: torch.device, out: Path) -> None:
    """The two least synchronous Trace series of a class, and the two most similar seconds of the EEG."""
    label = trace.classes[1]
    members = trace.train[trace.train_class == label]
    apart = torch.cdist(members.flatten(1), members.flatten(1))
    x, y = (members[index] for index in divmod(int(apart.argmax()), len(members)))
    alignment = warpalign.soft_dtw_alignment(x, y, gamma=GAMMA)[1]
    plots.plot_alignment(
        x,
        y,
        alignment,
        rate_hz=None,
        names=("series 1", "series 2"),
        title=f"Two Trace series of class {label}, gamma = {GAMMA:g}",
        path=out / "alignment_trace.png",
    )
    pieces = data.windows(data.load_eeg(device), EEG_WINDOW, EEG_HOP)
    first, second = closest_windows(pieces, GAMMA, apart=EEG_WINDOW // EEG_HOP)
    alignment = warpalign.soft_dtw_alignment(pieces[first], pieces[second], gamma=GAMMA)[1]
    at = [index * EEG_HOP / data.EEG_RATE_HZ for index in (first, second)]
    plots.plot_alignment(
        pieces[first],
        pieces[second],
        alignment,
        rate_hz=data.EEG_RATE_HZ,
        names=(f"from {at[0]:.2f} s", f"from {at[1]:.2f} s"),
        title=f"The two most similar seconds of a {len(data.EEG_CHANNELS)}-channel EEG",
        path=out / "alignment_eeg.png",
    )


def train_twins(trace: data.Trace, epochs: int) -> tuple[Forecaster, Forecaster]:
    """The same network from the same start, with the mean squared error and with soft-DTW as its loss."""
    losses: list[tuple[str, nn.Module]] = [
        ("MSE", nn.MSELoss()),
        ("soft-DTW", warpalign.SoftDTW(gamma=GAMMA, reduction="mean")),
    ]
    first, second = (
        train_forecaster(name, loss, trace.train, trace.test, GAMMA, epochs, SEED) for name, loss in losses
    )
    return first, second


def print_table(title: str, header: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """First column to the left, the others to the right."""
    widths = [max(len(cells[i]) for cells in [header, *rows]) for i in range(len(header))]
    print(f"\n{title}")
    for cells in [header, tuple("-" * width for width in widths), *rows]:
        first, *rest = (cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
        print("  " + "  ".join([cells[0].ljust(widths[0]), *rest]))


def print_results(
    accuracies: tuple[float, float],
    centers: dict[int, Barycenter],
    twins: tuple[Forecaster, Forecaster],
    kinds: list[Trained],
    comparisons: list[compare.Comparison],
) -> None:
    print_table(
        "Nearest-neighbour classification of Trace",
        ("distance", "accuracy"),
        [("Euclidean", f"{accuracies[0]:.1%}"), ("soft-DTW", f"{accuracies[1]:.1%}")],
    )
    print_table(
        "Class barycenters (mean soft-DTW to the class)",
        ("class", "Euclidean mean", "barycenter", "evaluations"),
        [
            (str(label), f"{c.loss_of_mean:.2f}", f"{c.loss:.2f}", str(c.evaluations))
            for label, c in centers.items()
        ],
    )
    print_table(
        "Forecaster, on held-out series (before -> after training)",
        ("trained with", "DTW", "soft-DTW", "MSE", "ms per step"),
        [
            (
                twin.name,
                f"{twin.before.dtw:.1f} -> {twin.after.dtw:.2f}",
                f"{twin.before.soft_dtw:.1f} -> {twin.after.soft_dtw:.1f}",
                f"{twin.before.mse:.3f} -> {twin.after.mse:.3f}",
                f"{twin.step_ms:.2f}",
            )
            for twin in twins
        ],
    )
    seeds, steps = kinds[0].losses.shape
    first = min(50, steps)
    print_table(
        f"Recurrent forecaster, trained with soft-DTW for {steps} steps; starts: {seeds}",
        ("layer", "DTW, held out", "ms per step", f"loss curve from torch's, {first} steps"),
        [
            (
                kind.name,
                kind.score,
                f"{kind.step_ms:.1f}",
                f"{(kind.losses - kinds[0].losses)[:, :first].abs().max().item():.1e}",
            )
            for kind in kinds
        ],
    )
    print_table(
        "Next to tslearn (Numba, same CPU, all threads, warmed up)",
        ("job", "warpalign", "tslearn", "ratio"),
        [
            (
                c.job,
                f"{c.ours_ms:.1f} ms",
                f"{c.tslearn_ms:.1f} ms",
                f"{c.ratio:.1f} x",
            )
            for c in comparisons
        ],
    )


def run(arguments: argparse.Namespace) -> None:
    start = time.perf_counter()
    device, out, quick = choose_device(arguments.device), arguments.out, arguments.quick
    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(SEED)
    trace = data.load_trace(device, per_class=6 if quick else None)
    print(f"warpalign {warpalign.__version__}, torch {torch.__version__}, {device_name(device)}")
    counts = f"{len(trace.train)} training and {len(trace.test)} test series"
    print(f"Trace: {counts} of {trace.train.shape[1]} samples")

    result = classify(trace.train, trace.train_class, trace.test, trace.test_class, GAMMA)
    plots.plot_pairwise(result, trace.train_class, trace.test_class, GAMMA, out / "pairwise.png")

    labels = trace.classes[:1] if quick else trace.classes
    centers = {
        label: barycenter(
            trace.train[trace.train_class == label], GAMMA, 4 if quick else 20, f"barycenter, class {label}"
        )
        for label in labels
    }
    plots.plot_barycenters(trace.train, trace.train_class, centers, GAMMA, out / "barycenters.png")

    draw_alignments(trace, device, out)

    twins = train_twins(trace, epochs=20 if quick else 300)
    seen = split(trace.test)[0].shape[1]
    plots.plot_forecast(trace.test, trace.test_class, twins, seen, out / "forecast.png")

    kinds = train_kinds(trace.train, trace.test, GAMMA, 5 if quick else 250, 1 if quick else 5)

    count = 6 if quick else 20
    pairs = min(len(trace.train), len(trace.test), 12 if quick else 100)
    comparisons = [
        compare.compare_pairwise(trace.test[:count], trace.train[:count], GAMMA),
        compare.compare_gradient(trace.test[:pairs], trace.train[:pairs], GAMMA),
    ]
    print_results((result.euclidean_accuracy, result.accuracy), centers, twins, kinds, comparisons)
    print(f"\nPlots in {out}/, {time.perf_counter() - start:.0f} s in all on {device_name(device)}.")


def main() -> int:
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    try:
        run(parse_arguments(__doc__, quick="fewer series and steps"))
    except (OSError, RuntimeError, ValueError, ModuleNotFoundError) as error:
        print(f"demo: {str(error).splitlines()[0]}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
