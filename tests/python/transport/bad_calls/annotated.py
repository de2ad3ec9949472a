"""AnnData as tensors, and PASTE."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from tests.python.bad_calls import BadCall, BadCalls
from warpalign.compat import paste
from warpalign.transport import from_anndata


def adata(**changed: Any) -> Any:
    """An AnnData of three cells and two genes, as far as it is read."""
    matrix = np.zeros((3, 2))
    good = {"X": matrix, "obsm": {"spatial": matrix}, "layers": {}, "var_names": ["a", "b"]}
    return SimpleNamespace(**good | changed)


def bad(
    error: type[BaseException], message: str, *, of: dict[str, Any] | None = None, **options: Any
) -> BadCall:
    return BadCall(lambda given: from_anndata(adata(**(of or {})), **options), error, message, cpu_only=True)


CALLS: BadCalls = {
    "from_anndata: an array": BadCall(
        lambda given: from_anndata(np.zeros((3, 2))), TypeError, "adata: expected an AnnData, got ndarray"
    ),
    "from_anndata: words": bad(
        TypeError,
        "adata: expected a numeric matrix, got <U1 of shape (2, 1)",
        of={"X": np.array([["a"], ["b"]])},
    ),
    "from_anndata: one axis of coordinates": bad(
        TypeError,
        "spatial_key: expected a numeric matrix, got float64 of shape (3,)",
        of={"obsm": {"spatial": np.zeros(3)}},
    ),
    "from_anndata: no such coordinates": bad(
        ValueError,
        "spatial_key: expected a key of adata.obsm, one of ['spatial'], got 'X_spatial'",
        spatial_key="X_spatial",
    ),
    "from_anndata: no such representation": bad(
        ValueError, "use_rep: expected a key of adata.obsm, one of ['spatial'], got 'X_pca'", use_rep="X_pca"
    ),
    "from_anndata: a representation of genes": bad(
        ValueError,
        "use_rep: expected None beside layer or genes, as a representation has no genes",
        use_rep="spatial",
        genes=["a"],
    ),
    "from_anndata: no such layer": bad(
        ValueError, "layer: expected a key of adata.layers, one of [], got 'log'", layer="log"
    ),
    "from_anndata: no such gene": bad(
        ValueError,
        "genes: expected names of adata.var_names, got 'c' and 1 more without one",
        genes=["a", "c", "d"],
    ),
    "from_anndata: half precision": bad(
        TypeError, "dtype: expected torch.float32 or torch.float64, got torch.float16", dtype=torch.float16
    ),
    "paste: dissimilarity": BadCall(
        lambda given: paste.pairwise_align(adata(), adata(), dissimilarity="cosine"),
        ValueError,
        "dissimilarity: expected 'kl' or 'euclidean', got 'cosine'",
    ),
    "paste: no common gene": BadCall(
        lambda given: paste.pairwise_align(adata(), adata(var_names=["c", "d"])),
        ValueError,
        "sliceB: expected a gene of sliceA, got none",
    ),
}
