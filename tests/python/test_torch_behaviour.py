"""What PyTorch may ask of the operators and functions: autograd, torch.func, torch.compile, opcheck, layouts, streams.

Numbers are compared with the same call made plainly; whether those are right is test_values.py's part.
"""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import grad, jacrev, vmap

import warpalign
from warpalign import SoftDTW, soft_dtw, soft_dtw_alignment, soft_dtw_cost

F64 = torch.float64
OPS = torch.ops.warpalign


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> torch.device:
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU")
    return torch.device(request.param)


def series(*shape: int, device: torch.device, dtype: torch.dtype = F64, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(*shape, generator=generator, dtype=F64).to(device, dtype)


def value_and_grads(function: Callable[..., Tensor], *inputs: Tensor) -> tuple[Tensor, ...]:
    leaves = [t.detach().clone().requires_grad_() for t in inputs]
    value = function(*leaves)
    return value.detach(), *torch.autograd.grad(value.sum(), leaves)


def assert_same(got: tuple[Tensor, ...], expected: tuple[Tensor, ...], tolerance: float = 1e-12) -> None:
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


# Autograd


def test_gradcheck(device: torch.device) -> None:
    x, y = (series(3, n, 2, device=device).requires_grad_() for n in (5, 7))
    n, m = torch.tensor([5, 3, 1], device=device), torch.tensor([7, 2, 4], device=device)
    cost = series(3, 5, 7, device=device).requires_grad_()
    check = torch.autograd.gradcheck
    assert check(lambda a, b: soft_dtw(a, b, gamma=0.7, x_lengths=n, y_lengths=m), (x, y))
    assert check(lambda a, b: soft_dtw(a, b), (x, y), check_batched_grad=True)
    assert check(lambda a, b: soft_dtw(a[:1], b, reduction="mean"), (x, y))  # a batch of 1, summed by expand
    assert check(lambda a: soft_dtw(a, a[:, :4]), (x,))  # both sides from one tensor
    assert check(lambda c: soft_dtw_cost(c, gamma=0.7, n_lengths=n, m_lengths=m), (cost,))
    assert check(lambda a, b: soft_dtw_alignment(a, b).value, (x, y))


@pytest.mark.parametrize("wanted", ["x", "y"])
def test_only_the_gradient_that_is_wanted(device: torch.device, wanted: str) -> None:
    inputs = {"x": series(2, 5, 3, device=device), "y": series(2, 4, 3, device=device, seed=1)}
    both = dict(zip("xy", value_and_grads(soft_dtw, *inputs.values())[1:], strict=True))
    inputs[wanted].requires_grad_()
    value = soft_dtw(**inputs)
    value.backward(torch.tensor([2.0, -0.5], device=device, dtype=F64))
    scale = torch.tensor([2.0, -0.5], device=device, dtype=F64).view(2, 1, 1)
    assert torch.equal(inputs[wanted].grad, both[wanted] * scale)
    assert inputs["y" if wanted == "x" else "x"].grad is None


def test_value_is_the_same_with_and_without_gradient(device: torch.device) -> None:
    x, y = series(3, 40, 2, device=device), series(3, 33, 2, device=device)
    for dtype in (torch.float32, F64):
        a, b = x.to(dtype), y.to(dtype)
        plain = soft_dtw(a, b)
        assert not plain.requires_grad
        wanted = soft_dtw(a.clone().requires_grad_(), b)
        assert wanted.requires_grad
        torch.testing.assert_close(
            plain, wanted.detach(), rtol=1e-6 if dtype == torch.float32 else 1e-13, atol=0
        )
        with torch.no_grad():
            assert not soft_dtw(a.clone().requires_grad_(), b).requires_grad
        with torch.inference_mode():
            assert torch.equal(soft_dtw(a, b), plain)


def test_the_alignment_is_not_differentiable(device: torch.device) -> None:
    x, y = series(2, 4, 2, device=device).requires_grad_(), series(2, 5, 2, device=device)
    result = soft_dtw_alignment(x, y)
    assert result.value.requires_grad
    assert not result.alignment.requires_grad


# torch.func


def test_vmap_of_one_side_or_both(device: torch.device) -> None:
    x, y = series(4, 3, 5, 2, device=device), series(4, 3, 6, 2, device=device)
    both = torch.stack([soft_dtw(a, b) for a, b in zip(x, y, strict=True)])
    left = torch.stack([soft_dtw(a, y[0]) for a in x])
    assert torch.equal(vmap(soft_dtw)(x, y), both)
    assert torch.equal(vmap(lambda a: soft_dtw(a, y[0]))(x), left)
    assert torch.equal(vmap(lambda a: soft_dtw(a, y[0]), in_dims=3)(x.movedim(0, 3)), left)
    assert torch.equal(vmap(lambda a: vmap(lambda b: soft_dtw(a, b))(y[0]))(x[0]), soft_dtw_table(x[0], y[0]))
    assert vmap(lambda a: soft_dtw(a, y[0, :0]))(x[:, :0]).shape == (4, 0)


def soft_dtw_table(x: Tensor, y: Tensor) -> Tensor:
    """Of each x with each y."""
    return torch.stack([soft_dtw(a.expand(len(y), -1, -1), y) for a in x])


def test_vmap_with_lengths(device: torch.device) -> None:
    x, y = series(4, 3, 5, 2, device=device), series(3, 6, 2, device=device)
    lengths = torch.tensor([[5, 1, 2], [1, 2, 3], [4, 4, 4], [5, 5, 1]], device=device)
    for shared in (lengths[0], lengths[0].int()):
        expected = torch.stack([soft_dtw(a, y, x_lengths=shared) for a in x])
        assert torch.equal(vmap(lambda a, n=shared: soft_dtw(a, y, x_lengths=n))(x), expected)
    expected = torch.stack([soft_dtw(a, y, x_lengths=n) for a, n in zip(x, lengths, strict=True)])
    assert torch.equal(vmap(lambda a, n: soft_dtw(a, y, x_lengths=n))(x, lengths), expected)
    expected = torch.stack([soft_dtw(x[0], y, x_lengths=n) for n in lengths])
    assert torch.equal(vmap(lambda n: soft_dtw(x[0], y, x_lengths=n))(lengths), expected)


def test_vmap_of_single_pairs_that_share_a_length(device: torch.device) -> None:
    """Folded into the batch, one length is repeated without memory of its own."""
    x, y, n = (
        series(4, 1, 5, 2, device=device),
        series(1, 6, 2, device=device),
        torch.tensor([3], device=device),
    )
    expected = torch.stack([soft_dtw(a, y, x_lengths=n, y_lengths=n) for a in x])
    assert torch.equal(vmap(lambda a: soft_dtw(a, y, x_lengths=n, y_lengths=n))(x), expected)
    cost = series(4, 1, 5, 6, device=device)
    expected = torch.stack([soft_dtw_cost(c, n_lengths=n) for c in cost])
    assert torch.equal(vmap(lambda c: soft_dtw_cost(c, n_lengths=n))(cost), expected)


def test_vmap_of_alignment_and_cost(device: torch.device) -> None:
    x, y = series(4, 3, 5, 2, device=device), series(3, 6, 2, device=device)
    result = vmap(lambda a: soft_dtw_alignment(a, y))(x)
    assert torch.equal(result.alignment, torch.stack([soft_dtw_alignment(a, y).alignment for a in x]))
    cost = series(4, 3, 5, 6, device=device)
    assert torch.equal(vmap(soft_dtw_cost)(cost), torch.stack([soft_dtw_cost(c) for c in cost]))


def test_gradients_through_torch_func(device: torch.device) -> None:
    x, y = series(3, 5, 2, device=device), series(3, 6, 2, device=device)
    value, gx, gy = value_and_grads(soft_dtw, x, y)
    pairs = vmap(soft_dtw)  # of unbatched series
    got: dict[str, tuple[Tensor, Tensor]] = {
        "grad": (grad(lambda a: soft_dtw(a, y).sum())(x), gx),
        "vmap of grad": (vmap(grad(soft_dtw))(x, y), gx),
        "grad of vmap": (grad(lambda b: pairs(x, b).sum())(y), gy),
        "vmap of jacrev": (vmap(jacrev(soft_dtw))(x, y), gx),
        "jacrev": (jacrev(lambda a: soft_dtw(a, y))(x).sum(0), gx),
        "jacrev of vmap": (jacrev(lambda a: pairs(a, y))(x).sum(0), gx),
        "vmap under autograd": (value_and_grads(pairs, x, y)[1], gx),
    }
    for name, (result, expected) in got.items():
        torch.testing.assert_close(
            result, expected, rtol=1e-12, atol=1e-12, msg=lambda m, name=name: f"{name}: {m}"
        )


# torch.compile, with a backend that is quick to start; the graphs are the same as inductor's


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    torch._dynamo.reset()
    result: Callable[..., Any] = torch.compile(function, fullgraph=True, backend="aot_eager", **options)
    return result


def test_compiled_step_equals_the_eager_one(device: torch.device) -> None:
    x, y = series(3, 5, 2, device=device), series(3, 6, 2, device=device)
    n = torch.tensor([5, 2, 4], device=device)
    cases: list[Callable[..., Tensor]] = [
        soft_dtw,
        lambda a, b: soft_dtw(a, b, gamma=0.3, x_lengths=n, reduction="mean"),
        lambda a, b: soft_dtw(a[0], b[0]),
        lambda a, b: soft_dtw(a, b[:1]),
        lambda a, b: soft_dtw_alignment(a, b).value,
        lambda a, b: soft_dtw_cost(torch.cdist(a, b), n_lengths=n),
        SoftDTW(gamma=0.2, reduction="sum"),
    ]
    for case in cases:
        assert_same(value_and_grads(compiled(case), x, y), value_and_grads(case, x, y))


def test_compiled_with_inductor(device: torch.device) -> None:
    x, y = series(3, 5, 2, device=device), series(3, 6, 2, device=device)
    torch._dynamo.reset()
    function = torch.compile(soft_dtw, fullgraph=True)
    assert_same(value_and_grads(function, x, y), value_and_grads(soft_dtw, x, y))


def test_compiled_with_changing_shapes(device: torch.device) -> None:
    function = compiled(soft_dtw, dynamic=True)
    for batch, n, m in ((2, 5, 6), (4, 9, 6), (3, 2, 8)):
        x, y = series(batch, n, 2, device=device), series(batch, m, 2, device=device)
        assert_same(value_and_grads(function, x, y), value_and_grads(soft_dtw, x, y))


def test_compiled_with_changing_gamma(device: torch.device) -> None:
    x, y = series(2, 5, 2, device=device), series(2, 6, 2, device=device)
    function = compiled(lambda a, b, gamma: soft_dtw(a, b, gamma=gamma))
    for gamma in (0.1, 0.2, 1.0, 2, 5.5):
        assert torch.equal(function(x, y, gamma), soft_dtw(x, y, gamma=gamma))


def test_compiled_vmap(device: torch.device) -> None:
    x, y = series(3, 5, 2, device=device), series(3, 6, 2, device=device)
    assert torch.equal(compiled(vmap(soft_dtw))(x, y), soft_dtw(x, y))


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (soft_dtw, (3, 5, 2)),
        (lambda a, b: soft_dtw(b, a), (3, 5, 2)),
        (lambda a, b: soft_dtw(a, b[:1]), (3, 5, 2)),
        (lambda a, b: soft_dtw_alignment(a, b).value, (3, 5, 2)),
        (lambda c, _: soft_dtw_cost(c), (3, 5, 6)),
        (lambda c, _: soft_dtw_cost(c[0]), (3, 5, 6)),
    ],
)
def test_compiled_torch_func_grad(
    device: torch.device, function: Callable[..., Tensor], shape: tuple[int, ...]
) -> None:
    """Its inputs tell the tracer that they require no gradient: a careless front end returns zeros, and no error."""
    x, y = series(*shape, device=device), series(3, 6, 2, device=device)
    got = compiled(grad(lambda a: function(a, y).sum()))(x)
    assert_same((got,), value_and_grads(lambda a: function(a, y), x)[1:])


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_export(device: torch.device) -> None:
    x, y = series(3, 5, 2, device=device), series(3, 6, 2, device=device)
    program = torch.export.export(SoftDTW(gamma=0.5), (x, y))
    assert torch.equal(program.module()(x, y), soft_dtw(x, y, gamma=0.5))


