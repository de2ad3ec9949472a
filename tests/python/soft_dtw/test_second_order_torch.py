"""Second derivatives in PyTorch: memory, torch.func, torch.autograd.functional, forward mode, torch.compile, opcheck."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad, grad

import warpalign
from tests.python.helpers import randn
from tests.python.soft_dtw.hessian import cost_table, plain_value
from tests.python.soft_dtw.reference import pair
from warpalign import soft_dtw, soft_dtw_cost

F64 = torch.float64
OPS = torch.ops.warpalign


# Memory


def saved_elements(run: Callable[[], Tensor]) -> int:
    count = 0

    def note(tensor: Tensor) -> Tensor:
        nonlocal count
        count = max(count, tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        run()
    return count


def test_no_table_is_kept_or_made() -> None:
    """Neither between the passes nor within them; the largest thing allowed is a fraction of N x M numbers."""
    x, y = pair(1, 4096, 4096, 1, grad=True)

    def step() -> Tensor:
        (gradient,) = grad(soft_dtw(x, y).sum(), x, create_graph=True)
        return gradient

    assert saved_elements(step) <= 4096
    gradient = step()
    with torch.profiler.profile(profile_memory=True) as profile:
        grad(gradient.square().sum(), (x, y))
    largest = max(event.cpu_memory_usage for event in profile.events())
    assert 0 < largest < 4096 * 4096 * 4 / 4


def test_backward_twice_and_retained_graphs() -> None:
    x, y = pair(2, 9, 8, 2, dtype=F64, grad=True)
    value = soft_dtw(x, y).sum()
    plain = grad(value, x, retain_graph=True)[0]
    first = grad(value, x, create_graph=True)[0]
    second = grad(first.square().sum(), x, retain_graph=True)[0]
    assert torch.equal(plain, first)
    assert torch.equal(second, grad(first.square().sum(), x)[0])
    penalized = soft_dtw(x, y).sum()
    (slope,) = grad(penalized, x, create_graph=True)
    (penalized + slope.square().sum()).backward()
    assert torch.allclose(x.grad, plain + second, rtol=1e-12)


# Transforms


def one_pair() -> tuple[Callable[[Tensor], Tensor], Tensor, Tensor]:
    """A function of one series, the series, and its Hessian row by row."""
    x, y = (t[0] for t in pair(1, 5, 4, 3, dtype=F64))
    a = x.clone().requires_grad_()
    (gradient,) = grad(plain_value(cost_table(a, y, "sqeuclidean"), 0.5), a, create_graph=True)
    rows = [grad(g, a, retain_graph=True)[0] for g in gradient.flatten()]
    return lambda x: soft_dtw(x, y, gamma=0.5), x, torch.stack(rows).reshape(5, 3, 5, 3)


HESSIANS: dict[str, Callable[[Callable[[Tensor], Tensor], Tensor], Tensor]] = {
    "func.hessian": lambda f, x: torch.func.hessian(f)(x),
    "jacrev of jacrev": lambda f, x: torch.func.jacrev(torch.func.jacrev(f))(x),
    "functional": lambda f, x: torch.autograd.functional.hessian(f, x),
    "functional, batched": lambda f, x: torch.autograd.functional.hessian(f, x, vectorize=True),
    "functional, forward": lambda f, x: torch.autograd.functional.hessian(
        f, x, vectorize=True, outer_jacobian_strategy="forward-mode"
    ),
}


@pytest.mark.parametrize("way", HESSIANS)
def test_hessians(way: str) -> None:
    function, x, expected = one_pair()
    torch.testing.assert_close(HESSIANS[way](function, x), expected)


def test_products_by_torch_func() -> None:
    function, x, hessian = one_pair()
    t = randn(5, 3, seed=5, dtype=F64)
    expected = torch.einsum("ijkl,kl->ij", hessian, t)
    value, slope = torch.func.jvp(function, (x,), (t,))
    torch.testing.assert_close(value, function(x))
    torch.testing.assert_close(slope, (torch.func.grad(function)(x) * t).sum())
    torch.testing.assert_close(torch.func.jvp(torch.func.grad(function), (x,), (t,))[1], expected)
    along = torch.func.grad(lambda x: (torch.func.grad(function)(x) * t).sum())
    torch.testing.assert_close(along(x), expected)
    torch.testing.assert_close(torch.autograd.functional.vhp(function, x, t)[1], expected)
    batched = torch.func.vmap(lambda t: torch.func.jvp(torch.func.grad(function), (x,), (t,))[1])
    torch.testing.assert_close(batched(torch.stack([t, -2 * t])), torch.stack([expected, -2 * expected]))


def test_hessians_of_a_batch_equal_a_loop() -> None:
    x, y = pair(3, 4, 5, 2, dtype=F64)
    cost = randn(3, 4, 5, seed=8, dtype=F64)
    lengths = torch.tensor([4, 1, 3], dtype=torch.int32)

    def value(x: Tensor, y: Tensor, n: Tensor) -> Tensor:
        return soft_dtw(x[None], y[None], x_lengths=n[None])[0]

    got = torch.func.vmap(torch.func.hessian(value))(x, y, lengths)
    loop = [torch.func.hessian(value)(a, b, n) for a, b, n in zip(x, y, lengths, strict=True)]
    assert torch.equal(got, torch.stack(loop))
    got = torch.func.vmap(torch.func.hessian(soft_dtw_cost))(cost)
    assert torch.equal(got, torch.stack([torch.func.hessian(soft_dtw_cost)(c) for c in cost]))


def test_forward_mode_over_backward() -> None:
    function, x, hessian = one_pair()
    t = randn(5, 3, seed=5, dtype=F64)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x.clone().requires_grad_(), t)
        value = function(dual)
        (gradient,) = grad(value, dual)
        slope = forward_ad.unpack_dual(value).tangent
        bent = forward_ad.unpack_dual(gradient).tangent
    torch.testing.assert_close(slope, (torch.func.grad(function)(x) * t).sum())
    torch.testing.assert_close(bent, torch.einsum("ijkl,kl->ij", hessian, t))


@pytest.mark.parametrize("what", ["second derivatives", "forward mode"])
def test_compiled_transforms_raise(what: str) -> None:
    """torch.compile takes for constants what it does not see through: there the answer would be 0."""
    torch.compiler.reset()
    function, x, _ = one_pair()

    def second(x: Tensor) -> Tensor:
        return torch.func.grad(lambda x: torch.func.grad(function)(x).sum())(x)

    def forward(x: Tensor) -> Tensor:
        return torch.func.jvp(function, (x,), (x,))[1]

    compiled = torch.compile(
        second if what == "second derivatives" else forward, backend="eager", fullgraph=True
    )
    with pytest.raises(Exception, match="within torch.compile"):
        compiled(x)


def test_compiled_transforms_of_subsequences_raise() -> None:
    torch.compiler.reset()
    x, y = pair(2, 4, 5, 2)

    def forward(x: Tensor) -> Tensor:
        found = lambda x: warpalign.soft_dtw_subsequence(x, y, with_match=False).value  # noqa: E731
        return torch.func.jvp(found, (x,), (x,))[1]

    with pytest.raises(Exception, match="soft_dtw_subsequence within torch.compile"):
        torch.compile(forward, backend="eager", fullgraph=True)(x)


@pytest.mark.parametrize("wanted", list(itertools.product([False, True], repeat=2)))
def test_opcheck(wanted: tuple[bool, bool]) -> None:
    x, y = pair(2, 5, 4, 3)
    n = torch.tensor([5, 2], dtype=torch.int32)
    for t, gammas in ((torch.ones_like(x), None), (None, torch.ones(2))):
        arguments = (x, y, t, torch.ones_like(y), n, None, 0.5, *wanted)
        torch.library.opcheck(OPS.soft_dtw_jvp.default, arguments, {"gammas": gammas, "cost_kind": 1})
    cost = randn(2, 5, 4, seed=0)
    torch.library.opcheck(OPS.soft_dtw_cost_jvp.default, (cost, cost, n, None, 0.5, wanted[0]))


# What does not exist


def unavailable() -> Iterator[tuple[str, Callable[[], object]]]:
    x, y = pair(2, 4, 5, 2, dtype=F64, grad=True)
    gamma = torch.tensor(0.7, dtype=F64, requires_grad=True)

    def slope(by: Tensor, *, of_gamma: float | Tensor = 1.0, power: int = 2) -> Tensor:
        value = soft_dtw(x, y, gamma=of_gamma).pow(power)
        return grad(value.sum(), by, create_graph=True)[0].sum()

    def third() -> object:
        return grad(grad(slope(x), x, create_graph=True)[0].sum(), x)

    by_gamma = "second derivatives of soft-DTW by gamma"
    yield by_gamma, lambda: grad(slope(x, of_gamma=gamma), gamma)
    yield by_gamma, lambda: grad(slope(gamma, of_gamma=gamma, power=1), x)
    yield by_gamma, lambda: grad(slope(gamma, of_gamma=gamma, power=1), gamma)
    yield "second derivatives of hard DTW", lambda: grad(slope(x, of_gamma=0.0), x)
    yield "third derivatives", third
    found = warpalign.soft_dtw_subsequence(x, y).value.sum()
    yield (
        "second derivatives of soft_dtw_subsequence",
        lambda: grad(grad(found, x, create_graph=True)[0].sum(), x),
    )
    yield from unavailable_of_subsequences()
    yield (
        "by gamma in forward mode",
        lambda: torch.func.jvp(
            lambda g: soft_dtw(x.detach(), y.detach(), gamma=g), (gamma.detach(),), (gamma.detach(),)
        ),
    )
    table = randn(2, 4, 5, seed=1, dtype=F64, grad=True)

    def of_table() -> object:
        (gradient,) = grad(soft_dtw_cost(table, gamma=gamma).sum(), table, create_graph=True)
        return grad(gradient.square().sum(), gamma)

    yield by_gamma, of_table


def unavailable_of_subsequences() -> Iterator[tuple[str, Callable[[], object]]]:
    x, y = pair(2, 4, 5, 2, dtype=F64)

    def value(x: Tensor) -> Tensor:
        return warpalign.soft_dtw_subsequence(x, y).value.sum()

    def dual() -> object:
        with forward_ad.dual_level():
            return value(forward_ad.make_dual(x, x))

    forward = "warpalign: forward-mode derivatives of soft_dtw_subsequence are not available"
    yield forward, lambda: torch.func.jvp(value, (x,), (x,))
    yield forward, lambda: torch.func.jvp(lambda x: value(list(x)), (x,), (x,))  # type: ignore[arg-type]
    yield forward, lambda: torch.func.jacfwd(value)(x)
    yield forward, lambda: torch.func.hessian(value)(x)
    yield forward, dual


@pytest.mark.parametrize("case", range(13))
def test_what_is_not_available_raises(case: int) -> None:
    """A wrong number would be worse."""
    what, call = list(unavailable())[case]
    with pytest.raises(NotImplementedError, match=what):
        call()


def test_wrong_tangents_are_named() -> None:
    x, y = pair(2, 4, 5, 2)
    with pytest.raises(RuntimeError, match="x_tangent: expected the shape of x"):
        OPS.soft_dtw_jvp(x, y, x[:, :3], None, None, None, 1.0, True, True)
    with pytest.raises(RuntimeError, match="y_tangent: expected the dtype of y"):
        OPS.soft_dtw_jvp(x, y, None, y.double(), None, None, 1.0, True, True)
    with pytest.raises(RuntimeError, match="hard DTW"):
        OPS.soft_dtw_jvp(x, y, x, y, None, None, 0.0, True, True)
