"""Under torch.func: vmap, grad, jacrev and their compositions equal loops over plain calls."""

from __future__ import annotations

import pytest
import torch
from torch.func import grad, jacrev, vmap

import warpalign
from tests.python.helpers import assert_tensors_close, randn
from tests.python.soft_dtw.reference import pair
from warpalign import soft_dtw, soft_dtw_cost

Tensors = tuple[torch.Tensor, ...]


def stacked(results: list[Tensors]) -> Tensors:
    return tuple(torch.stack(parts) for parts in zip(*results, strict=True))


@pytest.mark.parametrize("in_dims", [(0, 0), (0, None), (None, 0), (1, 2)])
@pytest.mark.parametrize("unbatched", [False, True])
def test_vmap_equals_a_loop(
    device: torch.device, unbatched: bool, in_dims: tuple[int | None, int | None]
) -> None:
    shape = () if unbatched else (2,)
    x = randn(5, *shape, 6, 3, seed=0, device=device)
    y = randn(5, *shape, 7, 3, seed=1, device=device)

    def call(x: torch.Tensor, y: torch.Tensor) -> Tensors:
        return warpalign.soft_dtw(x, y), *warpalign.soft_dtw_alignment(x, y)

    expected = stacked(
        [call(x[0] if in_dims[0] is None else x[i], y[0] if in_dims[1] is None else y[i]) for i in range(5)]
    )
    inputs = [t[0] if dim is None else t.movedim(0, dim) for t, dim in zip((x, y), in_dims, strict=True)]
    assert_tensors_close(vmap(call, in_dims)(*inputs), expected)


@pytest.mark.parametrize("in_dims", [(0, 0), (0, None), (None, 0)])
@pytest.mark.parametrize("argnums", [0, 1, (0, 1)])
def test_vmap_of_grad_equals_a_loop(
    device: torch.device, argnums: int | tuple[int, ...], in_dims: tuple[int | None, int | None]
) -> None:
    x, y = pair(5, 6, 7, 3, device=device)
    x, y = (x if in_dims[0] == 0 else x[0]), (y if in_dims[1] == 0 else y[0])
    gradient = grad(lambda x, y: 2 * warpalign.soft_dtw(x, y), argnums)

    def as_tuple(result: torch.Tensor | Tensors) -> Tensors:
        return result if isinstance(result, tuple) else (result,)

    expected = stacked(
        [as_tuple(gradient(x[i] if in_dims[0] == 0 else x, y[i] if in_dims[1] == 0 else y)) for i in range(5)]
    )
    assert_tensors_close(as_tuple(vmap(gradient, in_dims)(x, y)), expected)


@pytest.mark.parametrize("in_dims", [(0, 0), (0, None), (None, 0)])
def test_grad_of_vmap(device: torch.device, in_dims: tuple[int | None, int | None]) -> None:
    x, y = pair(5, 6, 7, 3, device=device)
    x, y = (x if in_dims[0] == 0 else x[0]), (y if in_dims[1] == 0 else y[0])
    got = grad(lambda x, y: vmap(warpalign.soft_dtw, in_dims)(x, y).sum(), (0, 1))(x, y)
    loop = grad(
        lambda x, y: sum(
            warpalign.soft_dtw(x[i] if in_dims[0] == 0 else x, y[i] if in_dims[1] == 0 else y)
            for i in range(5)
        ),
        (0, 1),
    )(x, y)
    assert_tensors_close(got, loop)


def test_backward_through_vmap(device: torch.device) -> None:
    x, y = pair(5, 6, 7, 3, device=device, grad=True)
    got = torch.autograd.grad(vmap(warpalign.soft_dtw)(x, y).sum(), (x, y))
    assert_tensors_close(got, torch.autograd.grad(warpalign.soft_dtw(x, y).sum(), (x, y)))


