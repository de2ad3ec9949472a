"""Sampled alignments: their distribution, and what decides it. tests/cpp/soft_dtw/sample_test.cpp compares devices."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

import warpalign
from benchmarks.soft_dtw.sampling import sample_in_torch, table_of
from tests.python.soft_dtw.reference import pair

F64 = torch.float64
Path = tuple[tuple[int, int], ...]


def paths_of(costs: torch.Tensor, gamma: float, penalty: float) -> dict[Path, float]:
    """The probability of every path through a small table."""
    n, m = costs.shape
    weights: dict[Path, float] = {}

    def go(cells: Path, total: float) -> None:
        i, j = cells[-1]
        total += float(costs[i, j])
        if (i, j) == (n - 1, m - 1):
            weights[cells] = math.exp(-total / gamma)
        for down, right in ((1, 0), (0, 1), (1, 1)):
            if i + down < n and j + right < m:
                go((*cells, (i + down, j + right)), total + penalty * (down + right < 2))

    go(((0, 0),), 0.0)
    whole = sum(weights.values())
    return {cells: weight / whole for cells, weight in weights.items()}


def cells_of(sample: warpalign.SoftDTWSample, pair: int) -> list[Path]:
    lengths = sample.lengths[pair].tolist()
    return [
        tuple((i, j) for i, j in path[:length])
        for path, length in zip(sample.paths[pair].tolist(), lengths, strict=True)
    ]


@pytest.mark.parametrize(
    "options",
    [{}, {"cost": "l1", "step_penalty": 0.3}, {"cost": lambda x, y: torch.cdist(x, y, p=1)}],
    ids=["squared", "l1, penalty", "function"],
)
def test_paths_have_their_probabilities(device: torch.device, options: dict[str, Any]) -> None:
    """Pearson's statistic within six deviations of its expectation, for every path that 20 draws are expected of."""
    x, y = (t.to(device) for t in pair(2, 4, 4, 2, dtype=F64))
    draws = 20_000
    sample = warpalign.soft_dtw_sample(x, y, draws, gamma=2.0, generator=1, **options)
    costs = torch.cdist(x, y).square() if not options else torch.cdist(x, y, p=1)
    for b in range(2):
        expected = paths_of(costs[b], 2.0, options.get("step_penalty", 0.0))
        counts = Counter(cells_of(sample, b))
        assert counts.keys() <= expected.keys()
        common = {path: draws * p for path, p in expected.items() if draws * p >= 20}
        assert len(common) > 10
        statistic = sum((counts[path] - mean) ** 2 / mean for path, mean in common.items())
        assert statistic < len(common) + 6 * math.sqrt(2 * len(common))


def test_mean_is_the_expected_alignment(device: torch.device) -> None:
    x, y = (t.to(device) for t in pair(3, 45, 70, 3))
    lengths = {"x_lengths": torch.tensor([45, 33, 2]), "y_lengths": torch.tensor([70, 30, 64])}
    lengths = {name: value.to(device) for name, value in lengths.items()}
    options: dict[str, Any] = {"gamma": 3.0, "bandwidth": 9, **lengths}
    draws = 2000
    paths, counts = warpalign.soft_dtw_sample(x, y, draws, generator=2, **options)
    assert paths.shape == (3, draws, 114, 2)
    is_cell = torch.arange(114, device=device) < counts[..., None]
    assert torch.equal(is_cell, (paths >= 0).all(-1)) and (paths[~is_cell] == -1).all()
    _, expected = warpalign.soft_dtw_alignment(x, y, **options)
    for b in range(3):
        cells = paths[b][is_cell[b]]
        share = torch.zeros_like(expected[b])
        share.index_put_((cells[:, 0], cells[:, 1]), share.new_tensor(1 / draws), accumulate=True)
        deviation = (expected[b] * (1 - expected[b]).clamp(min=0) / draws).sqrt()
        assert ((share - expected[b]).abs() <= 6 * deviation + 6 / draws).all()


def test_the_generator_decides(device: torch.device) -> None:
    x, y = (t.to(device) for t in pair(4, 20, 25, 2))

    def draw(generator: torch.Generator | int | None, **options: Any) -> torch.Tensor:
        return warpalign.soft_dtw_sample(x, y, 5, gamma=5.0, generator=generator, **options).paths

    assert torch.equal(draw(3), draw(3)) and not torch.equal(draw(3), draw(4))
    generator = torch.Generator().manual_seed(0)
    first, second = draw(generator), draw(generator)
    assert not torch.equal(first, second)
    assert torch.equal(first, draw(generator.manual_seed(0)))
    torch.manual_seed(7)
    default = draw(None)
    torch.manual_seed(7)
    assert torch.equal(default, draw(None)) and not torch.equal(default, draw(None))


