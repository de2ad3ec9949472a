"""What only a GPU can show: CUDA graphs, streams, several devices, lengths that nothing reads back, memory of a step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import pytest
import torch
from torch import Tensor

from tests.python.helpers import (
    assert_tensors_equal,
    captured,
    no_synchronisation,
    numpy64,
    randn,
    relative_error,
)
from tests.python.soft_dtw.reference import pair, training_step
from warpalign import SoftDTW, cdist_soft_dtw, soft_dtw, soft_dtw_alignment, soft_dtw_cost
from warpalign._core.series import as_series
from warpalign._soft_dtw import pairwise_job

pytestmark = pytest.mark.gpu

Step = Callable[[], tuple[Tensor, ...]]


@pytest.fixture(autouse=True)
def cuda() -> torch.device:
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    return torch.device("cuda")


def leaves(
    batch: int = 4, n: int = 70, m: int = 90, d: int = 3, dtype: torch.dtype = torch.float32
) -> list[Tensor]:
    generator = torch.Generator().manual_seed(n)
    return [
        torch.randn(batch, length, d, generator=generator, dtype=torch.float64)
        .to("cuda", dtype)
        .requires_grad_()
        for length in (n, m)
    ]


def step(x: Tensor, y: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, ...]:
    value = soft_dtw(x, y, gamma=0.5, x_lengths=lengths)
    return value.detach(), *torch.autograd.grad(value.sum(), (x, y))


def assert_equal(got: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> None:
    torch.cuda.synchronize()
    for a, b in zip(got, expected, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("d", [1, 3, 64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_step_in_a_cuda_graph(d: int, dtype: torch.dtype) -> None:
    x, y = leaves(d=d, dtype=dtype)
    lengths = torch.tensor([70, 1, 33, 64], device="cuda")
    graph, outputs = captured(lambda: step(x, y, lengths))
    for factor in (1.0, -0.5):
        with torch.no_grad():
            x.mul_(factor)
        lengths.copy_(lengths.flip(0))
        graph.replay()
        assert_equal(outputs, step(x, y, lengths))


@pytest.mark.parametrize("d", [1, 3, 64])
def test_graphs_replayed_at_once(d: int) -> None:
    """Long pairs, whose blocks exchange values through a workspace that each replay has to prepare anew."""
    inputs = [leaves(1, 1500, 1100, d), leaves(3, 700, 900, d)]
    expected = [step(x, y) for x, y in inputs]

    def run(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        with torch.no_grad():
            alone = soft_dtw(x, y, gamma=0.5)
        return alone, *step(x, y)

    graphs = [captured(partial(run, x, y)) for x, y in inputs]
    streams = [torch.cuda.Stream() for _ in inputs]
    torch.cuda.synchronize()
    for _ in range(10):
        for stream, (graph, outputs) in zip(streams, graphs, strict=True):
            with torch.cuda.stream(stream):
                for output in outputs:
                    output.zero_()
                graph.replay()
        for (_, (alone, *others)), wanted in zip(graphs, expected, strict=True):
            assert_equal(tuple(others), wanted)
            assert torch.equal(alone, wanted[0])


def test_costs_and_alignments_in_a_cuda_graph() -> None:
    x, y = (t.detach() for t in leaves())
    cost = torch.cdist(x, y).requires_grad_()

    def run() -> tuple[Tensor, ...]:
        value = soft_dtw_cost(cost)
        return *torch.autograd.grad(value.sum(), cost), *soft_dtw_alignment(x, y)

    graph, outputs = captured(run)
    with torch.no_grad():
        cost.mul_(0.7)
        y.mul_(0.7)
    graph.replay()
    assert_equal(outputs, run())


def test_a_graphed_module() -> None:
    x, y = leaves()
    expected = step(x, y)
    module = torch.cuda.make_graphed_callables(SoftDTW(gamma=0.5), (x, y))
    value = module(x, y)
    assert_equal((value.detach(), *torch.autograd.grad(value.sum(), (x, y))), expected)


def test_the_current_stream_is_used() -> None:
    """Inputs that arrive late on a side stream: work on any other stream would see the zeros before them."""
    x, y = leaves()
    expected = step(x, y)
    late_x, late_y = (torch.zeros_like(t).requires_grad_() for t in (x, y))
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)
        with torch.no_grad():
            late_x.copy_(x)
            late_y.copy_(y)
        got = step(late_x, late_y)
    assert_equal(got, expected)


@pytest.mark.parametrize("d", [1, 3, 64])
def test_several_streams_at_once(d: int) -> None:
    """Short pairs, several to a block, and long ones, each on several blocks that wait for each other."""
    inputs = [leaves(n=n, d=d) for n in (31, 64, 97, 200)]
    inputs += [leaves(1, 1500, 1100, d), leaves(2, 900, 2000, d)]
    expected = [step(x, y) for x, y in inputs]
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in inputs]
    for _ in range(20):
        got = []
        for stream, (x, y) in zip(streams, inputs, strict=True):
            with torch.cuda.stream(stream):
                got.append(step(x, y))
        for a, b in zip(got, expected, strict=True):
            assert_equal(a, b)


@pytest.mark.parametrize("d", [1, 64])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32], ids=str)
def test_nothing_waits_for_the_gpu(dtype: torch.dtype, d: int) -> None:
    x, y = leaves(d=d)
    lengths = torch.tensor([70, 1, 33, 64], dtype=dtype, device="cuda")
    cost = torch.zeros(4, 70, 90, device="cuda", requires_grad=True)
    with no_synchronisation():
        step(x, y, lengths)
        soft_dtw_alignment(x, y, x_lengths=lengths)
        soft_dtw_cost(cost, x_lengths=lengths).sum().backward()


@pytest.mark.parametrize("symmetric", [False, True])
def test_all_pairs_wait_for_no_gpu(symmetric: bool) -> None:
    """Tiles are enqueued behind each other and put together on the GPU; what is read of the input is read before."""
    x, y = (series.detach() for series in leaves(33, 40, 50))
    sides = as_series(x, "X"), None if symmetric else as_series(y, "Y")
    home = [x.device] * 2
    job = pairwise_job.plan_job(*sides, {"gamma": 0.5}, home, 64, None, False)
    with no_synchronisation():
        got = pairwise_job.compute_pairs(job, x, None if symmetric else y)
    expected = cdist_soft_dtw(x, None if symmetric else y, gamma=0.5)
    assert_equal((got,), (expected,))


def test_threads_that_launch_a_kernel_with_more_or_less_shared_memory() -> None:
    """What one thread allows the kernel must be enough for the others, and each gets its own results."""
    series = {pairs: randn(pairs, 12, 3, seed=pairs, device="cuda") for pairs in (1, 2, 3, 64)}
    expected = {pairs: soft_dtw(x, x.flip(1)) for pairs, x in series.items()}

    def work(pairs: int) -> int:
        x = series[pairs]
        torch.cuda.current_stream().synchronize()
        return sum(torch.equal(soft_dtw(x, x.flip(1)), expected[pairs]) for _ in range(300))

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, series)) == [300] * 4


def test_all_pairs_on_two_gpus() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU only")
    x, y = leaves(33, 40, 50)
    lengths = torch.arange(8, 41, device="cuda")
    for options in ({}, {"x_lengths": lengths}):
        results = []
        for devices in (["cuda:0"], ["cuda:1", "cuda:0"], ["cuda:1"]):
            value = cdist_soft_dtw(x, y, gamma=0.5, block_size=64, devices=devices, **options)
            results.append((value.detach(), *torch.autograd.grad(value.sum(), (x, y))))
        for value, *gradients in results[1:]:
            assert value.device == x.device
            assert_equal((value,), results[0][:1])
            for got, expected in zip(gradients, results[0][1:], strict=True):
                torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)


def test_all_pairs_of_late_series_on_two_gpus() -> None:
    """Series that arrive late on a side stream: the other GPU must wait for them too."""
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU only")
    x = leaves(20)[0].detach()
    expected = cdist_soft_dtw(x, gamma=0.5)
    late = torch.zeros_like(x)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        job = pairwise_job.plan_job(
            as_series(x, "X"),
            None,
            {"gamma": 0.5},
            [torch.device("cuda:0"), torch.device("cuda:1")],
            16,
            None,
            False,
        )
        torch.cuda._sleep(50_000_000)
        late.copy_(x)
        got = pairwise_job.compute_pairs(job, late, None)
    assert_equal((got,), (expected,))


@pytest.mark.parametrize("d", [1, 3, 64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_lengths_out_of_range_are_clamped(dtype: torch.dtype, d: int) -> None:
    x, y = leaves(d=d, dtype=dtype)
    inside = torch.tensor([1, 1, 70, 70], device="cuda")
    for wrong in ([0, -5, 71, 10_000], [0, -(2**31), 2**31, 2**32 + 1], [-(2**32) + 9, 0, 2**40, 2**62]):
        assert_equal(step(x, y, torch.tensor(wrong, device="cuda")), step(x, y, inside))
    short = torch.tensor([0, -(2**31), 71, 2**31 - 1], dtype=torch.int32, device="cuda")
    assert_equal(step(x, y, short), step(x, y, inside))


@pytest.mark.parametrize(("n", "m", "d"), [(64, 64, 2), (257, 130, 1), (300, 500, 64)])
def test_a_hundred_runs_are_equal_bit_for_bit(n: int, m: int, d: int) -> None:
    x, y = leaves(16, n, m, d)
    expected = step(x, y)
    for _ in range(100):
        assert_equal(step(x, y), expected)


def test_another_device_than_the_current_one() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU only")
    x, y = leaves()
    expected = step(x, y)
    far_x, far_y = (t.detach().to("cuda:1").requires_grad_() for t in (x, y))
    lengths = torch.full((4,), 70, device="cuda:1")
    assert torch.cuda.current_device() == 0
    got = step(far_x, far_y, lengths)
    assert torch.cuda.current_device() == 0
    assert all(t.device == torch.device("cuda:1") for t in got)
    assert_equal(tuple(t.to("cuda:0") for t in got), expected)


@pytest.mark.parametrize("d", [1, 16])
def test_a_step_keeps_no_table(d: int) -> None:
    """32 tables of 2048 x 2048 float32 would be 512 MiB; a step has less than an eighth of that, or a panel (256 MiB)."""
    x, y = leaves(32, 2048, 2048, d)
    step(x, y)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    value = soft_dtw(x, y)
    assert torch.cuda.memory_allocated() - before < 512 * 2**20 / 8 + 32 * 2048 * d * 4 * 2  # gradients too
    torch.autograd.grad(value.sum(), (x, y))
    gradients = 2 * 32 * 2048 * d * 4 * 2  # in the operator, and scaled
    bound = 512 * 2**20 / 8 if d == 1 else 260 * 2**20
    assert torch.cuda.max_memory_allocated() - before - gradients < bound


FAR = (
    2**31 + 2**20
)  # elements: neither as a signed nor as an unsigned 32-bit number of bytes or elements can it be reached


@contextmanager
def room_for(elements: int) -> Iterator[None]:
    """Skips where the GPU has too little free memory for float32 tensors of that size, and gives it back."""
    if torch.cuda.mem_get_info()[0] < 4.5 * elements:
        pytest.skip(f"needs {4 * elements / 2**30:.0f} GiB of GPU memory")
    yield
    torch.cuda.empty_cache()


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("d", [2, 5])  # few features, tiles
def test_strides_beyond_2_31_elements(d: int, axis: int) -> None:
    for side in (0, 1):
        inputs = leaves(3, 33, 40, d)
        expected = step(*inputs)
        shape = inputs[side].shape
        stride = FAR // (shape[axis] - 1) + 1
        strides = list(inputs[side].detach().stride())
        strides[axis] = stride
        with room_for(FAR + 2**24):
            buffer = torch.empty(stride * (shape[axis] - 1) + 2**20, device="cuda")
            view = buffer.as_strided(shape, strides)
            with torch.no_grad():
                view.copy_(inputs[side])
            inputs[side] = view.requires_grad_()
            assert_equal(step(*inputs), expected)
            del view, inputs, buffer


def test_series_of_more_than_2_31_elements() -> None:
    """x and its gradient; the last pairs must be what they are by themselves."""
    batch, n, m, d = 33_000, 64, 8, 1024
    assert batch * n * d > FAR
    with room_for(2 * batch * n * d + 3 * batch * m * d):
        x = torch.randn(batch, n, d, device="cuda").requires_grad_()
        y = torch.randn(batch, m, d, device="cuda").requires_grad_()
        got = step(x, y)
        for part in (slice(0, 2), slice(batch - 2, batch)):
            expected = step(*(t[part].detach().requires_grad_() for t in (x, y)))
            assert_equal(tuple(t[part] for t in got), expected)
        del x, y, got


@pytest.mark.parametrize("of", ["series", "costs"])
def test_tables_of_more_than_2_31_elements(of: str) -> None:
    """The alignment of series; costs and their gradient."""
    batch, size = 2049 + 2, 1024
    assert batch * size * size > FAR

    def run(first: Tensor, second: Tensor) -> tuple[Tensor, ...]:
        if of == "series":
            return tuple(soft_dtw_alignment(first, second))
        first = first.detach().requires_grad_()
        value = soft_dtw_cost(first)
        return value.detach(), *torch.autograd.grad(value.sum(), first)

    with room_for((1 if of == "series" else 2) * batch * size * size + 2**26):
        shape = (batch, size, 2 if of == "series" else size)
        first = torch.rand(shape, device="cuda")
        second = torch.rand(shape, device="cuda") if of == "series" else first
        got = run(first, second)
        for part in (slice(0, 2), slice(batch - 2, batch)):
            found, alone = tuple(t[part] for t in got), run(first[part], second[part])
            if of == "series":
                assert_equal(found, alone)
            else:  # Two pairs of costs are swept from both ends, which rounds in another order.
                torch.testing.assert_close(found, alone, rtol=1e-5, atol=1e-6)
        del first, second, got


def test_agrees_with_the_cpu(cuda: torch.device) -> None:
    for gamma in (0.1, 1.0):
        x, y = pair(8, 97, 65, 3)
        on_cuda = training_step(x.to(cuda), y.to(cuda), gamma=gamma)
        for one, other in zip(on_cuda, training_step(x, y, gamma=gamma), strict=True):
            assert relative_error(one, numpy64(other)) < 2e-5  # each is within 1e-5 of float64


def test_many_pairs(cuda: torch.device) -> None:
    """More pairs than a grid's second axis holds."""
    x, y = pair(70_000, 3, 2, 1, device=cuda)
    got = training_step(x, y)
    expected = training_step(x[-5:], y[-5:])
    torch.testing.assert_close(got[0][-5:], expected[0], rtol=1e-5, atol=1e-5)
    assert got[1].isfinite().all()


