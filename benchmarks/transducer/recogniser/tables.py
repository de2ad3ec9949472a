"""Tables and plots of the recogniser's study: errors, what training costs, decoding, emission delay."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import mean

from benchmarks.harness import tables
from benchmarks.harness.results import Row
from benchmarks.harness.tables import NOTHING, markdown, newest, number, origin

FILES = "nvidia-*/*-recogniser*.json"
KINDS = ("heard_voices", "other_voices", "more_noise")
MAIN = ("RNN-T", "multi-blank 2", "multi-blank 2 4", "multi-blank 2 4 8", "TDT 0 to 4", "pruned")
LOSSES = {
    "joint": "joint network, logits never in memory",
    "pruned": "joint network, pruned",
    "materialised": "logits in memory, warpalign",
    "torchaudio": "logits in memory, torchaudio",
}


def rows_of(op: str, *keys: str) -> list[Row]:
    """The newest rows of the study."""
    return newest([row for row in tables.load(FILES) if row["op"] == op], *keys)


def trainings(op: str = "transducer_recogniser") -> dict[tuple[str, str], list[Row]]:
    """The rows of all seeds by family and gates, families in the order of the study."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows_of(op, "family", "activation", "seed"):
        found.setdefault((row["family"], row["activation"]), []).append(row)
    return {key: found[key] for key in sorted(found, key=_place)}


def _place(key: tuple[str, str]) -> tuple[int, str, bool]:
    """The order of the tables: families as in the study, soft gates first."""
    family, activation = key
    return MAIN.index(family) if family in MAIN else len(MAIN), family, activation != "soft"


def _in_order(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: _place((row["family"], row["activation"])))


def over_seeds(rows: list[Row], key: str, digits: int = 2) -> str:
    """The mean, and in brackets the least and the most."""
    values = [row[key] for row in rows if row.get(key) is not None]
    if not values:
        return "–"
    if max(map(abs, values)) >= 100:
        return f"{mean(values):.0f} ({min(values):.0f} to {max(values):.0f})"
    return f"{number(mean(values), digits)} ({number(min(values), digits)} to {number(max(values), digits)})"


def seeds_of(found: dict[tuple[str, str], list[Row]]) -> str:
    counts = sorted({len(rows) for rows in found.values()})
    return f"{counts[0]} seeds" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} seeds"


def _flat(found: dict[tuple[str, str], list[Row]]) -> list[Row]:
    return [row for rows in found.values() for row in rows]


def errors_table() -> str:
    """Letter errors of the families."""
    found = trainings()
    if not found:
        return NOTHING
    header = ["transducer", "gates", "heard voices, %", "other voices, %", "more noise, %"]
    header += ["heard voices, beam of 4, %", "more noise, beam of 4, %", "nodes visited, %"]
    body = [
        [
            *key,
            *(over_seeds(rows, f"letters_{kind}") for kind in KINDS),
            over_seeds(rows, "beam_letters_heard_voices"),
            over_seeds(rows, "beam_letters_more_noise"),
            over_seeds(rows, "visited"),
        ]
        for key, rows in found.items()
    ]
    note = (
        f"Letter errors of held-out utterances, mean, least and most of {seeds_of(found)}. Nodes visited: joint networks that greedy "
        "search evaluates, for each frame and letter."
    )
    return f"{markdown(header, body)}\n\n{origin(_flat(found))}. {note}"


def delays_table() -> str:
    """Emission delay against errors."""
    found = trainings("transducer_recogniser_tuned")
    if not found:
        return NOTHING
    header = ["RNN-T with", "delay, ms", "heard voices, %", "other voices, %", "more noise, %"]
    body = [
        [
            "no penalty" if family == "RNN-T" else family,
            over_seeds(rows, "delay_ms"),
            *(over_seeds(rows, f"letters_{kind}") for kind in KINDS),
        ]
        for (family, _), rows in found.items()
    ]
    note = (
        f"{seeds_of(found)}. Delay: median from the end of a word to the end of the frame at which greedy search emits its last "
        "letter, in utterances without error; the voice's word ends include the decay of the last sound."
    )
    return f"{markdown(header, body)}\n\n{origin(_flat(found))}. {note}"


def loss_rows() -> list[Row]:
    """Steps by loss, of the shapes that were measured with torchaudio's too."""
    rows = rows_of("transducer_recogniser_loss", "shape", "dtype", "loss")
    shapes = {row["shape"] for row in rows if row["loss"] == "torchaudio"}
    return [row for row in rows if row["shape"] in shapes]


def losses_table() -> str:
    """Time, memory and the largest batch of a step, by loss."""
    rows = loss_rows()
    if not rows:
        return NOTHING
    header = ["utterances", "dtype", "loss", "batch", "step, ms", "utterances per second", "MiB"]
    header.append("largest batch in 10 GiB")
    body = [
        [
            row["shape"],
            row["dtype"],
            LOSSES[row["loss"]],
            *(
                number(row[key], 4)
                for key in ("batch", "step_ms", "utterances_per_s", "mib", "largest_batch")
            ),
        ]
        for row in rows
    ]
    note = (
        "A step of the whole recogniser with RNN-T: forward and backward pass, eager, alone on the GPU. MiB: the peak of the "
        "allocator above weights and inputs. Both losses of logits in memory have the same joint network in torch."
    )
    return f"{markdown(header, body)}\n\n{origin(rows)}. {note}"