@pytest.mark.gpu
def test_a_gpu_draws_what_a_cpu_draws(cuda: torch.device) -> None:
    x, y = pair(6, 130, 97, 20)
    lengths = torch.tensor([130, 64, 97, 1, 33, 128])
    for cost in ("sqeuclidean", "euclidean", "cosine", "l1", "huber"):
        here = warpalign.soft_dtw_sample(x, y, 40, x_lengths=lengths, cost=cost, generator=5)
        there = warpalign.soft_dtw_sample(
            x.to(cuda), y.to(cuda), 40, x_lengths=lengths.to(cuda), cost=cost, generator=5
        )
        assert torch.equal(here.lengths, there.lengths.cpu()) and torch.equal(here.paths, there.paths.cpu())


def test_forms_of_series() -> None:
    x, y = pair(3, 12, 9, 2)
    batch = warpalign.soft_dtw_sample(x, y, 4, generator=1)
    single = warpalign.soft_dtw_sample(x[0], y[0], 4, generator=1)
    assert torch.equal(single.paths, batch.paths[0]) and single.lengths.shape == (4,)
    one_to_all = warpalign.soft_dtw_sample(x[:1], y, 4, generator=1)
    assert torch.equal(one_to_all.paths[0], batch.paths[0])
    in_lists = warpalign.soft_dtw_sample([one.numpy() for one in x], list(y.numpy()), 4, generator=1)
    assert torch.equal(in_lists.paths, batch.paths)
    half = warpalign.soft_dtw_sample(x.half(), y.half(), 4, generator=1)
    assert torch.equal(
        half.paths, warpalign.soft_dtw_sample(x.half().float(), y.half().float(), 4, generator=1).paths
    )
    none = warpalign.soft_dtw_sample(x, y, 0)
    assert none.paths.shape == (3, 0, 20, 2) and none.lengths.shape == (3, 0)


def test_options_reach_the_operator() -> None:
    x, y = pair(2, 30, 30, 2)
    sharp = warpalign.soft_dtw_sample(x, y, 3, gamma=torch.tensor([1e-4, 50.0]), generator=1)
    best = warpalign.dtw_path(x, y).paths
    assert all(path == tuple(map(tuple, best[0].tolist())) for path in cells_of(sharp, 0))
    assert len(set(cells_of(sharp, 1))) == 3
    diagonal = warpalign.soft_dtw_sample(x, y, 3, bandwidth=0, generator=1)
    assert (diagonal.lengths == 30).all()
    straight = warpalign.soft_dtw_sample(x, y, 3, step_penalty=1e6, generator=1)
    assert (straight.lengths == 30).all()
    mask = torch.zeros(2, 30, dtype=torch.bool)
    mask[:, 4] = True
    masked = np.ma.masked_array(
        x.masked_fill(mask[..., None], torch.nan).numpy(), mask[..., None].numpy().repeat(2, -1)
    )
    missing = warpalign.soft_dtw_sample(masked, y, 3, generator=1)
    assert (missing.lengths > 0).all()
    assert torch.equal(missing.paths, warpalign.soft_dtw_sample(x, y, 3, x_mask=mask, generator=1).paths)


def test_pairs_without_paths() -> None:
    x, y = pair(3, 8, 8, 1)
    x[1, 2] = torch.nan
    sample = warpalign.soft_dtw_sample(x, y, 5, generator=0)
    assert (sample.lengths[1] == 0).all() and (sample.paths[1] == -1).all()
    assert (sample.lengths[[0, 2]] >= 8).all()


def test_no_gradients_and_no_vmap() -> None:
    x, y = pair(3, 8, 8, 1)
    sample = warpalign.soft_dtw_sample(x.requires_grad_(), y, 5)
    assert not sample.paths.requires_grad
    with pytest.raises(NotImplementedError, match="soft_dtw_sample is not available under torch.func.vmap"):
        torch.func.vmap(lambda x: warpalign.soft_dtw_sample(x, y[0], 2).paths)(x)


def test_operators_tell_torch_their_shapes() -> None:
    x, y = pair(3, 8, 6, 2)
    for operator, inputs in (("soft_dtw_sample", (x, y)), ("soft_dtw_cost_sample", (torch.cdist(x, y),))):
        torch.library.opcheck(
            getattr(torch.ops.warpalign, operator).default, (*inputs, None, None, 1.0, 4, 9)
        )


def test_what_the_benchmark_compares_with() -> None:
    x, y = pair(2, 9, 7, 2)
    costs = torch.cdist(x.double(), y.double()).square()
    torch.testing.assert_close(table_of(costs, 0.5)[:, -1, -1], warpalign.soft_dtw_cost(costs, gamma=0.5))
    paths = sample_in_torch(x, y, 4000, gamma=2.0).flip(2)
    assert (paths[:, :, 0] == 0).all() and (paths[:, :, -1] == torch.tensor([8, 6])).all()
    _, expected = warpalign.soft_dtw_alignment(x, y, gamma=2.0)
    share = torch.stack(
        [(paths == torch.tensor([4, j])).all(-1).any(-1).double().mean(1) for j in range(7)], 1
    )
    torch.testing.assert_close(share, expected[:, 4].double(), rtol=0, atol=6 * 0.5 / 4000**0.5)
