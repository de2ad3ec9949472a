"""The package among PyTorch's machinery: operators, compiler, transforms, autocast, processes, threads, streams."""

from __future__ import annotations

import copy
import io
import itertools
import pickle
import sysconfig
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
import torch
from torch.func import grad, vmap
from torch.utils._triton import has_triton
from torch.utils.data import DataLoader, Dataset

import warpalign
from reference import numpy64, pair, randn, relative_error

Tensors = tuple[torch.Tensor, ...]


def int32(*values: int, device: torch.device | str = "cpu") -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32, device=device)


def training_step(x: torch.Tensor, y: torch.Tensor, **options: object) -> Tensors:
    """Value and both gradients, with another weight for every pair."""
    x, y = x.detach().requires_grad_(), y.detach().requires_grad_()
    value = warpalign.soft_dtw(x, y, **options)
    weights = torch.arange(1.0, 1 + value.numel(), dtype=value.dtype, device=value.device)
    grads = torch.autograd.grad((value * weights.reshape(value.shape)).sum(), (x, y))
    return value.detach(), *grads


def assert_close(got: Tensors, expected: Tensors) -> None:
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def assert_equal(got: Tensors, expected: Tensors) -> None:
    for one, other in zip(got, expected, strict=True):
        assert torch.equal(one, other)


# Raw operators.

OPCHECK_FLAGS = list(itertools.product([False, True], repeat=2))


def opcheck_inputs(device: torch.device) -> Iterator[tuple[torch.Tensor, ...]]:
    x, y = pair(3, 6, 4, 2, device=device)
    yield x, y, None, None
    yield x, y, int32(6, 1, 3, device=device), int32(4, 4, 2, device=device)
    yield x, y, None, int32(4, 4, 2, device=device)
    yield x.double(), y.double(), None, None
    yield x[:1], y[:1], None, None
    yield x[:0], y[:0], None, None
    yield x.mT.contiguous().mT, y[:1].expand(3, -1, -1), None, None


@pytest.mark.parametrize("index", range(7))
def test_opcheck_series(device: torch.device, index: int) -> None:
    inputs = list(opcheck_inputs(device))[index]
    for flags in OPCHECK_FLAGS:
        torch.library.opcheck(torch.ops.warpalign.soft_dtw.default, (*inputs, 0.5, *flags))


@pytest.mark.parametrize("index", range(7))
def test_opcheck_alignment(device: torch.device, index: int) -> None:
    inputs = list(opcheck_inputs(device))[index]
    for flags in OPCHECK_FLAGS:
        torch.library.opcheck(torch.ops.warpalign.soft_dtw_alignment.default, (*inputs, 0.5, *flags))


@pytest.mark.parametrize("needs_grad", [False, True])
def test_opcheck_cost_matrix(device: torch.device, needs_grad: bool) -> None:
    cost = randn(3, 5, 4, seed=0, device=device)
    n_lengths, m_lengths = int32(5, 1, 2, device=device), int32(1, 4, 3, device=device)
    for inputs in (
        (cost, None, None),
        (cost, n_lengths, m_lengths),
        (cost.double(), n_lengths, None),
        (cost.mT, None, None),
        (cost[:0], None, None),
    ):
        torch.library.opcheck(torch.ops.warpalign.soft_dtw_cost.default, (*inputs, 0.5, needs_grad))


def test_raw_operators_return_what_was_asked_for(device: torch.device) -> None:
    x, y = pair(3, 6, 4, 2, device=device)
    for needs_x, needs_y in OPCHECK_FLAGS:
        value, grad_x, grad_y, grad_gamma = torch.ops.warpalign.soft_dtw(
            x, y, None, None, 1.0, needs_x, needs_y
        )
        assert value.shape == (3,)
        assert grad_x.shape == (x.shape if needs_x else (0,))
        assert grad_y.shape == (y.shape if needs_y else (0,))
        assert grad_gamma.shape == (0,)
    value, alignment, _ = torch.ops.warpalign.soft_dtw_cost(x, None, None, 1.0, False)
    assert value.shape == (3,) and alignment.shape == (0,)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_shapes_without_data(dtype: torch.dtype) -> None:
    x = torch.empty(4, 100, 3, device="meta", dtype=dtype, requires_grad=True)
    y = torch.empty(1, 50, 3, device="meta", dtype=dtype)
    lengths = torch.empty(4, device="meta", dtype=torch.int64)
    value = warpalign.soft_dtw(x, y, x_lengths=lengths)
    assert (value.shape, value.device.type) == ((4,), "meta")
    assert value.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    (gradient,) = torch.autograd.grad(value.sum(), x)
    assert (gradient.shape, gradient.dtype) == (x.shape, dtype)
    assert warpalign.soft_dtw_alignment(x, y).alignment.shape == (4, 100, 50)
    assert warpalign.soft_dtw_cost(x).shape == (4,)


