"""Packed input beside input_lengths=, and torch.nn.LSTM on packed input; and a step of a stream, eager and in a CUDA graph.

    python -m benchmarks.recurrent.packed [--device cuda] [--dtype float32]

Milliseconds of eager calls, and of replays of a CUDA graph: forward passes without gradients, and training steps.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from benchmarks.harness.timing import eager_ms, graph_ms
from warpalign.recurrent import LSTM

BUDGET_S = 2.0
SIZES = [(200, 64, 256, 2), (200, 64, 512, 2), (500, 32, 1024, 2), (50, 16, 64, 1)]  # T, B, H, layers


def trained(module: nn.Module, call: Callable[[], Tensor]) -> Callable[[], object]:
    return lambda: torch.autograd.grad(call().sum(), list(module.parameters()))


def measure(
    steps: int, batch: int, hidden: int, layers: int, device: torch.device, dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    ours = LSTM(hidden, hidden, layers, device=device, dtype=dtype)
    theirs = nn.LSTM(hidden, hidden, layers, device=device, dtype=dtype)
    lengths = torch.linspace(steps, steps // 2, batch).long()
    x = torch.randn(steps, batch, hidden, device=device).to(dtype)
    packed = pack_padded_sequence(x, lengths)
    packed = PackedSequence(packed.data.detach(), packed.batch_sizes)
    on_device = lengths.to(device)
    calls: dict[str, tuple[nn.Module, Callable[[], Tensor]]] = {
        "lengths": (ours, lambda: ours(x, input_lengths=on_device)[0]),
        "packed": (ours, lambda: ours(packed)[0].data),
        "nn.LSTM packed": (theirs, lambda: theirs(packed)[0].data),
    }
    for name, (module, call) in calls.items():
        with torch.no_grad():
            times = [eager_ms(call, device, BUDGET_S)]
            times += [graph_ms(call, device, BUDGET_S)] if device.type == "cuda" else []
        times.append(eager_ms(trained(module, call), device, BUDGET_S))
        print(f"T={steps} B={batch} H={hidden} L={layers} {name:>15}:", *(f"{ms:9.3f}" for ms in times))
    stream = ours.eval().stream(batch)
    frame = x[0].contiguous()
    times = [eager_ms(lambda: stream.step(frame), device, BUDGET_S)]
    times += [graph_ms(lambda: stream.step(frame), device, BUDGET_S)] if device.type == "cuda" else []
    print(f"T=1 B={batch} H={hidden} L={layers} {'stream.step':>15}:", *(f"{ms:9.4f}" for ms in times))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", default="float32", choices=("float32", "float16", "bfloat16"))
    given = parser.parse_args()
    print(
        "milliseconds: forward eager, forward in a graph (CUDA), training step eager; a stream's step eager, in a graph"
    )
    for size in SIZES:
        measure(*size, torch.device(given.device), getattr(torch, given.dtype))


if __name__ == "__main__":
    main()