def steps_table() -> str:
    """A training step of each family."""
    rows = _in_order(rows_of("transducer_recogniser_step", "family", "activation"))
    rows = [row for row in rows if row["family"] in MAIN]
    if not rows:
        return NOTHING
    header = ["transducer", "gates", "step, ms", "utterances per second", "MiB"]
    body = [
        [
            row["family"],
            row["activation"],
            *(number(row[key]) for key in ("step_ms", "utterances_per_s", "mib")),
        ]
        for row in rows
    ]
    size = (
        f"{rows[0]['batch']} utterances of {rows[0]['frames']} frames and {rows[0]['labels']} letters at most"
    )
    return f"{markdown(header, body)}\n\n{origin(rows)}. A step of {size}, float32, eager, alone on the GPU."


def decoding_table() -> str:
    """Times of decoding with the trained models."""
    rows = _in_order(rows_of("transducer_recogniser_decode", "family", "activation"))
    if not rows:
        return NOTHING
    header = ["transducer", "gates", "encoder, ms", "greedy, ms", "in a graph", "beam of 4, ms", "in a graph"]
    header += ["loop, ms", "errors, greedy and beam, %", "CPU: greedy, ms", "CPU: beam, ms", "CPU: loop, ms"]
    times = ("encoder_ms", "greedy_ms", "greedy_graph_ms", "beam_ms", "beam_graph_ms", "loop_ms")
    of_cpu = ("greedy_cpu_ms", "beam_cpu_ms", "loop_cpu_ms")
    body = [
        [
            row["family"],
            row["activation"],
            *(number(row[key]) for key in times),
            f"{number(row['greedy_errors'], 2)}, {number(row['beam_errors'], 2)}",
            *(number(row[key]) for key in of_cpu),
        ]
        for row in rows
    ]
    note = (
        f"{rows[0]['batch']} utterances in a batch on the GPU; CPU: one thread of the same machine, an utterance alone. Loop: greedy "
        "search in torch that goes from node to node. Errors: letters of the batch, heard voices. Eager times vary by a third."
    )
    longest = {row["steps"]: row["family"] for row in rows}
    if len(longest) > 1:
        note += f" {longest[max(longest)]}: a model of {max(longest)} steps without the blank's first bias."
    return f"{markdown(header, body)}\n\n{origin(rows)}. {note}"


def _memory() -> list[list[str]]:
    rows, found = loss_rows(), []
    for shape in dict.fromkeys(row["shape"] for row in rows):
        of = {(row["loss"], row["dtype"]): row for row in rows if row["shape"] == shape}
        ours, peer = of["joint", "float32"], of["torchaudio", "float32"]
        share, larger = ours["mib"] / peer["mib"], ours["largest_batch"] / peer["largest_batch"]
        found += [
            [
                f"memory of a training step, {shape}",
                f"{number(100 * share)} % of that with torchaudio's loss",
            ],
            [f"largest batch in 10 GiB, {shape}", f"{number(larger)} times that with torchaudio's loss"],
        ]
    return found


def _speed() -> list[list[str]]:
    rows = rows_of("transducer_recogniser_decode", "family", "activation")
    of = {row["family"]: row for row in rows if row["activation"] == "soft"}
    plain, big = of["RNN-T"], of["multi-blank 2 4 8"]
    searches = {
        "greedy search of a batch on a GPU, in a graph": "greedy_graph_ms",
        "beam search of a batch on a GPU, in a graph": "beam_graph_ms",
        "a loop over nodes on a GPU": "loop_ms",
        "greedy search on a CPU": "greedy_cpu_ms",
        "beam search on a CPU": "beam_cpu_ms",
    }
    return [
        [f"speed with big blanks, {name}", f"{number(plain[key] / big[key])} times that of RNN-T"]
        for name, key in searches.items()
    ]


def _hard_gates() -> list[list[str]]:
    found, letters = trainings(), "letters_other_voices"
    return [
        [
            f"letter errors with hard gates, other voices, {family}",
            f"{over_seeds(found[family, 'hard'], letters)} %, with soft gates {over_seeds(found[family, 'soft'], letters)} %",
        ]
        for family in dict.fromkeys(family for family, activation in found if activation == "hard")
    ]


def summary_table() -> str:
    """What the other tables say of memory, big blanks and hard gates."""
    if not trainings() or not loss_rows():
        return NOTHING
    return markdown(["quantity", "measured"], [*_memory(), *_speed(), *_hard_gates()])


TABLES: dict[str, Callable[[], str]] = {
    "recogniser-summary": summary_table,
    "recogniser-errors": errors_table,
    "recogniser-delays": delays_table,
    "recogniser-losses": losses_table,
    "recogniser-steps": steps_table,
    "recogniser-decoding": decoding_table,
}


def draw(folder: Path) -> list[Path]:
    """Errors and nodes visited, with soft and hard gates."""
    found = trainings()
    if not found:
        return []
    from benchmarks.transducer.recogniser.plots import errors

    return [errors(folder / "recogniser_errors.png", found)]