# torch.compile.


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def losses() -> dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]]:
    lengths = torch.tensor([6, 1, 3, 6])
    return {
        "series": lambda x, y: warpalign.soft_dtw(torch.tanh(x), y, gamma=0.5) * 2,
        "lengths": lambda x, y: warpalign.soft_dtw(x, y, x_lengths=lengths.to(x.device)).exp(),
        "broadcast": lambda x, y: warpalign.soft_dtw(x[:1], y),
        "unbatched": lambda x, y: warpalign.soft_dtw(x[0], y[0]),
        "half": lambda x, y: warpalign.soft_dtw(x.bfloat16(), y.bfloat16()),
        "mean": lambda x, y: warpalign.soft_dtw(x, y, reduction="mean"),
        "cost": lambda x, y: warpalign.soft_dtw_cost((x[:, :, None] - y[:, None]).square().sum(-1)),
        "alignment": lambda x, y: (lambda r: r.value + r.alignment.sum((1, 2)))(
            warpalign.soft_dtw_alignment(x, y)
        ),
        "module": warpalign.SoftDTW(0.3),
    }


def forward_and_backward(
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], x: torch.Tensor, y: torch.Tensor
) -> Tensors:
    x, y = x.detach().requires_grad_(), y.detach().requires_grad_()
    value = loss(x, y)
    return value.detach(), *torch.autograd.grad(value.sum(), (x, y))


@pytest.mark.parametrize("name", losses())
def test_compiled_equals_eager(device: torch.device, fresh_compiler: None, name: str) -> None:
    loss = losses()[name]
    x, y = pair(4, 6, 5, 2, device=device)
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    assert_close(forward_and_backward(compiled, x, y), forward_and_backward(loss, x, y))
    with torch.no_grad():
        assert_close((compiled(x, y),), (loss(x, y),))


def test_compiled_with_dynamic_shapes(device: torch.device, fresh_compiler: None) -> None:
    compiled = torch.compile(warpalign.soft_dtw, fullgraph=True, dynamic=True, backend="aot_eager")
    for batch, n, m, d in ((3, 6, 5, 2), (4, 9, 7, 2), (5, 33, 20, 3)):
        x, y = pair(batch, n, m, d, device=device)
        assert_close(forward_and_backward(compiled, x, y), forward_and_backward(warpalign.soft_dtw, x, y))


def test_compiled_with_another_gamma_each_time(device: torch.device, fresh_compiler: None) -> None:
    """As when gamma is annealed: the compiler takes the changing number for a symbol."""
    compiled = torch.compile(warpalign.soft_dtw, fullgraph=True, backend="aot_eager")
    x, y = pair(3, 6, 5, 2, device=device)
    for gamma in (1.0, 0.5, 0.25):
        assert_close(
            forward_and_backward(partial(compiled, gamma=gamma), x, y),
            forward_and_backward(partial(warpalign.soft_dtw, gamma=gamma), x, y),
        )


def test_compiled_lengths_out_of_range_raise_on_the_cpu(fresh_compiler: None) -> None:
    compiled = torch.compile(warpalign.soft_dtw, fullgraph=True, backend="aot_eager")
    x, y = pair(2, 6, 5, 2)
    for bad in (0, 7, 2**32 + 3):
        with pytest.raises(RuntimeError, match="x_lengths: expected"):
            compiled(x, y, x_lengths=torch.tensor([6, bad]))


def test_vmapped_lengths_out_of_range_raise_on_the_cpu() -> None:
    x, y = pair(2, 6, 5, 2)
    for bad in (0, 7, 2**32 + 3):
        with pytest.raises(RuntimeError, match="x_lengths: expected"):
            vmap(lambda n: warpalign.soft_dtw(x, y, x_lengths=n))(torch.tensor([[6, 6], [6, bad]]))


