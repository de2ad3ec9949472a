"""Measures the pruned loss beside the exact loss of the same joint network.

A step is two linear layers for the additive network, its loss, the band, the joint network within it, and backward to
encoder, predictor and all weights; all N(0, 1), weights N(0, 1/H), tanh. `exact_*`: transducer_loss_from_joint without
pruning. `in_place_*`: the gradients of the additive network's logits take their memory (inplace_grad). `mib`: the peak
of the allocator during a step, less the gradients.

`--gradients` writes by how much pruning changes loss and gradients instead, on a small network that has been trained for a
while, by the number of states that are kept.

`python -m benchmarks.transducer.pruned` writes benchmarks/results/<device>/<date>-<commit>-transducer-pruned.json.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from benchmarks.harness.results import (
    Row,
    add_arguments,
    cpu_name,
    result_path,
    rounded,
    stamp,
    write_rows,
)
from benchmarks.harness.timing import eager_ms, graph_ms, peak_mib
from warpalign import JointWeights, transducer_loss_from_joint, transducer_loss_pruned


class Size(NamedTuple):
    B: int
    T: int
    U: int
    V: int
    H: int
    dtype: str = "bfloat16"
    s: int = 5


GPU_SIZES = [
    Size(B, T, U, V, H, dtype)
    for dtype in ("bfloat16", "float32")
    for B, T, U, V, H in (
        (16, 400, 100, 1024, 640),
        (12, 350, 80, 500, 512),
        (8, 1500, 300, 1024, 640),
        (32, 250, 50, 5000, 512),
    )
]
CPU_SIZES = [Size(2, 200, 50, 500, 256, "float32")]
WIDTHS = (2, 3, 5, 8, 12, 20)


class Problem:
    """One size's tensors, and the calls that are measured."""

    def __init__(self, size: Size, device: torch.device) -> None:
        generator = torch.Generator(device).manual_seed(0)

        def draw(*shape: int, scale: float = 1) -> Tensor:
            wide = torch.randn(*shape, generator=generator, device=device) * scale
            return wide.to(getattr(torch, size.dtype)).requires_grad_()

        self.size = size
        self.outputs = draw(size.B, size.T, size.H), draw(size.B, size.U + 1, size.H)
        self.layers = [draw(size.V, size.H, scale=size.H**-0.5) for _ in range(3)]
        self.biases = [draw(size.V) for _ in range(3)]
        self.targets = torch.randint(0, size.V - 1, (size.B, size.U), generator=generator, device=device)

    @property
    def joint(self) -> JointWeights:
        return JointWeights(self.layers[0], self.biases[0], activation="tanh")

    def loss(self, in_place: bool = False) -> Tensor:
        logits = [
            nn.functional.linear(rows, weight, bias)
            for rows, weight, bias in zip(self.outputs, self.layers[1:], self.biases[1:], strict=True)
        ]
        result = transducer_loss_pruned(
            *self.outputs,
            self.targets,
            self.joint,
            *logits,
            prune_range=self.size.s,
            inplace_grad=in_place,
            reduction="sum",
        )
        return result.loss

    def step(self, in_place: bool = False) -> tuple[Tensor, ...]:
        return torch.autograd.grad(self.loss(in_place), (*self.outputs, *self.layers, *self.biases))

    def in_place_step(self) -> tuple[Tensor, ...]:
        return self.step(in_place=True)

    def exact_step(self) -> tuple[Tensor, ...]:
        loss = transducer_loss_from_joint(*self.outputs, self.targets, self.joint, reduction="sum")
        return torch.autograd.grad(loss, (*self.outputs, self.layers[0], self.biases[0]))


def measure(size: Size, device: torch.device, budget_s: float) -> Row:
    problem = Problem(size, device)
    row: Row = {"op": "transducer_pruned", **size._asdict()}
    for name, step in (
        ("", problem.step),
        ("in_place_", problem.in_place_step),
        ("exact_", problem.exact_step),
    ):
        row[f"{name}step_ms"] = rounded(eager_ms(step, device, budget_s))
        row[f"{name}mib"] = rounded(peak_mib(step, device))
        if device.type == "cuda":
            row[f"{name}graph_step_ms"] = rounded(graph_ms(step, device, budget_s))
    return row


