"""Sets that were matched by plans, in one space."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from warpalign._core.checks import can_be_read, check_count, check_number, check_table, shape_of
from warpalign._transport.graphs import Graph, NeighborGraph, check_graph
from warpalign._transport.plan import TransportPlan

_RIDGE = 1e-9
"""Added to every variance, relative to the mean variance: directions without variance stay finite."""


def joint_embedding(
    data: Mapping[str, Tensor],
    plans: Mapping[str, TransportPlan | Tensor],
    *,
    anchor: str,
    graphs: Mapping[str, Graph] | None = None,
    reg: float = 1.0,
    dim: int = 30,
) -> dict[str, Tensor]:
    """Linear maps of matched sets into one space, in which matched points lie close together.

    Set k with centred features X_k (N_k, D_k) is mapped to X_k S_k^(−1/2) V_k. S_k = X_kᵀ (I + reg L_k) X_k / N_k holds
    variances and, with a graph, how much a direction changes along its edges; L_k is the Laplacian of Gaussian affinities, divided by
    their mean degree. V has the leading eigenvectors of the matrix with blocks S_a^(−1/2) X_aᵀ T_k X_k S_k^(−1/2) between
    the anchor a and every other set k; a set's part of each is normalised. For two sets without graphs these are canonical
    correlations.

    Sources: Kettenring, "Canonical analysis of several sets of variables", Biometrika 1971 (MAXVAR); Wang & Mahadevan, "A general framework
    for manifold alignment", AAAI Fall Symposium 2009 (Laplacians).

    Args:
        data: for each set's name its features (N, D), float64 or float32. The numbers of features may differ.
        plans: for the name of each set but the anchor the plan (N of the anchor, N of the set), or a table of it.
        anchor: the set that all others were matched with.
        graphs: for some sets' names a graph of their points, as :func:`warpalign.transport.shortest_paths` takes it.
        reg: the weight of Laplacians, >= 0.
        dim: features of the space, at most; there are no more than of the set with the fewest.

    Returns:
        For each name (N, dim) in float64, each column of variance 1 (without graphs). The entry of the anchor's map that is
        largest is positive. No gradient.

    Raises:
        TypeError, ValueError: an argument is invalid.

    Examples:
        >>> x = torch.randn(50, 4)
        >>> plan = torch.eye(50) / 50
        >>> both = joint_embedding({"x": x, "y": x @ torch.randn(4, 3)}, {"y": plan}, anchor="x")
        >>> both["x"].shape, both["y"].shape
        (torch.Size([50, 3]), torch.Size([50, 3]))
    """
    sets = _check_data(data, anchor)
    others = [name for name in sets if name != anchor]
    matched = _check_plans(plans, sets, anchor)
    strength, most = check_number(reg, "reg"), check_count(dim, "dim")
    edges = {} if graphs is None else _check_graphs(graphs, sets)
    with torch.no_grad():
        whitening = {
            name: _inverse_root(_variances(x, edges.get(name), strength)) for name, x in sets.items()
        }
        images = {name: _applied(matched[name], sets[name], name) for name in others}
        blocks = {
            name: whitening[anchor] @ (sets[anchor].T @ image) @ whitening[name]
            for name, image in images.items()
        }
        width = min(most, *(x.shape[1] for x in sets.values()))
        directions = _directions(blocks, anchor, width)
        first = directions[anchor]
        signs = first.gather(0, first.abs().argmax(0, keepdim=True)).sign()
        return {name: x @ (whitening[name] @ (directions[name] * signs)) for name, x in sets.items()}


def _directions(blocks: dict[str, Tensor], anchor: str, width: int) -> dict[str, Tensor]:
    """Each set's part (D, width) of the leading eigenvectors, with columns of norm 1.

    The blocks make a star: its eigenvectors are the singular vectors of the anchor's blocks side by side.
    """
    left, _, right = torch.linalg.svd(torch.cat(list(blocks.values()), 1), full_matrices=False)
    parts = right[:width].T.split([block.shape[1] for block in blocks.values()])
    return {
        anchor: left[:, :width],
        **{
            name: part / part.norm(dim=0).clamp(min=torch.finfo(part.dtype).tiny)
            for name, part in zip(blocks, parts, strict=True)
        },
    }


def _variances(x: Tensor, graph: NeighborGraph | None, reg: float) -> Tensor:
    """S (D, D)."""
    smoothed = x if graph is None else x + reg * _laplacian_product(graph, x)
    return x.T @ smoothed / len(x)


def _laplacian_product(graph: NeighborGraph, x: Tensor) -> Tensor:
    """L x (N, D)"""
    counts = graph.indptr.diff()
    rows = torch.repeat_interleave(torch.arange(len(counts), device=counts.device), counts).to(x.device)
    columns, lengths = graph.indices.long().to(x.device), graph.weights.to(x.device, x.dtype)
    kept = lengths.isfinite()
    rows, columns, lengths = rows[kept], columns[kept], lengths[kept]
    mean = lengths.mean()
    affinity = (-(lengths / mean.where(mean > 0, 1.0)).square()).exp()[:, None]
    degrees = x.new_zeros(len(x), 1).index_add_(0, rows, affinity)
    product = degrees * x - torch.zeros_like(x).index_add_(0, rows, affinity * x[columns])
    return product / degrees.mean()


def _inverse_root(matrix: Tensor) -> Tensor:
    """S^(−1/2)"""
    symmetric = (matrix + matrix.T) / 2
    ridge = _RIDGE * symmetric.diagonal().mean()
    values, vectors = torch.linalg.eigh(symmetric)
    root: Tensor = (vectors * (values.clamp(min=0) + ridge).rsqrt()) @ vectors.T
    return root


def _applied(plan: TransportPlan | Tensor, x: Tensor, name: str) -> Tensor:
    """T x / (mass of T)"""
    if isinstance(plan, TransportPlan):
        values, mass = plan.apply(x.to(plan._like)).to(x.dtype), plan.mass().to(x.dtype)
    else:
        table = plan.to(x)
        values, mass = table @ x, table.sum()
    if can_be_read(values) and not (bool(values.isfinite().all()) and 0 < float(mass) < math.inf):
        raise ValueError(
            f"plans[{name!r}]: expected finite numbers with a sum > 0, got the sum {float(mass):g}: solve the problem with "
            "a larger epsilon, or leave points without a match out"
        )
    return values / mass


def _check_data(data: object, anchor: object) -> dict[str, Tensor]:
    """Centred features in float64."""
    if not isinstance(data, Mapping):
        raise TypeError(f"data: expected a dict of features (N, D) by name, got {type(data).__name__}")
    if anchor not in data:
        raise ValueError(f"anchor: expected one of {', '.join(map(repr, data))}, got {anchor!r}")
    if len(data) < 2:
        raise ValueError(f"data: expected two sets or more, got {len(data)}")
    sets = {}
    for name, given in data.items():
        x = check_table(given, f"data[{name!r}]", "N, D", series=False)
        if x.dim() != 2:
            raise ValueError(f"data[{name!r}]: expected one set (N, D), got shape {shape_of(x)}")
        wide = x.detach().double()
        sets[name] = wide - wide.mean(0)
        if not can_be_read(wide):
            continue
        if not bool(wide.isfinite().all()):
            value = float(wide[~wide.isfinite()][0])
            raise ValueError(f"data[{name!r}]: expected finite numbers, got {value:g}")
        if bool((wide == wide[0]).all()):
            raise ValueError(
                f"data[{name!r}]: expected points that differ, got {len(wide)} that are the same"
            )
    return sets


def _check_plans(plans: object, sets: dict[str, Tensor], anchor: str) -> dict[str, TransportPlan | Tensor]:
    if not isinstance(plans, Mapping):
        raise TypeError(f"plans: expected a dict of plans by name, got {type(plans).__name__}")
    others = set(sets) - {anchor}
    if set(plans) != others:
        raise ValueError(f"plans: expected those of {sorted(others)}, got those of {sorted(plans)}")
    for name, plan in plans.items():
        if not isinstance(plan, (Tensor, TransportPlan)):
            raise TypeError(
                f"plans[{name!r}]: expected a TransportPlan or a torch.Tensor, got {type(plan).__name__}"
            )
        shape = (len(sets[anchor]), len(sets[name]))
        if tuple(plan.shape) != shape:
            raise ValueError(f"plans[{name!r}]: expected shape {shape}, got {tuple(plan.shape)}")
    return dict(plans)


def _check_graphs(graphs: object, sets: dict[str, Tensor]) -> dict[str, NeighborGraph]:
    if not isinstance(graphs, Mapping):
        raise TypeError(f"graphs: expected a dict of graphs by name, got {type(graphs).__name__}")
    found = {}
    for name, graph in graphs.items():
        if name not in sets:
            raise ValueError(f"graphs: expected names of data, got {name!r}")
        found[name] = check_graph(graph, f"graphs[{name!r}]")
        nodes = found[name].indptr.numel() - 1
        if nodes != len(sets[name]):
            raise ValueError(f"graphs[{name!r}]: expected {len(sets[name])} nodes, got {nodes}")
    return found
