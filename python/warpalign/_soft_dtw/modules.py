"""Soft-DTW as a module."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from warpalign._core.checks import Precision, Reduction, check_flag, check_reduction, warn_of_one_series
from warpalign._core.costs import Cost, CostFunction, check_cost
from warpalign._core.series import Lengths, Mask, SeriesInput
from warpalign._soft_dtw.checks import check_gamma, check_settings
from warpalign._soft_dtw.functional import soft_dtw
from warpalign._soft_dtw.settings import Band

_DEFAULTS = soft_dtw.__kwdefaults__ or {}


class SoftDTW(nn.Module):
    """Soft-DTW as a loss: ``SoftDTW(gamma)(x, y)`` is :func:`warpalign.soft_dtw` with fixed settings.

    Args:
        gamma: smoothing, in units of the cost: a number >= 0, or a tensor () or (B,), which becomes a buffer and moves with
            the module. An nn.Parameter is learned; minimising the value alone only increases it. To anneal a number, assign it
            between steps: ``loss.gamma = 0.9 * loss.gamma``. A tensor is in the state_dict and a number is not, so state
            dicts of the two kinds are not interchangeable.
        cost: C[i, j]: "sqeuclidean" (the default), "euclidean", "l1", "cosine", "huber", or a function of x (B, N, D) and y
            (B, M, D) that returns (B, N, M), as in :func:`warpalign.soft_dtw`.
        bandwidth: radius r >= 0, in time steps, of a band around the diagonal to which paths are restricted. None: no band.
        band: the kind of band: "sakoe_chiba", "abs", "slanted" or "itakura", as in :func:`warpalign.soft_dtw`.
        max_slope: the largest slope, >= 1, of band="itakura", which has no bandwidth. None: 2.
        step_penalty: finite and >= 0, in units of the cost: added for every step that is not diagonal.
        normalize: the soft-DTW divergence, which is exactly 0 for equal series, instead of soft-DTW.
        reduction: "none" (the default; torch's losses have "mean") for one value per pair, or their "mean" or "sum".
        precision: how a GPU multiplies float32: "highest", "high" or "medium", as in :func:`warpalign.soft_dtw`. None: what
            torch.get_float32_matmul_precision() says.
        batch_invariant: whether a pair's results are bitwise identical whatever else is in the batch.
        unbatched: True: x and y are single series (N, D) and (M, D), and batches raise an error. With False, two tensors of
            one shape (N, D), D > 1, and one that requires a gradient, cause a warning, once.

    Raises:
        TypeError, ValueError: an argument is invalid; a call raises what :func:`warpalign.soft_dtw` raises.

    Examples:
        >>> loss = SoftDTW(gamma=0.1, reduction="mean")
        >>> prediction = torch.randn(8, 100, 3, requires_grad=True)
        >>> loss(prediction, torch.randn(8, 120, 3)).backward()
    """

    def __init__(
        self,
        gamma: float | Tensor = 1.0,
        *,
        cost: Cost | CostFunction = "sqeuclidean",
        bandwidth: int | None = None,
        band: Band = "sakoe_chiba",
        max_slope: float | None = None,
        step_penalty: float = 0.0,
        normalize: bool = False,
        reduction: Reduction = "none",
        precision: Precision | None = None,
        batch_invariant: bool = False,
        unbatched: bool = False,
    ) -> None:
        super().__init__()
        check_settings(bandwidth, band, max_slope, step_penalty, precision, batch_invariant)
        check_cost(cost)
        self.gamma: float | Tensor
        checked = check_gamma(gamma)
        if isinstance(checked, Tensor) and not isinstance(checked, nn.Parameter):
            self.register_buffer("gamma", checked)
        else:
            self.gamma = checked
        self.cost = cost if isinstance(cost, nn.Module) else None  # its parameters are this module's, too
        self.reduction: Reduction = check_reduction(reduction)
        self._options: dict[str, Any] = {
            "cost": cost,
            "bandwidth": bandwidth,
            "band": band,
            "max_slope": max_slope,
            "step_penalty": step_penalty,
            "normalize": check_flag(normalize, "normalize"),
            "precision": precision,
            "batch_invariant": batch_invariant,
            "unbatched": check_flag(unbatched, "unbatched"),
        }

    def forward(
        self,
        x: SeriesInput,
        y: SeriesInput,
        x_lengths: Lengths | None = None,
        y_lengths: Lengths | None = None,
        x_mask: Mask | None = None,
        y_mask: Mask | None = None,
    ) -> Tensor:
        """Values (B,), or 0-d with a reduction.

        Args:
            x: (B, N, D), or (N, D) for a single series.
            y: (B, M, D), or (M, D).
            x_lengths: (B,) true lengths within x, from 1 to N. None: all N.
            y_lengths: (B,) true lengths within y, from 1 to M. None: all M.
            x_mask: (B, N) bools, True where a time step is missing. None: no step is missing.
            y_mask: (B, M) bools for y.
        """
        if not self._options["unbatched"]:
            for given in (x, y):  # a forecast (B, N) would be trained as one series
                if isinstance(given, Tensor) and given.requires_grad:
                    warn_of_one_series(given, ("x", "y"))
        return soft_dtw(
            x,
            y,
            gamma=self.gamma,
            x_lengths=x_lengths,
            y_lengths=y_lengths,
            x_mask=x_mask,
            y_mask=y_mask,
            reduction=self.reduction,
            **self._options,
        )

    def extra_repr(self) -> str:
        changed = {name: value for name, value in self._options.items() if value != _DEFAULTS[name]}
        settings = {"gamma": self.gamma, **changed, "reduction": self.reduction}
        return ", ".join(f"{name}={value!r}" for name, value in settings.items())
