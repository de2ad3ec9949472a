"""Features of fused Gromov-Wasserstein transport: a table of costs between the sets, or both sets' features."""

from __future__ import annotations

import torch
from torch import Tensor

from warpalign._core.checks import check_table, shape_of
from warpalign._core.series import widened
from warpalign._transport.checks import weight_of_features
from warpalign._transport.costs import pair_costs

_SQUARES = 0  # the place of "sqeuclidean" in `Cost`


def check_feature_weight(
    features: object, feature_cost: object, feature_weight: object, most: str = ""
) -> float:
    """The features' weight, 0 without features.

    Args:
        most: "below " where a weight of 1 is none of its values.
    """
    names = {"feature_cost": feature_cost is not None, "features": features is not None}
    given = [name for name, is_given in names.items() if is_given]
    weight = weight_of_features(feature_weight, given[0] if given else None)
    if weight > 1 or (most and weight == 1):
        raise ValueError(f"feature_weight: expected a number from 0 to {most}1, got {feature_weight}")
    if len(given) == 2:
        raise ValueError("features: expected None beside feature_cost, got both")
    if weight > 0 and not given:
        raise ValueError(
            f"features: expected a pair (N, F) and (M, F), or a feature_cost (N, M), with feature_weight = {weight}, got None"
        )
    return weight


def check_features(
    features: object, sizes: tuple[int, int], device: torch.device, batch: int = 0
) -> tuple[Tensor, Tensor]:
    """Both sets' features on the device, (N, F) and (M, F), or batches of so many or 1 of them."""
    if not isinstance(features, (tuple, list)) or len(features) != 2:
        raise TypeError(f"features: expected a pair, one for x and one for y, got {type(features).__name__}")
    found: list[Tensor] = []
    for place, (given, size) in enumerate(zip(features, sizes, strict=True)):
        name = f"features[{place}]"
        table = widened(check_table(given, name, "N, F", series=False))
        is_batch = table.dim() == 2 or (batch > 0 and table.shape[0] in (1, batch))
        if not is_batch or table.shape[-2] != size or (found and table.shape[-1] != found[0].shape[-1]):
            width = found[0].shape[-1] if found else "F"
            batched = f" or ({batch}, {size}, {width})" if batch > 0 else ""
            raise ValueError(f"{name}: expected shape ({size}, {width}){batched}, got {shape_of(table)}")
        if table.device != device:
            raise ValueError(f"{name}: expected a tensor on {device}, got one on {table.device}")
        found.append(table)
    return found[0], found[1]


def cost_of_features(features: tuple[Tensor, Tensor]) -> Tensor:
    """(B, N, M): the squared distances of features, of a batch of 1 where they have none."""
    dtype = torch.promote_types(features[0].dtype, features[1].dtype)
    x, y = (t.to(dtype) if t.dim() == 3 else t.to(dtype)[None] for t in features)
    batch = max(x.shape[0], y.shape[0])
    return pair_costs(_SQUARES, x.expand(batch, -1, -1), y.expand(batch, -1, -1))
