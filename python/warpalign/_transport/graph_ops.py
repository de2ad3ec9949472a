"""The operators on graphs, and the shapes of what they return, for torch."""

from __future__ import annotations

import torch
from torch import Tensor

from warpalign._core.library import check_devices


@torch.library.register_fake("warpalign::knn_graph")  # type: ignore[untyped-decorator]
def _(x: Tensor, k: int, joins_components: bool) -> tuple[Tensor, Tensor, Tensor]:
    n = x.shape[0]
    edges = 2 * (n * k + (n - 1 if joins_components else 0))
    return (
        x.new_empty(n + 1, dtype=torch.int64),
        x.new_empty(edges, dtype=torch.int32),
        x.new_empty(edges),
    )


@torch.library.register_fake("warpalign::shortest_paths")  # type: ignore[untyped-decorator]
def _(row_begins: Tensor, neighbors: Tensor, lengths: Tensor, sources: Tensor) -> Tensor:
    check_devices("row_begins", row_begins=row_begins, neighbors=neighbors, lengths=lengths, sources=sources)
    return lengths.new_empty(sources.shape[0], row_begins.shape[0] - 1)


@torch.library.register_fake("warpalign::connected_components")  # type: ignore[untyped-decorator]
def _(row_begins: Tensor, neighbors: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    check_devices("row_begins", row_begins=row_begins, neighbors=neighbors, lengths=lengths)
    return (
        lengths.new_empty(row_begins.shape[0] - 1, dtype=torch.int32),
        lengths.new_empty(1, dtype=torch.int32),
    )


@torch.library.register_fake("warpalign::farthest_landmarks")  # type: ignore[untyped-decorator]
def _(
    row_begins: Tensor, neighbors: Tensor, lengths: Tensor, count: int, start: int
) -> tuple[Tensor, Tensor]:
    check_devices("row_begins", row_begins=row_begins, neighbors=neighbors, lengths=lengths)
    return lengths.new_empty(count, dtype=torch.int32), lengths.new_empty(count, row_begins.shape[0] - 1)


knn_graph = torch.ops.warpalign.knn_graph.default
shortest_paths = torch.ops.warpalign.shortest_paths.default
connected_components = torch.ops.warpalign.connected_components.default
farthest_landmarks = torch.ops.warpalign.farthest_landmarks.default
