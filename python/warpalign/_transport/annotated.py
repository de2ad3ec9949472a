"""Points and features of single cells or spots: an AnnData as tensors. The package anndata itself is not needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor


class AnnDataTensors(NamedTuple):
    """What :func:`from_anndata` has read."""

    points: Tensor | None
    """(n, d) coordinates; None without ``spatial_key``."""
    features: Tensor
    """(n, G) numbers of genes, or of the representation."""


def from_anndata(
    adata: Any,
    *,
    spatial_key: str | None = "spatial",
    use_rep: str | None = None,
    layer: str | None = None,
    genes: Sequence[str] | None = None,
    dtype: torch.dtype = torch.float32,
    device: Any = None,
) -> AnnDataTensors:
    """Coordinates and features of an AnnData, as dense tensors for :func:`gromov_wasserstein` and :func:`sinkhorn`.

    Args:
        adata: an ``anndata.AnnData`` of n cells or spots.
        spatial_key: the key of coordinates in ``adata.obsm``. None: there are none.
        use_rep: the key of a representation in ``adata.obsm``, such as "X_pca", that gives the features. None: ``layer``.
        layer: the key of a matrix in ``adata.layers`` that gives the features. None: ``adata.X``.
        genes: the names of the genes that the features have, in this order; two slices need the same ones. None: all. It
            does not go with ``use_rep``.
        dtype: of the tensors: float64 or float32.
        device: of the tensors. None: torch's default.

    Returns:
        AnnDataTensors(points, features).

    Raises:
        TypeError: adata has no obsm and X, or a matrix is not numeric.
        ValueError: a key or a gene does not exist, or arguments do not go together.
    """
    if not all(hasattr(adata, name) for name in ("obsm", "layers", "X", "var_names")):
        raise TypeError(f"adata: expected an AnnData, got {type(adata).__name__}")
    if dtype not in (torch.float32, torch.float64):
        raise TypeError(f"dtype: expected torch.float32 or torch.float64, got {dtype}")
    if use_rep is not None and (layer is not None or genes is not None):
        raise ValueError("use_rep: expected None beside layer or genes, as a representation has no genes")
    if genes is not None:
        missing = [name for name in genes if name not in adata.var_names]
        if missing:
            raise ValueError(
                f"genes: expected names of adata.var_names, got {missing[0]!r} and {len(missing) - 1} more without one"
            )
        adata = adata[:, list(genes)]
    if use_rep is not None:
        features = _of(adata.obsm, use_rep, "use_rep", "adata.obsm")
    else:
        features = adata.X if layer is None else _of(adata.layers, layer, "layer", "adata.layers")
    points = None if spatial_key is None else _of(adata.obsm, spatial_key, "spatial_key", "adata.obsm")
    return AnnDataTensors(
        None if points is None else _tensor(points, "spatial_key", dtype, device),
        _tensor(features, "adata", dtype, device),
    )


def _of(table: Any, key: str, name: str, where: str) -> Any:
    if key not in table:
        raise ValueError(f"{name}: expected a key of {where}, one of {sorted(table.keys())}, got {key!r}")
    return table[key]


def _tensor(matrix: Any, name: str, dtype: torch.dtype, device: Any) -> Tensor:
    import numpy as np  # an AnnData has it; importing the package does not need it

    dense = matrix.toarray() if hasattr(matrix, "toarray") else np.asarray(matrix)
    if dense.dtype.kind not in "biuf" or dense.ndim != 2:
        raise TypeError(f"{name}: expected a numeric matrix, got {dense.dtype} of shape {dense.shape}")
    return torch.tensor(dense, dtype=dtype, device=device)
