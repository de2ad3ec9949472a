"""Measures the loss fused with its joint network, beside the same from torch's logits.

A step is forward, sum and backward to encoder, predictor, weight and bias, N(0, 1) but for the weights, N(0, 1/H).
`materialised_*`: a linear layer makes all logits, and transducer_loss takes them, its gradient in place. `chunks_*`: the
same by utterance, one backward each. `high_step_ms` has `precision="high"`. `mib` is the peak of the allocator during a step, less the gradients. Errors are
against float64 on the first utterance, of the inputs as they are stored: of the loss relative, of the gradients the
largest relative L2; `materialised_err_g` is the other's.

`python -m benchmarks.transducer.joint` times one core of a CPU and writes
benchmarks/results/<cpu>/<date>-<commit>-transducer-joint-cpu.json. With `--device cuda` it measures the joints of
`make gpu-check` and writes benchmarks/results/<gpu>/<date>-<commit>-transducer-joint-gpu.json.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import warpalign
from benchmarks.harness.results import (
    Row,
    add_arguments,
    device_name,
    result_path,
    rounded,
    stamp,
    write_rows,
)
from benchmarks.harness.timing import eager_ms, graph_ms, least_thread_s, peak_mib
from benchmarks.transducer.sizes import FIRST_LABEL, SIZES, Size
from tests.python.transducer.joint_cases import joint_of
from tests.python.transducer.reference import keywords, loss_by_frames
from warpalign._core.checks import Precision

CPU_SIZES = [
    Size(1, 100, 50, 1024, H=640),
    Size(1, 200, 50, 29, H=320),
    Size(1, 100, 50, 1024, "bfloat16", H=640),
    Size(1, 100, 50, 1024, "float16", H=640),
    Size(1, 100, 50, 1024, family="tdt", H=640),
    Size(16, 100, 29, 1024, H=640),
    Size(16, 100, 29, 1024, "bfloat16", H=640),
]
ERROR_LOGITS = 2**24  # the largest utterance that is compared with float64


class JointProblem:
    """One size's tensors, and the calls that are measured."""

    def __init__(self, size: Size, device: torch.device, seed: int = 0) -> None:
        generator = torch.Generator(device).manual_seed(seed)
        self.size, self.durations = size, len(size.options.durations or ())

        def draw(*shape: int, scale: float = 1) -> Tensor:
            wide = torch.randn(*shape, generator=generator, device=device) * scale
            return wide.to(size.torch_dtype).requires_grad_()

        columns = size.V + self.durations
        self.tensors = [
            draw(size.B, size.T, size.H),
            draw(size.B, size.U + 1, size.H),
            draw(columns, size.H, scale=size.H**-0.5),
            draw(columns),
        ]
        self.targets = torch.randint(
            FIRST_LABEL, size.V, (size.B, size.U), generator=generator, device=device
        ).int()
        self.lengths: tuple[Tensor | None, Tensor | None] = (None, None)
        if size.ragged:
            share = torch.linspace(0.5, 1, size.B, device=device)
            self.lengths = ((share * size.T).int(), (share.flip(0) * size.U).int())

    def loss(self, precision: Precision | None = None) -> Tensor:
        encoder, predictor, weight, bias = self.tensors
        joint, given = joint_of(weight, bias, self.size.options)
        return warpalign.transducer_loss_from_joint(
            encoder,
            predictor,
            self.targets,
            joint,
            *self.lengths,
            reduction="sum",
            precision=precision,
            **given,
        )

    @torch.no_grad()
    def forward(self) -> Tensor:
        return self.loss()

    def step(self) -> tuple[Tensor, ...]:
        return torch.autograd.grad(self.loss(), self.tensors)

    def high_step(self) -> tuple[Tensor, ...]:
        return torch.autograd.grad(self.loss("high"), self.tensors)

    def _materialised_loss(self, utterances: slice, in_place: bool = True) -> Tensor:
        encoder, predictor, weight, bias = self.tensors
        hidden = (encoder[utterances, :, None] + predictor[utterances, None]).relu()
        logits = nn.functional.linear(hidden, weight, bias)
        given: dict[str, Any] = keywords(self.size.options) | {"reduction": "sum", "inplace_grad": in_place}
        rest: list[Any] = [
            self.targets[utterances],
            *(None if n is None else n[utterances] for n in self.lengths),
        ]
        if not self.durations:
            return warpalign.transducer_loss(logits, *rest, **given)
        return warpalign.tdt_loss(*logits.split([self.size.V, self.durations], -1), *rest, **given)

    def materialised_step(self) -> tuple[Tensor, ...]:
        return torch.autograd.grad(self._materialised_loss(slice(None)), self.tensors)

    def chunks_step(self) -> tuple[Tensor, ...]:
        total = [torch.zeros_like(t) for t in self.tensors]
        for b in range(self.size.B):
            part = torch.autograd.grad(self._materialised_loss(slice(b, b + 1)), self.tensors)
            for sum_, gradient in zip(total, part, strict=True):
                sum_ += gradient
        return tuple(total)

    def errors(self) -> Row:
        """Errors of the first utterance, relative to float64."""
        size = self.size
        names = ("err_loss", "err_g", "materialised_err_g")
        if size.T * (size.U + 1) * size.V > ERROR_LOGITS or size.ragged:
            return dict.fromkeys(names)
        one = JointProblem(size._replace(B=1), self.targets.device)
        wide = [t.detach().double().requires_grad_() for t in one.tensors]
        rows = nn.functional.linear((wide[0][0, :, None] + wide[1][0, None]).relu(), wide[2], wide[3])
        durations = rows[..., size.V :] if self.durations else None
        expected = loss_by_frames(rows[..., : size.V], one.targets[0], size.options, durations)
        exact = torch.autograd.grad(expected, wide)

        def worst(gradients: tuple[Tensor, ...]) -> float:
            pairs = zip(gradients, exact, strict=True)
            return max(float((g.double() - e).norm() / e.norm()) for g, e in pairs)

        value = float(one.loss().detach())
        return {
            "err_loss": rounded(abs(value / float(expected.detach()) - 1), 3),
            "err_g": rounded(worst(one.step()), 3),
            "materialised_err_g": rounded(worst(one.materialised_step()), 3),
        }


