"""Drop-in for softdtw-cuda-torch's package ``softdtw_cuda`` (github.com/BGU-CS-VIL/sdtw-cuda-torch), texts of its errors included."""

from __future__ import annotations

import math
import time
from functools import partial

import torch
from torch import Tensor, nn

import warpalign
from warpalign.compat._common import (
    absolute_band,
    absolute_radius,
    soft_dtw_in_band,
    soft_dtw_of_table,
    squared_distances,
)

__all__ = [
    "DTW",
    "SoftDTW",
    "dtw",
    "dtw_barycenter",
    "softdtw",
    "softdtw_barycenter",
    "softdtw_barycenter_cpu",
]

_SQEUCLIDEAN = ("sqeuclidean", "sq_euclidean", "squared_euclidean")


class SoftDTW(nn.Module):
    """Soft-DTW with the original's constructor.

    Args:
        gamma: smoothing, finite and > 0.
        bandwidth: only cells with |i - j| <= bandwidth; None, 0 and less are no band. A pair without a path has value inf.
        normalize: s(x, y) - (s(x, x) + s(y, y)) / 2, refused for N != M as in the original.
            :func:`warpalign.soft_dtw` computes it for any lengths.
        dist: "sqeuclidean" (also "sq_euclidean", "squared_euclidean") or "cosine": 1 - cosine similarity.
        fused: True is refused where the original cannot fuse; otherwise it makes no difference here.
    """

    def __init__(
        self,
        *,
        gamma: float = 1.0,
        bandwidth: float | None = None,
        normalize: bool = False,
        dist: str = "sqeuclidean",
        fused: bool | None = None,
    ) -> None:
        super().__init__()
        self.gamma = float(gamma)
        if self.gamma <= 0:
            raise ValueError(f"gamma must be > 0, got {self.gamma}")
        if not math.isfinite(self.gamma):
            raise ValueError(f"gamma must be finite, got {self.gamma}")
        self.bandwidth = None if bandwidth is None or float(bandwidth) <= 0 else float(bandwidth)
        self.normalize = bool(normalize)
        self.dist = str(dist)
        self.fused = fused

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """x (B, N, D), y (B, M, D), or without the batch -> (B,); (1,) without the batch."""
        x, y = (t.unsqueeze(0) if t.dim() == 2 else t for t in (x, y))
        if x.dim() != 3 or y.dim() != 3:
            raise ValueError(
                "Expected x,y to have shape (B,N,D) and (B,M,D) (or unbatched (N,D)). "
                f"Got x={tuple(x.shape)}, y={tuple(y.shape)}"
            )
        n, m = x.shape[1], y.shape[1]
        if self.normalize and n != m:
            raise ValueError(
                "normalize=True currently requires equal sequence lengths (N==M) because it uses the concatenation trick. "
                f"Got N={n}, M={m}."
            )
        if x.shape[2] != y.shape[2]:
            raise ValueError(
                f"Feature dims must match. Got x.shape[-1]={x.shape[2]}, y.shape[-1]={y.shape[2]}"
            )
        if x.shape[0] != y.shape[0]:
            raise ValueError(f"Batch sizes must match. Got x.shape[0]={x.shape[0]}, y.shape[0]={y.shape[0]}")
        if n == 0 or m == 0:
            raise ValueError(f"Sequence lengths must be > 0. Got N={n}, M={m}.")
        _check_fused(self.fused, self.dist, x, y)
        if not self.normalize:
            return self._values(x, y)
        values = self._values(torch.cat([x, x, y]), torch.cat([y, x, y]))
        xy, xx, yy = values.view(3, -1).unbind()
        return xy - (xx + yy) / 2

    def _values(self, x: Tensor, y: Tensor) -> Tensor:
        return _values(x, y, self.gamma, self.bandwidth, self.dist)


