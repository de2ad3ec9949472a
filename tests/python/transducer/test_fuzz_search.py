"""Random alignments against the enumeration of all paths, and random searches against their definition."""

from __future__ import annotations

import math
import random

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from tests.python.fuzz import fuzz, share
from tests.python.transducer import decoding_reference, reference
from tests.python.transducer.cases import every_family_and_penalty, labels_for, logits_for
from tests.python.transducer.decoding_reference import Family, model
from tests.python.transducer.test_align import align, posteriors_of
from tests.python.transducer.test_beam import labels_of, search
from tests.python.transducer.test_fuzz import laid_out
from tests.python.transducer.test_greedy import assert_found, decode, on

CASES = every_family_and_penalty()
SEEDS = st.tuples(st.integers(0, 2**31 - 1))


def lengths_for(draw: random.Random, batch: int, most: int) -> list[int]:
    return [draw.randint(0, most) for _ in range(batch)]


def test_random_alignments(device: torch.device) -> None:
    fuzz(lambda seed: check_alignment(seed, device), SEEDS, share(2, weight=40, device=device))


def check_alignment(seed: int, device: torch.device) -> None:
    draw = random.Random(seed)
    name = draw.choice(sorted(CASES))
    options = CASES[name]
    torch.manual_seed(seed)
    batch, frames, states = draw.randint(1, 3), draw.randint(1, 4), draw.randint(1, 3)
    dtype, epsilon = draw.choice(((torch.float64, 1e-12), (torch.float32, 2e-5)))
    x, z = (None if s is None else s.to(dtype) for s in logits_for(options, batch, frames, states))
    assert x is not None
    if draw.random() < 0.3:
        x[tuple(draw.randrange(size) for size in x.shape)] = -math.inf
    y = labels_for(options, batch, states - 1)
    t, u = lengths_for(draw, batch, frames), lengths_for(draw, batch, states - 1)
    how = draw.choice(("contiguous", "transposed", "columns"))
    given = [None if s is None else laid_out(s.to(device), how) for s in (x, z)]
    assert given[0] is not None
    lengths = (torch.tensor(n, device=device) for n in (t, u))
    found = align(given[0], given[1], y.to(device), options, *lengths, posteriors=True)
    got = posteriors_of(found)
    for b in range(batch):
        where = f"{name}, seed {seed}, utterance {b}"
        if t[b] == 0:
            assert float(found.score[b]) == -math.inf, where
            continue
        wide = [None if s is None else s[b, : t[b], : u[b] + 1].double() for s in (x, z)]
        assert wide[0] is not None
        wanted = reference.all_paths(wide[0], y[b, : u[b]].tolist(), options, wide[1])
        assert float(found.score[b]) == pytest.approx(wanted.best, abs=epsilon, rel=epsilon), where
        blank, label = got.blank[b].cpu().double(), got.label[b].cpu().double()
        torch.testing.assert_close(blank[: t[b], : u[b] + 1], wanted.blank, rtol=0, atol=epsilon)
        torch.testing.assert_close(label[: t[b], : u[b]], wanted.label, rtol=0, atol=epsilon)
        assert not blank[t[b] :].any() and not blank[:, u[b] + 1 :].any(), where


def test_random_searches(device: torch.device) -> None:
    fuzz(lambda seed: check_search(seed, device), SEEDS, share(2, weight=40, device=device))


def check_search(seed: int, device: torch.device) -> None:
    draw = random.Random(seed)
    family = Family(draw.randint(1, 9), max_symbols=draw.randint(1, 4))
    kind = draw.randrange(3)
    if kind == 1:
        family = family._replace(big_blanks=tuple(draw.sample(range(2, 9), draw.randint(1, 3))))
    elif kind == 2:
        family = family._replace(durations=tuple(draw.sample(range(5), 3)))
    hidden, frames, batch = draw.randint(1, 40), draw.randint(1, 8), draw.randint(1, 3)
    parts = model(family, hidden, activation=draw.choice(("relu", "tanh")), seed=seed % 1000, blank=0.5)
    torch.manual_seed(seed)
    encoder = torch.randn(batch, frames, hidden)
    lengths = lengths_for(draw, batch, frames)
    for b, length in enumerate(lengths):
        encoder[b, length:] = math.nan  # padding is never read
    on_device = on(device, parts)
    given: Tensor = encoder.to(device)
    if draw.random() < 0.5:
        given = given.transpose(0, 1).contiguous().transpose(0, 1)
    limits = torch.tensor(lengths, device=device)
    greedy = decode(given, limits, on_device, family)
    beam = draw.randint(1, 6)
    (best,) = search(
        given.double(),
        limits,
        (on_device[0].double(), on_device[1]),
        family,
        beam=beam,
        score_norm=False,
    )
    for b, length in enumerate(lengths):
        fresh = model(family, hidden, activation=parts[1].activation, seed=seed % 1000, blank=0.5)
        assert_found(greedy, b, decoding_reference.greedy(encoder[b, :length], *fresh, family))
        expected = decoding_reference.beam_search(encoder[b, :length], *fresh, family, beam)[0]
        assert labels_of(best, b) == expected.labels, f"seed {seed}, utterance {b}"
        assert float(best.scores[b]) == pytest.approx(expected.score, abs=1e-9)