# The raw operators


@pytest.mark.parametrize("wanted", [(True, True), (True, False), (False, False)])
@pytest.mark.parametrize("batch", [0, 3])
def test_opcheck(device: torch.device, batch: int, wanted: tuple[bool, bool]) -> None:
    x, y = series(batch, 5, 2, device=device), series(batch, 6, 2, device=device)
    n = torch.full((batch,), 2, dtype=torch.int32, device=device)
    for lengths in ((None, None), (n, n), (None, n)):
        torch.library.opcheck(OPS.soft_dtw.default, (x, y, *lengths, 0.5, *wanted))
        torch.library.opcheck(OPS.soft_dtw_alignment.default, (x, y, *lengths, 0.5, *wanted))
        torch.library.opcheck(
            OPS.soft_dtw_cost.default, (series(batch, 5, 6, device=device), *lengths, 0.5, wanted[0])
        )


def test_raw_operators_give_nothing_that_is_not_wanted(device: torch.device) -> None:
    x, y = series(3, 5, 2, device=device), series(3, 6, 2, device=device)
    value, grad_x, grad_y, _ = OPS.soft_dtw(x, y, None, None, 1.0, False, True)
    assert (value.shape, grad_x.shape, grad_y.shape) == ((3,), (0,), y.shape)
    value, table, _ = OPS.soft_dtw_cost(series(3, 5, 6, device=device), None, None, 1.0, False)
    assert (value.shape, table.shape) == ((3,), (0,))


