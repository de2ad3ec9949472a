"""Drawing and checks that the plots share; matplotlib is there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from matplotlib import pyplot as plt
from matplotlib.transforms import Bbox
from torch import Tensor

from warpalign._core.series import SeriesSet, as_series
from warpalign.timeseries import DTWPath

if TYPE_CHECKING:
    from matplotlib.axes import Axes

X_COLOR, Y_COLOR, QUIET = "C0", "C1", "0.65"


def check_names(names: Sequence[str], features: int, argument: str) -> None:
    if len(names) != features:
        raise ValueError(f"{argument}: expected {features}, one per feature, got {len(names)}")


def draw_group(
    series: SeriesSet,
    members: Tensor,
    center: Tensor | None,
    axes: Axes,
    labels: Sequence[str] | None,
    line: dict[str, Any],
) -> None:
    """Some series and their center; where its length is not theirs, it is drawn over the longest series' time."""
    longest, features = series.values.shape[1:]
    values = series.values.detach().cpu()
    if series.mask is not None:
        values = values.masked_fill(series.mask.cpu()[:, :, None], torch.nan)  # a gap in the line
    lengths = series.true_lengths()
    alpha = max(0.08, min(0.5, 5 / max(1, len(members))))
    for index in members.tolist():
        for d in range(features):
            axes.plot(
                values[index, : int(lengths[index]), d].numpy(), color=f"C{d}", linewidth=0.7, alpha=alpha
            )
    if center is not None:
        steps = torch.linspace(0, longest - 1, len(center)) if len(center) > 1 else torch.zeros(1)
        for d in range(features):
            name = None if labels is None else labels[d]
            options: dict[str, Any] = {"color": f"C{d}", "linewidth": 2.4, "label": name} | line
            axes.plot(steps.numpy(), center[:, d].numpy(), **options)
    axes.set_xlabel("time step")


def path_within(given: object, shape: tuple[int, int]) -> Tensor:
    """(L, 2), within a matrix."""
    if isinstance(given, DTWPath):
        given = given.paths
    if isinstance(given, list) and len(given) == 1 and isinstance(given[0], Tensor):
        given = given[0]
    if isinstance(given, list) and given and isinstance(given[0], Tensor):
        raise ValueError(f"path: expected that of one pair, got those of {len(given)}")
    steps = torch.as_tensor(given).detach().cpu().long()
    if steps.dim() != 2 or steps.shape[1] != 2:
        raise ValueError(f"path: expected shape (L, 2), got {tuple(steps.shape)}")
    if bool((steps < 0).any()) or bool((steps >= torch.tensor(shape)).any()):
        raise ValueError(f"path: expected index pairs within {shape}, got others")
    return steps


def one_series(series: object, name: str) -> Tensor:
    """(N, D) on the CPU."""
    try:
        values = as_series([series], name).values
    except (TypeError, ValueError) as error:
        raise type(error)(str(error).replace(f"{name}[0]", name)) from error
    return values[0].detach().cpu()


def heat_map(
    table: Tensor,
    x: Tensor,
    y: Tensor,
    ax: Axes | None,
    names: tuple[str, str],
    margins: bool,
    colorbar: bool,
    options: dict[str, Any],
) -> Axes:
    axes = plt.gca() if ax is None else ax
    label = options.pop("label")
    image = axes.imshow(table.numpy(), **({"aspect": "auto", "interpolation": "nearest"} | options))
    if colorbar:
        # With margins the axis' numbers stand between the heat map and the bar.
        axes.figure.colorbar(image, ax=axes, label=label, pad=0.16 if margins else 0.05)
    axes.set_xlabel(f"{names[1]}: time step")
    axes.set_ylabel(f"{names[0]}: time step")
    if margins:
        make_room(axes, left=0.2, above=0.2)
        above = axes.inset_axes((0, 1.02, 1, 0.23), sharex=axes)
        left = axes.inset_axes((-0.25, 0, 0.23, 1), sharey=axes)
        above.plot(y.numpy(), color=Y_COLOR if y.shape[1] == 1 else None, linewidth=1.2)
        left.plot(x.numpy(), range(len(x)), color=X_COLOR if x.shape[1] == 1 else None, linewidth=1.2)
        left.invert_xaxis()  # larger values away from the heat map, as above it
        for margin in (above, left):
            margin.set_axis_off()
        # The series stands where the axis was; its numbers go to the free side.
        axes.yaxis.set_label_position("right")
        axes.yaxis.tick_right()
    return axes


def make_room(axes: Axes, left: float, above: float) -> None:
    """Leaves shares of the Axes' place to what is drawn outside of it, so that nothing leaves the figure."""
    axes.set_axes_locator(_Room(axes, left, above))


class _Room:
    """The Axes' place without what is left free, as matplotlib asks for it."""

    def __init__(self, axes: Axes, left: float, above: float) -> None:
        self.axes, self.left, self.above = axes, left, above

    def __call__(self, axes: Any, renderer: object) -> Bbox:
        box = axes.get_position(original=True)
        width, height = (1 - self.left) * box.width, (1 - self.above) * box.height
        return Bbox.from_bounds(box.x0 + self.left * box.width, box.y0, width, height)

    def get_subplotspec(self) -> Any:
        """Where tight_layout finds the Axes in its grid."""
        return self.axes.get_subplotspec()