def test_compiled_by_inductor(device: torch.device, fresh_compiler: None) -> None:
    if not (Path(sysconfig.get_paths()["include"]) / "Python.h").exists():
        pytest.skip("inductor needs Python.h")
    if device.type == "cuda" and not has_triton():
        pytest.skip("inductor needs triton")

    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (warpalign.soft_dtw(torch.tanh(x), 2 * y, gamma=0.5) + 1).log()

    x, y = pair(4, 33, 20, 3, device=device)
    compiled = torch.compile(loss, fullgraph=True)
    assert_close(forward_and_backward(compiled, x, y), forward_and_backward(loss, x, y))


def test_compiled_second_derivatives_raise(device: torch.device, fresh_compiler: None) -> None:
    compiled = torch.compile(warpalign.soft_dtw, fullgraph=True, backend="aot_eager")
    x, y = pair(2, 4, 5, 2, device=device, grad=True)
    with pytest.raises(RuntimeError):
        (grad_x,) = torch.autograd.grad(compiled(x, y).sum(), x, create_graph=True)
        torch.autograd.grad(grad_x.square().sum(), x)


# torch.func.


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
    assert_close(vmap(call, in_dims)(*inputs), expected)


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
    assert_close(as_tuple(vmap(gradient, in_dims)(x, y)), expected)


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
    assert_close(got, loop)


def test_backward_through_vmap(device: torch.device) -> None:
    x, y = pair(5, 6, 7, 3, device=device, grad=True)
    got = torch.autograd.grad(vmap(warpalign.soft_dtw)(x, y).sum(), (x, y))
    assert_close(got, torch.autograd.grad(warpalign.soft_dtw(x, y).sum(), (x, y)))


