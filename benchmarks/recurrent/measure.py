"""Measures one row of the LSTM table: times, memory, errors, and torch.nn.LSTM (cuDNN) beside in the same run.

A step is the forward pass and the backward pass to the input and all weights, from a random gradient by the output.
`mib` is the peak of the allocator above the inputs and weights, less the gradients. Errors are relative L2 errors against
torch.nn.LSTM in float64, on the first rows of the batch and the first steps; options that torch has not have none.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.harness.results import Row, rounded
from benchmarks.harness.timing import eager_ms, graph_ms, peak_mib
from benchmarks.recurrent.sizes import FORWARD, STREAM, Size
from warpalign.recurrent import LSTM

# An error above this is recorded as a failure, not as a result.
WRONG = {"float64": 1e-10, "float32": 1e-4, "float16": 5e-2, "bfloat16": 3e-1}
MOST_STEPS, MOST_ROWS = 64, 8  # that errors are measured on


class Problem:
    """One size's input and modules, and the calls that are measured."""

    def __init__(self, size: Size, device: torch.device, seed: int = 0, invariant: bool = False) -> None:
        torch.manual_seed(seed)
        self.size = size
        options: dict[str, Any] = {"activation": size.activation, "batch_invariant": invariant}
        names = size.options.split()
        if "layer_norm" in names:
            options["layer_norm"] = True
        if "zoneout" in names:
            options["zoneout"] = 0.1
        if "weight_dropout" in names:
            options["rw_dropout"] = 0.1
        if "recompute" in names:
            options["recompute"] = True
        if "medium" in names:
            options["precision"] = "medium"
        self.shape: dict[str, Any] = {
            "num_layers": size.layers,
            "bidirectional": size.dirs == 2,
            "proj_size": size.P,
            "device": device,
        }
        self.module = LSTM(size.I, size.H, dtype=size.torch_dtype, **self.shape, **options)
        drawn = torch.randn(size.T, size.B, size.I, device=device)
        self.x = drawn.to(size.torch_dtype).requires_grad_()
        width = (size.P or size.H) * size.dirs
        self.gradient = torch.randn(size.T, size.B, width, device=device).to(size.torch_dtype)
        self.given: dict[str, Tensor] = {}
        if "lengths" in names:
            share = torch.linspace(0.3, 1, size.B, device=device)
            self.given = {"input_lengths": (share * size.T).ceil().to(torch.int32)}

    def forward(self, module: nn.Module | None = None) -> tuple[Tensor, ...]:
        with torch.no_grad():
            return (self.module(self.x, **self.given)[0] if module is None else module(self.x)[0],)

    def step(self, module: nn.Module | None = None) -> tuple[Tensor, ...]:
        given = self.given if module is None else {}
        module = module or self.module
        y = module(self.x, **given)[0]
        return y.detach(), *torch.autograd.grad(y, [self.x, *module.parameters()], self.gradient)

    def theirs(self, dtype: torch.dtype) -> nn.LSTM | None:
        """torch's module with the same weights, where it can do the same."""
        if self.size.activation != "soft" or self.size.options not in (
            "",
            "lengths",
            "recompute",
            FORWARD,
        ):
            return None
        module = nn.LSTM(self.size.I, self.size.H, dtype=dtype, **self.shape)
        module.load_state_dict({name: w.to(dtype) for name, w in self.module.state_dict().items()})
        return module

    def errors(self) -> dict[str, float]:
        """The errors, keyed by the table's columns."""
        exact = self.theirs(torch.float64)
        if exact is None or self.size.options not in ("", "recompute"):
            return {}
        x = self.x.detach()[:MOST_STEPS, :MOST_ROWS]
        results = []
        for module, dtype in ((self.module, x.dtype), (exact, torch.float64)):
            leaf = x.to(dtype).detach().requires_grad_()
            y = module(leaf)[0]
            factor = self.gradient[:MOST_STEPS, :MOST_ROWS].to(dtype)
            gradients = torch.autograd.grad(y, [leaf, *module.parameters()], factor)
            results.append([y.detach(), *gradients[:4]])
        names = ("err_y", "err_gx", "err_gw", "err_gr", "err_gb")
        return {
            name: float((a.double() - b).norm() / b.norm())
            for name, a, b in zip(names, *results, strict=True)
        }


