"""Trains the recogniser of examples/recognise_speech.py with every family and several seeds, and measures the models.

Rows `transducer_recogniser` are trainings: the same utterances in the same order, encoder and predictor from the same first
weights for a seed. Rows `transducer_recogniser_tuned` are trained RNN-T models that were trained on for a quarter of the steps
with a penalty, or without one; `--part tune` measures these alone. Error rates are percentages of held-out utterances; keys
without a kind are means of the three kinds.
`visited`: the nodes at which greedy search evaluates the joint network, for each frame and letter. `delay_ms`: the median
time from the end of a word to its last letter. Trainings share the GPU; what a step costs alone are the rows
`transducer_recogniser_step` and `..._loss` (cost.py), and decoding `..._decode` (decoding.py).

`python -m benchmarks.transducer.recogniser.study` writes benchmarks/results/<gpu>/<date>-<commit>-recogniser.json.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import torch

from benchmarks.harness.results import Row, add_arguments, device_name, result_path, stamp, write_rows
from benchmarks.transducer.recogniser.cost import measure_families, measure_losses
from benchmarks.transducer.recogniser.decoding import DECODED, measure_decoding
from benchmarks.transducer.recogniser.jobs import Setup, jobs, make_corpus, run_jobs
from recognise_speech_steps.model import FAMILIES

PARTS = ("train", "tune", "decode", "families", "losses")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--part", choices=PARTS, action="append", help="may be repeated (default: all)")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tones", action="store_true", help="tones in place of espeak-ng")
    parser.add_argument("--training", type=int, default=5000, help="utterances")
    parser.add_argument("--held-out", type=int, default=300, help="utterances of each of three kinds")
    parser.add_argument("--steps", type=int, default=700)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--learning-rate", type=float, default=4e-3)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--family", action="append", help="may be repeated (default: all)")
    parser.add_argument("--shapes", type=int, default=2, help="for the losses: 1 leaves out the larger one")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=600, help="limit of the trainings")
    parser.add_argument("--budget", type=float, default=0.3, help="seconds for each time of a part")
    add_arguments(parser)
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    parts = arguments.part or PARTS
    device = torch.device(arguments.device)
    path, commit = result_path(arguments, device_name(device), "-recogniser")
    torch.set_float32_matmul_precision("high")
    torch.set_num_threads(1)
    rows: list[Row] = []

    def add(row: Row) -> None:
        rows.append({"device": device_name(device), **row, **stamp(commit)})
        write_rows(rows, path)
        print(row, flush=True)

    with tempfile.TemporaryDirectory() as folder:
        setup = Setup(
            arguments.training,
            arguments.held_out,
            arguments.steps,
            arguments.batch,
            arguments.hidden,
            arguments.learning_rate,
            arguments.device,
            Path(folder),
            arguments.tones,
        )
        begin = time.monotonic()
        corpora = make_corpus(setup)
        print(f"corpus: {time.monotonic() - begin:.1f} s", flush=True)
        todo = [
            job
            for job in jobs(arguments.first_seed, arguments.seeds)
            if job.family in (arguments.family or FAMILIES)
        ]
        if "train" in parts or "tune" in parts:
            chosen = todo if "train" in parts else [job for job in todo if job[:2] == ("RNN-T", "soft")]
            for row in run_jobs(setup, chosen, arguments.processes, begin + arguments.seconds):
                if "train" in parts or row["op"].endswith("_tuned"):
                    add(row)
            print(f"trained: {time.monotonic() - begin:.1f} s", flush=True)
        measured = []
        if "decode" in parts:
            first = [job for job in todo if job.seed == arguments.first_seed and job[:2] in DECODED]
            measured.append(measure_decoding(setup, first, corpora[1], arguments.budget))
        if "families" in parts:
            kinds = list(dict.fromkeys(job[:2] for job in todo))
            measured.append(measure_families(setup, kinds, corpora[0], arguments.budget))
        if "losses" in parts:
            measured.append(measure_losses(setup, corpora[0], arguments.budget, arguments.shapes))
        for some in measured:
            for row in some:
                add(row)
            print(f"{time.monotonic() - begin:.1f} s", flush=True)
    print(path)


if __name__ == "__main__":
    main()
