"""The drop-ins compute what the originals compute, where those are right; pysdtw and tslearn run beside them.

The originals keep float64 tables in float32 (torch.Tensor(array)), and form E from differences of R: errors of
eps32 * max|R| in the value, and of eps32 * max|R| / gamma in the exponent of each of the N + M steps behind a cell of E.
The tolerances below are these, with R at most 30 here.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence

import warpalign
from reference import (
    hard_dtw_reference,
    numpy64,
    randn,
    squared_distances,
    value_and_alignment,
)
from warpalign.compat import pysdtw as our_pysdtw
from warpalign.compat import soft_dtw_cuda, softdtw_cuda
from warpalign.compat import tslearn as ours

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pysdtw = pytest.importorskip("pysdtw")
    tslearn_metrics = pytest.importorskip("tslearn.metrics")
    tslearn_barycenters = pytest.importorskip("tslearn.barycenters")

# One process: Numba compiles the originals once.
pytestmark = pytest.mark.xdist_group("numba")

EPS32 = 1.2e-7
VALUE = 30 * EPS32  # times max(1, |value|)


def gradient_tolerance(gamma: float, n: int, m: int) -> float:
    """Relative, of float32's tables."""
    return 30 * EPS32 / gamma * (n + m)


def pair(
    n: int, m: int, *, batch: int = 3, d: int = 2, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor]:
    x = 0.7 * randn(batch, n, d, seed=n, dtype=dtype)
    y = 0.7 * randn(batch, m, d, seed=100 + m, dtype=dtype)
    return x.requires_grad_(), y.requires_grad_()


