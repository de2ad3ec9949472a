"""Lower bounds of times on known GPUs: what a row of the soft-DTW table is held against.

Each bound is the time that one resource needs for the work of the algorithm as it is (numerics.md): linear-space cells, gradients from one
recomputation, float32 costs from differences. The largest one binds. Rates were measured on the GPU with a throw-away prototype
(D = 1) or are its data sheet's multiplied with the clock that the MUFU rate shows. An algorithm with other operations, say
costs on tensor cores, has other bounds.
"""

from __future__ import annotations

from typing import NamedTuple

from benchmarks.soft_dtw.sizes import Size


class Gpu(NamedTuple):
    """Rates per second of the whole GPU."""

    clock: float
    mufu: float  # ex2, lg2, rcp: 16 per clock and multiprocessor
    issue: float  # instructions of all lanes: 128 per clock and multiprocessor
    int32: float  # 64 per clock and multiprocessor
    bytes: float  # of a copy, reading and writing


_H200_MUFU = 4.18e12
GPUS = {
    "NVIDIA H200": Gpu(_H200_MUFU / 16 / 132, _H200_MUFU, 8 * _H200_MUFU, 4 * _H200_MUFU, 4.3e12),
}

# Operations per cell. Forward: one exponential; exponents and mantissas take 11 integer operations. Training does that twice,
# and has a reciprocal for the transition weights.
MUFU_FORWARD, MUFU_STEP = 1, 3
INT_FORWARD, INT_STEP = 11, 22
# Per cell and feature, from the same issue slots: a cost is a difference and a multiply-add, made twice in training; gradients are
# two multiply-adds.
FP32_FORWARD, FP32_STEP = 2, 6
# Cycles of the chain of dependent operations from one cell to the next, from both ends at once; training goes through the table
# twice, and in its second pass recomputes.
CHAIN_FORWARD, CHAIN_STEP = 70, 140


class Limit(NamedTuple):
    name: str
    ms: float


def limit(size: Size, device: str, *, step: bool, overhead_ms: float = 0.0) -> Limit | None:
    """The bound that binds, of the forward or of a training step; None: nothing is known of the device.

    overhead_ms: what the framework takes for a call that computes nothing; 0 inside a CUDA graph.
    """
    gpu = GPUS.get(device)
    if gpu is None:
        return None
    mufu, integers, fp32, chain = (
        (MUFU_STEP, INT_STEP, FP32_STEP, CHAIN_STEP)
        if step
        else (MUFU_FORWARD, INT_FORWARD, FP32_FORWARD, CHAIN_FORWARD)
    )
    series_bytes = 4 * size.B * (size.N + size.M) * size.D
    seconds = {
        "MUFU": mufu * size.cells / gpu.mufu,
        "integer units": integers * size.cells / gpu.int32,
        "issue": (integers + fp32 * size.D) * size.cells / gpu.issue,
        "latency": chain * (size.N + size.M - 1) / 2 / gpu.clock,
        "memory": series_bytes * (2 if step else 1) / gpu.bytes,
        "framework": overhead_ms / 1e3,
    }
    name = max(seconds, key=lambda key: seconds[key])
    return Limit(name, 1e3 * seconds[name])