# Memory layouts, dtypes, modules


def test_strides_are_taken_as_they_are(device: torch.device) -> None:
    x, y = series(3, 5, 4, device=device), series(3, 6, 4, device=device)
    expected = value_and_grads(soft_dtw, x, y)
    buffer = series(7, 12, 9, device=device)
    layouts: list[Callable[[Tensor], Tensor]] = [
        lambda t: t.transpose(0, 1).contiguous().transpose(0, 1),  # time first
        lambda t: t.transpose(1, 2).contiguous().transpose(1, 2),  # features before time
        lambda t: t.permute(2, 1, 0).contiguous().permute(2, 1, 0),
        lambda t: buffer.clone()[1 : 1 + t.shape[0], 2 : 2 + t.shape[1], 3 : 3 + t.shape[2]].copy_(t),
        lambda t: t.repeat_interleave(2, dim=1)[:, ::2],
        lambda t: t.flip(1).contiguous().flip(1),
    ]
    for layout in layouts:
        assert_same(value_and_grads(lambda a, b, f=layout: soft_dtw(f(a), f(b)), x, y), expected)
        assert torch.equal(soft_dtw(layout(x), layout(y)), soft_dtw(x, y))
    cost = series(3, 5, 6, device=device)
    transposed = cost.transpose(1, 2).contiguous().transpose(1, 2)
    assert torch.equal(soft_dtw_cost(transposed), soft_dtw_cost(cost))
    lengths = torch.tensor([[5, 9], [2, 9], [1, 9]], device=device)[:, 0]
    assert torch.equal(soft_dtw(x, y, x_lengths=lengths), soft_dtw(x, y, x_lengths=lengths.clone()))


