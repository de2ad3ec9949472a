"""Random numbers come from the caller's generator, from a seed, or from torch's default generator."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.python.transport.clouds import spiral, swiss_roll
from warpalign import GromovTransport
from warpalign.transport import gromov_wasserstein, gromov_wasserstein_sampled, sinkhorn

Draw = Callable[[torch.Generator | int | None], Tensor]


def sampled(generator: torch.Generator | int | None) -> Tensor:
    return gromov_wasserstein_sampled(
        spiral(30, 0), swiss_roll(35, 1), epsilon=1e-2, max_iter=5, generator=generator
    ).plan.to_dense()


def restarted(generator: torch.Generator | int | None) -> Tensor:
    plan = gromov_wasserstein(
        spiral(30, 0),
        swiss_roll(35, 1),
        epsilon=1e-2,
        init="multiscale",
        restarts=2,
        max_iter=2,
        generator=generator,
    ).plan
    return plan.to_dense()


def pairs(generator: torch.Generator | int | None) -> Tensor:
    return sinkhorn(spiral(30, 0), spiral(35, 1), epsilon=0.1).plan.sample(8, generator=generator)


@pytest.mark.parametrize("draw", [sampled, restarted, pairs])
def test_a_seed_a_generator_or_the_default_one(draw: Draw) -> None:
    of_seed = draw(3)
    assert torch.equal(draw(3), of_seed)
    given = torch.Generator().manual_seed(5)
    first, second = draw(given), draw(given)
    assert torch.equal(draw(torch.Generator().manual_seed(5)), first)
    torch.manual_seed(5)
    assert torch.equal(draw(None), first)
    assert torch.equal(draw(None), second)
    if draw is not restarted:  # which may find the same minimum
        assert not torch.equal(first, second) and not torch.equal(of_seed, first)


def test_one_start_draws_nothing() -> None:
    torch.manual_seed(1)
    state = torch.get_rng_state()
    gromov_wasserstein(spiral(30, 0), swiss_roll(35, 1), epsilon=1e-2, max_iter=2)
    assert torch.equal(torch.get_rng_state(), state)


def test_random_state_of_the_estimator() -> None:
    def plan(random_state: int | np.random.RandomState | None) -> np.ndarray:
        model = GromovTransport(1e-2, n_anchors=20, max_iter=5, random_state=random_state)
        return model.fit(spiral(30, 0), Xt=swiss_roll(35, 1)).coupling_

    same = plan(4)
    assert (plan(4) == same).all() and not (plan(5) == same).all()
    first = plan(np.random.RandomState(2))
    assert (plan(np.random.RandomState(2)) == first).all()
    np.random.seed(2)
    assert (plan(None) == first).all()
    with pytest.raises(ValueError, match="Seed must be between"):
        plan(-1)


@pytest.mark.gpu
def test_a_generator_on_a_gpu_is_refused(cuda: torch.device) -> None:
    with pytest.raises(ValueError, match=r"^generator: expected a torch\.Generator on the CPU"):
        sampled(torch.Generator(cuda))