def test_all_pairs_by_nested_vmap(device: torch.device) -> None:
    x, y = randn(4, 6, 3, seed=0, device=device), randn(5, 7, 3, seed=1, device=device)

    def distances(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return vmap(vmap(warpalign.soft_dtw, (None, 0)), (0, None))(x, y)

    expected = warpalign.soft_dtw(x.repeat_interleave(5, 0), y.repeat(4, 1, 1)).reshape(4, 5)
    assert_tensors_close((distances(x, y),), (expected,))
    got = grad(lambda x: distances(x, y).sum())(x)
    loop = grad(lambda x: warpalign.soft_dtw(x.repeat_interleave(5, 0), y.repeat(4, 1, 1)).sum())(x)
    assert_tensors_close((got,), (loop,))


@pytest.mark.parametrize("which", ["x_lengths", "y_lengths", "both"])
@pytest.mark.parametrize("shared", [False, True])
def test_vmap_over_lengths(device: torch.device, which: str, shared: bool) -> None:
    """Batches of ragged batches; lengths of their own for each, or the same for all."""
    x, y = randn(3, 2, 6, 3, seed=0, device=device), randn(3, 2, 7, 3, seed=1, device=device)
    lengths = torch.tensor([[6, 1], [2, 3], [5, 6]], device=device)
    lengths_dim = None if shared else 0
    names = ["x_lengths", "y_lengths"] if which == "both" else [which]

    def call(x: torch.Tensor, y: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return warpalign.soft_dtw(x, y, **dict.fromkeys(names, lengths))

    lengths = lengths[0] if shared else lengths
    expected = torch.stack([call(x[i], y[i], lengths if shared else lengths[i]) for i in range(3)])
    got = vmap(call, (0, 0, lengths_dim))(x, y, lengths)
    assert_tensors_close((got,), (expected,))


def test_vmap_over_lengths_alone(device: torch.device) -> None:
    x, y = pair(2, 6, 7, 3, device=device)
    lengths = torch.tensor([[6, 1], [2, 3], [5, 6]], device=device)
    got = vmap(lambda n: warpalign.soft_dtw(x, y, x_lengths=n))(lengths)
    expected = torch.stack([warpalign.soft_dtw(x, y, x_lengths=n) for n in lengths])
    assert_tensors_close((got,), (expected,))


def test_vmap_of_cost_matrices(device: torch.device) -> None:
    cost = randn(3, 2, 5, 6, seed=0, device=device)
    lengths = torch.tensor([[5, 1], [2, 3], [5, 4]], device=device)
    call = lambda c, n: warpalign.soft_dtw_cost(c, x_lengths=n)  # noqa: E731
    got = vmap(call)(cost, lengths), vmap(grad(lambda c, n: call(c, n).sum()))(cost, lengths)
    expected = (
        torch.stack([call(c, n) for c, n in zip(cost, lengths, strict=True)]),
        torch.stack([grad(lambda c, n: call(c, n).sum())(c, n) for c, n in zip(cost, lengths, strict=True)]),
    )
    assert_tensors_close(got, expected)


def test_vmap_of_half_types(device: torch.device) -> None:
    x, y = pair(4, 6, 7, 3, device=device, dtype=torch.bfloat16)
    got = vmap(grad(lambda x, y: warpalign.soft_dtw(x, y)))(x, y)
    assert got.dtype == torch.bfloat16
    expected = grad(lambda x: warpalign.soft_dtw(x, y).sum())(x)
    torch.testing.assert_close(got, expected)


def test_vmap_of_an_empty_batch(device: torch.device) -> None:
    x, y = pair(0, 6, 7, 3, device=device)
    got = vmap(lambda x, y: warpalign.soft_dtw(x, y))(
        x[None].expand(2, -1, -1, -1), y[None].expand(2, -1, -1, -1)
    )
    assert got.shape == (2, 0)


def test_vmap_of_single_pairs_that_share_a_length(device: torch.device) -> None:
    """Folded into the batch, one length is repeated without memory of its own."""
    x, y = randn(4, 1, 5, 2, seed=0, device=device), randn(1, 6, 2, seed=1, device=device)
    n = torch.tensor([3], device=device)
    expected = torch.stack([soft_dtw(a, y, x_lengths=n, y_lengths=n) for a in x])
    assert torch.equal(vmap(lambda a: soft_dtw(a, y, x_lengths=n, y_lengths=n))(x), expected)
    cost = randn(4, 1, 5, 6, seed=2, device=device)
    expected = torch.stack([soft_dtw_cost(c, x_lengths=n) for c in cost])
    assert torch.equal(vmap(lambda c: soft_dtw_cost(c, x_lengths=n))(cost), expected)


def test_gradients_through_torch_func(device: torch.device) -> None:
    x, y = pair(3, 5, 6, 2, device=device, dtype=torch.float64, grad=True)
    gx, gy = torch.autograd.grad(soft_dtw(x, y).sum(), (x, y))
    pairs = vmap(soft_dtw)  # of unbatched series
    got = {
        "grad": (grad(lambda a: soft_dtw(a, y).sum())(x), gx),
        "vmap of grad": (vmap(grad(soft_dtw))(x, y), gx),
        "grad of vmap": (grad(lambda b: pairs(x, b).sum())(y), gy),
        "vmap of jacrev": (vmap(jacrev(soft_dtw))(x, y), gx),
        "jacrev": (jacrev(lambda a: soft_dtw(a, y))(x).sum(0), gx),
        "jacrev of vmap": (jacrev(lambda a: pairs(a, y))(x).sum(0), gx),
        "vmap under autograd": (torch.autograd.grad(pairs(x, y).sum(), x)[0], gx),
    }
    for name, (result, expected) in got.items():
        torch.testing.assert_close(
            result, expected, rtol=1e-12, atol=1e-12, msg=lambda m, name=name: f"{name}: {m}"
        )