def test_lazy_negation_and_expanded_inputs(device: torch.device) -> None:
    y = series(3, 6, 2, device=device)
    lazy = torch.complex(series(3, 5, 2, device=device), series(3, 5, 2, device=device, seed=1)).conj().imag
    assert lazy.is_neg()
    assert torch.equal(soft_dtw(lazy, y), soft_dtw(lazy.resolve_neg(), y))
    one = series(1, 1, 2, device=device)
    assert torch.equal(soft_dtw(one.expand(3, 5, 2), y), soft_dtw(one.expand(3, 5, 2).contiguous(), y))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_are_widened(device: torch.device, dtype: torch.dtype) -> None:
    x, y = series(2, 5, 3, device=device, dtype=dtype), series(2, 6, 3, device=device, dtype=dtype)
    value, grad_x, grad_y = value_and_grads(soft_dtw, x, y)
    wide = value_and_grads(soft_dtw, x.float(), y.float())
    assert value.dtype == torch.float32
    assert torch.equal(value, wide[0])
    assert grad_x.dtype == grad_y.dtype == dtype
    assert torch.equal(grad_x, wide[1].to(dtype))


def test_autocast_leaves_inputs_alone(device: torch.device) -> None:
    x, y = (series(2, n, 3, device=device, dtype=torch.float32) for n in (5, 6))
    expected = value_and_grads(soft_dtw, x, y)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        assert_same(value_and_grads(soft_dtw, x, y), expected, tolerance=0)


