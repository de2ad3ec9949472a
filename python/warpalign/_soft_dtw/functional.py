"""Functions for soft-DTW of tensors.

All functions compute, for every pair of the batch,

    R[i, j] = C[i, j] + softmin_gamma(R[i-1, j], R[i, j-1], R[i-1, j-1]),     value = R[N-1, M-1],

with softmin_gamma(a, ...) = -gamma log(exp(-a / gamma) + ...): equation 2 of Cuturi & Blondel, "Soft-DTW: a
differentiable loss function for time-series", ICML 2017. By default the cost between time steps is
C[i, j] = ||x[i] - y[j]||^2, without a factor of 1/2: packages with this factor return value_half(gamma) = value(2 * gamma) / 2.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from warpalign._core.checks import Precision, Reduction, check_flag, check_reduction
from warpalign._core.costs import Cost, CostFunction
from warpalign._core.series import AnySeries, Lengths, Mask, SeriesInput
from warpalign._soft_dtw.checks import check_settings
from warpalign._soft_dtw.problem import any_problem, cost_problem, problem
from warpalign._soft_dtw.settings import Band


class SoftDTWAlignment(NamedTuple):
    """Result of :func:`soft_dtw_alignment`."""

    value: Tensor
    """(B,) soft-DTW values; 0-d for unbatched input."""
    alignment: Tensor
    """(B, N, M) expected alignments; (N, M) for unbatched input."""


def soft_dtw(
    x: SeriesInput,
    y: SeriesInput,
    *,
    gamma: float | Tensor = 1.0,
    cost: Cost | CostFunction = "sqeuclidean",
    x_lengths: Lengths | None = None,
    y_lengths: Lengths | None = None,
    bandwidth: int | None = None,
    band: Band = "sakoe_chiba",
    max_slope: float | None = None,
    step_penalty: float = 0.0,
    x_mask: Mask | None = None,
    y_mask: Mask | None = None,
    normalize: bool = False,
    reduction: Reduction = "none",
    precision: Precision | None = None,
    batch_invariant: bool = False,
    unbatched: bool = False,
) -> Tensor:
    """Soft-DTW between pairs of time series, twice differentiable in both.

    Args:
        x: (B, N, D) series of N time steps with D features, or (N, D) for a single one. dtype float64, float32, float16
            or bfloat16; any strides. A batch of 1 is paired with every element of the other batch.
            A torch.nn.utils.rnn.PackedSequence or a nested tensor of B series is taken with its own lengths. Nested
            tensors with layout torch.jagged are read where they are, without padding (series end to end with offsets, as in
            variable-length attention: torch.nested.nested_tensor_from_jagged(values, offsets) makes one of such values); masks,
            the cosine, cost functions and torch.compile pad them. This saves memory; series that stay padded are faster.
            A batch of B univariate series is (B, N, 1): write x[..., None].
        y: (B, M, D) or (M, D), of the same dtype and device. M may differ from N. Under torch.autocast the dtypes may differ:
            then both are computed in float32, or float64 where one of them is.
        gamma: smoothing, in units of the cost; finite and >= 0, or a tensor () or (B,) of numbers > 0, which receives a
            gradient too: d value / d gamma is minus the entropy of the distribution of paths. 0 is hard DTW: the value of
            the best path, the gradient along it; ties are resolved in favour of the diagonal
            step, then of the step from i - 1.
        cost: C[i, j], without an N x M matrix (gradients are 0 where they do not exist):
            "sqeuclidean" sum (x - y)^2; "euclidean" its square root; "l1" sum |x - y|; "cosine" 1 - ⟨x, y⟩ / (|x| |y|),
            and 1 against a zero vector; "huber" sum h(x - y) with h(t) = t^2 / 2 for |t| <= 1, else |t| - 1/2.
            Or a function of x (B, N, D) and y (B, M, D) that returns (B, N, M) in their dtype and is differentiable by
            autograd; half precision is converted to float32 first.
            Or a :class:`Mahalanobis`, a linear metric that may be learned, without an N x M matrix.
        x_lengths: (B,) integers, a tensor on the same device, an array or a list: true lengths within x, each from 1 to N; a series
            of length 0 has no value. Padding is ignored, and its gradient is exactly 0. A length out of range raises; a tensor on a
            GPU is not read back, and its lengths are clamped into the range.
        y_lengths: (B,) true lengths within y, from 1 to M.
        bandwidth: radius r >= 0 of a band around the diagonal; None: no band. Paths stay within the band, the other
            cells are not computed, and time falls with it. N and M are each pair's own lengths, indices run from 0:

            "sakoe_chiba": i - r <= j <= i + (M - N) + r where M >= N, and with i and j exchanged otherwise: |i - j| <= r
            for equal lengths. Always holds a path. The radius of tslearn, the window minus 1 of dtaidistance.

            "abs": |i - j| <= r whatever the lengths; holds a path only if r >= |N - M|.

            "slanted": |i (M-1) - j (N-1)| <= r max(N-1, M-1), around the diagonal of the rectangle; holds a path if
            r >= 1, or N = M.
        band: the kind of band; the fourth one, "itakura", has no bandwidth but max_slope.
        max_slope: of band="itakura", >= 1, by default 2: the parallelogram of slopes max_slope and 1 / max_slope (times
            M / N) from both ends, rounded as tslearn does; holds no path if it is too narrow for the lengths.
        step_penalty: finite and >= 0, in units of the cost: added for every step that is not diagonal.
        x_mask: (B, N) bools, True where a time step is missing: its cost to every other step is 0, its
            content is ignored, and its gradient is 0.
        y_mask: (B, M) bools for y.
        normalize: the soft-DTW divergence s(x, y) - (s(x, x) + s(y, y)) / 2 instead of s(x, y): exactly 0 for equal series
            (Blondel, Mensch & Vert, "Differentiable divergences between time series", AISTATS 2021). Three times the work.
        reduction: "none" for one value per pair, or their "mean" or "sum". torch's losses have "mean" by default, this has "none".
        precision: how a GPU may multiply float32: "highest" as exactly as float32 does; "high" on its matrix units, as three
            products of TF32 with an error of float32's class; "medium" as one product, three digits. It makes the squared
            distances and the gradients of 17 features or more faster, and changes nothing elsewhere. None: what
            torch.get_float32_matmul_precision() says, "highest" by default.
        batch_invariant: whether a pair's results are bitwise identical whatever else is in the batch. Without it a GPU sweeps few
            pairs from both ends at once, which takes about half the time and rounds in another order. On a CPU it changes nothing.
        unbatched: True: x and y are single series (N, D) and (M, D), and batches raise an error. With False, two tensors of
            one shape (N, D), D > 1, cause a warning, once: they may have been meant for N univariate series.

    Returns:
        (B,) values; 0-d for unbatched input or with a reduction. float64 for float64 input, else float32, because nothing
        is accumulated in less. Values can be negative, and soft_dtw(x, x) is not 0, unless normalize is set. A pair that contains
        NaN gives NaN for itself alone.

    Raises:
        TypeError: an argument is of the wrong type, dtype or layout.
        ValueError: shapes, devices, lengths or gamma do not fit, or the band of a pair holds no path (on a GPU with
            lengths such a pair gets inf, and gradient 0, instead). Messages name the argument, what was expected and
            what came.
        NotImplementedError: for second derivatives with respect to gamma or of gamma 0, and for third ones. Second derivatives of a graph
            of torch.compile, which has no double backward for any function, may be wrong instead.

    Examples:
        >>> x = torch.randn(8, 100, 3, requires_grad=True)
        >>> y = torch.randn(8, 120, 3)
        >>> soft_dtw(x, y, gamma=0.1).mean().backward()
        >>> x.grad.shape
        torch.Size([8, 100, 3])
    """
    reduction = check_reduction(reduction)
    of = any_problem(
        x,
        y,
        gamma=gamma,
        cost=cost,
        x_lengths=x_lengths,
        y_lengths=y_lengths,
        x_mask=x_mask,
        y_mask=y_mask,
        settings=check_settings(bandwidth, band, max_slope, step_penalty, precision, batch_invariant),
        unbatched=unbatched,
    )
    value = of.divergence() if check_flag(normalize, "normalize") else of.value()
    return _reduced(value.squeeze(0) if of.unbatched else value, reduction)


def soft_dtw_alignment(
    x: AnySeries,
    y: AnySeries,
    *,
    gamma: float | Tensor = 1.0,
    cost: Cost | CostFunction = "sqeuclidean",
    x_lengths: Lengths | None = None,
    y_lengths: Lengths | None = None,
    bandwidth: int | None = None,
    band: Band = "sakoe_chiba",
    max_slope: float | None = None,
    step_penalty: float = 0.0,
    x_mask: Mask | None = None,
    y_mask: Mask | None = None,
    precision: Precision | None = None,
    batch_invariant: bool = False,
) -> SoftDTWAlignment:
    """Soft-DTW values together with the expected alignments E = d value / d C.

    E[i, j] is the probability that a path of the Gibbs distribution over all alignments visits (i, j): algorithm 2 of
    Cuturi & Blondel 2017. E[0, 0] = E[N-1, M-1] = 1; every row and every column sums to at least 1.

    Args:
        x: (B, N, D) series of N time steps with D features, or (N, D) for a single one, as a tensor; or an array, a data frame or a
            list of series (N, D) or (N,), which have no gradient. Integers become float64. Time steps that a NumPy masked array
            masks are missing.
        y: (B, M, D) or (M, D), in the same forms.
        gamma: smoothing, in units of the cost; finite and >= 0, or a tensor () or (B,) of numbers > 0. 0: hard DTW.
        cost: C[i, j]: "sqeuclidean" (the default), "euclidean", "l1", "cosine", "huber", or a function of x (B, N, D) and y
            (B, M, D) that returns (B, N, M), as in :func:`soft_dtw`.
        x_lengths: (B,) true lengths within x, from 1 to N: integers, as a tensor on the device of x, an array or a list. None: all N.
            Padding is ignored, and its gradient is 0.
        y_lengths: (B,) true lengths within y, from 1 to M. None: all M.
        bandwidth: radius r >= 0, in time steps, of a band around the diagonal to which paths are restricted. None: no band.
        band: the kind of band: "sakoe_chiba", "abs", "slanted" or "itakura", as in :func:`soft_dtw`.
        max_slope: the largest slope, >= 1, of band="itakura", which has no bandwidth. None: 2.
        step_penalty: finite and >= 0, in units of the cost: added for every step that is not diagonal.
        x_mask: (B, N) bools, True where a time step is missing: its cost to every other step is 0. None: no step is missing.
        y_mask: (B, M) bools for y.
        precision: how a GPU multiplies float32: "highest", "high" or "medium", as in :func:`soft_dtw`. None: what
            torch.get_float32_matmul_precision() says.
        batch_invariant: whether a pair's results are bitwise identical whatever else is in the batch.

    Returns:
        SoftDTWAlignment(value (B,), alignment (B, N, M)), without the batch axis for unbatched input; float64 for float64
        input, else float32. Cells beyond a pair's true lengths are 0. The value is differentiable. The alignment has no gradient:
        :func:`soft_dtw_cost` gives it as a gradient that can be differentiated again.

    Raises:
        TypeError, ValueError, NotImplementedError: as :func:`soft_dtw`.

    Examples:
        >>> x = torch.randn(8, 100, 3)
        >>> y = torch.randn(8, 120, 3)
        >>> value, alignment = soft_dtw_alignment(x, y, gamma=0.1)
        >>> alignment.shape
        torch.Size([8, 100, 120])
    """
    of = problem(
        x,
        y,
        gamma=gamma,
        cost=cost,
        x_lengths=x_lengths,
        y_lengths=y_lengths,
        x_mask=x_mask,
        y_mask=y_mask,
        settings=check_settings(bandwidth, band, max_slope, step_penalty, precision, batch_invariant),
        takes_arrays=True,
    )
    value, alignment = of.value_and_alignment()
    if of.unbatched:
        value, alignment = value.squeeze(0), alignment.squeeze(0)
    return SoftDTWAlignment(value, alignment.detach())


def soft_dtw_cost(
    cost_matrix: Tensor,
    *,
    gamma: float | Tensor = 1.0,
    x_lengths: Lengths | None = None,
    y_lengths: Lengths | None = None,
    bandwidth: int | None = None,
    band: Band = "sakoe_chiba",
    max_slope: float | None = None,
    step_penalty: float = 0.0,
    reduction: Reduction = "none",
    batch_invariant: bool = False,
) -> Tensor:
    """Soft-DTW from the caller's own costs, differentiable in them; the gradient is the expected alignment.

    Args:
        cost_matrix: (B, N, M), or (N, M): cost of aligning time step i with j, of any sign. inf forbids a cell: a pair
            without any allowed path has value inf and gradient 0. dtype and strides as for :func:`soft_dtw`.
        gamma: smoothing, in units of the cost; finite and >= 0, or a tensor () or (B,) of numbers > 0. 0: hard DTW.
        x_lengths: (B,) true numbers of rows, the lengths of the series x, from 1 to N: integers, as a tensor on the device of
            cost_matrix, an array or a list. None: all N. Padding is ignored, and its gradient is 0.
        y_lengths: (B,) true numbers of columns, the lengths of the series y, from 1 to M. None: all M.
        bandwidth: radius r >= 0, in time steps, of a band around the diagonal to which paths are restricted; costs outside are ignored.
            None: no band.
        band: the kind of band: "sakoe_chiba", "abs", "slanted" or "itakura", as in :func:`soft_dtw`.
        max_slope: the largest slope, >= 1, of band="itakura", which has no bandwidth. None: 2.
        step_penalty: finite and >= 0, in units of the cost: added for every step that is not diagonal.
        reduction: "none" (the default) for one value per pair, or their "mean" or "sum".
        batch_invariant: whether a pair's results are bitwise identical whatever else is in the batch.

    Returns:
        (B,) values, 0-d for unbatched input or with a reduction; float64 for float64 input, else float32.

    Raises:
        TypeError, ValueError, NotImplementedError: as :func:`soft_dtw`.

    Examples:
        >>> x = torch.randn(8, 100, 3)
        >>> y = torch.randn(8, 120, 3)
        >>> soft_dtw_cost(torch.cdist(x, y, p=1.0), gamma=0.1).shape
        torch.Size([8])
    """
    reduction = check_reduction(reduction)
    value = cost_problem(
        cost_matrix,
        gamma=gamma,
        x_lengths=x_lengths,
        y_lengths=y_lengths,
        settings=check_settings(
            bandwidth, band, max_slope, step_penalty, "highest", batch_invariant
        ),  # costs are given: nothing is multiplied
    )
    return _reduced(value, reduction)


def dtw(
    x: SeriesInput,
    y: SeriesInput,
    *,
    cost: Cost | CostFunction = "sqeuclidean",
    x_lengths: Lengths | None = None,
    y_lengths: Lengths | None = None,
    bandwidth: int | None = None,
    band: Band = "sakoe_chiba",
    max_slope: float | None = None,
    step_penalty: float = 0.0,
    x_mask: Mask | None = None,
    y_mask: Mask | None = None,
    reduction: Reduction = "none",
    precision: Precision | None = None,
    batch_invariant: bool = False,
    unbatched: bool = False,
) -> Tensor:
    """Hard DTW: :func:`soft_dtw` with gamma = 0. The gradient is that of the best path.

    Args:
        x: (B, N, D) series of N time steps with D features, or (N, D) for a single one; float64, float32, float16 or bfloat16.
        y: (B, M, D) or (M, D), of the same dtype and device.
        cost: C[i, j]: "sqeuclidean" (the default), "euclidean", "l1", "cosine", "huber", or a function of x (B, N, D) and y
            (B, M, D) that returns (B, N, M), as in :func:`soft_dtw`.
        x_lengths: (B,) true lengths within x, from 1 to N: integers, as a tensor on the device of x, an array or a list. None: all N.
            Padding is ignored, and its gradient is 0.
        y_lengths: (B,) true lengths within y, from 1 to M. None: all M.
        bandwidth: radius r >= 0, in time steps, of a band around the diagonal to which paths are restricted. None: no band.
        band: the kind of band: "sakoe_chiba", "abs", "slanted" or "itakura", as in :func:`soft_dtw`.
        max_slope: the largest slope, >= 1, of band="itakura", which has no bandwidth. None: 2.
        step_penalty: finite and >= 0, in units of the cost: added for every step that is not diagonal.
        x_mask: (B, N) bools, True where a time step is missing: its cost to every other step is 0. None: no step is missing.
        y_mask: (B, M) bools for y.
        reduction: "none" (the default) for one value per pair, or their "mean" or "sum".
        precision: how a GPU multiplies float32: "highest", "high" or "medium", as in :func:`soft_dtw`. None: what
            torch.get_float32_matmul_precision() says.
        batch_invariant: whether a pair's results are bitwise identical whatever else is in the batch.
        unbatched: True: x and y are single series (N, D) and (M, D), and batches raise an error.

    Returns:
        (B,) costs of the best paths; 0-d for unbatched input or with a reduction.

    Raises:
        TypeError, ValueError, NotImplementedError: as :func:`soft_dtw`.
    """
    return soft_dtw(
        x,
        y,
        gamma=0.0,
        cost=cost,
        x_lengths=x_lengths,
        y_lengths=y_lengths,
        bandwidth=bandwidth,
        band=band,
        max_slope=max_slope,
        step_penalty=step_penalty,
        x_mask=x_mask,
        y_mask=y_mask,
        reduction=reduction,
        precision=precision,
        batch_invariant=batch_invariant,
        unbatched=unbatched,
    )


def _reduced(value: Tensor, reduction: Reduction) -> Tensor:
    if reduction == "mean":
        return value.mean()
    return value.sum() if reduction == "sum" else value
