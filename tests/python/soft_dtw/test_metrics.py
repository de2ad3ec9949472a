"""The metric, as a torchmetrics.Metric and without torchmetrics."""

from __future__ import annotations

import importlib
import math
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.multiprocessing as mp

import warpalign
from tests.python.helpers import randn
from tests.python.soft_dtw.reference import pair
from warpalign import cdist_soft_dtw, soft_dtw


@pytest.fixture(params=["torchmetrics", "alone"])
def metrics(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    if request.param == "torchmetrics":
        pytest.importorskip("torchmetrics")
    else:
        monkeypatch.setitem(sys.modules, "torchmetrics", None)
    yield importlib.reload(warpalign.metrics)
    monkeypatch.undo()
    importlib.reload(warpalign.metrics)


@pytest.mark.filterwarnings("ignore:The ``compute`` method of metric")
def test_mean_over_all_pairs(device: torch.device, metrics: ModuleType) -> None:
    metric = metrics.SoftDTWMetric(gamma=0.5).to(device)
    batches = [pair(batch, 7, 9, 2, device=device) for batch in (3, 1, 5)]
    values = [soft_dtw(x, y, gamma=0.5) for x, y in batches]
    for (x, y), value in zip(batches, values, strict=True):
        torch.testing.assert_close(metric(x.requires_grad_(), y), value.mean())
    result = metric.compute()
    assert (result.shape, result.dtype, result.device.type) == ((), torch.float32, device.type)
    assert not result.requires_grad
    torch.testing.assert_close(result, torch.cat(values).mean())
    metric.reset()
    assert math.isnan(metric.compute())
    metric.update(*batches[1])
    torch.testing.assert_close(metric.compute(), values[1].mean())


def test_hard_dtw_with_options(device: torch.device, metrics: ModuleType) -> None:
    x, y = pair(4, 7, 9, 2, device=device)
    metric = metrics.SoftDTWMetric(0, metric_params={"cost": "l1", "bandwidth": 3}).to(device)
    metric.update(x, y)
    torch.testing.assert_close(metric.compute(), soft_dtw(x, y, gamma=0, cost="l1", bandwidth=3).mean())


def test_divergence_and_lengths(device: torch.device, metrics: ModuleType) -> None:
    x, y = pair(4, 7, 9, 2, device=device)
    n, m = torch.tensor([7, 3, 1, 5], device=device), torch.tensor([2, 9, 4, 8], device=device)
    metric = metrics.SoftDTWMetric(0.5, normalize=True).to(device)
    metric.update(x, y, n, target_lengths=m)
    table = cdist_soft_dtw(x, y, gamma=0.5, normalize=True, x_lengths=n, y_lengths=m)
    torch.testing.assert_close(metric.compute(), table.diagonal().mean())
    metric.reset()
    metric.update(x, x.clone())
    assert metric.compute() == 0
    metric.reset()
    metric.update(x[0], y[0])  # a single pair
    torch.testing.assert_close(
        metric.compute(), cdist_soft_dtw(x[:1], y[:1], gamma=0.5, normalize=True)[0, 0]
    )


def test_many_updates_lose_no_digits(metrics: ModuleType) -> None:
    metric = metrics.SoftDTWMetric()
    x, y = randn(1, 1, 1, seed=0), randn(1, 1, 1, seed=1)
    metric.update(x + 1e4, y)  # beside it a value below 4 is lost in float32
    large = metric.compute().double()
    for _ in range(1000):
        metric.update(x, y)
    expected = (large + 1000 * soft_dtw(x, y).double().sum()) / 1001
    torch.testing.assert_close(metric.compute().double(), expected, rtol=1e-6, atol=0)


def test_among_torchmetrics() -> None:
    torchmetrics = pytest.importorskip("torchmetrics")
    x, y = pair(3, 7, 9, 2)
    metric = warpalign.metrics.SoftDTWMetric(0.5)
    assert isinstance(metric, torchmetrics.Metric)
    collection = torchmetrics.MetricCollection(
        {"soft-DTW": metric, "divergence": warpalign.metrics.SoftDTWMetric(0.5, normalize=True)}
    )
    collection.update(x, y)
    collection.update(x, y)
    values = collection.compute()
    torch.testing.assert_close(values["soft-DTW"], soft_dtw(x, y, gamma=0.5).mean())
    assert values["divergence"] > 0 > values["soft-DTW"] - 100
    again = pickle.loads(pickle.dumps(collection["soft-DTW"]))
    torch.testing.assert_close(again.compute(), values["soft-DTW"])


def _process(rank: int, world: int, folder: str) -> None:
    torch.set_num_threads(1)
    store = torch.distributed.FileStore(f"{folder}/store", world)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=world)
    metric = warpalign.metrics.SoftDTWMetric(0.5)
    x, y = pair(5, 7, 9, 2)
    part = slice(0, 2) if rank == 0 else slice(2, 5)
    metric.update(x[part], y[part])
    torch.save(metric.compute(), f"{folder}/{rank}.pt")
    torch.distributed.destroy_process_group()


def test_two_processes(tmp_path: Path) -> None:
    pytest.importorskip("torchmetrics")
    mp.spawn(_process, args=(2, str(tmp_path)), nprocs=2)  # type: ignore[no-untyped-call]
    x, y = pair(5, 7, 9, 2)
    for rank in range(2):
        result: Any = torch.load(tmp_path / f"{rank}.pt")
        torch.testing.assert_close(result, soft_dtw(x, y, gamma=0.5).mean())