def test_lengths_out_of_range_of_alignments_and_costs_are_clamped(cuda: torch.device) -> None:
    x, y = pair(6, 33, 40, 3, device=cuda)
    bad = torch.tensor([34, 0, -5, 2**31 - 1, 2**32 + 3, -(2**40)], device=cuda)
    got = soft_dtw_alignment(x, y, y_lengths=bad).alignment
    clamped = torch.tensor([34, 1, 1, 40, 40, 1], device=cuda)
    assert torch.equal(got, soft_dtw_alignment(x, y, y_lengths=clamped).alignment)
    cost = randn(6, 33, 33, seed=0, device=cuda)
    clamped = torch.tensor([33, 1, 1, 33, 33, 1], device=cuda)
    for name in ("x_lengths", "y_lengths"):
        got = soft_dtw_cost(cost, **{name: bad})
        assert torch.equal(got, soft_dtw_cost(cost, **{name: clamped}))
    raw = torch.ops.warpalign.soft_dtw_alignment(x, y, bad[:4].repeat(2)[:6].int(), None, 1.0, True, True)
    clamped = torch.tensor([33, 1, 1, 33, 33, 1], dtype=torch.int32, device=cuda)
    assert_tensors_equal(raw, torch.ops.warpalign.soft_dtw_alignment(x, y, clamped, None, 1.0, True, True))
