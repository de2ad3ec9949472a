"""All pairs: values, gradients, forms of input, and the same bits on any number of devices and processes."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.multiprocessing as mp
from torch import Tensor
from torch.nn.utils.rnn import pack_sequence

import warpalign
from tests.python.helpers import Array, numpy64, randn
from tests.python.soft_dtw.reference import hard_dtw_reference, squared_distances, value_and_alignment
from warpalign import cdist_soft_dtw, cdist_soft_dtw_normalized
from warpalign._soft_dtw import pairwise_job
from warpalign._soft_dtw import tiles as _tiles

GAMMA = 0.5


def ragged(
    count: int, features: int, seed: int, dtype: torch.dtype = torch.float64, longest: int = 12
) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, longest + 1, (count,), generator=generator).tolist()
    return [
        torch.randn(length, features, generator=generator, dtype=torch.float64).to(dtype)
        for length in lengths
    ]


def reference(X: list[Tensor], Y: list[Tensor], gamma: float = GAMMA) -> Array:
    return np.array(
        [[value_and_alignment(squared_distances(numpy64(x), numpy64(y)), gamma)[0] for y in Y] for x in X]
    )


def divergences(X: list[Tensor], Y: list[Tensor]) -> Array:
    own = [np.array([reference([s], [s])[0, 0] for s in series]) for series in (X, Y)]
    return reference(X, Y) - (own[0][:, None] + own[1]) / 2


def nan_padded(X: list[Tensor], size: int) -> Tensor:
    padded = torch.full((len(X), size, X[0].shape[1]), math.nan, dtype=X[0].dtype)
    for row, series in zip(padded, X, strict=True):
        row[: len(series)] = series
    return padded


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-5)])
@pytest.mark.parametrize("block_size", [None, 1, 7, 10_000])
def test_values(device: torch.device, dtype: torch.dtype, tolerance: float, block_size: int | None) -> None:
    X, Y = ragged(9, 2, 0, dtype), ragged(6, 2, 1, dtype)
    here = [[series.to(device) for series in side] for side in (X, Y)]
    got = cdist_soft_dtw(*here, gamma=GAMMA, block_size=block_size)
    assert (got.shape, got.dtype, got.device.type) == ((9, 6), dtype, device.type)
    np.testing.assert_allclose(got.cpu(), reference(X, Y), rtol=tolerance, atol=tolerance)
    got = cdist_soft_dtw_normalized(*here, gamma=GAMMA, block_size=block_size)
    np.testing.assert_allclose(got.cpu(), divergences(X, Y), rtol=tolerance, atol=3 * tolerance)
    got = cdist_soft_dtw(here[0], gamma=GAMMA, block_size=block_size)
    np.testing.assert_allclose(got.cpu(), reference(X, X), rtol=tolerance, atol=tolerance)
    assert torch.equal(got, got.T)


def test_hard_dtw() -> None:
    X, Y = ragged(5, 2, 0), ragged(4, 2, 1)
    expected = np.array(
        [[hard_dtw_reference(squared_distances(numpy64(x), numpy64(y))) for y in Y] for x in X]
    )
    np.testing.assert_allclose(cdist_soft_dtw(X, Y, gamma=0), expected, rtol=1e-13)
    assert torch.equal(cdist_soft_dtw(X, Y, gamma=0, normalize=True), cdist_soft_dtw(X, Y, gamma=0))
    x = X[0].clone().requires_grad_()
    (got,) = torch.autograd.grad(cdist_soft_dtw([x], Y[:1], gamma=0).sum(), x)
    (plain,) = torch.autograd.grad(warpalign.dtw(x, Y[0]), x)
    assert torch.equal(got, plain)


def test_every_way_to_share_the_work_gives_the_same_bits(device: torch.device) -> None:
    X, Y = (nan_padded(ragged(*shape, torch.float32), 12).to(device) for shape in ((23, 3, 0), (11, 3, 1)))
    cross, own = cdist_soft_dtw(X, Y), cdist_soft_dtw(X)
    for block_size in (None, 1, 5, 64):
        for count in (1, 2, 4):
            options: dict[str, Any] = {"block_size": block_size, "devices": [device] * count}
            assert torch.equal(cdist_soft_dtw(X, Y, **options), cross)
            assert torch.equal(cdist_soft_dtw(X, **options), own)


@pytest.mark.parametrize("ragged_side", [0, 1])
def test_one_side_of_unequal_lengths(device: torch.device, ragged_side: int) -> None:
    sides = [torch.randn(7, 9, 2, dtype=torch.float64, device=device).requires_grad_() for _ in range(2)]
    lengths = torch.tensor([3, 9, 1, 5, 9, 2, 7], device=device)
    name = ("x_lengths", "y_lengths")[ragged_side]
    got = cdist_soft_dtw(*sides, gamma=GAMMA, block_size=6, **{name: lengths})
    weight = torch.randn(7, 7, dtype=torch.float64, device=device)
    lists = [list(side.unbind()) for side in sides]
    lists[ragged_side] = [s[:n] for s, n in zip(lists[ragged_side], lengths.tolist(), strict=True)]
    expected = torch.stack(
        [torch.stack([warpalign.soft_dtw(x, y, gamma=GAMMA) for y in lists[1]]) for x in lists[0]]
    )
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)
    found, wanted = (torch.autograd.grad((value * weight).sum(), sides) for value in (got, expected))
    for left, right in zip(found, wanted, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-10, atol=1e-10)


def test_half_of_a_symmetric_result_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = []

    def counting(x: Tensor, *arguments: Any, **options: Any) -> Tensor:
        pairs.append(len(x))
        return warpalign.soft_dtw(x, *arguments, **options)

    monkeypatch.setattr(pairwise_job, "soft_dtw", counting)
    X = torch.randn(20, 5, 1)
    for normalize in (False, True):  # the diagonal has the self terms
        pairs.clear()
        cdist_soft_dtw(X, block_size=9, normalize=normalize)
        assert sum(pairs) == 210 and max(pairs) <= 9
    pairs.clear()
    cdist_soft_dtw(X, X[:7], normalize=True, block_size=30)
    assert sum(pairs) == 20 * 7 + 20 + 7 and max(pairs) <= 30


def test_options_go_to_every_call_of_soft_dtw(monkeypatch: pytest.MonkeyPatch) -> None:
    def scaled(*arguments: Any, step_penalty: float = 1.0, **options: Any) -> Tensor:
        return step_penalty * warpalign.soft_dtw(*arguments, **options)

    X, Y = torch.randn(5, 4, 1, requires_grad=True), torch.randn(3, 4, 1)
    expected = cdist_soft_dtw(X, Y, normalize=True)
    (gradient,) = torch.autograd.grad(expected.sum(), X)
    monkeypatch.setattr(pairwise_job, "soft_dtw", scaled)
    got = cdist_soft_dtw(X, Y, normalize=True, step_penalty=2.0)
    assert torch.equal(got, 2 * expected)
    assert torch.equal(torch.autograd.grad(got.sum(), X)[0], 2 * gradient)


def test_divergence_of_equal_series_is_zero(device: torch.device) -> None:
    X = torch.randn(8, 30, 2, device=device) + 100
    assert torch.equal(cdist_soft_dtw(X, normalize=True).diagonal(), torch.zeros(8, device=device))
    assert torch.equal(cdist_soft_dtw(X, X.clone(), normalize=True).diagonal(), torch.zeros(8, device=device))
    assert cdist_soft_dtw(X.double(), normalize=True).min() >= 0


FORMS: dict[str, Callable[[list[Tensor]], object]] = {
    "list of tensors": lambda X: X,
    "tuple": tuple,
    "arrays": lambda X: [series.numpy() for series in X],
    "univariate arrays": lambda X: [series.numpy()[:, 0] for series in X],
    "array of arrays": lambda X: np.array([*(one.numpy() for one in X), None], dtype=object)[:-1],
    "packed": lambda X: pack_sequence(X, enforce_sorted=False),
    "nested": lambda X: torch.nested.nested_tensor(X, layout=torch.jagged),
    "nested lists": lambda X: [series.tolist() for series in X],
    "univariate lists": lambda X: [series[:, 0].tolist() for series in X],
    "NaN-padded tensor": lambda X: nan_padded(X, 15),
    "NaN-padded array": lambda X: nan_padded(X, 12).numpy(),
    "univariate table": lambda X: nan_padded(X, 12).numpy()[:, :, 0],
    "mirrored array": lambda X: np.flip(np.flip(nan_padded(X, 12).numpy(), 0).copy(), 0),
    "big-endian array": lambda X: nan_padded(X, 12).numpy().astype(">f8"),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_input(form: str) -> None:
    X = ragged(7, 1, 3)
    assert torch.equal(cdist_soft_dtw(FORMS[form](X), gamma=GAMMA), cdist_soft_dtw(X, gamma=GAMMA))


def test_lengths_instead_of_padding(device: torch.device) -> None:
    X, Y = ragged(7, 2, 3, torch.float32), ragged(4, 2, 4, torch.float32)
    lengths = [torch.tensor([len(s) for s in side], device=device) for side in (X, Y)]
    padded = [nan_padded(side, 12).nan_to_num(7.0).to(device) for side in (X, Y)]
    got = cdist_soft_dtw(*padded, x_lengths=lengths[0], y_lengths=lengths[1].short())
    assert torch.equal(got, cdist_soft_dtw(*([s.to(device) for s in side] for side in (X, Y))))


def test_integers_and_read_only_arrays() -> None:
    whole = np.array([[1, 2, 3], [4, 1, 0]])
    expected = cdist_soft_dtw(whole.astype(float))
    assert expected.dtype == torch.float64
    assert torch.equal(cdist_soft_dtw(whole), expected)
    assert torch.equal(cdist_soft_dtw([[1, 2, 3], [4, 1, 0]]), expected)
    fixed = whole.astype(float)
    fixed.flags.writeable = False
    assert torch.equal(cdist_soft_dtw(fixed), expected)


def test_half_precision_and_nothing_at_all() -> None:
    X = torch.randn(3, 4, 2).half()
    assert torch.equal(cdist_soft_dtw(X), cdist_soft_dtw(X.float()))
    assert cdist_soft_dtw(X[:0], X).shape == (0, 3)
    assert cdist_soft_dtw(X, X[:0], normalize=True).shape == (3, 0)
    assert cdist_soft_dtw(X[:0], normalize=True).shape == (0, 0)


def test_nan_in_a_series_is_named(device: torch.device) -> None:
    X = torch.stack([torch.randn(6, 2) for _ in range(5)]).to(device)
    X[4, 2, 0] = math.nan  # not a whole time step: a value, not padding
    message = (
        "expected numbers, got NaN in series 4 at time step 2: x_mask, or a numpy.ma.masked_array says which"
    )
    with pytest.raises(ValueError, match=f"^X: {message}"):
        cdist_soft_dtw(X)
    with pytest.raises(ValueError, match="^Y: .* in series 4 at time step 2: y_mask"):
        cdist_soft_dtw(X[:3], X)
    lengths = torch.full((5,), 2, device=device)
    assert cdist_soft_dtw(X, x_lengths=lengths).isfinite().all()  # behind the end
    assert cdist_soft_dtw(X[:4]).isfinite().all()


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("needs", [(True, False), (False, True), (True, True), "symmetric"])
def test_gradients(device: torch.device, needs: Any, count: int, normalize: bool) -> None:
    """Against autograd through a loop over pairs."""
    symmetric = needs == "symmetric"
    X, Y = ([s.to(device) for s in ragged(n, 2, n)] for n in (6, 4))
    weight = torch.randn(6, 6 if symmetric else 4, device=device, dtype=torch.float64)
    leaves = [X] if symmetric else [side for side, need in zip((X, Y), needs, strict=True) if need]
    flat = [series.requires_grad_() for side in leaves for series in side]
    got = cdist_soft_dtw(
        X,
        None if symmetric else Y,
        gamma=GAMMA,
        block_size=5,
        devices=[device] * count,
        normalize=normalize,
    )
    found = torch.autograd.grad((got * weight).sum(), flat)

    def one(x: Tensor, y: Tensor) -> Tensor:
        value = warpalign.soft_dtw(x, y, gamma=GAMMA)
        if not normalize:
            return value
        own = [warpalign.soft_dtw(s, s, gamma=GAMMA) for s in (x, y)]
        return value - (own[0] + own[1]) / 2

    loop = torch.stack([torch.stack([one(x, y) for y in (X if symmetric else Y)]) for x in X])
    torch.testing.assert_close(got, loop, rtol=1e-12, atol=1e-12)
    for left, right in zip(found, torch.autograd.grad((loop * weight).sum(), flat), strict=True):
        torch.testing.assert_close(left, right, rtol=1e-10, atol=1e-10)


def test_gradients_keep_no_pairs_and_repeat_bit_for_bit(device: torch.device) -> None:
    X = torch.randn(40, 30, 4, device=device, requires_grad=True)
    saved: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        saved.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        value = cdist_soft_dtw(X).sum()
    assert sum(tensor.numel() for tensor in saved) == X.numel()
    first = torch.autograd.grad(value, X)[0]
    assert torch.equal(torch.autograd.grad(cdist_soft_dtw(X).sum(), X)[0], first)


def test_differentiating_twice_raises() -> None:
    X = torch.randn(3, 4, 1, requires_grad=True)
    (grad,) = torch.autograd.grad(cdist_soft_dtw(X).sum(), X, create_graph=True)
    with pytest.raises(NotImplementedError, match="second derivatives of cdist_soft_dtw"):
        grad.sum().backward()


def test_torch_func_differentiates_as_backward_does() -> None:
    X, Y = randn(3, 4, 2, seed=1), randn(2, 5, 2, seed=2)

    def loss(X: Tensor) -> Tensor:
        return cdist_soft_dtw(X, Y).square().sum() + cdist_soft_dtw(X, normalize=True).square().sum()

    leaf = X.clone().requires_grad_()
    expected = torch.autograd.grad(loss(leaf), leaf)[0]
    assert torch.equal(torch.func.grad(loss)(X), expected)
    jacobian = torch.func.jacrev(lambda X: cdist_soft_dtw(X, Y))(X)
    forward = torch.func.jacfwd(lambda X: cdist_soft_dtw(X, Y, block_size=2, devices=["cpu", "cpu"]))(X)
    torch.testing.assert_close(jacobian, forward, rtol=1e-5, atol=1e-5)  # rounding in float32

    def outer(X: Tensor) -> Tensor:
        return torch.func.grad(lambda y: cdist_soft_dtw(X, Y).sum() * y.square().sum())(Y).sum()

    of_outer = 2 * Y.sum() * torch.func.grad(lambda X: cdist_soft_dtw(X, Y).sum())(X)
    torch.testing.assert_close(torch.func.grad(outer)(X), of_outer, rtol=1e-5, atol=1e-5)  # order of products


@pytest.mark.parametrize(
    ("transform", "what"),
    [
        (lambda f: torch.func.hessian(f), "derivatives of cdist_soft_dtw"),
        (lambda f: torch.func.grad(lambda x: torch.func.grad(f)(x).sum()), "second derivatives of cdist_soft_dtw"),
        (lambda f: torch.func.jacrev(torch.func.grad(f)), "second derivatives of cdist_soft_dtw"),
        (lambda f: torch.func.grad(lambda x: torch.func.jvp(f, (x,), (x,))[1]), "forward mode"),
        (lambda f: torch.func.vmap(f), "cdist_soft_dtw is not available under torch.func.vmap"),
    ],
)  # fmt: skip
def test_transforms_without_a_rule_raise_and_are_not_0(transform: Any, what: str) -> None:
    X, Y = randn(3, 4, 2, seed=1), randn(2, 5, 2, seed=2)
    with pytest.raises(NotImplementedError, match=f"warpalign: .*{what}"):
        transform(lambda X: cdist_soft_dtw(X, Y).square().sum())(X)


def test_no_graph_without_gradients() -> None:
    X = torch.randn(3, 4, 1, requires_grad=True)
    with torch.no_grad():
        assert not cdist_soft_dtw(X, normalize=True).requires_grad
    assert not cdist_soft_dtw(X.detach()).requires_grad


def test_work_is_shared_evenly() -> None:
    lengths = torch.randint(10, 500, (200,), generator=torch.Generator().manual_seed(0)).sort(
        descending=True
    )[0]
    for y_lengths in (None, lengths[:90]):
        tiles = _tiles.tiles_of(lengths, y_lengths, 300)
        loads = [sum(tile.work for tile in share) for share in _tiles.shared_out(tiles, 4)]
        assert max(loads) < 1.02 * sum(loads) / 4


def test_progress_bar_counts_every_pair(capsys: pytest.CaptureFixture[str]) -> None:
    cdist_soft_dtw(torch.randn(10, 5, 1), block_size=4, devices=["cpu", "cpu"], progress=True)
    assert "55.0/55.0" in capsys.readouterr().err


def test_as_tslearn() -> None:
    metrics = pytest.importorskip("tslearn.metrics")
    X = ragged(6, 2, 0)
    padded = nan_padded(X, 12).numpy()
    expected = metrics.cdist_soft_dtw(padded, gamma=GAMMA)
    np.testing.assert_allclose(cdist_soft_dtw(padded, gamma=GAMMA), expected, rtol=1e-6, atol=1e-6)
    expected = metrics.cdist_soft_dtw_normalized(padded, gamma=GAMMA)
    np.testing.assert_allclose(cdist_soft_dtw_normalized(padded, gamma=GAMMA), expected, rtol=1e-6, atol=1e-5)


def _process(rank: int, world: int, folder: str) -> None:
    torch.set_num_threads(1)
    store = torch.distributed.FileStore(f"{folder}/store", world)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=world)
    X, Y = ragged(23, 3, 0, torch.float32), ragged(11, 3, 1, torch.float32)
    computed = []

    def counting(x: Tensor, *arguments: Any, **options: Any) -> Tensor:
        computed.append(len(x))
        return warpalign.soft_dtw(x, *arguments, **options)

    vars(pairwise_job)["soft_dtw"] = counting
    # As many threads as the rank says: the shares of the processes must not depend on that.
    options: dict[str, Any] = {"distributed": True, "devices": ["cpu"] * (1 + rank)}
    own = cdist_soft_dtw(X, **options)
    torch.save((own, cdist_soft_dtw(X, Y, normalize=True, **options), computed), f"{folder}/{rank}.pt")
    try:
        cdist_soft_dtw(torch.randn(2, 3, 1, requires_grad=True), distributed=torch.distributed.group.WORLD)
        raise AssertionError("not refused")
    except ValueError as error:
        assert "distributed: expected series that require no gradient" in str(error)
    torch.distributed.destroy_process_group()


def test_two_processes_give_the_bits_of_one(tmp_path: Path) -> None:
    mp.spawn(_process, args=(2, str(tmp_path)), nprocs=2)  # type: ignore[no-untyped-call]
    X, Y = ragged(23, 3, 0, torch.float32), ragged(11, 3, 1, torch.float32)
    shares = []
    for rank in range(2):
        own, cross, computed = torch.load(tmp_path / f"{rank}.pt")
        assert torch.equal(own, cdist_soft_dtw(X))
        assert torch.equal(cross, cdist_soft_dtw(X, Y, normalize=True))
        shares.append(sum(computed) - 23 - 11)  # the self terms are computed in both
    assert sum(shares) == 23 * 24 // 2 + 23 * 11
    assert min(shares) > 0.35 * sum(shares)


def test_progress_without_tqdm(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with pytest.raises(ImportError, match=r"progress=True needs tqdm.*pip install 'warpalign\[progress\]'"):
        cdist_soft_dtw(torch.zeros(2, 3, 1), progress=True)