class _Copy(nn.Module):
    """A toy recogniser: frames show the labels in order, each for a few frames, under noise."""

    def __init__(self, vocabulary: int, hidden: int) -> None:
        super().__init__()
        self.encoder = nn.Conv1d(vocabulary, 2 * hidden, 9, padding=4)
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.to_hidden = nn.Linear(2 * hidden, hidden)
        self.simple = nn.ModuleList(nn.Linear(hidden, vocabulary) for _ in range(2))
        self.output = nn.Linear(hidden, vocabulary)

    def forward(self, frames: Tensor, targets: Tensor, width: int, **options: Any) -> Any:
        encoder = self.to_hidden(self.encoder(frames.mT).relu().mT)
        blank = targets.new_full((len(targets), 1), self.output.out_features - 1)
        predictor = self.embedding(torch.cat((blank, targets), 1))
        joint = JointWeights(self.output.weight, self.output.bias, activation="tanh")
        logits = [layer(rows) for layer, rows in zip(self.simple, (encoder, predictor), strict=True)]
        return transducer_loss_pruned(
            encoder, predictor, targets, joint, *logits, prune_range=width, **options
        )


def _draw(generator: torch.Generator, batch: int, labels: int, vocabulary: int) -> tuple[Tensor, Tensor]:
    targets = torch.randint(0, vocabulary - 1, (batch, labels), generator=generator)
    held = torch.randint(2, 6, (batch, labels), generator=generator)
    frames = torch.zeros(batch, 5 * labels, vocabulary)
    for b in range(batch):
        shown = targets[b].repeat_interleave(held[b])
        frames[b, torch.arange(len(shown)), shown] = 1
    return frames + 0.3 * torch.randn(frames.shape, generator=generator), targets


def gradients(steps_between: int = 200, vocabulary: int = 16, hidden: int = 64) -> list[Row]:
    """Rows of (steps of training, states): differences to the exact loss, at the same weights."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    model = _Copy(vocabulary, hidden)
    optimizer = torch.optim.Adam(model.parameters(), 6e-3)
    shared = [p for name, p in model.named_parameters() if not name.startswith("simple")]
    check = _draw(generator, 8, 25, vocabulary)
    rows: list[Row] = []
    for steps in range(0, 4 * steps_between + 1, steps_between):
        for _ in range(steps_between if steps else 0):
            optimizer.zero_grad()
            model(
                *_draw(generator, 8, 25, vocabulary), 5, pruned_scale=0.1 if steps <= steps_between else 1.0
            ).loss.backward()
            optimizer.step()
        exact = model(*check, 26).pruned
        wanted = torch.cat([g.flatten() for g in torch.autograd.grad(exact, shared)])
        for width in WIDTHS:
            loss = model(*check, width).pruned
            found = torch.cat([g.flatten() for g in torch.autograd.grad(loss, shared)])
            rows.append(
                {
                    "op": "transducer_pruned_gradients",
                    "steps": steps,
                    "s": width,
                    "exact_loss": rounded(float(exact.detach()), 4),
                    "loss_difference": rounded(float((loss - exact).detach()), 3),
                    "gradient_difference": rounded(float((found - wanted).norm() / wanted.norm()), 3),
                    "cosine": rounded(float(found @ wanted / (found.norm() * wanted.norm())), 4),
                }
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument(
        "--gradients", action="store_true", help="differences to the exact loss instead of times"
    )
    parser.add_argument("--budget", type=float, default=0.5, help="seconds of each time (default: 0.5)")
    add_arguments(parser)
    arguments = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() and not arguments.gradients else "cpu")
    name = torch.cuda.get_device_name() if device.type == "cuda" else cpu_name()
    kind = "gradients" if arguments.gradients else ""
    path, commit = result_path(arguments, name, f"-transducer-pruned{'-' if kind else ''}{kind}")
    sizes = GPU_SIZES if device.type == "cuda" else CPU_SIZES
    calls: list[Callable[[], list[Row]]] = [gradients] if arguments.gradients else []
    calls += (
        []
        if calls
        else [partial(lambda size: [measure(size, device, arguments.budget)], size) for size in sizes]
    )
    rows = []
    for call in calls:
        for row in call():
            print({k: v for k, v in row.items() if k != "op"}, flush=True)
            rows.append(row | {"device": name} | stamp(commit))
    write_rows(rows, path)
    print(path)


if __name__ == "__main__":
    main()
