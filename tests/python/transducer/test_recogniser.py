"""The parts of examples/recognise_speech.py, and the study that measures it."""

import json
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.transducer.recogniser import jobs, tables
from tests.python.helpers import run_python

sys.path.append(str(Path(__file__).resolve().parents[3] / "examples"))

from recognise_speech_steps import corpus
from recognise_speech_steps.model import FAMILIES, Recogniser
from recognise_speech_steps.train import batch_of, edits, order, recognise, score

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def spoken() -> list[corpus.Corpus]:
    return corpus.make(corpus.FEW_WORDS, 12, 4, 0, CPU, tones=True)


@pytest.mark.parametrize("activation", ["soft", "hard"])
@pytest.mark.parametrize("family", ["RNN-T", "multi-blank 2 4 8", "TDT 0 to 4"])
def test_loop_finds_what_greedy_search_finds(
    family: str, activation: str, spoken: list[corpus.Corpus]
) -> None:
    torch.manual_seed(3)
    model = Recogniser(FAMILIES[family], activation, 24)
    with torch.no_grad():
        # So that labels, blanks and durations take turns.
        model.transducer.weight.mul_(6)
        assert model.transducer.bias is not None
        model.transducer.bias.zero_()
    batch = batch_of(spoken[0], torch.arange(12))
    letters, visited = model.walk(model.encode(batch.frames), batch.lengths)
    assert letters == recognise(model, spoken[0]).tokens
    assert sum(map(len, letters)) > 0
    if family == "RNN-T":
        # A frame ends with a blank, or after ten letters without one.
        assert bool((visited >= batch.lengths).all())
    else:
        assert bool((visited > 0).all())


def test_losses_of_families_fall(spoken: list[corpus.Corpus]) -> None:
    batch = batch_of(spoken[0], torch.arange(12))
    for family in FAMILIES.values():
        torch.manual_seed(0)
        model = Recogniser(family, "hard", 24)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
        losses = []
        for _ in range(12):
            loss = model.loss(*batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[-1] < 0.8 * losses[0], family.name


def test_seeds_give_families_and_gates_the_same_encoder() -> None:
    encoders = []
    for family in ("RNN-T", "TDT 0 to 4", "pruned"):
        for activation in ("soft", "hard"):
            torch.manual_seed(5)
            encoders.append(list(Recogniser(FAMILIES[family], activation, 16).encoder.parameters()))
    for other in encoders[1:]:
        assert all(torch.equal(a, b) for a, b in zip(encoders[0], other, strict=True))


def test_held_out_sentences_are_others(spoken: list[corpus.Corpus]) -> None:
    texts = [{tuple(word for word, _ in one) for one in part.words} for part in spoken]
    assert all(len(part.words) == count for part, count in zip(spoken, (12, 4, 4, 4), strict=True))
    assert not any(texts[0] & other for other in texts[1:])
    for part in spoken:
        assert bool(part.frames.isfinite().all())
        beyond = torch.arange(part.frames.shape[1]) >= part.lengths[:, None]
        assert not bool(part.frames[beyond].any())
        assert int(part.lengths.max()) == part.frames.shape[1]


def test_every_process_count_gives_the_same_speech() -> None:
    one, two = (corpus.make(corpus.FEW_WORDS, 3, 1, 0, CPU, processes, tones=True) for processes in (1, 2))
    assert all(torch.equal(a.frames, b.frames) and a.words == b.words for a, b in zip(one, two, strict=True))


def test_batches_hold_every_utterance_once(spoken: list[corpus.Corpus]) -> None:
    first = [next_ for next_, _ in zip(order(spoken[0], 5, 1), range(3), strict=False)]
    assert sorted(torch.cat(first).tolist()) == list(range(12))
    again = [next_ for next_, _ in zip(order(spoken[0], 5, 1), range(3), strict=False)]
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def test_errors_and_delays(spoken: list[corpus.Corpus]) -> None:
    assert edits([1, 2, 3], [1, 3]) == 1 and edits([], [4, 4]) == 2 and edits([1], [2]) == 1
    data = spoken[1]
    said = [row[:count] for row, count in zip(data.targets.tolist(), data.counts.tolist(), strict=True)]
    ends = [[0] * len(row) for row in said]
    for k, words in enumerate(data.words):
        last = -1
        for word, end in words:
            last += len(word)
            ends[k][last] = (
                round(end / corpus.FRAME) + 2
            )  # so that the frame ends three frames after the word
            last += 1
    found = score(data, said, ends)
    assert found.letter_errors == found.word_errors == 0
    assert found.delay_ms == pytest.approx(3e3 * corpus.FRAME, abs=0.5e3 * corpus.FRAME)
    wrong = score(data, [[], *said[1:]], ends)
    assert wrong.letter_errors == pytest.approx(len(said[0]) / sum(map(len, said)))


def test_study_on_a_cpu(tmp_path: Path) -> None:
    """Every part on a tiny model; the rows have what the tables show."""
    options = [
        "--device",
        "cpu",
        "--tones",
        "--training",
        "8",
        "--held-out",
        "2",
        "--steps",
        "2",
        "--batch",
        "4",
    ]
    options += ["--hidden", "8", "--seeds", "1", "--processes", "1", "--budget", "0.001", "--shapes", "1"]
    options += ["--family", "RNN-T", "--commit", "test", "--out", str(tmp_path)]
    done = run_python(
        "-m", "benchmarks.transducer.recogniser.study", *options, limit_s=600, OMP_NUM_THREADS="1"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = tmp_path.glob("*/*-test-recogniser.json")
    rows = json.loads(path.read_text())
    trained = [row for row in rows if row["op"] == "transducer_recogniser"]
    assert [(row["family"], row["activation"], row["seed"]) for row in trained] == [
        ("RNN-T", "soft", 0),
        ("RNN-T", "hard", 0),
    ]
    tuned = [row for row in rows if row["op"] == "transducer_recogniser_tuned"]
    assert [row["family"] for row in tuned] == list(jobs.TUNED)
    for row in [*trained, *tuned]:
        assert {f"letters_{kind}" for kind in tables.KINDS} | {"visited", "delay_ms"} <= row.keys()
        assert all(row[f"agree_{kind}"] == 1 for kind in tables.KINDS)
    (timed, _) = [row for row in rows if row["op"] == "transducer_recogniser_decode"]
    assert min(timed[key] for key in ("greedy_ms", "beam_ms", "loop_ms", "greedy_cpu_ms")) > 0
    steps = [row for row in rows if row["op"] == "transducer_recogniser_step"]
    assert [row["activation"] for row in steps] == ["soft", "hard"]
    losses = {(row["loss"], row["dtype"]) for row in rows if row["op"] == "transducer_recogniser_loss"}
    assert {("joint", "float32"), ("pruned", "bfloat16"), ("materialised", "float32")} <= losses
