"""The original's barycenters."""

from __future__ import annotations

import math
import time
from functools import partial

import torch
from torch import Tensor, nn

import warpalign
from warpalign.compat._common import squared_distances
from warpalign.compat.softdtw_cuda.module import SoftDTW


def softdtw_barycenter(
    X: Tensor,
    *,
    gamma: float = 1.0,
    weights: Tensor | None = None,
    max_iter: int = 100,
    lr: float = 0.1,
    init: Tensor | None = None,
    device: str | torch.device | None = None,
    verbose: bool = False,
    fused: bool | None = None,
    early_stopping: bool = True,
    patience: int = 10,
    tol: float = 1e-5,
) -> Tensor:
    """Soft-DTW barycenter by the original's optimiser, so that its settings mean the same.

    Adam with a cosine schedule from lr to lr / 10 over max_iter steps, gradients clipped to norm 1.
    :func:`warpalign.soft_dtw_barycenter` finds lower losses in fewer steps.

    Args:
        X: (B, N, D) series.
        gamma: smoothing, > 0.
        weights: (B,), scaled to sum to 1; default: equal.
        max_iter: the maximum number of steps.
        lr: the first step's size.
        init: (N', D) where to begin; default: the weighted mean.
        device: where to compute; default: the device of X.
        verbose: print the loss every 20 steps.
        fused: as in :class:`SoftDTW`.
        early_stopping: whether steps end early, in the second half of them.
        patience: steps end after so many in a row that have not lowered the least loss by more than tol.
        tol: by how much a step must lower the least loss.

    Returns:
        (N, D), or the shape of init.
    """
    X = X.to(device or X.device)
    count = X.shape[0]
    weights = X.new_ones(count) if weights is None else weights.to(X)
    weights = weights / weights.sum()
    start = torch.einsum("b,bnd->nd", weights, X) if init is None else init.to(X.device)
    barycenter = start.detach().clone().requires_grad_()
    loss_of = SoftDTW(gamma=gamma, fused=fused)
    optimizer = torch.optim.Adam([barycenter], lr=lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=max_iter, eta_min=0.1 * lr)
    best, without_gain, began = math.inf, 0, time.perf_counter()
    for step in range(max_iter):
        optimizer.zero_grad()
        loss = weights @ loss_of(barycenter.expand(count, -1, -1), X)
        loss.backward()
        nn.utils.clip_grad_norm_([barycenter], max_norm=1.0)
        optimizer.step()
        schedule.step()
        if early_stopping:
            value = loss.item()
            best, without_gain = (value, 0) if best - value > tol else (best, without_gain + 1)
            if without_gain >= patience and step > max_iter // 2:
                if verbose:
                    print(
                        f"Early stopping at iteration {step + 1} (no improvement for {patience} iterations)"
                    )
                break
        if verbose and (step + 1) % 20 == 0:
            print(
                f"Iteration {step + 1}/{max_iter} | Loss: {loss.item():.6f} | {time.perf_counter() - began:.1f} s"
            )
    return barycenter.detach()


softdtw_barycenter_cpu = partial(softdtw_barycenter, device="cpu")


@torch.no_grad()
def dtw_barycenter(
    X: Tensor,
    *,
    max_iter: int = 30,
    tol: float = 1e-5,
    weights: Tensor | None = None,
    init: Tensor | None = None,
    bandwidth: float | None = None,
    device: str | torch.device | None = None,
    verbose: bool = False,
) -> Tensor:
    """DTW barycenter averaging: Petitjean, Ketterlin & Gancarski, Pattern Recognition 2011.

    In turn, every series is aligned with the barycenter under hard DTW, and every time step of the barycenter becomes the
    weighted mean of what is aligned with it.

    Args:
        X: (B, N, D) series.
        max_iter: rounds at most.
        tol: a round that lowers the weighted sum of DTW by no more than tol * max(|sum|, 1) is the last one.
        weights: (B,) numbers >= 0; default: equal.
        init: (T, D) where to begin; default: the weighted mean.
        bandwidth: only cells with |i - j T / N| <= bandwidth; None, 0 and less are no band.
        device: where to compute; default: the device of X.
        verbose: print the sum in every round.

    Returns:
        (T, D), of the dtype and on the device of X.
    """
    if X.dim() != 3:
        raise ValueError(f"Expected X of shape (B, N, F). Got {tuple(X.shape)}")
    count, n, features = X.shape
    if count == 0 or n == 0:
        raise ValueError(f"Empty input: B={count}, N={n}.")
    series = X.to(device or X.device)
    series = series if series.dtype == torch.float64 else series.float()
    if weights is not None and weights.numel() != count:
        raise ValueError(f"weights must have {count} entries. Got {weights.numel()}.")
    weight = series.new_ones(count) if weights is None else weights.flatten().to(series)
    if bool((weight < 0).any()) or weight.sum() <= 0:
        raise ValueError("weights must be nonnegative with positive sum.")
    if init is not None and (init.dim() != 2 or init.shape[1] != features):
        raise ValueError(f"init must be (T, {features}). Got {tuple(init.shape)}")
    center = torch.einsum("b,bnd->nd", weight, series) / weight.sum() if init is None else init.to(series)
    i, j = (torch.arange(size, device=series.device) for size in (len(center), n))
    outside = (i[:, None] - j * (len(center) / n)).abs() > (bandwidth or 0) if (bandwidth or 0) > 0 else None

    def costs(x: Tensor, y: Tensor) -> Tensor:
        table = squared_distances(x, y)
        return table if outside is None else table.masked_fill(outside, torch.inf)

    last = math.inf
    for step in range(max_iter):
        values, paths = warpalign.dtw_path(center.expand(count, -1, -1), series, cost=costs)
        total = (weight @ values.to(weight)).item()
        if verbose:
            print(f"[dba] iter {step:3d}  total_cost={total:.6f}")
        sums, shares = torch.zeros_like(center), center.new_zeros(len(center))
        for path, one, share in zip(paths, series, weight, strict=True):
            sums.index_add_(0, path[:, 0], share * one[path[:, 1]])
            shares.index_add_(0, path[:, 0], share.expand(len(path)))
        center = sums / shares[:, None]
        if last - total <= tol * max(abs(last), 1.0):
            break
        last = total
    return center.to(X)