def times(problem: Problem, module: nn.Module | None, device: torch.device, budget_s: float) -> Row:
    """forward_ms, step_ms, graph_step_ms and mib of a module; None: ours. A row of forward passes has no other step."""

    def step() -> tuple[Tensor, ...]:
        return problem.forward(module) if problem.size.options == FORWARD else problem.step(module)

    row: Row = {
        "forward_ms": rounded(eager_ms(lambda: problem.forward(module), device, budget_s)),
        "step_ms": rounded(eager_ms(step, device, budget_s)),
        "graph_step_ms": None,
        "mib": rounded(peak_mib(step, device)),
    }
    if device.type == "cuda":
        row["graph_step_ms"] = rounded(graph_ms(step, device, budget_s))
    return row


def measure_stream(size: Size, device: torch.device, budget_s: float) -> Row:
    """The row of one step of a stream, beside torch's module: forward_ms and step_ms are the same."""
    torch.manual_seed(0)
    shape: dict[str, Any] = {"num_layers": size.layers, "dtype": size.torch_dtype, "device": device}
    ours = LSTM(size.I, size.H, **shape).eval()
    theirs = nn.LSTM(size.I, size.H, **shape).eval()
    theirs.load_state_dict(ours.state_dict())
    stream = ours.stream(size.B)
    x = torch.randn(size.B, size.I, device=device).to(size.torch_dtype)
    states = stream.h.clone(), stream.c.to(size.torch_dtype)
    row: Row = dict.fromkeys(("err_gx", "err_gw", "err_gr", "err_gb", "mib", "cudnn_mib"))
    with torch.no_grad():
        exact = copy.deepcopy(theirs).double()(x.double()[None])[0][0]
        row["err_y"] = rounded(float((stream.step(x).double() - exact).norm() / exact.norm()), 3)
        for prefix, run in (
            ("", lambda: (stream.step(x),)),
            ("cudnn_", lambda: theirs(x[None], states)[:1]),
        ):
            eager = rounded(eager_ms(run, device, budget_s))
            row |= {f"{prefix}forward_ms": eager, f"{prefix}step_ms": eager, f"{prefix}graph_step_ms": None}
            if device.type == "cuda":
                row[f"{prefix}graph_step_ms"] = rounded(graph_ms(run, device, budget_s))
    graph: Any = row["graph_step_ms"]
    row["ratio"] = rounded(row["cudnn_graph_step_ms"] / graph) if graph else None
    return row


def measure(size: Size, device: torch.device, budget_s: float) -> Row:
    """All columns of one row; a column that does not exist on this device is None."""
    budget_s /= 2  # the table has many rows
    if size.options == STREAM:
        return measure_stream(size, device, budget_s)
    problem = Problem(size, device)
    row: Row = dict.fromkeys(("err_y", "err_gx", "err_gw", "err_gr", "err_gb"))
    for name, error in problem.errors().items():
        row[name] = rounded(error, 3)
        if not error <= WRONG[size.dtype]:  # NaN is not <= either
            row[name] = None
            row["error"] = f"{name} is {error:.2g}, above {WRONG[size.dtype]:g}"
    row.update(times(problem, None, device, budget_s))
    theirs = problem.theirs(size.torch_dtype)
    beside: Row = dict.fromkeys(("forward_ms", "step_ms", "graph_step_ms", "mib"))
    if theirs is not None:
        beside = times(problem, theirs, device, budget_s)
    row.update({f"cudnn_{name}": value for name, value in beside.items()})
    graph: Any = row["graph_step_ms"]
    row["ratio"] = rounded(row["cudnn_graph_step_ms"] / graph) if graph and theirs is not None else None
    return row


def not_reproducible(device: torch.device, runs: int) -> list[str]:
    """Names of the sizes at which any of `runs` runs differs from the first in a single bit."""
    different = []
    sizes: Callable[..., Size] = Size
    for size in (
        sizes(20, 9, 33, 64),
        sizes(20, 33, 64, 512, dtype="float16"),
        sizes(10, 5, 33, 60, 2, 2, dtype="float32"),
        sizes(10, 5, 33, 60, P=20, dtype="float32", options="layer_norm"),
    ):
        problem = Problem(size, device, seed=1)
        first = problem.step()
        again = (problem.step() for _ in range(runs - 1))
        if not all(all(map(torch.equal, first, results)) for results in again):
            different.append(size.name)
    return different
