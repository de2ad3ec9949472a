"""Ways by name, plans by sizes, and the sizes of saved tensors that the core's formulas give."""

from __future__ import annotations

import math
import re
from itertools import product

import pytest
import torch

import warpalign
from warpalign._core import library
from warpalign._core.explain import CLASSES, SIZES, explain
from warpalign._core.saved_bytes import ctc_saved_bytes, transducer_arcs, transducer_saved_bytes
from warpalign._core.ways import forced, ways

EXAMPLES = {
    "soft_dtw": (4, 100, 130, 8),
    "sinkhorn": (2, 100, 130, 6),
    "transducer": (2, 30, 10, 40),
    "transducer_joint": (2, 30, 10, 40, 16),
    "ctc": (2, 60, 40, 8),
    "lstm": (20, 4, 16, 32),
}
needs_cuda_operators = pytest.mark.skipif(not library.has_cuda, reason="no CUDA operators")


def memory_of(text: str) -> list[int]:
    return [
        int(line.replace(",", "")) for line in re.findall(r"^  memory +([\d,]+) bytes$", text, re.MULTILINE)
    ]


@pytest.mark.parametrize("operator", SIZES)
def test_plans_of_a_cpu(operator: str) -> None:
    text = explain(operator, EXAMPLES[operator], threads=2)
    assert f"{operator} on CPU, 2 threads, " in text.replace("ctc_loss", "ctc")
    assert "  way  " in text and all(size > 0 for size in memory_of(text))


@needs_cuda_operators
@pytest.mark.parametrize("device", CLASSES)
@pytest.mark.parametrize("operator", SIZES)
def test_plans_of_gpus_that_are_not_there(operator: str, device: str) -> None:
    text = explain(operator, EXAMPLES[operator], device=device)
    assert f"on CUDA {device} (as " in text
    launches = [int(count) for count in re.findall(r"^  launches +(\d+)$", text, re.MULTILINE)]
    assert launches and all(count > 0 for count in launches)
    assert re.search(r": grid \d+, block \d+, [\d,]+ bytes of shared memory", text)
    assert sum(memory_of(text)) > 0


@needs_cuda_operators
def test_the_plan_follows_the_device_and_the_precision() -> None:
    half = {"dtype": torch.bfloat16, "gradient": False}
    joint = EXAMPLES["transducer_joint"]
    try:
        explain("transducer_joint", joint, device="9.0", way="warpgroups", **half)
        way = "warpgroups"
    except ValueError as error:  # a library without code for 9.0
        assert "the device, or this build, has no products by warpgroups" in str(error)  # noqa: PT017
        way = "blocks"
    assert f"way         {way}: " in explain("transducer_joint", joint, device="9.0", **half)
    assert "way         blocks: " in explain("transducer_joint", joint, device="8.0", **half)
    assert "way         kept_rows: " in explain("sinkhorn", EXAMPLES["sinkhorn"], device="9.0")
    assert "way         kept_rows: " in explain("sinkhorn", (2, 600, 700, 6), device="9.0")
    points = (2, 6000, 7000, 6)
    assert "way         points: " in explain("sinkhorn", points, device="9.0")
    assert "way         points_on_units: " in explain("sinkhorn", points, device="9.0", precision="high")
    assert "way         points_on_units: " in explain("sinkhorn", (2, 600, 700, 9), device="9.0")


@needs_cuda_operators
def test_a_way_is_named_and_refused() -> None:
    text = explain("soft_dtw", EXAMPLES["soft_dtw"], device="9.0", way="tiles")
    assert "way         tiles: named by Execution::way" in text
    lstm = explain("lstm", (50, 8, 512, 512), device="9.0", dtype=torch.bfloat16)
    assert "way         clusters: R fits the registers of a cluster" in lstm
    lstm = explain("lstm", (50, 8, 512, 512), device="9.0", dtype=torch.bfloat16, way="grid")
    assert "way         grid: " in lstm
    with pytest.raises(
        ValueError, match="blocks cannot serve this call: .*; these ways can: clusters, grid, "
    ):
        explain("lstm", (50, 8, 512, 512), device="9.0", dtype=torch.bfloat16, way="blocks")
    with pytest.raises(ValueError, match="few_features cannot serve this call: .*; these ways can: tiles, "):
        explain("soft_dtw", EXAMPLES["soft_dtw"], device="9.0", way="few_features")


def test_names_of_ways() -> None:
    assert ways("soft_dtw", "cpu") == ways("sinkhorn", "cpu") == ("across_batch", "within_items")
    assert ways("ctc", "cpu") == ways("lstm", "cpu") == ways("dtw", "cpu") == ()
    if library.has_cuda:
        assert "panel" in ways("soft_dtw", "cuda") and "points_on_units" in ways("sinkhorn", "cuda")
        assert ways("lstm", "cuda") == ("stream", "blocks", "clusters", "grid", "products", "steps")