def test_modules_can_be_saved_and_copied(device: torch.device) -> None:
    x, y = series(2, 5, 3, device=device), series(2, 6, 3, device=device)
    module = SoftDTW(gamma=0.25, reduction="mean")
    buffer = io.BytesIO()
    torch.save(module, buffer)
    buffer.seek(0)
    for other in (copy.deepcopy(module), torch.load(buffer, weights_only=False)):
        assert repr(other) == repr(module) == "SoftDTW(gamma=0.25, reduction='mean')"
        assert torch.equal(other(x, y), module(x, y))
    assert module.state_dict() == {}
    assert warpalign.__version__


def test_shapes_of_results(device: torch.device) -> None:
    x, y = series(3, 5, 2, device=device), series(3, 6, 2, device=device)
    assert soft_dtw(x[0], y[0]).shape == ()
    assert soft_dtw_cost(series(5, 6, device=device)).shape == ()
    assert soft_dtw_alignment(x[0], y[0]).alignment.shape == (5, 6)
    assert torch.equal(soft_dtw(x[:1], y), soft_dtw(x[:1].expand(3, -1, -1), y))
    assert torch.equal(soft_dtw(x, y[:1]), soft_dtw(x, y[:1].expand(3, -1, -1)))
    for reduction, expected in (("mean", soft_dtw(x, y).mean()), ("sum", soft_dtw(x, y).sum())):
        assert torch.equal(soft_dtw(x, y, reduction=reduction), expected)


def test_an_empty_batch(device: torch.device) -> None:
    value, grad_x, grad_y = value_and_grads(
        soft_dtw, series(0, 5, 2, device=device), series(0, 6, 2, device=device)
    )
    assert (value.shape, grad_x.shape, grad_y.shape) == ((0,), (0, 5, 2), (0, 6, 2))
    lengths = torch.empty(0, dtype=torch.int64, device=device)
    empty = series(0, 5, 2, device=device)
    assert soft_dtw(empty, series(1, 6, 2, device=device), x_lengths=lengths).shape == (0,)
    assert soft_dtw_alignment(empty, empty).alignment.shape == (0, 5, 5)
