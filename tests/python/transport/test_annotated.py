"""from_anndata and PASTE's pairwise_align, with anndata where it is installed, and with a stand-in everywhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse

from docs_code import ROOT
from warpalign.compat.paste import pairwise_align
from warpalign.transport import ConvergenceWarning, from_anndata

Array = np.ndarray[Any, Any]


class StandIn:
    """As much of an AnnData as is read."""

    def __init__(self, X: Any, names: list[str], obsm: dict[str, Any], layers: dict[str, Any]) -> None:
        self.X, self.var_names, self.obsm, self.layers = X, names, obsm, layers

    def __getitem__(self, key: tuple[slice, list[str]]) -> StandIn:
        columns = [self.var_names.index(name) for name in key[1]]
        layers = {name: matrix[:, columns] for name, matrix in self.layers.items()}
        return StandIn(self.X[:, columns], list(key[1]), self.obsm, layers)


def annotated(kind: str, X: Any, names: list[str], obsm: dict[str, Any], layers: dict[str, Any]) -> Any:
    if kind == "stand-in":
        return StandIn(X, names, obsm, layers)
    module = pytest.importorskip("anndata")
    pandas = pytest.importorskip("pandas")
    return module.AnnData(X, var=pandas.DataFrame(index=names), obsm=obsm, layers=layers)


KINDS = pytest.mark.parametrize("kind", ["stand-in", "package"])


def small(kind: str) -> tuple[Any, Array, Array]:
    rng = np.random.default_rng(0)
    counts, places = rng.poisson(2.0, (5, 3)).astype(np.float32), rng.random((5, 2))
    obsm = {"spatial": places, "X_pca": rng.random((5, 4))}
    return (
        annotated(kind, sparse.csr_matrix(counts), ["a", "b", "c"], obsm, {"log": np.log1p(counts)}),
        counts,
        places,
    )


@KINDS
def test_points_and_features(kind: str, device: torch.device) -> None:
    adata, counts, places = small(kind)
    points, features = from_anndata(adata, device=device)
    assert points is not None and points.device.type == features.device.type == device.type
    np.testing.assert_array_equal(points.cpu().numpy(), places.astype(np.float32))
    np.testing.assert_array_equal(features.cpu().numpy(), counts)
    exact = from_anndata(adata, genes=["c", "a"], layer="log", spatial_key=None, dtype=torch.float64)
    assert exact.points is None
    np.testing.assert_allclose(exact.features.numpy(), np.log1p(counts)[:, [2, 0]])
    assert from_anndata(adata, use_rep="X_pca").features.shape == (5, 4)


def slices(kind: str, side: int = 9) -> tuple[Any, Any, Array, Array]:
    """Two slices of a tissue without symmetry, the second one turned and in another order; their places; the order."""
    rng = np.random.default_rng(1)
    places = np.stack(np.meshgrid(np.arange(side), np.arange(side)), -1).reshape(-1, 2).astype(float)
    places = places[places[:, 0] + 0.4 * places[:, 1] < 0.9 * side]
    domain = np.sin(places[:, 0] / 2.5) + np.cos(places[:, 1] / 1.7)
    rates = 5 * np.exp(rng.normal(size=40) + 0.7 * np.outer(domain, rng.normal(size=40)))
    order = rng.permutation(len(places))
    turn = np.array([[np.cos(0.4), -np.sin(0.4)], [np.sin(0.4), np.cos(0.4)]])
    names = [f"gene {n}" for n in range(40)]
    first = annotated(kind, rng.poisson(rates).astype(float), names, {"spatial": places}, {})
    counts = np.concatenate([rng.poisson(rates), rng.poisson(9.0, (len(places), 1))], 1)[order].astype(float)
    second = annotated(
        kind, counts[:, ::-1].copy(), ["other", *names[::-1]], {"spatial": places[order] @ turn.T}, {}
    )
    return first, second, places, order


@KINDS
@pytest.mark.parametrize("dissimilarity", ["kl", "euclidean"])
@pytest.mark.parametrize("norm", [False, True])
def test_slices_are_aligned(kind: str, dissimilarity: str, norm: bool) -> None:
    first, second, places, order = slices(kind)
    alpha = 0.1 if dissimilarity == "kl" else 0.99  # squared differences of counts are large
    plan, value = pairwise_align(first, second, alpha, dissimilarity, norm=norm, return_obj=True)
    count = len(places)
    assert plan.dtype == np.float64 and plan.shape == (count, count)
    np.testing.assert_allclose(plan.sum(1), 1 / count, rtol=1e-3)
    off = np.linalg.norm(places[order][plan.argmax(1)] - places, axis=1)
    assert (off <= 1.5).mean() > 0.9
    assert np.isfinite(value) and value >= 0
    assert pairwise_align(first, second, epsilon=3e-4, norm=norm, return_obj=True)[1] >= 0


def test_the_objective_is_that_of_pot() -> None:
    ot = pytest.importorskip("ot")
    first, second, *_ = slices("stand-in")
    plan, value = pairwise_align(first, second, alpha=0.3, dissimilarity="euclidean", return_obj=True)
    x, y = first.obsm["spatial"], second.obsm["spatial"]
    cost = ot.dist(first.X, second[:, first.var_names].X)
    a = b = np.full(len(x), 1 / len(x))
    gw = ot.gromov.gwloss(
        *ot.gromov.init_matrix(ot.dist(x, x, "euclidean"), ot.dist(y, y, "euclidean"), a, b), plan
    )
    np.testing.assert_allclose(value, 0.7 * (cost * plan).sum() + 0.3 * gw, rtol=2e-3)


def test_weights_a_start_and_a_device(device: torch.device) -> None:
    first, second, places, _ = slices("stand-in")
    count = len(places)
    a = np.linspace(1, 2, count) / np.linspace(1, 2, count).sum()
    start = np.outer(a, np.full(count, 1 / count))
    plan = pairwise_align(first, second, a_distribution=a, G_init=start, numItermax=5, device=device)
    np.testing.assert_allclose(plan.sum(1), a, rtol=2e-2)


def test_float32_agrees(device: torch.device) -> None:
    """Costs are rounded to 1e-7 of the largest one, which is 1e-3 of epsilon, in each of some ten steps."""
    first, second, *_ = slices("stand-in")
    found = [
        pairwise_align(first, second, dtype=dtype, return_obj=True, device=device)
        for dtype in (torch.float64, torch.float32)
    ]
    (exact, value), (plan, value_32) = found
    assert plan.dtype == np.float64
    assert np.abs(plan - exact).sum() < 1e-2 and value_32 == pytest.approx(value, rel=1e-4)


def test_a_plan_that_still_moves_is_told(device: torch.device) -> None:
    first, second, *_ = slices("stand-in", 5)
    with pytest.warns(
        ConvergenceWarning, match="within 1 steps, got one whose last step moved .*larger numItermax"
    ):
        pairwise_align(first, second, numItermax=1, device=device)


def test_options_of_the_other_solver_are_told() -> None:
    first, second, *_ = slices("stand-in", 5)
    with pytest.warns(UserWarning, match="tol_rel, armijo: no effect here"):
        pairwise_align(first, second, tol_rel=1e-6, armijo=True)


def test_a_gpu_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    first, second, *_ = slices("stand-in", 4)
    with pytest.warns(UserWarning, match="use_gpu: there is no GPU here"):
        pairwise_align(first, second, use_gpu=True, numItermax=2)


def test_the_page_of_slices_with_anndata(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All blocks of docs/howto/spatial.md, also those that need anndata, which the pages' own test leaves out."""
    pytest.importorskip("anndata")
    import matplotlib

    matplotlib.use("Agg")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__page__"}
    page = (ROOT / "docs" / "howto" / "spatial.md").read_text()
    for code in re.findall(r"^```(?:python|py)\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        exec(code, names)
    assert names["both"].obsp["matches"].shape == (432, 432)
    assert (tmp_path / "spatial.png").exists()