def test_a_forced_way_is_taken_by_every_call() -> None:
    x, y = torch.randn(2, 700, 2), torch.randn(2, 650, 2)
    expected = warpalign.soft_dtw(x, y)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for way in ways("soft_dtw", "cpu"):
            with forced("soft_dtw", way):
                assert torch.equal(warpalign.soft_dtw(x, y), expected)
        with (
            forced("soft_dtw", "fast"),
            pytest.raises(RuntimeError, match='has no way "fast"; its ways are across_batch'),
        ):
            warpalign.soft_dtw(x, y)
        assert torch.equal(warpalign.soft_dtw(x, y), expected)
    finally:
        torch.set_num_threads(threads)


def test_the_end_of_an_inner_context_restores_the_outer_way() -> None:
    x, y = torch.randn(2, 20, 2), torch.randn(2, 30, 2)
    expected = warpalign.soft_dtw(x, y)
    unknown = pytest.raises(RuntimeError, match='has no way "fast"')
    with forced("soft_dtw", "fast"):
        with unknown:
            warpalign.soft_dtw(x, y)
        for way in ("across_batch", ""):
            with forced("soft_dtw", way):
                assert torch.equal(warpalign.soft_dtw(x, y), expected)
            with unknown:
                warpalign.soft_dtw(x, y)
        with pytest.raises(KeyError), forced("soft_dtw", "across_batch"):
            raise KeyError
        with unknown:
            warpalign.soft_dtw(x, y)
    assert torch.equal(warpalign.soft_dtw(x, y), expected)


@pytest.mark.gpu
@pytest.mark.parametrize("features", [3, 20])
def test_every_way_of_soft_dtw_on_a_gpu(cuda: torch.device, features: int) -> None:
    torch.manual_seed(0)
    x, y = (torch.randn(3, length, features, device=cuda, requires_grad=True) for length in (90, 130))
    expected = warpalign.soft_dtw(x, y)
    gradient = torch.autograd.grad(expected.sum(), x)[0]
    served = []
    for way in ways("soft_dtw", "cuda"):
        with forced("soft_dtw", way):
            try:
                found = warpalign.soft_dtw(x, y)
            except RuntimeError as error:
                assert f"way: {way} cannot serve this call: " in str(error)  # noqa: PT017
                continue
            served.append(way)
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-4)
            torch.testing.assert_close(torch.autograd.grad(found.sum(), x)[0], gradient, rtol=1e-3, atol=1e-3)
    source = "few_features" if features == 3 else "panel"
    assert served == [
        *dict.fromkeys(way for way in ways("soft_dtw", "cuda") if way.startswith((source, "tiles")))
    ]


@pytest.mark.gpu
def test_every_way_of_sinkhorn_on_a_gpu(cuda: torch.device) -> None:
    torch.manual_seed(0)
    x, y = torch.randn(90, 6, device=cuda), torch.randn(130, 6, device=cuda)
    cost = torch.cdist(x, y) ** 2
    options = {"epsilon": 2.0, "max_iter": 20, "tol": 0.0}
    expected = warpalign.sinkhorn(x, y, **options).value
    for way in ("kept_rows", "points", "points_on_units"):
        with forced("sinkhorn", way):
            found = warpalign.sinkhorn(x, y, precision="high", **options).value
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    for way in ("kept_rows", "warp_rows", "block_rows"):
        with forced("sinkhorn", way):
            found = warpalign.sinkhorn(cost_matrix=cost, **options).value
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.gpu
@pytest.mark.parametrize("operator", SIZES)
def test_a_plan_of_this_gpu_launches_nothing(cuda: torch.device, operator: str) -> None:
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    text = explain(operator, EXAMPLES[operator], device="cuda")
    major, minor = torch.cuda.get_device_capability()
    assert f"on CUDA {major}.{minor}, " in text and re.search(r": grid \d+, block \d+", text)
    torch.cuda.synchronize()  # addresses of a description would be a fault
    assert torch.cuda.memory_allocated() == before


def test_sizes_of_saved_tensors_are_the_operators_own() -> None:
    for batch, frames, states, labels in product((1, 3), (1, 40), (1, 7, 33), (2, 5)):
        logits = torch.zeros(batch, frames, states, labels)
        targets = torch.ones(batch, states - 1, dtype=torch.int32)
        saved = torch.ops.warpalign.transducer(logits, None, targets, None, None, None, True)[1]
        rows = batch * frames * states
        sizes = {"b": batch, "t": frames, "s": states, "rows": rows, "arcs": 2, "size": 4}
        assert saved.numel() == transducer_saved_bytes(False, **sizes)
    for batch, frames, labels in product((1, 3), (1, 2, 40), (0, 5)):
        logits = torch.zeros(batch, frames, 4)
        targets = torch.ones(batch, labels, dtype=torch.int32)
        saved = torch.ops.warpalign.ctc_loss(logits, targets, None, None, None, True)[1]
        root = math.ceil(math.sqrt(frames))
        assert saved.numel() == ctc_saved_bytes(b=batch, t=frames, u=labels, root=root, wide=1)


def test_numbers_of_a_node() -> None:
    assert transducer_arcs(False, ()) == 2
    assert transducer_arcs(False, (2, 4, 8)) == 5
    assert transducer_arcs(True, (0, 1, 2)) == 5
    assert transducer_arcs(True, (1,)) == 3
