"""warpalign.compat.soft_dtw_cuda (Maghoumi) and softdtw_cuda (BGU): not on PyPI, so the float64 reference stands for them."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import warpalign
from tests.python.helpers import numpy64
from tests.python.soft_dtw.compat_cases import SIZES, l1, pair, reference, same, with_gradients
from tests.python.soft_dtw.reference import hard_dtw_reference, squared_distances
from warpalign.compat import pysdtw, soft_dtw_cuda, softdtw_cuda, tslearn

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    tslearn_barycenters = pytest.importorskip("tslearn.barycenters")


BANDED: dict[str, Callable[..., nn.Module]] = {
    "soft_dtw_cuda": lambda **settings: soft_dtw_cuda.SoftDTW(False, **settings),
    "softdtw_cuda": softdtw_cuda.SoftDTW,
}


@pytest.mark.parametrize("package", BANDED)
@pytest.mark.parametrize(("n", "m"), SIZES)
@pytest.mark.parametrize("bandwidth", [None, 0, -1, 0.5, 2, 3.9, 100, math.inf])
def test_absolute_bands(package: str, n: int, m: int, bandwidth: float | None) -> None:
    x, y = pair(n, m)
    gamma = 0.5
    got = with_gradients(BANDED[package](gamma=gamma, bandwidth=bandwidth), x, y)

    def allowed(i: int, j: int) -> bool:
        return bandwidth is None or not abs(i - j) > bandwidth > 0

    expected = reference(x, y, gamma, allowed)
    finite = torch.isfinite(expected[0])
    assert torch.equal(torch.isfinite(got[0]), finite)
    if finite.all():
        same(got, expected, 1e-10)
    else:
        assert abs(n - m) > (bandwidth or 0) > 0
        assert all((gradient == 0).all() for gradient in got[1:])


@pytest.mark.parametrize("package", BANDED)
@pytest.mark.parametrize("bandwidth", [None, 3])
def test_normalize(package: str, bandwidth: float | None) -> None:
    x, y = pair(7, 7)
    loss = BANDED[package](gamma=0.5, normalize=True, bandwidth=bandwidth)
    plain = BANDED[package](gamma=0.5, bandwidth=bandwidth)
    expected = plain(x, y) - (plain(x, x) + plain(y, y)) / 2
    assert torch.allclose(loss(x, y), expected, rtol=0, atol=1e-12)
    assert (loss(x, y) > 0).all() and loss(x, x).abs().max() < 1e-12


@pytest.mark.parametrize("package", BANDED)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_dtypes(package: str, dtype: torch.dtype) -> None:
    x, y = (t.detach().to(dtype).requires_grad_() for t in pair(7, 8))
    value = BANDED[package]()(x, y)
    assert value.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    value.sum().backward()
    assert x.grad is not None and x.grad.dtype == dtype


# The drop-ins of losses; the originals' results are beside them in the migration page's table.
LOSSES: dict[str, Callable[..., nn.Module]] = {
    **BANDED,
    "pysdtw": lambda **settings: pysdtw.SoftDTW(use_cuda=False, **settings),
    "tslearn": lambda **settings: tslearn.SoftDTWLossPyTorch(**settings),
}


@pytest.mark.parametrize("package", LOSSES)
@pytest.mark.parametrize(
    ("of_x", "of_y", "dtype"),
    [
        (torch.float32, torch.float64, torch.float64),
        (torch.bfloat16, torch.float32, torch.float32),
        (torch.float16, torch.bfloat16, torch.float32),
        (torch.float32, torch.int64, torch.float32),
        (torch.int64, torch.int32, torch.float32),
    ],
    ids=str,
)
@pytest.mark.parametrize("autocast", [False, True])
def test_mixed_dtypes_and_integers(
    package: str, of_x: torch.dtype, of_y: torch.dtype, dtype: torch.dtype, autocast: bool
) -> None:
    x, y = (3 * t.detach() for t in pair(7, 8))
    x, y = x.to(of_x), y.to(of_y)
    loss = LOSSES[package](gamma=0.5)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        value = loss(x, y)
    assert value.dtype == dtype
    assert torch.equal(value, loss(x.to(dtype), y.to(dtype)))


@pytest.mark.parametrize("package", LOSSES)
def test_no_features(package: str) -> None:
    """Costs of 0: minus the logarithm of the number of paths."""
    x, y = (t.detach()[..., :0].requires_grad_() for t in pair(4, 5))
    loss = LOSSES[package](gamma=1.0)
    value, *gradients = with_gradients(loss, x, y)
    zeros = torch.zeros(3, 4, 1, dtype=torch.float64), torch.zeros(3, 5, 1, dtype=torch.float64)
    assert torch.allclose(value, loss(*zeros), rtol=1e-12)
    assert [gradient.shape for gradient in gradients] == [x.shape, y.shape]


def test_an_infinite_bandwidth_is_none() -> None:
    x, y = (t.detach() for t in pair(5, 9))
    expected = softdtw_cuda.softdtw(x, y)
    for package in BANDED:
        assert torch.equal(BANDED[package](bandwidth=math.inf)(x, y), expected)
    assert torch.equal(pysdtw.SoftDTW(use_cuda=False, bandwidth=math.inf)(x, y), expected)
    assert torch.equal(softdtw_cuda.DTW(bandwidth=math.inf)(x, y), softdtw_cuda.dtw(x, y))


def test_the_originals_names() -> None:
    x, y = pair(5, 6)
    expected = torch.cdist(x, y).square()
    for cost in (
        soft_dtw_cuda.SoftDTW(False).dist_func,
        softdtw_cuda.distances.sqeuclidean,
        lambda a, b: softdtw_cuda.distances.pairwise_distance(a, b, dist="SqEuclidean"),
        pysdtw.SoftDTW().dist_func,
        tslearn.SoftDTWLossPyTorch().dist_func,
    ):
        assert torch.allclose(cost(x, y), expected, rtol=1e-12)
    lengths = torch.tensor([[5, 6], [3, 2], [1, 6]])
    got = pysdtw.SoftDTW(use_cuda=False).dtw_func(expected, lengths, 0.5, 0.0)
    n, m = lengths.unbind(1)
    assert torch.allclose(got, warpalign.soft_dtw(x, y, gamma=0.5, x_lengths=n, y_lengths=m))


def test_maghoumi_takes_different_lengths_and_distances() -> None:
    x, y = pair(5, 8)
    divergence = soft_dtw_cuda.SoftDTW(False, normalize=True)(x, y)
    plain = soft_dtw_cuda.SoftDTW(False)
    assert torch.allclose(divergence, plain(x, y) - (plain(x, x) + plain(y, y)) / 2)
    got = soft_dtw_cuda.SoftDTW(False, gamma=0.1, dist_func=l1)(x, y)
    assert torch.equal(got, warpalign.soft_dtw_cost(l1(x, y), gamma=0.1))


def test_maghoumi_signature() -> None:
    parameters = inspect.signature(soft_dtw_cuda.SoftDTW).parameters
    defaults = {name: parameter.default for name, parameter in parameters.items()}
    assert list(defaults) == ["use_cuda", "gamma", "normalize", "bandwidth", "dist_func"]
    assert list(defaults.values())[1:] == [1.0, False, None, None]
    assert soft_dtw_cuda.SoftDTW(True, bandwidth=3).bandwidth == 3.0
    assert soft_dtw_cuda.SoftDTW(True).bandwidth == 0


def test_bgu_signatures() -> None:
    def defaults(function: Callable[..., Any]) -> dict[str, Any]:
        parameters = inspect.signature(function).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}

    common = {"gamma": 1.0, "bandwidth": None, "normalize": False, "dist": "sqeuclidean", "fused": None}
    assert defaults(softdtw_cuda.SoftDTW) == common
    assert defaults(softdtw_cuda.softdtw) == common
    assert defaults(softdtw_cuda.softdtw_barycenter) == {
        "gamma": 1.0, "weights": None, "max_iter": 100, "lr": 0.1, "init": None, "device": None, "verbose": False,
        "fused": None, "early_stopping": True, "patience": 10, "tol": 1e-5,
    }  # fmt: skip


def test_bgu_shapes_and_distances() -> None:
    x, y = pair(5, 6)
    single = softdtw_cuda.softdtw(x[0], y[0], gamma=0.3)
    assert single.shape == (1,)
    assert torch.equal(single[0], warpalign.soft_dtw(x[0], y[0], gamma=0.3))
    for dist in ("sqeuclidean", "sq_euclidean", "SQUARED_EUCLIDEAN"):
        assert torch.equal(softdtw_cuda.softdtw(x, y, dist=dist), warpalign.soft_dtw(x, y))
    cosine = 1 - nn.functional.cosine_similarity(x[:, :, None], y[:, None], dim=-1)
    got = softdtw_cuda.softdtw(x, y, dist="cosine")
    assert torch.allclose(got, warpalign.soft_dtw_cost(cosine), rtol=1e-9)


def test_bgu_barycenter(capsys: pytest.CaptureFixture[str]) -> None:
    generator = torch.Generator().manual_seed(0)
    centers = 2 + 4 * torch.rand(6, 1, generator=generator)
    x = torch.exp(-((torch.linspace(0, 8, 40) - centers) ** 2))[..., None]  # bumps, which a mean smears
    mean = x.mean(0)
    got = softdtw_cuda.softdtw_barycenter(x, gamma=0.1, max_iter=60, verbose=True)
    assert got.shape == (40, 1) and not got.requires_grad
    assert "Iteration 20/60" in capsys.readouterr().out

    def loss(center: Tensor) -> float:
        return warpalign.soft_dtw(center[None], x, gamma=0.1, reduction="mean").item()

    assert loss(got) < loss(mean) - 0.1
    # The weight of one series alone, and its own start: already at its barycenter's place, Adam stays near it.
    weights = torch.tensor([0.0, 0, 0, 1, 0, 0])
    alone = softdtw_cuda.softdtw_barycenter(x, gamma=1e-3, weights=weights, max_iter=5, lr=1e-3, init=x[3])
    assert torch.allclose(alone, x[3], atol=1e-2)
    assert torch.equal(
        softdtw_cuda.softdtw_barycenter_cpu(x, max_iter=3), softdtw_cuda.softdtw_barycenter(x, max_iter=3)
    )


def test_bgu_barycenter_stops_early() -> None:
    x = torch.zeros(2, 5, 1)
    steps = []
    original = torch.optim.Adam.step

    def counted(self: torch.optim.Adam, *arguments: Any) -> Any:
        steps.append(1)
        return original(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.optim.Adam, "step", counted)
        softdtw_cuda.softdtw_barycenter(x, max_iter=40, patience=3)
        assert len(steps) == 22  # the first step after the half, with no gain since the first
        steps.clear()
        softdtw_cuda.softdtw_barycenter(x, max_iter=40, early_stopping=False)
        assert len(steps) == 40


@pytest.mark.parametrize(("n", "m"), SIZES)
@pytest.mark.parametrize("bandwidth", [None, 0, 2])
def test_bgu_dtw(n: int, m: int, bandwidth: float | None) -> None:
    x, y = pair(n, m)
    got = softdtw_cuda.dtw(x, y, bandwidth=bandwidth)
    assert not got.requires_grad and got.dtype == torch.float64
    for value, a, b in zip(got, numpy64(x), numpy64(y), strict=True):
        cost = squared_distances(a, b)
        if bandwidth:
            i, j = np.indices(cost.shape)
            cost[np.abs(i - j) > bandwidth] = np.inf
        assert value.item() == pytest.approx(hard_dtw_reference(cost), rel=1e-12)
    assert torch.equal(softdtw_cuda.DTW(bandwidth=bandwidth)(x[0], y[0]), got[:1])


def test_bgu_dtw_of_cosines() -> None:
    x, y = pair(5, 6)
    cosine = 1 - nn.functional.cosine_similarity(x[:, :, None], y[:, None], dim=-1)
    expected = [hard_dtw_reference(numpy64(table)) for table in cosine]
    assert softdtw_cuda.dtw(x, y, dist="cosine").tolist() == pytest.approx(expected, rel=1e-9)
    assert list(inspect.signature(softdtw_cuda.DTW).parameters) == ["dist", "fused", "bandwidth"]


@pytest.mark.parametrize(
    "settings", [{}, {"weights": torch.tensor([1.0, 2.0, 0.5])}, {"init": torch.zeros(5, 2)}]
)
def test_bgu_dtw_barycenter(settings: dict[str, Any]) -> None:
    """tslearn's DBA is the same fixed point; and no round raises the sum."""
    x = pair(9, 9)[0].detach()
    weights = settings.get("weights", torch.ones(3)).double()
    start = settings.get("init", torch.einsum("b,bnd->nd", weights, x) / weights.sum()).double()

    def total(center: Tensor) -> float:
        return (weights @ softdtw_cuda.dtw(center.expand(3, -1, -1), x)).item()

    sums = [total(softdtw_cuda.dtw_barycenter(x, max_iter=rounds, **settings)) for rounds in (0, 1, 2, 30)]
    assert sums == sorted(sums, reverse=True) and sums[-1] < sums[0]
    got = softdtw_cuda.dtw_barycenter(x, tol=0.0, **settings)
    theirs = tslearn_barycenters.dtw_barycenter_averaging(
        x.numpy(), weights=weights.numpy(), init_barycenter=start.numpy(), max_iter=30, tol=0.0
    )
    assert got.shape == start.shape and np.allclose(got.numpy(), theirs, rtol=0, atol=1e-9)
    assert softdtw_cuda.dtw_barycenter(x.float()).dtype == torch.float32


def test_bgu_dtw_barycenter_in_a_band() -> None:
    x = pair(9, 9)[0].detach()
    diagonal = softdtw_cuda.dtw_barycenter(x, bandwidth=0.5)
    assert torch.allclose(diagonal, x.mean(0))
