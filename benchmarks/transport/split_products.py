"""Times and errors of squared distances from products of split numbers, beside multiply-adds of float32.

`precision="highest"` makes costs of 9 features and more from six products of binary16 numbers on the matrix units, `"high"` from
three; the way "points" makes them from differences by multiply-adds. Times are those of a call in a CUDA graph: the solve alone, with
the gradient by x, and the divergence with its gradient by x, after so many symmetric iterations between N(0, 1) points; of 50 iterations
the divergence alone. Rows with a radius are solves of 20 alternating iterations, with the gradient by x, of points in clusters.

Errors are those of 20 alternating iterations against the same iterations in float64: of potentials and value relative to epsilon, of the
gradient by x relative, in L2. Points are N(0, 1), or lie in 16 clusters of a radius far from the origin (offset 100), where epsilon is
0.09 times D and the square of the radius (N(0, 1): 0.09 D). "torch" is the plain formula in float32 with costs from differences, "torch, products" from
|x|^2 + |y|^2 - 2 <x, y>, both without TF32.
Writes benchmarks/results/<device>/<date>-<commit>-transport-split-products.json.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Literal, NamedTuple

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
from benchmarks.harness.timing import graph_ms
from benchmarks.transport.measure import Problem
from benchmarks.transport.sizes import Size
from warpalign._core.ways import forced
from warpalign.transport import sinkhorn

FEATURES = (16, 32, 64, 128, 256)
RADII = (0.0, 0.1, 0.03, 0.003)
ITERATIONS = 20


class Form(NamedTuple):
    """How products are made."""

    name: str
    precision: Literal["highest", "high"]
    way: str | None = None

    def chosen(self, device: torch.device) -> AbstractContextManager[None]:
        is_named = self.way is not None and device.type == "cuda"
        return forced("sinkhorn", str(self.way)) if is_named else nullcontext()


FORMS = (
    Form("multiply-adds", "highest", "points"),
    Form("six products", "highest"),
    Form("three products", "high"),
)


def timed(sizes: list[Size], device: torch.device, budget_s: float) -> Iterator[Row]:
    for size in sizes:
        works = {
            "value": size,
            "gradient": size._replace(gradient=True),
            "divergence": size._replace(gradient=True, divergence=True),
        }
        for work, of in works.items():
            if size.iterations > ITERATIONS and work != "divergence":
                continue
            row: Row = {"kind": "time", "work": work, "N": size.N, "D": size.D, "iterations": size.iterations}
            for form in FORMS:
                with form.chosen(device):
                    run = Problem(of._replace(precision=form.precision), device).run
                    row[f"{form.name} ms"] = rounded(graph_ms(run, device, budget_s))
            yield row


def points(count: int, features: int, radius: float, device: torch.device) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    normal = partial(torch.randn, generator=generator)
    sides = [normal(count, features) for _ in range(2)]
    if radius > 0:
        centres = normal(16, features)
        sides = [100 + centres[torch.randint(16, (count,), generator=generator)] + radius * z for z in sides]
    return sides[0].to(device), sides[1].to(device)


def costs(x: Tensor, y: Tensor, *, products: bool = False) -> Tensor:
    if products:
        return x.square().sum(1)[:, None] + y.square().sum(1) - 2 * (x @ y.T)
    return torch.cat([(part[:, None] - y).square().sum(-1) for part in x.split(64)])


def epsilon_of(features: int, radius: float) -> float:
    return 0.09 * features * (radius**2 if radius else 1)


def timed_clusters(device: torch.device, budget_s: float) -> Iterator[Row]:
    for features, radius in ((32, 0.1), (32, 0.03), (128, 0.03)):
        x, y = points(8192, features, radius, device)
        x.requires_grad_()
        row: Row = {"kind": "time", "work": "gradient", "N": 8192, "D": features, "radius": radius}
        for form in FORMS:

            def run(x: Tensor = x, y: Tensor = y, form: Form = form, radius: float = radius) -> Tensor:
                epsilon = epsilon_of(x.shape[1], radius)
                value = sinkhorn(
                    x, y, epsilon=epsilon, max_iter=ITERATIONS, tol=0.0, precision=form.precision
                ).value
                return torch.autograd.grad(value, x)[0]

            with form.chosen(device):
                row[f"{form.name} ms"] = rounded(graph_ms(run, device, budget_s))
        yield row


def solved(
    x: Tensor, y: Tensor, epsilon: float, *, products: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """f, g, the value and its gradient by x, by the plain formula in the dtype of the points."""
    cost, n, m = costs(x, y, products=products), len(x), len(y)
    f, g = x.new_zeros(n), y.new_zeros(m)
    for _ in range(ITERATIONS):
        g = -epsilon * ((f[:, None] - cost) / epsilon).logsumexp(0).sub(torch.tensor(n).log())
        f = -epsilon * ((g - cost) / epsilon).logsumexp(1).sub(torch.tensor(m).log())
    plan = ((f[:, None] + g - cost) / epsilon).exp() / (n * m)
    value = f.mean() + g.mean() + epsilon * (1 - plan.sum())
    if products:
        return f, g, value, 2 * (plan.sum(1)[:, None] * x - plan @ y)
    parts = zip(plan.split(64), x.split(64), strict=True)
    return f, g, value, torch.cat([2 * (p[:, :, None] * (part[:, None] - y)).sum(1) for p, part in parts])


def errors(count: int, features: int, radius: float, device: torch.device) -> Row:
    x, y = points(count, features, radius, device)
    epsilon = epsilon_of(features, radius)
    f, g, value, gradient = solved(x.double(), y.double(), epsilon)
    row: Row = {"kind": "errors", "N": count, "D": features, "radius": radius}

    def note(name: str, found: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
        of_f, of_g, of_value, of_gradient = (z.detach().double() for z in found)
        shift = (of_f - f).mean()
        potentials = torch.cat([of_f - f - shift, of_g - g + shift]).square().mean().sqrt() / epsilon
        row[f"{name}: potentials"] = rounded(float(potentials), 2)
        row[f"{name}: value"] = rounded(float((of_value - value).abs()) / epsilon, 2)
        row[f"{name}: gradient"] = rounded(float((of_gradient - gradient).norm() / gradient.norm()), 2)

    note("torch", solved(x, y, epsilon))
    note("torch, products", solved(x, y, epsilon, products=True))
    for form in FORMS:
        leaf = x.clone().requires_grad_()
        with form.chosen(device):
            result = sinkhorn(
                leaf, y, epsilon=epsilon, max_iter=ITERATIONS, tol=0.0, precision=form.precision
            )
        (of_x,) = torch.autograd.grad(result.value, leaf)
        note(form.name, (result.f, result.g, result.value, of_x))
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--points", type=int, nargs="+", default=[2048, 8192])
    parser.add_argument("--features", type=int, nargs="+", default=FEATURES)
    parser.add_argument("--points-of-errors", type=int, default=2048)
    parser.add_argument("--budget", type=float, default=0.2, help="seconds of a time")
    add_arguments(parser)
    args = parser.parse_args()
    device = torch.device(args.device)
    rows = [
        errors(args.points_of_errors, features, radius, device)
        for features in args.features
        for radius in RADII
    ]
    for row in rows:
        print(row, flush=True)
    if device.type == "cuda":
        sizes = [
            Size(1, n, n, d, iterations=ITERATIONS, updates="symmetric")
            for n in args.points
            for d in args.features
        ]
        sizes += [
            Size(1, 8192, 8192, 32, iterations=50, updates="symmetric"),
            Size(1, 12000, 12000, 128, iterations=50, updates="symmetric"),
        ]
        for row in [*timed(sizes, device, args.budget), *timed_clusters(device, args.budget)]:
            print(row, flush=True)
            rows.append(row)
    path, commit = result_path(args, device_name(device), "-transport-split-products")
    what: Row = {"op": "transport-split-products", "device": device_name(device)}
    write_rows([{**what, **row, **stamp(commit)} for row in rows], path)


if __name__ == "__main__":
    main()
