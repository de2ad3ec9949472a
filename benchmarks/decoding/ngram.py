"""What n-grams and boosted phrases add to a step of decoding, and to whole searches.

Rows `ngram_step`: one step for N hypotheses, which reads a label each and returns the scores of all V, by a trigram model
of some 100 000 n-grams of random text with Zipf's frequencies, or by 1000 phrases. `plain_*`: the same table read as one
writes it first, a search among the sorted n-grams for every label and every level; both return the same scores.
`dense_mib`: complete rows; `dense` 0: those of the root alone. Rows `fused_decode`: transducer_beam_decode (beam 4),
transducer_greedy_decode and ctc_beam_decode (beam 8) without a language model and with the trigrams, and with an
LSTM language model of 512 units.

`python -m benchmarks.decoding.ngram` writes benchmarks/results/<device>/<date>-<commit>-ngram.json.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.harness.results import (
    Row,
    add_arguments,
    device_name,
    result_path,
    rounded,
    stamp,
    write_rows,
)
from benchmarks.harness.timing import eager_ms, graph_ms, least_thread_s, of_three_ms
from benchmarks.transducer.decode import DecodeProblem
from benchmarks.transducer.sizes import Size
from warpalign import (
    LSTMPredictor,
    NGramLanguageModel,
    PhraseBoost,
    ctc_beam_decode,
    transducer_beam_decode,
    transducer_greedy_decode,
)
from warpalign._decoding.table import LabelTable

COUNT = 100_000
"""n-grams of two and three words."""
WEIGHT = 0.3


def write_trigrams(path: Path, vocabulary: int, seed: int = 0) -> int:
    """A file of random n-grams over the words "1", "2", ..., and how many it has."""
    generator = torch.Generator().manual_seed(seed)
    often = 1 / torch.arange(1, vocabulary).double()
    text = 1 + torch.multinomial(often, 3 * COUNT, replacement=True, generator=generator)
    pairs = torch.stack([text[:-1], text[1:]], 1).unique(dim=0)
    pairs = pairs[torch.randperm(len(pairs), generator=generator)[: 2 * COUNT // 5]]
    known = set(map(tuple, pairs.tolist()))
    triples = torch.stack([text[:-2], text[1:-1], text[2:]], 1).unique(dim=0).tolist()
    triples = [t for t in triples if (t[0], t[1]) in known][: COUNT - len(known)]
    lines = ["\\data\\", f"ngram 1={vocabulary + 2}", f"ngram 2={len(known)}", f"ngram 3={len(triples)}"]
    lines += ["\\1-grams:", "-99 <s> -0.3", "-2 </s>", "-4 <unk>"]
    lines += [f"-{2 + k % 7 / 3:.3f} {k} -0.{1 + k % 8}" for k in range(1, vocabulary)]
    lines += ["\\2-grams:", *(f"-0.{1 + (a + b) % 9} {a} {b} -0.{1 + b % 9}" for a, b in sorted(known))]
    lines += ["\\3-grams:", *(f"-0.{1 + (a + c) % 9} {a} {b} {c}" for a, b, c in triples), "\\end\\"]
    path.write_text("\n".join(lines))
    return len(known) + len(triples)


def trigrams(vocabulary: int, dense_limit: int) -> tuple[NGramLanguageModel, int]:
    """Label k is the word k; the last one is the blank."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.arpa"
        count = write_trigrams(file, vocabulary)
        tokens = [str(k) for k in range(vocabulary)]
        return NGramLanguageModel(file, tokens, blank=vocabulary - 1, dense_limit=dense_limit), count


def phrases(vocabulary: int, dense_limit: int) -> tuple[PhraseBoost, int]:
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randint(1, vocabulary - 1, (1000, 6), generator=generator).tolist()
    return PhraseBoost(
        [row[: 2 + k % 5] for k, row in enumerate(drawn)], vocabulary, dense_limit=dense_limit
    ), 1000


