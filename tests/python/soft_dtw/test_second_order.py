"""Second derivatives and forward mode, against finite differences and against autograd through the plain recursion."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad, grad, gradcheck, gradgradcheck

import warpalign
from tests.python.helpers import randn
from tests.python.soft_dtw.reference import band_mask, pair
from warpalign import soft_dtw, soft_dtw_cost

F64 = torch.float64
COSTS = ["sqeuclidean", "euclidean", "l1", "cosine", "huber"]
OPS = torch.ops.warpalign


# The Hessian by torch's own autograd.


def cost_table(x: Tensor, y: Tensor, cost: str) -> Tensor:
    difference = x[:, None] - y[None]
    if cost == "sqeuclidean":
        return difference.square().sum(-1)
    if cost == "euclidean":
        return difference.norm(dim=-1)
    if cost == "l1":
        return difference.abs().sum(-1)
    if cost == "huber":
        return torch.nn.functional.huber_loss(difference, torch.zeros_like(difference), reduction="none").sum(
            -1
        )
    return 1 - torch.nn.functional.cosine_similarity(x[:, None], y[None], dim=-1)


def plain_value(costs: Tensor, gamma: float, penalty: float = 0.0, allowed: Tensor | None = None) -> Tensor:
    """Of one pair, cell by cell, so that autograd can differentiate it any number of times."""
    n, m = costs.shape
    table: dict[tuple[int, int], Tensor] = {}
    for i, j in itertools.product(range(n), range(m)):
        steps = [((i - 1, j), penalty), ((i, j - 1), penalty), ((i - 1, j - 1), 0.0)]
        before = [table[cell] + more for cell, more in steps if cell in table]
        if allowed is not None and not allowed[i, j] or not (before or i == j == 0):
            continue
        softmin = -gamma * torch.logsumexp(-torch.stack(before) / gamma, 0) if before else costs.new_zeros(())
        table[i, j] = costs[i, j] + softmin
    return table[n - 1, m - 1]


def products(value: Tensor, inputs: tuple[Tensor, ...], tangents: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """<gradient, tangent> per pair, summed, and the Hessian times the tangent."""
    gradients = grad(value.sum(), inputs, create_graph=True)
    along = torch.stack([(g * t).sum() for g, t in zip(gradients, tangents, strict=True)]).sum()
    bent = grad(along, inputs, allow_unused=True) if along.requires_grad else (None,) * len(inputs)
    filled = (torch.zeros_like(t) if b is None else b for b, t in zip(bent, inputs, strict=True))
    return along.detach(), *filled


def assert_products(
    got: Tensor, expected: Tensor, inputs: tuple[Tensor, ...], rtol: float = 1e-8, seed: int = 90
) -> None:
    tangents = tuple(randn(*t.shape, seed=seed + k, dtype=t.dtype) for k, t in enumerate(inputs))
    for a, b in zip(products(got, inputs, tangents), products(expected, inputs, tangents), strict=True):
        torch.testing.assert_close(a, b, rtol=rtol, atol=rtol * float(b.abs().max().clamp(min=1)))


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("gamma", [0.01, 0.1, 1.0, 100.0])
@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 6), (6, 1), (9, 12)])
def test_hessian_products(cost: str, gamma: float, n: int, m: int) -> None:
    x, y = pair(1, n, m, 3, dtype=F64, grad=True)
    expected = plain_value(cost_table(x[0], y[0], cost), gamma)
    assert_products(soft_dtw(x, y, gamma=gamma, cost=cost), expected, (x, y))  # type: ignore[arg-type]


@pytest.mark.parametrize(("band", "bandwidth"), [("sakoe_chiba", 2), ("abs", 4), ("slanted", 1)])
def test_hessian_products_with_band_and_penalty(band: Any, bandwidth: int) -> None:
    x, y = pair(1, 10, 13, 2, dtype=F64, grad=True)
    mask = torch.from_numpy(band_mask(band, 10, 13, bandwidth=bandwidth))
    options: dict[str, Any] = {"bandwidth": bandwidth, "band": band, "step_penalty": 0.4, "gamma": 0.5}
    costs = cost_table(x[0], y[0], "sqeuclidean")
    assert_products(soft_dtw(x, y, **options), plain_value(costs, 0.5, 0.4, mask), (x, y))
    table = randn(1, 10, 13, seed=4, dtype=F64, grad=True)
    assert_products(soft_dtw_cost(table, **options), plain_value(table[0], 0.5, 0.4, mask), (table,))


def test_hessian_products_of_each_pair() -> None:
    """Lengths, missing steps and gammas belong to pairs; padding may hold anything."""
    x, y = pair(3, 7, 8, 2, dtype=F64)
    n, m, gamma = torch.tensor([7, 1, 4]), torch.tensor([3, 8, 6]), torch.tensor([0.2, 1.0, 5.0], dtype=F64)
    missing = torch.zeros(3, 7, dtype=torch.bool)
    missing[0, 2] = missing[2, 3] = True
    for b in range(3):
        x[b, n[b] :] = y[b, m[b] :] = torch.nan
    x[missing] = torch.nan
    inputs = (x.requires_grad_(), y.requires_grad_())
    for cost in COSTS:
        values = []
        for b in range(3):
            gone = missing[b, : n[b], None]
            costs = cost_table(x[b, : n[b]].masked_fill(gone, 0.3), y[b, : m[b]], cost)
            values.append(plain_value(costs.masked_fill(gone, 0.0), float(gamma[b])))
        got = soft_dtw(x, y, gamma=gamma, cost=cost, x_lengths=n, y_lengths=m, x_mask=missing)  # type: ignore[arg-type]
        weights = torch.tensor([1.0, -2.0, 0.5], dtype=F64)
        assert_products(got * weights, torch.stack(values) * weights, inputs)


# Around the tiles of the CPU path: the difference of gradients has no table of its own to be wrong in.


@pytest.mark.parametrize(
    ("n", "m", "d", "options"),
    [
        (129, 140, 2, {}),
        (257, 300, 1, {"cost": "euclidean"}),
        (300, 257, 5, {"bandwidth": 20}),
        (33, 700, 3, {"cost": "cosine", "step_penalty": 0.3}),
        (512, 384, 9, {"bandwidth": 3, "band": "slanted"}),
        (256, 256, 2, {"cost": "huber", "gamma": 10.0}),
        (384, 130, 2, {"gamma": 0.01}),
    ],
)
def test_long_series(n: int, m: int, d: int, options: dict[str, Any]) -> None:
    x, y = pair(2, n, m, d, dtype=F64, grad=True)
    tangents = tuple(randn(*t.shape, seed=7 + k, dtype=F64) for k, t in enumerate((x, y)))
    step = 1e-6

    def gradients(sign: int) -> tuple[Tensor, ...]:
        moved = [
            (t + sign * step * v).detach().requires_grad_() for t, v in zip((x, y), tangents, strict=True)
        ]
        return grad(soft_dtw(*moved, **options).sum(), moved)

    _, *got = products(soft_dtw(x, y, **options), (x, y), tangents)
    for a, after, before in zip(got, gradients(1), gradients(-1), strict=True):
        expected = (after - before) / (2 * step)
        # Rounding of the gradients over the step, and its square times the fourth derivative.
        assert (a - expected).norm() < 1e-5 * expected.norm()


@pytest.mark.parametrize("gamma", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_float32_against_float64(gamma: float, dtype: torch.dtype) -> None:
    """Inside all is float64: what is left is the rounding of the result, and of the first backward pass."""
    x, y = pair(2, 150, 140, 3, dtype=dtype, grad=True)
    wide = tuple(t.detach().double().requires_grad_() for t in (x, y))
    tangents = tuple(randn(*t.shape, seed=3 + k, dtype=dtype) for k, t in enumerate((x, y)))
    got = products(soft_dtw(x, y, gamma=gamma), (x, y), tangents)
    expected = products(soft_dtw(*wide, gamma=gamma), wide, tuple(t.double() for t in tangents))
    for a, b in zip(got[1:], expected[1:], strict=True):
        assert a.dtype == dtype
        assert (a.double() - b).norm() < (1e-6 if dtype == torch.float32 else 2e-2) * b.norm()


def test_strides() -> None:
    x, y = pair(2, 6, 7, 3, dtype=F64)
    a, b = x.mT.contiguous().requires_grad_(), y[:, :, :2].repeat(1, 1, 2).requires_grad_()
    strided = soft_dtw(a.mT[..., ::2], b[..., ::2])
    plain = soft_dtw(a.mT[..., ::2].contiguous(), b[..., ::2].contiguous())
    assert_products(strided, plain, (a, b), rtol=1e-13)
    (gradient,) = grad(soft_dtw(x.requires_grad_(), y).sum(), x, create_graph=True)
    expanded = torch.ones(1, 1, 1, dtype=F64).expand(2, 6, 3)
    (got,) = grad(gradient, x, expanded, retain_graph=True)
    assert torch.equal(got, grad(gradient, x, expanded.contiguous())[0])


# gradgradcheck


OPTIONS: list[dict[str, Any]] = [
    {},
    {"gamma": 0.05},
    {"gamma": 30.0},
    {"bandwidth": 2, "step_penalty": 0.3},
    {"band": "itakura", "max_slope": 3.0},
    {"normalize": True},
    {"reduction": "mean"},
]


@pytest.mark.parametrize(
    "options", [*OPTIONS, *({"cost": c, "bandwidth": 2, "step_penalty": 0.3} for c in COSTS[1:])], ids=str
)
def test_gradgradcheck(options: dict[str, Any]) -> None:
    x, y = pair(2, 3, 4, 2, dtype=F64, grad=True)
    options = {"gamma": 0.7, **options}
    assert gradgradcheck(lambda x, y: soft_dtw(x, y, **options), (x, y), check_fwd_over_rev=True)
    assert gradcheck(lambda x, y: soft_dtw(x, y, **options), (x, y), check_forward_ad=True)


def test_gradgradcheck_of_one_side_and_a_batch_of_one() -> None:
    x, y = pair(3, 4, 5, 2, dtype=F64)
    lengths = {"x_lengths": torch.tensor([4, 1, 3]), "y_lengths": torch.tensor([2, 5, 1])}
    assert gradgradcheck(lambda x: soft_dtw(x, y, **lengths), (x.clone().requires_grad_(),))
    assert gradgradcheck(lambda y: soft_dtw(x, y, **lengths), (y.clone().requires_grad_(),))
    assert gradgradcheck(lambda x: soft_dtw(x, y), (x[:1].clone().requires_grad_(),))
    assert gradgradcheck(lambda x: soft_dtw(x, x[:, 1:]), (x.clone().requires_grad_(),))
    gamma = torch.tensor([0.3, 1.0, 4.0], dtype=F64)
    mask = torch.tensor([False, True, False, False]).expand(3, -1)
    assert gradgradcheck(lambda x: soft_dtw(x, y, gamma=gamma, x_mask=mask), (x.clone().requires_grad_(),))


@pytest.mark.parametrize("options", [o for o in OPTIONS if "normalize" not in o], ids=str)
def test_gradgradcheck_cost_matrix(options: dict[str, Any]) -> None:
    cost = randn(3, 5, 4, seed=1, dtype=F64, grad=True)
    lengths = (
        {}
        if "max_slope" in options
        else {"n_lengths": torch.tensor([5, 1, 3]), "m_lengths": torch.tensor([2, 4, 4])}
    )
    assert gradgradcheck(lambda c: soft_dtw_cost(c, **options, **lengths), (cost,), check_fwd_over_rev=True)
    assert gradcheck(lambda c: soft_dtw_cost(c, **options, **lengths), (cost,), check_forward_ad=True)


def test_gradgradcheck_of_a_cost_function() -> None:
    x, y = pair(2, 4, 5, 2, dtype=F64, grad=True)

    def cost(x: Tensor, y: Tensor) -> Tensor:
        return (x[:, :, None] - y[:, None]).pow(4).sum(-1)

    assert gradgradcheck(lambda x, y: soft_dtw(x, y, cost=cost), (x, y))


# Special values


def test_nan_stays_in_its_pair_and_inf_is_forbidden() -> None:
    cost = randn(3, 5, 6, seed=2, dtype=F64)
    cost[0, 2, 3] = torch.nan
    cost[1, 2, 1:] = torch.inf
    cost[2, 4, :] = torch.inf  # no path is left
    tangent = randn(3, 5, 6, seed=3, dtype=F64)
    value, bent = OPS.soft_dtw_cost_jvp(cost, tangent, None, None, 0.5, True)
    assert value[0].isnan() and bent[0].isnan().all()
    assert value[1].isfinite() and bent[1].isfinite().all() and not bent[1, 2, 1:].any()
    assert value[2] == 0 and not bent[2].any()
    tangent[1, 2, 2] = torch.nan  # of a forbidden cell
    again = OPS.soft_dtw_cost_jvp(cost, tangent, None, None, 0.5, True)
    assert torch.equal(again[0][1:], value[1:]) and torch.equal(again[1][1:], bent[1:])


@pytest.mark.parametrize("cost", COSTS)
def test_kinks_are_finite(cost: Any) -> None:
    """Equal steps and zero vectors, where not every cost has a derivative."""
    x, y = pair(1, 6, 6, 2, dtype=F64)
    x[0, 1] = y[0, 1]
    x[0, 2] = y[0, 4] = 0.0
    inputs = (x.requires_grad_(), y.requires_grad_())
    for result in products(soft_dtw(x, y, cost=cost), inputs, (torch.ones_like(x), torch.ones_like(y))):
        assert result.isfinite().all()


def test_costs_beyond_float32() -> None:
    """Where only float64's exponents suffice, and alignments are all but hard: the Hessian along the best path."""
    x, y = pair(1, 40, 40, 2)
    x, y = (100 * x).requires_grad_(), 100 * y
    (got,) = products(soft_dtw(x, y, gamma=1e-3), (x,), (torch.ones_like(x),))[1:]
    alignment = warpalign.soft_dtw_alignment(x, y, gamma=1e-3).alignment
    torch.testing.assert_close(got, (2 * alignment.sum(2))[..., None].expand_as(got))


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


# torch.func, torch.autograd.functional, forward mode, torch.compile


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


@pytest.mark.parametrize("case", range(8))
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