def test_all_pairs_by_nested_vmap(device: torch.device) -> None:
    x, y = randn(4, 6, 3, seed=0, device=device), randn(5, 7, 3, seed=1, device=device)

    def distances(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return vmap(vmap(warpalign.soft_dtw, (None, 0)), (0, None))(x, y)

    expected = warpalign.soft_dtw(x.repeat_interleave(5, 0), y.repeat(4, 1, 1)).reshape(4, 5)
    assert_close((distances(x, y),), (expected,))
    got = grad(lambda x: distances(x, y).sum())(x)
    loop = grad(lambda x: warpalign.soft_dtw(x.repeat_interleave(5, 0), y.repeat(4, 1, 1)).sum())(x)
    assert_close((got,), (loop,))


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
    assert_close((got,), (expected,))


def test_vmap_over_lengths_alone(device: torch.device) -> None:
    x, y = pair(2, 6, 7, 3, device=device)
    lengths = torch.tensor([[6, 1], [2, 3], [5, 6]], device=device)
    got = vmap(lambda n: warpalign.soft_dtw(x, y, x_lengths=n))(lengths)
    expected = torch.stack([warpalign.soft_dtw(x, y, x_lengths=n) for n in lengths])
    assert_close((got,), (expected,))


def test_vmap_of_cost_matrices(device: torch.device) -> None:
    cost = randn(3, 2, 5, 6, seed=0, device=device)
    lengths = torch.tensor([[5, 1], [2, 3], [5, 4]], device=device)
    call = lambda c, n: warpalign.soft_dtw_cost(c, n_lengths=n)  # noqa: E731
    got = vmap(call)(cost, lengths), vmap(grad(lambda c, n: call(c, n).sum()))(cost, lengths)
    expected = (
        torch.stack([call(c, n) for c, n in zip(cost, lengths, strict=True)]),
        torch.stack([grad(lambda c, n: call(c, n).sum())(c, n) for c, n in zip(cost, lengths, strict=True)]),
    )
    assert_close(got, expected)


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


# autocast, modules, processes, threads.


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast_takes_inputs_as_they_are(device: torch.device, dtype: torch.dtype) -> None:
    x, y = pair(2, 33, 20, 3, device=device)
    expected = training_step(x, y)
    with torch.autocast(device.type, dtype):
        assert_equal(training_step(x, y), expected)
        layer = torch.nn.Linear(3, 3, device=device)
        out = layer(x)
        assert out.dtype == dtype
        value = warpalign.soft_dtw(out, y.to(dtype))
        assert value.dtype == torch.float32
    value.sum().backward()
    assert layer.weight.grad is not None and layer.weight.grad.isfinite().all()


def test_module(device: torch.device) -> None:
    module = warpalign.SoftDTW(gamma=0.3, reduction="mean").to(device)
    assert list(module.parameters()) == [] and module.state_dict() == {}
    assert repr(module) == "SoftDTW(gamma=0.3, reduction='mean')"
    x, y = pair(3, 9, 7, 2, device=device)
    lengths = torch.tensor([9, 1, 4], device=device), torch.tensor([2, 7, 5], device=device)
    expected = warpalign.soft_dtw(
        x, y, gamma=0.3, x_lengths=lengths[0], y_lengths=lengths[1], reduction="mean"
    )
    assert torch.equal(module(x, y, *lengths), expected)
    assert torch.equal(module(x, y, x_lengths=lengths[0], y_lengths=lengths[1]), expected)


def test_modules_are_copied_pickled_and_saved() -> None:
    module = warpalign.SoftDTW(gamma=0.3, reduction="sum")
    x, y = pair(3, 9, 7, 2)
    stored = io.BytesIO()
    torch.save(torch.nn.Sequential(module), stored)
    stored.seek(0)
    (loaded,) = torch.load(stored, weights_only=False)
    for twin in (pickle.loads(pickle.dumps(module)), copy.deepcopy(module), loaded):
        assert (twin.gamma, twin.reduction) == (0.3, "sum")
        assert torch.equal(twin(x, y), module(x, y))


def test_values_are_pickled() -> None:
    x, y = pair(2, 5, 6, 2)
    result = pickle.loads(pickle.dumps(warpalign.soft_dtw_alignment(x, y)))
    assert isinstance(result, warpalign.SoftDTWAlignment)
    assert torch.equal(result.alignment, warpalign.soft_dtw_alignment(x, y).alignment)


class Alignments(Dataset[torch.Tensor]):
    """Without backward: torch refuses that in forks of a process that has used a GPU."""

    def __init__(self, x: torch.Tensor, y: torch.Tensor) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> torch.Tensor:
        return warpalign.soft_dtw_alignment(self.x[index], self.y[index]).alignment


def test_forked_workers_of_a_data_loader(device: torch.device) -> None:
    """After the parent has used the operators, on this device and with all its threads."""
    training_step(*pair(16, 100, 90, 3, device=device))
    training_step(*pair(16, 100, 90, 3))
    x, y = pair(6, 40, 50, 3)
    loader = DataLoader(
        Alignments(x, y), batch_size=2, num_workers=2, multiprocessing_context="fork", timeout=60
    )
    assert_close((torch.cat(list(loader)),), (warpalign.soft_dtw_alignment(x, y).alignment,))


def test_several_threads(device: torch.device) -> None:
    problems = [pair(3, 20 + 7 * i, 60 - 5 * i, 1 + i % 4, device=device) for i in range(8)]
    expected = [training_step(x, y) for x, y in problems]
    if device.type == "cuda":
        torch.cuda.synchronize()
    with ThreadPoolExecutor(8) as pool:
        for _ in range(3):
            results = list(pool.map(lambda problem: training_step(*problem), problems))
            for got, wanted in zip(results, expected, strict=True):
                assert_equal(got, wanted)


def test_the_number_of_threads_does_not_matter() -> None:
    x, y = pair(9, 70, 90, 3)
    threads = torch.get_num_threads()
    try:
        results = []
        for count in (1, 2, 5):
            torch.set_num_threads(count)
            results.append(training_step(x, y))
    finally:
        torch.set_num_threads(threads)
    assert_equal(results[0], results[1])
    assert_equal(results[0], results[2])


@pytest.mark.parametrize(("batch", "n", "m", "d"), [(8, 65, 97, 3), (2, 130, 40, 64)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_runs_are_equal_bit_for_bit(
    device: torch.device, dtype: torch.dtype, batch: int, n: int, m: int, d: int
) -> None:
    x, y = pair(batch, n, m, d, device=device, dtype=dtype)
    lengths = torch.arange(n, n - batch, -1, device=device)
    first = training_step(x, y, gamma=0.1, x_lengths=lengths)
    alignment = warpalign.soft_dtw_alignment(x, y, gamma=0.1, x_lengths=lengths).alignment
    for _ in range(100):
        assert_equal(training_step(x, y, gamma=0.1, x_lengths=lengths), first)
    again = warpalign.soft_dtw_alignment(x, y, gamma=0.1, x_lengths=lengths).alignment
    assert torch.equal(alignment, again)


def test_deterministic_algorithms_are_no_obstacle(device: torch.device) -> None:
    """With them torch fills new memory with NaN: what the operators leave unwritten would show."""
    x, y = pair(3, 40, 33, 2, device=device)
    lengths = torch.tensor([40, 1, 20], device=device)
    expected = training_step(x, y, x_lengths=lengths)
    alignment = warpalign.soft_dtw_alignment(x, y, x_lengths=lengths).alignment
    torch.use_deterministic_algorithms(True)
    try:
        assert_equal(training_step(x, y, x_lengths=lengths), expected)
        again = warpalign.soft_dtw_alignment(x, y, x_lengths=lengths).alignment
    finally:
        torch.use_deterministic_algorithms(False)
    assert torch.equal(alignment, again)


def test_inputs_are_left_alone(device: torch.device) -> None:
    x, y = pair(2, 33, 40, 3, device=device)
    lengths = torch.tensor([33, 4], dtype=torch.int32, device=device)
    before = x.clone(), y.clone(), lengths.clone()
    training_step(x, y, x_lengths=lengths)
    assert_equal((x, y, lengths), before)


def test_subclasses_of_tensor(device: torch.device) -> None:
    x = torch.nn.Parameter(randn(2, 5, 3, seed=0, device=device))
    y = torch.nn.Parameter(randn(2, 6, 3, seed=1, device=device), requires_grad=False)
    warpalign.soft_dtw(x, y).sum().backward()
    assert x.grad is not None and y.grad is None


# CUDA alone.


@pytest.mark.gpu
@pytest.mark.parametrize("d", [3, 64])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16], ids=str)
def test_cuda_graph(cuda: torch.device, dtype: torch.dtype, d: int) -> None:
    """Forward and backward captured once and replayed on other data and other lengths."""
    x, y = pair(4, 65, 40, d, device=cuda, dtype=dtype)
    lengths = torch.tensor([65, 1, 33, 20], device=cuda)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            training_step(x, y, x_lengths=lengths)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = training_step(x, y, x_lengths=lengths)
    for seed in range(3):
        x.copy_(randn(4, 65, d, seed=seed, dtype=dtype))
        y.copy_(randn(4, 40, d, seed=seed + 10, dtype=dtype))
        lengths.copy_(torch.tensor([1 + seed, 65, 64, 32]))
        graph.replay()
        assert_equal(captured, training_step(x, y, x_lengths=lengths))


@pytest.mark.gpu
def test_cuda_side_stream(cuda: torch.device) -> None:
    """The operators wait for what is queued on the current stream, whichever it is."""
    x, y = pair(4, 97, 65, 3, device=cuda)
    expected = training_step(x, y)
    side = torch.cuda.Stream()
    late_x, late_y = torch.zeros_like(x), torch.zeros_like(y)
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)
        late_x.copy_(x)
        late_y.copy_(y)
        got = training_step(late_x, late_y)
    side.synchronize()
    assert_equal(got, expected)