class DTW(nn.Module):
    """Hard DTW of squared Euclidean or cosine distances: values alone, without a gradient, as in the original.

    Args:
        dist, fused, bandwidth: as in :class:`SoftDTW`.
    """

    def __init__(
        self, dist: str = "sqeuclidean", fused: bool | None = None, bandwidth: float | None = None
    ) -> None:
        super().__init__()
        self.dist = dist
        self.fused = fused
        self.bandwidth = -1.0 if bandwidth is None else float(bandwidth)

    @torch.no_grad()
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """x (B, N, D), y (B, M, D), or without the batch -> (B,); (1,) without the batch."""
        x, y = (t.unsqueeze(0) if t.dim() == 2 else t for t in (x, y))
        if x.dim() != 3 or y.dim() != 3:
            raise ValueError(
                "Expected x,y to have shape (B,N,D)/(B,M,D) (or unbatched (N,D)). "
                f"Got x={tuple(x.shape)}, y={tuple(y.shape)}"
            )
        if x.shape[0] != y.shape[0]:
            raise ValueError(f"Batch sizes must match. Got {x.shape[0]} vs {y.shape[0]}")
        if x.shape[2] != y.shape[2]:
            raise ValueError(f"Feature dims must match. Got {x.shape[2]} vs {y.shape[2]}")
        if x.shape[1] == 0 or y.shape[1] == 0:
            raise ValueError(f"Sequence lengths must be > 0. Got N={x.shape[1]}, M={y.shape[1]}.")
        _check_fused(self.fused, self.dist, x, y)
        return _values(x, y, 0.0, self.bandwidth, self.dist)


def dtw(
    x: Tensor,
    y: Tensor,
    dist: str = "sqeuclidean",
    fused: bool | None = None,
    bandwidth: float | None = None,
) -> Tensor:
    """:class:`DTW` as a function."""
    value: Tensor = DTW(dist=dist, fused=fused, bandwidth=bandwidth)(x, y)
    return value


def _values(x: Tensor, y: Tensor, gamma: float, bandwidth: float | None, dist: str) -> Tensor:
    radius = absolute_radius(bandwidth)
    if dist.lower() in _SQEUCLIDEAN:
        return soft_dtw_in_band(x, y, gamma, radius)
    band = absolute_band(x.shape[1], y.shape[1], radius, x.device)
    return soft_dtw_of_table(_cosine_distances(x, y, dist), gamma, band)


def _check_fused(fused: bool | None, dist: str, x: Tensor, y: Tensor) -> None:
    if fused is True and not (
        dist.lower() in _SQEUCLIDEAN and x.is_cuda and y.is_cuda and x.device == y.device
    ):
        raise ValueError("fused=True requires CUDA tensors and dist='sqeuclidean'.")


def _cosine_distances(x: Tensor, y: Tensor, dist: str) -> Tensor:
    """(B, N, M) costs 1 - cos, with the original's guard against length 0."""
    if dist.lower() != "cosine":
        raise ValueError(f"Unknown dist='{dist.lower()}'. Supported: 'sqeuclidean', 'cosine'")
    x, y = (t / (t.norm(dim=-1, keepdim=True) + 1e-12) for t in (x, y))
    return 1.0 - x @ y.mT


def softdtw(
    x: Tensor,
    y: Tensor,
    *,
    gamma: float = 1.0,
    bandwidth: float | None = None,
    normalize: bool = False,
    dist: str = "sqeuclidean",
    fused: bool | None = None,
) -> Tensor:
    """:class:`SoftDTW` as a function: x (B, N, D), y (B, M, D) -> (B,)."""
    loss = SoftDTW(gamma=gamma, bandwidth=bandwidth, normalize=normalize, dist=dist, fused=fused)
    value: Tensor = loss(x, y)
    return value


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
        max_iter, lr: steps, and the first step's size.
        init: (N', D) where to begin; default: the weighted mean.
        device: where to compute; default: the device of X.
        verbose: print the loss every 20 steps.
        fused: as in :class:`SoftDTW`.
        early_stopping, patience, tol: in the second half of the steps, stop once `patience` of them in a row have not
            lowered the least loss by more than `tol`.

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
        paths, values = warpalign.dtw_path(center.expand(count, -1, -1), series, cost=costs)
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
