"""The LSTM with hard gates beside the same equations step by step in torch, by shapes and dtypes, with errors.

torch has no LSTM with hard gates: `plain_*` is the loop that one writes without this package
(tests/python/recurrent/reference.py). `soft_*`: this library's LSTM with soft gates. A step is the forward pass and the
backward pass to the input and all weights. Errors are relative L2 errors against the loop in float64.

`python -m benchmarks.recurrent.hard` writes benchmarks/results/<gpu>/<date>-<commit>-lstm-hard.json.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.harness.results import (
    Row,
    add_arguments,
    device_name,
    result_path,
    rounded,
    stamp,
    write_rows,
)
from benchmarks.harness.timing import eager_ms, graph_ms, of_three_ms, peak_mib
from benchmarks.recurrent.sizes import Size
from tests.python.recurrent.reference import plain_lstm
from warpalign.recurrent import LSTM, LSTMWeights

DTYPES = ("bfloat16", "float16", "float32")
SIZES = [
    size._replace(dtype=dtype, activation="hard")
    for size in (
        Size(256, 1, 512, 512),
        Size(512, 8, 512, 512),
        Size(256, 64, 256, 256),
        Size(256, 64, 1024, 1024),
        Size(100, 32, 512, 512, 2),
    )
    for dtype in DTYPES
]
ERRORS = ("err_y", "err_gx", "err_gw", "err_gr")


class Problem:
    """One size's input and modules, and the steps that are measured."""

    def __init__(self, size: Size, device: torch.device) -> None:
        torch.manual_seed(0)
        self.hard, self.soft = (
            LSTM(size.I, size.H, size.layers, activation=activation, device=device, dtype=size.torch_dtype)
            for activation in ("hard", "soft")
        )
        drawn = torch.randn(size.T, size.B, size.I, device=device)
        self.x = drawn.to(size.torch_dtype).requires_grad_()
        self.gradient = torch.randn(size.T, size.B, size.H, device=device).to(size.torch_dtype)

    def step(self, module: LSTM) -> tuple[Tensor, ...]:
        y = module(self.x)[0]
        return y.detach(), *torch.autograd.grad(y, [self.x, *module.parameters()], self.gradient)

    def plain_step(self, dtype: torch.dtype | None = None) -> tuple[Tensor, ...]:
        """The loop's; dtype: of all its numbers, the input's if None."""
        own = self.hard
        kind = dtype or self.x.dtype
        parameters = [weight.detach().to(kind).requires_grad_() for weight in own.parameters()]
        names = [name for name, _ in own.named_parameters()]
        of = dict(zip(names, parameters, strict=True))
        weights = [
            LSTMWeights(
                of[f"weight_ih_l{k}"],
                of[f"weight_hh_l{k}"],
                bias_ih=of[f"bias_ih_l{k}"],
                bias_hh=of[f"bias_hh_l{k}"],
            )
            for k in range(own.num_layers)
        ]
        x = self.x.detach().to(kind).requires_grad_()
        zeros = x.new_zeros(own.num_layers, x.shape[1], own.hidden_size)
        y, _, _ = plain_lstm(x, weights, zeros, zeros, hard=True)
        return y.detach(), *torch.autograd.grad(y, [x, *parameters], self.gradient.to(kind))


def errors(values: tuple[Tensor, ...], exact: tuple[Tensor, ...], prefix: str = "") -> Row:
    """Of y and the gradients with respect to x and the first layer's weights."""
    return {
        prefix + name: rounded(float((a.double() - b).norm() / b.norm()), 3)
        for name, a, b in zip(ERRORS, values, exact, strict=False)
    }


def measure(size: Size, device: torch.device, budget_s: float) -> Row:
    """All columns of one row; None: not measured on this device."""
    problem = Problem(size, device)
    exact = problem.plain_step(torch.float64)
    row = errors(problem.step(problem.hard), exact) | errors(problem.plain_step(), exact, "plain_")
    del exact
    runs: dict[str, Callable[[], tuple[Tensor, ...]]] = {
        "": lambda: problem.step(problem.hard),
        "soft_": lambda: problem.step(problem.soft),
        "plain_": problem.plain_step,
    }
    for prefix, run in runs.items():
        milliseconds = of_three_ms(run, device) if prefix == "plain_" else eager_ms(run, device, budget_s)
        row[f"{prefix}step_ms"] = rounded(milliseconds)
        row[f"{prefix}mib"] = rounded(peak_mib(run, device))
        cuda = device.type == "cuda"
        row[f"{prefix}graph_step_ms"] = rounded(graph_ms(run, device, budget_s)) if cuda else None
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--budget", type=float, default=0.3, help="seconds for each time")
    add_arguments(parser)
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    path, commit = result_path(arguments, device_name(device), "-lstm-hard")
    rows: list[Row] = []
    for size in SIZES:
        measured = measure(size, device, arguments.budget)
        rows.append(
            {"op": "lstm_hard", "device": device_name(device), **size._asdict(), **measured, **stamp(commit)}
        )
        write_rows(rows, path)
        print(size.name, measured, flush=True)
    print(path)


if __name__ == "__main__":
    main()
