"""The package among PyTorch's machinery: autocast, modules, pickling, processes, threads, determinism.

The compiler is in test_compile.py, torch.func in test_transforms.py, what only a GPU has in test_torch_cuda.py.
"""

from __future__ import annotations

import copy
import io
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

import warpalign
from tests.python.helpers import assert_tensors_close, assert_tensors_equal, randn
from tests.python.soft_dtw.reference import pair, training_step

Tensors = tuple[torch.Tensor, ...]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast_takes_inputs_as_they_are(device: torch.device, dtype: torch.dtype) -> None:
    x, y = pair(2, 33, 20, 3, device=device)
    expected = training_step(x, y)
    with torch.autocast(device.type, dtype):
        assert_tensors_equal(training_step(x, y), expected)
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


def test_a_tensor_as_gamma_belongs_to_the_module(device: torch.device) -> None:
    module = warpalign.SoftDTW(gamma=torch.tensor(0.3, dtype=torch.float64))
    assert not list(module.parameters()) and list(module.state_dict()) == ["gamma"]
    assert isinstance(module.float().gamma, torch.Tensor) and module.gamma.dtype == torch.float32
    x, y = pair(3, 9, 7, 2, device=device)
    expected = warpalign.soft_dtw(x, y, gamma=0.3)
    assert_tensors_close((module.to(device)(x, y), copy.deepcopy(module)(x, y)), (expected, expected))
    learnt = warpalign.SoftDTW(gamma=torch.nn.Parameter(torch.tensor(0.3))).to(device)
    learnt(x, y).sum().backward()
    (gamma,) = learnt.parameters()
    assert gamma.grad is not None and gamma.grad < 0


@pytest.mark.parametrize("use_reentrant", [True, False])
@pytest.mark.parametrize("from_costs", [False, True], ids=["series", "costs"])
def test_checkpoints(device: torch.device, from_costs: bool, use_reentrant: bool) -> None:
    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return warpalign.soft_dtw(2 * x, y, gamma=0.3, cost=torch.cdist if from_costs else "sqeuclidean")

    grads = []
    for function in (
        loss,
        lambda x, y: checkpoint(loss, x, y, use_reentrant=use_reentrant),
    ):
        x, y = pair(3, 9, 7, 2, device=device, grad=True)
        function(x, y).sum().backward()
        assert x.grad is not None and y.grad is not None
        grads.append((x.grad, y.grad))
    assert_tensors_equal(*grads)


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
    assert_tensors_close((torch.cat(list(loader)),), (warpalign.soft_dtw_alignment(x, y).alignment,))


def test_several_threads(device: torch.device) -> None:
    problems = [pair(3, 20 + 7 * i, 60 - 5 * i, 1 + i % 4, device=device) for i in range(8)]
    expected = [training_step(x, y) for x, y in problems]
    if device.type == "cuda":
        torch.cuda.synchronize()
    with ThreadPoolExecutor(8) as pool:
        for _ in range(3):
            results = list(pool.map(lambda problem: training_step(*problem), problems))
            for got, wanted in zip(results, expected, strict=True):
                assert_tensors_equal(got, wanted)


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
    assert_tensors_equal(results[0], results[1])
    assert_tensors_equal(results[0], results[2])


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
        assert_tensors_equal(training_step(x, y, gamma=0.1, x_lengths=lengths), first)
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
        assert_tensors_equal(training_step(x, y, x_lengths=lengths), expected)
        again = warpalign.soft_dtw_alignment(x, y, x_lengths=lengths).alignment
    finally:
        torch.use_deterministic_algorithms(False)
    assert torch.equal(alignment, again)


def test_inputs_are_left_alone(device: torch.device) -> None:
    x, y = pair(2, 33, 40, 3, device=device)
    lengths = torch.tensor([33, 4], dtype=torch.int32, device=device)
    before = x.clone(), y.clone(), lengths.clone()
    training_step(x, y, x_lengths=lengths)
    assert_tensors_equal((x, y, lengths), before)


def test_subclasses_of_tensor(device: torch.device) -> None:
    x = torch.nn.Parameter(randn(2, 5, 3, seed=0, device=device))
    y = torch.nn.Parameter(randn(2, 6, 3, seed=1, device=device), requires_grad=False)
    warpalign.soft_dtw(x, y).sum().backward()
    assert x.grad is not None and y.grad is None


def test_lazily_negated_inputs(device: torch.device) -> None:
    x, y = pair(3, 5, 6, 2, device=device)
    lazy = torch.complex(x, -x).conj().imag
    assert lazy.is_neg() and torch.equal(warpalign.soft_dtw(lazy, y), warpalign.soft_dtw(x, y))