@pytest.mark.gpu
def test_cuda_several_streams(cuda: torch.device) -> None:
    problems = [pair(5, 100 + 9 * i, 150 - 11 * i, 1 + i, device=cuda) for i in range(6)]
    expected = [training_step(x, y) for x, y in problems]
    streams = [torch.cuda.Stream() for _ in problems]
    torch.cuda.synchronize()
    results = []
    for _ in range(5):
        for stream, (x, y) in zip(streams, problems, strict=True):
            with torch.cuda.stream(stream):
                results.append(training_step(x, y))
    torch.cuda.synchronize()
    for index, got in enumerate(results):
        assert_equal(got, expected[index % len(problems)])


@pytest.mark.gpu
def test_cuda_clamps_lengths_out_of_range(cuda: torch.device) -> None:
    x, y = pair(6, 33, 40, 3, device=cuda)
    bad = torch.tensor([34, 0, -5, 2**31 - 1, 2**32 + 3, -(2**40)], device=cuda)
    clamped = torch.tensor([33, 1, 1, 33, 33, 1], device=cuda)
    assert_equal(training_step(x, y, x_lengths=bad), training_step(x, y, x_lengths=clamped))
    got = warpalign.soft_dtw_alignment(x, y, y_lengths=bad).alignment
    clamped = torch.tensor([34, 1, 1, 40, 40, 1], device=cuda)
    assert torch.equal(got, warpalign.soft_dtw_alignment(x, y, y_lengths=clamped).alignment)
    cost = randn(6, 33, 33, seed=0, device=cuda)
    clamped = torch.tensor([33, 1, 1, 33, 33, 1], device=cuda)
    for name in ("n_lengths", "m_lengths"):
        got = warpalign.soft_dtw_cost(cost, **{name: bad})
        assert torch.equal(got, warpalign.soft_dtw_cost(cost, **{name: clamped}))
    raw = torch.ops.warpalign.soft_dtw_alignment(x, y, bad[:4].repeat(2)[:6].int(), None, 1.0, True, True)
    clamped = torch.tensor([33, 1, 1, 33, 33, 1], dtype=torch.int32, device=cuda)
    assert_equal(raw, torch.ops.warpalign.soft_dtw_alignment(x, y, clamped, None, 1.0, True, True))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_cuda_never_waits_for_the_device(cuda: torch.device, dtype: torch.dtype) -> None:
    x, y = pair(4, 65, 40, 3, device=cuda, dtype=dtype)
    cost = randn(4, 65, 40, seed=0, device=cuda, dtype=dtype, grad=True)
    lengths = torch.tensor([65, 1, 33, 20], device=cuda)
    training_step(x, y)
    torch.cuda.set_sync_debug_mode("error")
    try:
        training_step(x, y)
        training_step(x[:1], y, x_lengths=lengths)
        warpalign.soft_dtw_alignment(x, y, x_lengths=lengths)
        warpalign.soft_dtw_cost(cost, n_lengths=lengths).sum().backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