def with_gradients(loss: Callable[..., Tensor], x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Value and gradients, with a different weight for each pair."""
    value = loss(x, y)
    weights = torch.linspace(1, 2, value.numel(), dtype=value.dtype)
    grad_x, grad_y = torch.autograd.grad(weights @ value, (x, y))
    return value.detach(), grad_x, grad_y


def same(got: tuple[Tensor, ...], expected: tuple[Tensor, ...], gradient: float) -> None:
    assert got[0].shape == expected[0].shape and got[0].dtype == expected[0].dtype
    assert torch.allclose(got[0], expected[0], rtol=VALUE, atol=VALUE)
    for ours_, theirs in zip(got[1:], expected[1:], strict=True):
        assert (ours_ - theirs).norm() <= gradient * theirs.norm()


def reference(x: Tensor, y: Tensor, gamma: float, allowed: Callable[[int, int], bool]) -> tuple[Tensor, ...]:
    """Value and gradients from the float64 reference over the allowed cells (indices from 1); weights as above."""
    values, grads_x, grads_y = [], [], []
    weights = np.linspace(1, 2, len(x))
    for a, b, weight in zip(numpy64(x), numpy64(y), weights, strict=True):
        cost = squared_distances(a, b)
        for i, j in np.ndindex(cost.shape):
            if not allowed(i + 1, j + 1):
                cost[i, j] = np.inf
        value, e = value_and_alignment(cost, gamma)
        values.append(value)
        grads_x.append(2 * weight * (e.sum(1)[:, None] * a - e @ b))
        grads_y.append(2 * weight * (e.sum(0)[:, None] * b - e.T @ a))
    return (
        torch.tensor(values, dtype=torch.float64),
        torch.tensor(np.array(grads_x)),
        torch.tensor(np.array(grads_y)),
    )


SIZES = [(1, 1), (1, 5), (6, 1), (7, 7), (9, 6), (6, 11)]


# pysdtw


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(("n", "m"), SIZES)
@pytest.mark.parametrize("gamma", [0.1, 1.0])
@pytest.mark.parametrize("bandwidth", [None, 0, 2, 3.5])
def test_pysdtw(n: int, m: int, gamma: float, bandwidth: float | None, dtype: torch.dtype) -> None:
    x, y = pair(n, m, dtype=dtype)
    settings: dict[str, Any] = {"gamma": gamma, "use_cuda": False, "bandwidth": bandwidth}
    value, *gradients = with_gradients(our_pysdtw.SoftDTW(**settings), x, y)
    exact = pysdtw.distance.pairwise_l2_squared_exact
    theirs = with_gradients(pysdtw.SoftDTW(dist_func=exact, **settings), x, y)
    reached = torch.isfinite(theirs[0])
    assert torch.equal(torch.isfinite(value), reached)
    if reached.all():
        same((value, *gradients), theirs, gradient_tolerance(gamma, n, m))
    else:  # theirs are NaN then
        assert all((gradient == 0).all() for gradient in gradients)


def test_pysdtw_bands_cut_something() -> None:
    """The cases above see the band: the corner is outside at 1 x 5, and other values change."""
    x, y = pair(9, 6)
    wide, narrow = (our_pysdtw.SoftDTW(use_cuda=False, bandwidth=b)(x, y) for b in (None, 2))
    assert (narrow > wide + 1e-3).all() and torch.isfinite(narrow).all()
    assert torch.isinf(our_pysdtw.SoftDTW(use_cuda=False, bandwidth=2)(*pair(1, 5))).all()


@pytest.mark.parametrize("bandwidth", [None, 2])
def test_pysdtw_packed(bandwidth: float | None) -> None:
    """Values as theirs; the gradients as those of each pair alone (theirs are NaN or wrong with a band)."""
    lengths = [(4, 7), (9, 5), (6, 6)]
    x = [0.7 * randn(n, 2, seed=n, dtype=torch.float64, grad=True) for n, _ in lengths]
    y = [0.7 * randn(m, 2, seed=50 + m, dtype=torch.float64) for _, m in lengths]
    packed = pack_sequence(x, enforce_sorted=False), pack_sequence(y, enforce_sorted=False)
    got = our_pysdtw.SoftDTW(use_cuda=False, bandwidth=bandwidth)(*packed)
    theirs = pysdtw.SoftDTW(use_cuda=False, bandwidth=bandwidth)(*packed)
    assert torch.allclose(got, theirs, rtol=VALUE, atol=VALUE)
    gradients = torch.autograd.grad(got.sum(), x)
    for a, b, gradient in zip(x, y, gradients, strict=True):
        alone = our_pysdtw.SoftDTW(use_cuda=False, bandwidth=bandwidth)(a[None], b[None])
        assert torch.allclose(gradient, torch.autograd.grad(alone.sum(), a)[0], rtol=0, atol=1e-12)


def test_pysdtw_own_distance() -> None:
    x, y = pair(6, 8)
    for bandwidth in (None, 4):
        settings: dict[str, Any] = {"dist_func": l1, "use_cuda": False, "bandwidth": bandwidth}
        got = with_gradients(our_pysdtw.SoftDTW(**settings), x, y)
        same(got, with_gradients(pysdtw.SoftDTW(**settings), x, y), gradient_tolerance(1.0, 6, 8))


def l1(x: Tensor, y: Tensor) -> Tensor:
    return (x[:, :, None] - y[:, None]).abs().sum(-1)


def test_pysdtw_names() -> None:
    theirs, found = inspect.signature(pysdtw.SoftDTW), inspect.signature(our_pysdtw.SoftDTW)
    assert list(found.parameters) == list(theirs.parameters)
    for name, parameter in theirs.parameters.items():
        assert found.parameters[name].default == parameter.default
    x, y = pair(5, 6)
    for name in ("pairwise_l2_squared", "pairwise_l2_squared_exact"):
        got = getattr(our_pysdtw.distance, name)(x, y)
        assert torch.allclose(got, getattr(pysdtw.distance, name)(x, y), rtol=1e-12, atol=1e-13)


# soft_dtw_cuda and softdtw_cuda: not on PyPI, so the reference stands for them.


BANDED: dict[str, Callable[..., nn.Module]] = {
    "soft_dtw_cuda": lambda **settings: soft_dtw_cuda.SoftDTW(False, **settings),
    "softdtw_cuda": softdtw_cuda.SoftDTW,
}


@pytest.mark.parametrize("package", BANDED)
@pytest.mark.parametrize(("n", "m"), SIZES)
@pytest.mark.parametrize("bandwidth", [None, 0, -1, 0.5, 2, 3.9, 100])
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


BGU_ERRORS: dict[str, tuple[Callable[[], object], str]] = {
    "gamma 0": (lambda: softdtw_cuda.SoftDTW(gamma=0), "gamma must be > 0, got 0.0"),
    "gamma inf": (lambda: softdtw_cuda.SoftDTW(gamma=float("inf")), "gamma must be finite, got inf"),
    "axes": (
        lambda: softdtw_cuda.softdtw(torch.zeros(3), torch.zeros(3)),
        "Expected x,y to have shape (B,N,D) and (B,M,D) (or unbatched (N,D)). Got x=(3,), y=(3,)",
    ),
    "normalize": (
        lambda: softdtw_cuda.softdtw(torch.zeros(2, 3, 1), torch.zeros(2, 4, 1), normalize=True),
        "normalize=True currently requires equal sequence lengths (N==M) because it uses the concatenation trick. "
        "Got N=3, M=4.",
    ),
    "features": (
        lambda: softdtw_cuda.softdtw(torch.zeros(2, 3, 1), torch.zeros(2, 4, 2)),
        "Feature dims must match. Got x.shape[-1]=1, y.shape[-1]=2",
    ),
    "batch": (
        lambda: softdtw_cuda.softdtw(torch.zeros(2, 3, 1), torch.zeros(1, 4, 1)),
        "Batch sizes must match. Got x.shape[0]=2, y.shape[0]=1",
    ),
    "empty": (
        lambda: softdtw_cuda.softdtw(torch.zeros(2, 0, 1), torch.zeros(2, 4, 1)),
        "Sequence lengths must be > 0. Got N=0, M=4.",
    ),
    "fused": (
        lambda: softdtw_cuda.softdtw(torch.zeros(2, 3, 1), torch.zeros(2, 4, 1), fused=True),
        "fused=True requires CUDA tensors and dist='sqeuclidean'.",
    ),
    "dist": (
        lambda: softdtw_cuda.softdtw(torch.zeros(2, 3, 1), torch.zeros(2, 4, 1), dist="L1"),
        "Unknown dist='l1'. Supported: 'sqeuclidean', 'cosine'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BGU_ERRORS)
def test_bgu_errors(case: str) -> None:
    call, message = BGU_ERRORS[case]
    with pytest.raises(ValueError) as caught:
        call()
    assert str(caught.value) == message


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
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.optim.Adam, "step", lambda self, *a: steps.append(1) or original(self, *a))
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


def test_bgu_dtw_of_cosines_and_errors() -> None:
    x, y = pair(5, 6)
    cosine = 1 - nn.functional.cosine_similarity(x[:, :, None], y[:, None], dim=-1)
    expected = [hard_dtw_reference(numpy64(table)) for table in cosine]
    assert softdtw_cuda.dtw(x, y, dist="cosine").tolist() == pytest.approx(expected, rel=1e-9)
    assert list(inspect.signature(softdtw_cuda.DTW).parameters) == ["dist", "fused", "bandwidth"]
    for bad, message in (
        ((x, y[:1]), "Batch sizes must match. Got 3 vs 1"),
        ((x, y[..., :1]), "Feature dims must match. Got 2 vs 1"),
        ((x, y[:, :0]), "Sequence lengths must be > 0. Got N=5, M=0."),
    ):
        with pytest.raises(ValueError) as caught:
            softdtw_cuda.dtw(*bad)
        assert str(caught.value) == message


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


def test_bgu_dtw_barycenter_in_a_band_and_errors() -> None:
    x = pair(9, 9)[0].detach()
    diagonal = softdtw_cuda.dtw_barycenter(x, bandwidth=0.5)
    assert torch.allclose(diagonal, x.mean(0))
    for call, message in (
        (lambda: softdtw_cuda.dtw_barycenter(x[0]), "Expected X of shape (B, N, F). Got (9, 2)"),
        (lambda: softdtw_cuda.dtw_barycenter(x[:0]), "Empty input: B=0, N=9."),
        (
            lambda: softdtw_cuda.dtw_barycenter(x, weights=torch.ones(2)),
            "weights must have 3 entries. Got 2.",
        ),
        (
            lambda: softdtw_cuda.dtw_barycenter(x, weights=-torch.ones(3)),
            "weights must be nonnegative with positive sum.",
        ),
        (lambda: softdtw_cuda.dtw_barycenter(x, init=torch.zeros(5, 3)), "init must be (T, 2). Got (5, 3)"),
    ):
        with pytest.raises(ValueError) as caught:
            call()
        assert str(caught.value) == message


# What is the same in all modules.


MODULES: dict[str, Callable[[], nn.Module]] = {
    "soft_dtw_cuda": lambda: soft_dtw_cuda.SoftDTW(False),
    "pysdtw": lambda: our_pysdtw.SoftDTW(use_cuda=False),
    "tslearn": ours.SoftDTWLossPyTorch,
}


@pytest.mark.parametrize("package", MODULES)
@pytest.mark.parametrize(
    ("x", "y"), [((2, 5, 1), (3, 5, 1)), ((2, 5, 1), (1, 5, 1)), ((2, 5, 1), (2, 5, 2)), ((5, 1), (5, 1))]
)
def test_shapes_are_asserted(package: str, x: tuple[int, ...], y: tuple[int, ...]) -> None:
    """The originals assert (or fail to unpack: ValueError); both types catch ours."""
    for error in (AssertionError, ValueError):
        with pytest.raises(error, match="expected"):
            MODULES[package]()(torch.zeros(x), torch.zeros(y))


def test_use_cuda_warns_and_moves_nothing() -> None:
    x, y = pair(4, 5)
    for loss in (soft_dtw_cuda.SoftDTW(True), our_pysdtw.SoftDTW()):
        with pytest.warns(UserWarning, match="use_cuda=True, but the series are on cpu"):
            assert loss(x, y).device.type == "cpu"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        soft_dtw_cuda.SoftDTW(False)(x, y)


@pytest.mark.gpu
@pytest.mark.parametrize("bandwidth", [None, 4])
@pytest.mark.parametrize("package", ["soft_dtw_cuda", "softdtw_cuda", "pysdtw", "tslearn"])
def test_on_a_gpu(cuda: torch.device, package: str, bandwidth: int | None) -> None:
    """The same numbers as on the CPU, in float64: only the order of sums differs."""
    if package == "tslearn":
        bandwidth = None
    losses: dict[str, Callable[[bool], nn.Module]] = {
        "soft_dtw_cuda": lambda on: soft_dtw_cuda.SoftDTW(on, gamma=0.5, bandwidth=bandwidth, normalize=True),
        "softdtw_cuda": lambda on: softdtw_cuda.SoftDTW(
            gamma=0.5, bandwidth=bandwidth, fused=True if on else None
        ),
        "pysdtw": lambda on: our_pysdtw.SoftDTW(gamma=0.5, use_cuda=on, bandwidth=bandwidth),
        "tslearn": lambda on: ours.SoftDTWLossPyTorch(gamma=0.5),
    }
    x, y = pair(9, 7)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expected = with_gradients(losses[package](False), x, y)
        on_gpu = [t.detach().to(cuda).requires_grad_() for t in (x, y)]
        value = losses[package](True)(*on_gpu)
    weights = torch.linspace(1, 2, 3, dtype=torch.float64, device=cuda)
    gradients = torch.autograd.grad(weights @ value, on_gpu)
    assert value.device == on_gpu[0].device
    for got, wanted in zip((value, *gradients), expected, strict=True):
        assert torch.allclose(got.detach().cpu(), wanted, rtol=1e-10, atol=1e-10)


# tslearn


CONSTRAINTS: dict[str, dict[str, Any]] = {
    "none": {},
    "empty": {"global_constraint": ""},
    "radius": {"sakoe_chiba_radius": 2},
    "radius 0": {"sakoe_chiba_radius": 0},
    "sakoe_chiba": {"global_constraint": "sakoe_chiba"},
    "slope": {"itakura_max_slope": 2.5},
    "itakura": {"global_constraint": "itakura"},
    "itakura, radius ignored": {"global_constraint": "itakura", "sakoe_chiba_radius": 1},
    "both": {"global_constraint": "sakoe_chiba", "sakoe_chiba_radius": 3, "itakura_max_slope": 2.0},
}


@pytest.mark.parametrize("constraint", CONSTRAINTS)
@pytest.mark.parametrize(("n", "m"), [(1, 1), (7, 7), (9, 7), (7, 9)])
def test_tslearn_pairs(n: int, m: int, constraint: str) -> None:
    options = CONSTRAINTS[constraint]
    x, y = numpy64(randn(n, 2, seed=n)), numpy64(randn(m, 2, seed=50 + m))
    for name in ("soft_dtw", "soft_dtw_normalized"):
        theirs = getattr(tslearn_metrics._soft_dtw, name)(x, y, gamma=0.5, **options)
        got = getattr(ours, name)(x, y, gamma=0.5, **options)
        assert isinstance(got, float) and got == pytest.approx(theirs, rel=1e-12, abs=1e-12)
    alignment, value = ours.soft_dtw_alignment(x, y, 0.5, **options)
    their_alignment, their_value = tslearn_metrics.soft_dtw_alignment(x, y, 0.5, **options)
    assert value == pytest.approx(their_value, rel=1e-12)
    assert isinstance(alignment, np.ndarray) and np.allclose(alignment, their_alignment, rtol=0, atol=1e-11)


@pytest.mark.parametrize("constraint", ["none", "radius", "slope"])
def test_tslearn_hard(constraint: str) -> None:
    """gamma 0: squared in soft_dtw, not in cdist; the path's cells for an alignment."""
    options = CONSTRAINTS[constraint]
    x, y = numpy64(randn(7, 2, seed=1)), numpy64(randn(9, 2, seed=2))
    for name in ("soft_dtw", "soft_dtw_normalized"):
        theirs = getattr(tslearn_metrics._soft_dtw, name)(x, y, gamma=0.0, **options)
        assert getattr(ours, name)(x, y, gamma=0.0, **options) == pytest.approx(theirs, rel=1e-12)
    alignment, value = ours.soft_dtw_alignment(x, y, 0.0, **options)
    their_alignment, their_value = tslearn_metrics.soft_dtw_alignment(x, y, 0.0, **options)
    assert value == pytest.approx(their_value, rel=1e-12) and np.array_equal(alignment, their_alignment)
    for name in ("cdist_soft_dtw", "cdist_soft_dtw_normalized"):
        got, theirs = (
            getattr(m, name)([x, y], gamma=0.0, **options) for m in (ours, tslearn_metrics._soft_dtw)
        )
        assert np.allclose(got, theirs, rtol=1e-12, atol=0)


def test_tslearn_bands_hold_the_same_paths() -> None:
    """Of series of zeros at gamma 1, soft-DTW is minus the logarithm of the number of paths."""
    infeasible = 0
    bands: list[dict[str, Any]] = [{"sakoe_chiba_radius": radius} for radius in (0, 1, 3)]
    bands += [{"itakura_max_slope": slope} for slope in (1.0, 1.5, 2.0, 3.7)]
    for n, m in np.ndindex(13, 13):
        x, y = np.zeros((n + 1, 1)), np.zeros((m + 1, 1))
        for options in bands:
            try:
                expected = tslearn_metrics.soft_dtw(x, y, **options)
            except RuntimeWarning as error:
                infeasible += 1
                with pytest.raises(RuntimeWarning) as caught:
                    ours.soft_dtw(x, y, **options)
                assert str(caught.value) == str(error)
            else:
                assert ours.soft_dtw(x, y, **options) == pytest.approx(expected, rel=1e-12, abs=1e-12)
    assert 0 < infeasible < 13 * 13 * 4


@pytest.mark.parametrize("constraint", ["none", "radius", "slope"])
def test_tslearn_tensors_have_gradients(constraint: str) -> None:
    """With a band theirs are NaN: there the reference stands for them."""
    options = CONSTRAINTS[constraint]
    x, y = (randn(size, 2, seed=size, grad=True) for size in (6, 7))
    for name in ("soft_dtw", "soft_dtw_normalized"):
        theirs = getattr(tslearn_metrics._soft_dtw, name)(x, y, 0.5, **options)
        got = getattr(ours, name)(x, y, 0.5, **options)
        assert got.dtype == theirs.dtype == torch.float64 and got.shape == theirs.shape == ()
        assert got.item() == pytest.approx(theirs.item(), rel=1e-12)
        if name == "soft_dtw":
            mask = tslearn_metrics.compute_mask(
                6, 7, 0, *options.values() if constraint == "radius" else (None, *options.values())
            )
            expected = reference(x[None], y[None], 0.5, lambda i, j, mask=mask: bool(mask[i - 1, j - 1]))[1:]
            for a, b in zip(torch.autograd.grad(got, (x, y), retain_graph=True), expected, strict=True):
                # float32 inputs have float32 gradients.
                assert torch.allclose(a.double(), b[0], rtol=EPS32, atol=EPS32)
        if constraint == "none":
            for a, b in zip(
                *(torch.autograd.grad(v, (x, y), retain_graph=True) for v in (got, theirs)), strict=True
            ):
                assert torch.allclose(a, b, rtol=4 * EPS32, atol=4 * EPS32)
    alignment, value = ours.soft_dtw_alignment(x, y, 0.5, **options)
    assert alignment.dtype == value.dtype == torch.float64 and alignment.shape == (6, 7)


def ragged() -> list[list[float]]:
    return [[1, 2, 2, 3], [1.0, 2.0, 3.0, 4.0, 2.5], [0.5, 1.5, 3.5]]


DATASETS: dict[str, Any] = {
    "lists": ragged(),
    "one series": [1.0, 2.0, 4.0],
    "(n, N)": np.arange(12.0).reshape(3, 4) % 5,
    "(n, N, D)": np.arange(24.0).reshape(3, 4, 2) % 7,
    "integers": np.arange(12).reshape(3, 4) % 5,
    "float32": np.linspace(0, 1, 12, dtype=np.float32).reshape(3, 4),
    "NaN behind": np.array([[1, 2, 3, np.nan], [1, 3, 2, 4], [5, np.nan, np.nan, np.nan]]),
}


@pytest.mark.parametrize("name", DATASETS)
@pytest.mark.parametrize("constraint", ["none", "radius"])
def test_tslearn_cdist(name: str, constraint: str) -> None:
    data, options = DATASETS[name], CONSTRAINTS[constraint]
    other = np.random.default_rng(0).normal(size=(2, 6, 2 if name == "(n, N, D)" else 1))
    for function in ("cdist_soft_dtw", "cdist_soft_dtw_normalized"):
        mine, theirs = getattr(ours, function), getattr(tslearn_metrics._soft_dtw, function)
        for second in (None, other):
            got, expected = (f(data, second, gamma=0.3, **options) for f in (mine, theirs))
            assert isinstance(got, np.ndarray) and got.dtype == expected.dtype and got.shape == expected.shape
            assert np.allclose(got, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["cdist_soft_dtw", "cdist_soft_dtw_normalized"])
def test_tslearn_cdist_of_tensors(name: str) -> None:
    x, y = randn(3, 5, 2, seed=0, dtype=torch.float64, grad=True), randn(2, 6, 2, seed=1, dtype=torch.float64)
    got, expected = (getattr(module, name)(x, y, gamma=0.5) for module in (ours, tslearn_metrics))
    assert got.dtype == expected.dtype == torch.float64
    assert torch.allclose(got, expected, rtol=1e-12, atol=1e-12)
    weights = torch.arange(6.0, dtype=torch.float64).view(3, 2)
    a, b = (torch.autograd.grad((weights * value).sum(), x)[0] for value in (got, expected))
    assert torch.allclose(a, b, rtol=0, atol=1e-10)


def test_tslearn_cdist_of_tensors_with_a_band() -> None:
    """Pair by pair the values and gradients of soft_dtw, which the tests above compare with the reference."""
    x, y = randn(3, 5, 2, seed=0, dtype=torch.float64, grad=True), randn(2, 6, 2, seed=1, dtype=torch.float64)
    got = ours.cdist_soft_dtw(x, y, gamma=0.5, sakoe_chiba_radius=1)
    one_by_one = torch.stack(
        [torch.stack([ours.soft_dtw(a, b, gamma=0.5, sakoe_chiba_radius=1) for b in y]) for a in x]
    )
    assert torch.allclose(got, one_by_one, rtol=1e-12, atol=1e-12)
    a, b = (torch.autograd.grad(value.square().sum(), x)[0] for value in (got, one_by_one))
    assert torch.allclose(a, b, rtol=0, atol=1e-10)


def test_tslearn_bands_of_ragged_tensors_have_finite_gradients() -> None:
    x = torch.tensor([[1.0, 2, 3, torch.nan], [1, 3, 2, 4]], dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(ours.cdist_soft_dtw(x, gamma=0.3, sakoe_chiba_radius=1).sum(), x)
    assert gradient.isfinite().all() and gradient[0, 3] == 0 and (gradient[1] != 0).any()


@pytest.mark.parametrize(
    ("be", "given", "is_tensor"),
    [
        (None, ([1.0, 2], [1.0, 3]), False),
        (None, ([1.0, 2], torch.tensor([1.0, 3])), True),
        (None, (np.array([1.0, 2]), torch.tensor([1.0, 3])), False),
        ("pytorch", ([1.0, 2], np.array([1.0, 3])), True),
        ("numpy", (torch.tensor([1.0, 2]), [1.0, 3]), False),
    ],
)
def test_tslearn_backends(be: str | None, given: tuple[Any, Any], is_tensor: bool) -> None:
    got, theirs = ours.soft_dtw(*given, be=be), tslearn_metrics.soft_dtw(*given, be=be)
    assert isinstance(got, Tensor) is isinstance(theirs, Tensor) is is_tensor
    assert float(got) == pytest.approx(float(theirs), rel=1e-12)
    from tslearn.backend import instantiate_backend

    assert isinstance(ours.soft_dtw(*given, be=instantiate_backend(be, *given)), Tensor) is is_tensor


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda m: m.soft_dtw([np.nan, np.nan], [1.0]), ValueError),
        (lambda m: m.soft_dtw([[1.0, 2.0]], [[1.0]]), ValueError),
        (lambda m: m.soft_dtw([1.0], [1.0], sakoe_chiba_radius=1, itakura_max_slope=2.0), RuntimeWarning),
        (lambda m: m.soft_dtw([1.0] * 7, [1.0] * 3, itakura_max_slope=1.0), RuntimeWarning),
        (lambda m: m.soft_dtw([1.0], [1.0], global_constraint="slanted"), KeyError),
    ],
)
def test_tslearn_errors(call: Callable[[Any], object], error: type[Exception]) -> None:
    messages = []
    for module in (ours, tslearn_metrics):
        with pytest.raises(error) as caught:
            call(module)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("constraint", ["none", "radius", "slope"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_tslearn_loss(dtype: torch.dtype, constraint: str, normalize: bool) -> None:
    x, y = pair(7, 9, dtype=dtype)
    settings: dict[str, Any] = {"gamma": 0.5, "normalize": normalize, **CONSTRAINTS[constraint]}
    theirs = with_gradients(tslearn_metrics.SoftDTWLossPyTorch(**settings), x, y)
    got = with_gradients(ours.SoftDTWLossPyTorch(**settings), x, y)
    same(got, theirs, gradient_tolerance(0.5, 7, 9))


def test_tslearn_loss_of_integers_and_own_distances() -> None:
    """The example of tslearn's documentation: y holds integers."""
    x, y = torch.zeros((4, 3, 2), requires_grad=True), torch.arange(24).reshape(4, 3, 2)
    loss = ours.SoftDTWLossPyTorch(gamma=0.1)(x, y).mean()
    loss.backward()
    assert loss.item() == pytest.approx(1081.0)
    assert x.grad is not None and x.grad[0, 0].tolist() == pytest.approx([0.0, -0.5])
    a, b = pair(5, 6)
    for settings in ({"dist_func": l1}, {"dist_func": l1, "sakoe_chiba_radius": 1}):
        got = with_gradients(ours.SoftDTWLossPyTorch(**settings), a, b)
        same(
            got,
            with_gradients(tslearn_metrics.SoftDTWLossPyTorch(**settings), a, b),
            gradient_tolerance(1.0, 5, 6),
        )


@pytest.mark.parametrize("constraint", ["none", "radius"])
@pytest.mark.parametrize(
    "settings", [{}, {"weights": [1.0, 2.0, 0.5]}, {"weights": [1.0]}, {"init": np.zeros((6, 1))}]
)
@pytest.mark.parametrize("data", ["lists", "(n, N)", "NaN behind"])
def test_tslearn_barycenter(data: str, settings: dict[str, Any], constraint: str) -> None:
    """Few steps of the same optimiser from the same place: equal to far less than what it is still moving by."""
    got, theirs = (
        module.softdtw_barycenter(
            DATASETS[data], gamma=0.5, max_iter=4, **settings, **CONSTRAINTS[constraint]
        )
        for module in (ours, tslearn_barycenters)
    )
    assert got.shape == theirs.shape and got.dtype == theirs.dtype
    assert np.allclose(got, theirs, rtol=0, atol=1e-6)
    start = ours.softdtw_barycenter(DATASETS[data], max_iter=0, **settings)
    assert np.allclose(start, tslearn_barycenters.softdtw_barycenter(DATASETS[data], max_iter=0, **settings))
    assert np.abs(got - start).max() > 1e-2


def test_tslearn_signatures() -> None:
    for name in ours.__all__:
        module = tslearn_barycenters if name == "softdtw_barycenter" else tslearn_metrics._soft_dtw
        theirs = getattr(module, name, None) or getattr(tslearn_metrics, name)
        expected = {p.name: p.default for p in inspect.signature(theirs).parameters.values()}
        found = {p.name: p.default for p in inspect.signature(getattr(ours, name)).parameters.values()}
        assert found == expected, name