def or_error(row: Row, name: str, measure: Callable[[], float | None]) -> None:
    """row[name], or why there is none: materialised logits may not fit."""
    try:
        row[name] = rounded(measure())
    except (RuntimeError, torch.OutOfMemoryError) as failure:
        row[name] = None
        row.setdefault(f"{name}_error", str(failure).splitlines()[0][:200])


def measure_joint(size: Size, device: torch.device, budget_s: float) -> Row:
    """All columns of one row; a column that does not exist on this device is None."""
    problem = JointProblem(size, device)
    row: Row = {
        "forward_ms": rounded(eager_ms(problem.forward, device, budget_s)),
        "step_ms": rounded(eager_ms(problem.step, device, budget_s)),
        "mib": rounded(peak_mib(problem.step, device)),
        "graph_forward_ms": None,
        "graph_step_ms": None,
    }
    if device.type == "cuda":
        or_error(row, "graph_forward_ms", lambda: graph_ms(problem.forward, device, budget_s))
        or_error(row, "graph_step_ms", lambda: graph_ms(problem.step, device, budget_s))
        if size.dtype == "float32":
            row["high_step_ms"] = rounded(eager_ms(problem.high_step, device, budget_s))
    for name, step in (("materialised", problem.materialised_step), ("chunks", problem.chunks_step)):
        or_error(row, f"{name}_step_ms", lambda step=step: eager_ms(step, device, budget_s))  # type: ignore[misc]
        or_error(row, f"{name}_mib", lambda step=step: peak_mib(step, device))  # type: ignore[misc]
    row.update(problem.errors())
    return row


def measure_on_cpu(size: Size, runs: int) -> Row:
    """The least CPU time of so many runs on one thread."""
    problem = JointProblem(size, torch.device("cpu"))
    row: Row = {"threads": 1}
    for name, run in (
        ("forward_ms", problem.forward),
        ("step_ms", problem.step),
        ("materialised_step_ms", problem.materialised_step),
    ):
        row[name] = rounded(1e3 * least_thread_s(run, runs))
    row.update(problem.errors())
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument(
        "--runs", type=int, default=5, help="of which the least time counts, on a CPU (default: 5)"
    )
    parser.add_argument("--budget", type=float, default=0.2, help="seconds for each time, on a GPU")
    parser.add_argument("--device", default="cpu")
    add_arguments(parser)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    device = torch.device(arguments.device)
    on_gpu = device.type == "cuda"
    path, commit = result_path(
        arguments, device_name(device), f"-transducer-joint-{'gpu' if on_gpu else 'cpu'}"
    )
    rows = []
    for size in [size for size in SIZES if size.H and not size.beams] if on_gpu else CPU_SIZES:
        row: Row = {"op": "transducer" if on_gpu else "transducer_joint", "device": device_name(device)}
        row |= size._asdict()
        row |= (
            measure_joint(size, device, arguments.budget) if on_gpu else measure_on_cpu(size, arguments.runs)
        )
        print(size.name, {k: v for k, v in row.items() if k.endswith(("_ms", "_g", "_loss"))}, flush=True)
        rows.append(row | stamp(commit))
        write_rows(rows, path)
    print(path, warpalign.__version__)


if __name__ == "__main__":
    main()