def plain_step(model: LabelTable, tokens: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """A search for every label on every level of the chain."""
    after = model.target[_last(model, state, tokens[:, None])[0].squeeze(1)]
    labels = torch.arange(model.labels, device=state.device)
    arc, level = _last(model, after, labels.expand(len(state), -1))
    return model.score_of_arc[arc] + model.offset[after].gather(1, level), after


def _last(model: LabelTable, state: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """(N, L) arcs of labels (N, L), and their levels."""
    wanted = model.first_keys[state][:, None] + labels[..., None]
    arc = torch.searchsorted(model.keys, wanted)
    arc, level = torch.where(model.keys[arc] == wanted, arc, -1).max(2)
    return arc, level


def step_rows(
    kind: str, vocabulary: int, dense: bool, device: torch.device, budget_s: float
) -> Iterator[Row]:
    """For two numbers of hypotheses."""
    make = trigrams if kind == "trigrams" else phrases
    model, entries = make(vocabulary, 2**28 if dense else 0)
    own: Row = {"op": "ngram_step", "kind": kind, "V": vocabulary, "dense": int(dense), "entries": entries}
    for rows in (16, 128):
        yield own | {"N": rows} | step_columns(model.to(device), rows, device, budget_s)


def step_columns(model: LabelTable, rows: int, device: torch.device, budget_s: float) -> Row:
    """What is measured of one step for so many hypotheses."""
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, model.labels - 1, (rows,), generator=generator).to(device)
    state = model.initial_state(rows)
    for _ in range(3):  # states of contexts that the model has
        state = model.step(torch.randint(1, 40, (rows,), generator=generator).to(device), state)[1]

    def step() -> Any:
        return model.step(tokens, state)

    def plain() -> Any:
        return plain_step(model, tokens, state)

    row: Row = {
        "states": len(model.base),
        "dense_mib": rounded(model.rows.numel() * 4 / 2**20),
        "table_mib": rounded(sum(b.numel() * b.element_size() for b in model.buffers()) / 2**20),
        "equal": bool(torch.allclose(step()[0], plain()[0], rtol=0, atol=1e-5)),
    }
    for name, run in (("step", step), ("plain_step", plain)):
        row |= times(name, run, device, budget_s)
    return row


def times(name: str, run: Callable[[], Any], device: torch.device, budget_s: float) -> Row:
    if device.type == "cpu":
        return {f"{name}_ms": rounded(1e3 * least_thread_s(run, 5))}
    eager, graph = eager_ms(run, device, budget_s), graph_ms(run, device, budget_s)
    return {f"{name}_ms": rounded(eager), f"graph_{name}_ms": rounded(graph)}


class Network(torch.nn.Module):
    """An LSTM language model."""

    batch_axis = 1

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.predictor = LSTMPredictor(vocabulary, 256, 512)
        self.output = torch.nn.Linear(512, vocabulary)

    def initial_state(self, batch: int) -> Any:
        return self.predictor.initial_state(batch)

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        rows, state = self.predictor.step(tokens, state)
        return self.output(rows).log_softmax(-1), state


def decode_rows(size: Size, device: torch.device) -> list[Row]:
    problem = DecodeProblem(size, device)
    models = {
        "none": None,
        "trigrams": trigrams(size.V, 2**28)[0].to(device),
        "lstm": Network(size.V).to(device),
    }
    logits = torch.randn(size.B, size.T, size.V, generator=torch.Generator().manual_seed(2)).to(device)
    logits[..., -1] += 6  # most frames are blanks
    given: Any = (problem.encoder, None, problem.predictor, problem.joint)
    found = []
    for name, model in models.items():
        fused: dict[str, Any] = {} if model is None else {"language_model": model, "lm_weight": WEIGHT}
        for graph in (False, True) if device.type == "cuda" else (False,):
            options: Any = fused | {"cuda_graph": graph}
            searches: dict[str, Callable[[], Any]] = {
                "beam": partial(transducer_beam_decode, *given, beam=4, score_norm=False, **options),
                "greedy": partial(transducer_greedy_decode, *given, **options),
            }
            row: Row = {"op": "fused_decode", "model": name, "cuda_graph": int(graph), **size._asdict()}
            for what, search in searches.items():
                row |= {f"{what}_ms": rounded(_ms(search, device))}
            if not graph:
                ctc = partial(ctc_beam_decode, logits, beam=8, blank=-1, **fused)
                row["ctc_ms"] = rounded(_ms(ctc, device))
            found.append(row)
    return found


def _ms(search: Callable[[], Any], device: torch.device) -> float:
    """The median of three searches after one, on a CPU the least time of two."""
    if device.type == "cpu":
        return 1e3 * least_thread_s(search, 2)
    return of_three_ms(search, device)


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--budget", type=float, default=0.2, help="seconds for each time")
    parser.add_argument("--searches", action="store_true", help="whole searches, too")
    add_arguments(parser)
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    if device.type == "cpu":
        torch.set_num_threads(1)
    path, commit = result_path(arguments, device_name(device), "-ngram")
    rows: list[Row] = []

    def keep(row: Row) -> None:
        rows.append({"device": device_name(device), **row, **stamp(commit)})
        write_rows(rows, path)
        print(row, flush=True)

    for kind in ("trigrams", "phrases"):
        for vocabulary in (1024, 5000):
            for dense in (True, False):
                for row in step_rows(kind, vocabulary, dense, device, arguments.budget):
                    keep(row)
    if arguments.searches:
        for size in (Size(16, 400, 100, 1024, H=640), Size(1, 400, 100, 1024, H=640)):
            for row in decode_rows(size, device):
                keep(row)
    print(path)


if __name__ == "__main__":
    main()
