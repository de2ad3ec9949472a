"""The LSTM with hard gates beside the same equations step by step in torch, by shapes and dtypes, with errors.

torch has no LSTM with hard gates: `plain_*` is the loop that one writes without this package
(tests/python/recurrent/reference.py). `soft_*`: this library's LSTM with soft gates. A step is the forward pass and the
backward pass to the input and all weights. Errors are relative L2 errors against the loop in float64.

`python -m benchmarks.recurrent.hard` writes benchmarks/results/<gpu>/<date>-<commit>-lstm-hard.json. With `--rails` it writes
which float32 errors come from numbers that rounding carries over a rail, where the derivative of a hard gate jumps
(`rail_row`), to <date>-<commit>-lstm-hard-rails.json.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

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


class Rails(TorchFunctionMode):
    """Finds the numbers of each sequence that are nearest to a rail of their hard gate, and moves some over it.

    The k-th call of hardtanh has (B, H) numbers. nearest: (B, COUNT, 3) distance to the rail, k and column.
    """

    COUNT = 4

    def __init__(self, moved: Sequence[tuple[int, int, int]] = ()) -> None:
        """moved: (k, sequence, column) of the numbers that are reflected at the rail that is nearest to them."""
        super().__init__()
        self.moved, self.calls = moved, 0
        self.nearest: Tensor | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not torch.nn.functional.hardtanh:
            return func(*args, **(kwargs or {}))
        value, *rails = args
        with torch.no_grad(), torch._C.DisableTorchFunction():
            to_rails = [rail - value for rail in (rails or (-1.0, 1.0))]
            to_nearest: Tensor = torch.where(to_rails[0].abs() < to_rails[1].abs(), to_rails[0], to_rails[1])
            self._keep_nearest(to_nearest.abs())
            change = torch.zeros_like(value)
            for call, sequence, column in self.moved:
                if call == self.calls:
                    change[sequence, column] = 2 * to_nearest[sequence, column]
        self.calls += 1
        return func(value + change, *rails, **(kwargs or {}))

    def _keep_nearest(self, distance: Tensor) -> None:
        least, column = distance.topk(min(self.COUNT, distance.shape[1]), largest=False)
        found = torch.stack((least, torch.full_like(least, self.calls), column.to(least)), 2)
        if self.nearest is not None:
            found = torch.cat((self.nearest, found), 1)
        order = found[..., 0].argsort(1)[:, : self.COUNT, None]
        self.nearest = found.gather(1, order.expand(-1, -1, 3))


def sequence_errors(found: Tensor, exact: Tensor) -> Tensor:
    """(B,) relative L2 errors of the gradients with respect to x, (T, B, I)."""
    errors_of: Tensor = (found.double() - exact).norm(dim=(0, 2)) / exact.norm(dim=(0, 2))
    return errors_of


def rail_row(size: Size, device: torch.device) -> Row:
    """Of the gradient with respect to x: how many sequences have an error of more than 10 times the median sequence's.

    `err_gx`: of all; `err_gx_others`: of the sequences without these. `err_gx_moved`: of all, where in the float64 loop of each
    of these sequences one number of the four that are nearest to a rail is on the other side; `moved_by`: by how much at most.
    """
    problem = Problem(size, device)
    rails = Rails()
    with rails:
        exact = problem.plain_step(torch.float64)[1]
    row: Row = {}
    for prefix, found in (("", problem.step(problem.hard)[1]), ("plain_", problem.plain_step()[1])):
        found = found.double()
        errors_of = sequence_errors(found, exact)
        apart = (errors_of > 10 * errors_of.median()).nonzero().flatten().tolist()
        others = [b for b in range(size.B) if b not in apart]
        best, moved_by = exact.clone(), 0.0
        least = errors_of.clone()
        for turn in range(Rails.COUNT if apart else 0):
            assert rails.nearest is not None
            nearest = rails.nearest[apart, turn].tolist()
            with Rails([(int(call), b, int(h)) for (_, call, h), b in zip(nearest, apart, strict=True)]):
                moved = problem.plain_step(torch.float64)[1]
            errors_of_moved = sequence_errors(found, moved)
            for b, (distance, _, _) in zip(apart, nearest, strict=True):
                if errors_of_moved[b] < least[b]:
                    least[b], best[:, b] = errors_of_moved[b], moved[:, b]
                    moved_by = max(moved_by, 2 * distance)
        row |= {
            f"{prefix}sequences_apart": len(apart),
            f"{prefix}err_gx": rounded(float((found - exact).norm() / exact.norm()), 3),
            f"{prefix}err_gx_others": rounded(
                float((found - exact)[:, others].norm() / exact[:, others].norm()), 3
            ),
            f"{prefix}err_gx_moved": rounded(float((found - best).norm() / best.norm()), 3),
            f"{prefix}moved_by": rounded(moved_by, 3),
        }
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument(
        "--rails", action="store_true", help="errors at the rails of float32 instead of times"
    )
    parser.add_argument("--budget", type=float, default=0.3, help="seconds for each time")
    add_arguments(parser)
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    kind = "-rails" if arguments.rails else ""
    path, commit = result_path(arguments, device_name(device), f"-lstm-hard{kind}")
    rows: list[Row] = []
    for size in SIZES:
        if arguments.rails and size.dtype != "float32":
            continue
        measured = rail_row(size, device) if arguments.rails else measure(size, device, arguments.budget)
        op = "lstm_hard_rails" if arguments.rails else "lstm_hard"
        rows.append({"op": op, "device": device_name(device), **size._asdict(), **measured, **stamp(commit)})
        write_rows(rows, path)
        print(size.name, measured, flush=True)
    print(path)


if __name__ == "__main__":
    main()
