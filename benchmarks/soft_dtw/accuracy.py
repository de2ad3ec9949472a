#!/usr/bin/env python3
"""Errors of soft-DTW on data that are hard for float32, for each precision, against float64.

    python -m benchmarks.soft_dtw.accuracy [--device cuda] [--features 64] [--out DIR]

Writes <device>/<date>-<commit>-accuracy.json, a row for each problem and precision. Value: the largest relative error of 4 pairs of 200 x 170 steps. Gradient: the relative L2 error of
the gradients by x and y together. "plain" is the recursion as one would write it, on costs from torch.cdist and torch's
own products, differentiated by autograd.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor

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

PAIRS, N, M = 4, 200, 170
PRECISIONS = ("highest", "high", "medium")

Problem = tuple[Tensor, Tensor, float]  # x, y, gamma


def problems(features: int) -> dict[str, Problem]:
    """Problems by name, in float32 on the CPU."""
    generator = torch.Generator().manual_seed(0)

    def normal(length: int) -> Tensor:
        return torch.randn(PAIRS, length, features, generator=generator)

    x, y = normal(N), normal(M)
    sides = torch.where(torch.arange(N) < N // 2, 100.0, -100.0)[:, None]
    scales = torch.logspace(-2, 2, features)
    walk = 0.1 * normal(N).cumsum(1)
    return {
        "x, y ~ N(0, 1)": (x, y, 1.0),
        "y is x and 1e-3 of noise": (x, x[:, :M] + 1e-3 * y, 1.0),
        "the same, gamma 1e-3": (x, x[:, :M] + 1e-3 * y, 1e-3),
        "random walks, y near x": (walk, walk[:, :M] + 1e-2 * y, 0.1),
        "clusters at 100 and -100": (x + sides, y + sides[:M], 1.0),
        "an offset of 1000": (x + 1000.0, y + 1000.0, 1.0),
        "features of scales 0.01 to 100": (x * scales, y * scales, 1.0),
        "gamma 1e-3 of a cost": (x, y, 2e-3 * features),
        "gamma 1e-5 of a cost": (x, y, 2e-5 * features),
    }


def step(x: Tensor, y: Tensor, gamma: float, precision: str) -> tuple[Tensor, Tensor]:
    """The values, and both gradients as one vector; both float64 on the CPU."""
    x, y = x.detach().requires_grad_(), y.detach().requires_grad_()
    value = warpalign.soft_dtw(x, y, gamma=gamma, precision=precision)  # type: ignore[arg-type]
    gradients = torch.autograd.grad(value.sum(), (x, y))
    return value.detach().double().cpu(), torch.cat([g.double().cpu().flatten() for g in gradients])


def plain_step(x: Tensor, y: Tensor, gamma: float) -> tuple[Tensor, Tensor]:
    """step() by the recursion on anti-diagonals, as autograd differentiates it."""
    x, y = x.detach().requires_grad_(), y.detach().requires_grad_()
    cost = torch.cdist(x, y, compute_mode="use_mm_for_euclid_dist").square()
    r: dict[int, Tensor] = {}  # by anti-diagonal, over i: R[i, k - i]; infinity outside
    rows = torch.arange(N, device=x.device)
    infinity = torch.full((PAIRS, N), torch.inf, device=x.device)
    for k in range(N + M - 1):
        columns = k - rows
        inside = (columns >= 0) & (columns < M)
        here = cost[:, rows, columns.clamp(0, M - 1)]
        if k == 0:
            r[k] = torch.where(rows == 0, here, infinity)
            continue
        left = r[k - 1]
        up = left.roll(1, 1).where(rows > 0, infinity)
        diagonal = r[k - 2].roll(1, 1).where(rows > 0, infinity) if k > 1 else infinity
        arguments = torch.stack([up, left, diagonal])
        reachable = inside & arguments.amin(0).isfinite()
        # Where there is no predecessor, finite numbers stand in, so that no gradient is NaN.
        soft = -gamma * torch.logsumexp(-arguments.where(reachable, 0.0) / gamma, 0)
        r[k] = (here + soft).where(reachable, infinity)
    value = r[N + M - 2][:, N - 1]
    gradients = torch.autograd.grad(value.sum(), (x, y))
    return value.detach().double().cpu(), torch.cat([g.double().cpu().flatten() for g in gradients])


def errors(found: tuple[Tensor, Tensor], exact: tuple[Tensor, Tensor]) -> Row:
    value = ((found[0] - exact[0]) / exact[0]).abs().max().item()
    gradient = ((found[1] - exact[1]).norm() / exact[1].norm()).item()
    return {"err_value": rounded(value, 2), "err_gradient": rounded(gradient, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", type=torch.device, default=torch.device("cpu"))
    parser.add_argument("--features", type=int, default=64)
    add_arguments(parser)
    options = parser.parse_args()
    device: torch.device = options.device
    name = device_name(device)
    path, commit = result_path(options, name, "-accuracy")
    precisions = PRECISIONS if device.type != "cpu" else PRECISIONS[:1]  # on a CPU all are the same
    rows: list[Row] = []
    for data, (x, y, gamma) in problems(options.features).items():
        exact = step(x.double(), y.double(), gamma, "highest")
        x, y = x.to(device), y.to(device)
        found = {precision: step(x, y, gamma, precision) for precision in precisions}
        found["plain"] = plain_step(x, y, gamma)
        for precision, one in found.items():
            row: Row = {"op": "soft_dtw_accuracy", "data": data, "device": name, "precision": precision}
            row |= {"B": PAIRS, "N": N, "M": M, "D": options.features, "gamma": gamma, **errors(one, exact)}
            print({key: value for key, value in row.items() if key != "op"}, flush=True)
            rows.append(row | stamp(commit))
    write_rows(rows, path)
    print(path)


if __name__ == "__main__":
    main()
