"""`precision`: what a GPU's matrix units may do; nothing changes anywhere else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

import warpalign
from tests.python.helpers import captured, numpy64, relative_error
from tests.python.soft_dtw.reference import training_step

PRECISIONS = ("highest", "high", "medium")


@pytest.fixture
def torch_precision() -> Iterator[None]:
    yield
    torch.set_float32_matmul_precision("highest")


def series(batch: int, n: int, m: int, d: int, device: torch.device | str = "cpu") -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(n + m + d)
    x, y = (torch.randn(batch, length, d, generator=generator) for length in (n, m))
    return x.to(device).requires_grad_(), y.to(device).requires_grad_()


@pytest.mark.parametrize("precision", PRECISIONS)
def test_on_a_cpu_it_changes_nothing(precision: str) -> None:
    x, y = series(2, 20, 30, 16)
    for got, exact in zip(training_step(x, y, precision=precision), training_step(x, y), strict=True):
        assert torch.equal(got, exact)


def test_of_a_module() -> None:
    assert "precision='high'" in repr(warpalign.SoftDTW(precision="high"))
    with pytest.raises(ValueError, match="precision"):
        warpalign.SoftDTW(precision="tf32")  # type: ignore[arg-type]


@pytest.mark.gpu
@pytest.mark.parametrize("gamma", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("d", [5, 16, 39, 64, 80, 130])
def test_errors(cuda: torch.device, d: int, gamma: float) -> None:
    x, y = series(3, 200, 170, d, cuda)
    exact = [numpy64(t) for t in training_step(*(t.detach().cpu().double() for t in (x, y)), gamma=gamma)]

    def errors(precision: str) -> list[float]:
        got = training_step(x, y, gamma=gamma, precision=precision)
        return [relative_error(g, e) for g, e in zip(got, exact, strict=True)]

    highest, high, medium = (errors(precision) for precision in PRECISIONS)
    for of_highest, of_high, floor in zip(highest, high, (1e-7, 5e-6, 5e-6), strict=True):
        assert of_high < 3 * of_highest + floor
    assert medium[0] < 2e-3 and max(medium[1:]) < 3e-2 * max(1.0, 1.0 / gamma)


@pytest.mark.gpu
@pytest.mark.parametrize("d", [64, 80, 400])
def test_values_alone(cuda: torch.device, d: int) -> None:
    """Values without gradients, with up to more features than gradients take."""
    x, y = (t.detach() for t in series(3, 90, 170, d, cuda))
    exact = numpy64(warpalign.soft_dtw(x.cpu().double(), y.cpu().double()))
    found = [warpalign.soft_dtw(x, y, precision=precision) for precision in PRECISIONS]  # type: ignore[arg-type]
    for value, most in zip(found, (5e-7, 5e-7, 2e-3), strict=True):
        assert relative_error(value, exact) < most
    assert not torch.equal(found[0], found[2])


@pytest.mark.gpu
def test_none_follows_torch(cuda: torch.device, torch_precision: None) -> None:
    x, y = series(2, 70, 80, 32, cuda)
    found = []
    for precision in PRECISIONS:
        torch.set_float32_matmul_precision(precision)
        found.append(training_step(x, y))
        for got, asked in zip(found[-1], training_step(x, y, precision=precision), strict=True):
            assert torch.equal(got, asked)
    for one, other in ((0, 1), (1, 2)):
        assert not torch.equal(found[one][1], found[other][1])


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["high", "medium"])
def test_the_same_bits_every_time_and_in_a_graph(cuda: torch.device, precision: str) -> None:
    for d in (64, 100):
        x, y = series(7, 130, 150, d, cuda)

        def run(x: Tensor = x, y: Tensor = y) -> tuple[Tensor, ...]:
            return training_step(x, y, precision=precision)

        first = run()
        graph, replayed = captured(run)
        graph.replay()
        torch.cuda.synchronize()
        for repeat in (replayed, *(run() for _ in range(100))):
            for got, expected in zip(repeat, first, strict=True):
                assert torch.equal(got, expected)


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["high", "medium"])
def test_where_matrix_units_have_no_part(cuda: torch.device, precision: str) -> None:
    """Few features, other costs, float64: the same bits."""
    x, y = series(2, 40, 50, 3, cuda)
    wide = series(2, 40, 50, 24, cuda)
    double = tuple(t.detach().double().requires_grad_() for t in wide)
    cases: list[tuple[tuple[Tensor, ...], dict[str, object]]] = [
        ((x, y), {}),
        (wide, {"cost": "l1"}),
        (double, {}),
    ]
    for (a, b), options in cases:
        for got, exact in zip(
            training_step(a, b, **options, precision=precision), training_step(a, b, **options), strict=True
        ):
            assert torch.equal(got, exact)