def test_cuda_agrees_with_the_cpu(cuda: torch.device) -> None:
    for gamma in (0.1, 1.0):
        x, y = pair(8, 97, 65, 3)
        on_cuda = training_step(x.to(cuda), y.to(cuda), gamma=gamma)
        for one, other in zip(on_cuda, training_step(x, y, gamma=gamma), strict=True):
            assert relative_error(one, numpy64(other)) < 2e-5  # each is within 1e-5 of float64


@pytest.mark.gpu
def test_cuda_memory_stays_below_a_cost_matrix(cuda: torch.device) -> None:
    """Value and gradients of long series take less memory than one table of costs would."""
    x, y = pair(4, 2048, 2048, 8, device=cuda)
    training_step(x, y)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    training_step(x, y)
    torch.cuda.synchronize()
    assert torch.cuda.max_memory_allocated() - before < 4 * 2048 * 2048 * 4 / 2


@pytest.mark.gpu
def test_cuda_many_pairs(cuda: torch.device) -> None:
    """More pairs than a grid's second axis holds."""
    x, y = pair(70_000, 3, 2, 1, device=cuda)
    got = training_step(x, y)
    expected = training_step(x[-5:], y[-5:])
    torch.testing.assert_close(got[0][-5:], expected[0], rtol=1e-5, atol=1e-5)
    assert got[1].isfinite().all()


@pytest.mark.gpu
def test_second_cuda_device(cuda: torch.device) -> None:
    """The tensors' device counts, not the current one."""
    if torch.cuda.device_count() < 2:
        pytest.skip("no second GPU")
    x, y = pair(4, 65, 40, 3, device=cuda)
    expected = training_step(x, y)
    with torch.cuda.device(0):
        got = training_step(x.to("cuda:1"), y.to("cuda:1"))
        assert torch.cuda.current_device() == 0
    assert all(tensor.device.index == 1 for tensor in got)
    assert_equal(tuple(tensor.to(cuda) for tensor in got), expected)
