"""The command `warpalign transport`."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
import torch

from tests.python.core.test_cli import refused, run, unread
from warpalign.transport import sinkhorn


@pytest.fixture
def sets(tmp_path: Path) -> tuple[Path, Path]:
    """Two point sets (12, 3) and (9, 3) as .csv and .npy."""
    generator = np.random.default_rng(0)
    a, b = tmp_path / "a.csv", tmp_path / "b.npy"
    np.savetxt(a, generator.normal(size=(12, 3)), delimiter=",", header="u,v,w", comments="", fmt="%.17g")
    np.save(b, generator.normal(size=(9, 3)) + 1)
    return a, b


def points(sets: tuple[Path, Path]) -> tuple[torch.Tensor, torch.Tensor]:
    a, b = sets
    return torch.from_numpy(np.loadtxt(a, delimiter=",", skiprows=1)), torch.from_numpy(np.load(b))


def test_transport(capsys: pytest.CaptureFixture[str], sets: tuple[Path, Path], tmp_path: Path) -> None:
    x, y = points(sets)
    out, plan, sparse = tmp_path / "m.csv", tmp_path / "plan.npy", tmp_path / "plan.npz"
    code, text, err = run(capsys, "transport", *sets, "--epsilon", 0.5, "-o", out, "--plan", plan, "--json")
    assert (code, unread(err)) == (0, "")
    got = json.loads(text)
    expected = sinkhorn(x, y, epsilon=0.5, max_iter=10000)
    assert got["transport"] == expected.linear.item() and got["value"] == expected.value.item()
    assert {name: got[name] for name in ("n", "m", "features", "epsilon")} == {
        "n": 12,
        "m": 9,
        "features": 3,
        "epsilon": 0.5,
    }
    assert got["iterations"] == int(expected.iterations) and got["error"] <= 1e-5
    dense = expected.plan.to_dense().numpy()
    np.testing.assert_array_equal(np.load(plan), dense)
    matches = np.loadtxt(out, delimiter=",")
    np.testing.assert_array_equal(matches[:, 0], dense.argmax(1))
    np.testing.assert_allclose(matches[:, 1], dense.max(1) / dense.sum(1), rtol=1e-12)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run(capsys, "transport", *sets, "--epsilon", 0.5, "--plan", sparse, "--top", 3)[0] == 0
    load_npz = pytest.importorskip("scipy.sparse").load_npz
    kept = np.sort(dense, 1)[:, -3:].sum()
    assert load_npz(sparse).sum() == pytest.approx(kept, rel=1e-12)


def test_epsilon_is_a_share_of_the_mean_cost(
    capsys: pytest.CaptureFixture[str], sets: tuple[Path, Path]
) -> None:
    x, y = points(sets)
    _, text, _ = run(capsys, "transport", *sets, "--cost", "l1", "--json")
    assert json.loads(text)["epsilon"] == pytest.approx(
        0.05 * torch.cdist(x, y, p=1).mean().item(), rel=1e-12
    )


def test_relaxed_and_partial(capsys: pytest.CaptureFixture[str], sets: tuple[Path, Path]) -> None:
    x, y = points(sets)
    for flags, options in (
        (["--rho-a", 0.5, "--rho-b", 0], {"rho_a": 0.5, "rho_b": 0.0}),
        (["--mass", 0.4], {"mass": 0.4}),
        (["--max-iter", 3, "--tol", 0], {"max_iter": 3, "tol": 0.0}),
    ):
        _, text, _ = run(capsys, "transport", *sets, "--epsilon", 1, *flags, "--json")
        expected = sinkhorn(x, y, epsilon=1.0, **{"max_iter": 10000, **options})  # type: ignore[arg-type]
        assert json.loads(text)["value"] == expected.value.item()


def test_what_has_not_converged_says_so(capsys: pytest.CaptureFixture[str], sets: tuple[Path, Path]) -> None:
    code, text, err = run(capsys, "transport", *sets, "--epsilon", 0.01, "--max-iter", 3, "--json")
    assert code == 0 and json.loads(text)["error"] > 1e-5
    assert "after 3 iterations: a larger --epsilon or --max-iter brings it below --tol" in err
    assert "iterations:" not in run(capsys, "transport", *sets, "--epsilon", 1)[2]


@pytest.mark.parametrize("features", [1, 2, 3])
def test_plot(
    capsys: pytest.CaptureFixture[str], sets: tuple[Path, Path], tmp_path: Path, features: int
) -> None:
    files = []
    for name, one in zip(("x.npy", "y.npy"), points(sets), strict=True):
        files.append(tmp_path / name)
        np.save(files[-1], one[:, :features].numpy())
    out = tmp_path / "plot.png"
    assert run(capsys, "transport", *files, "--plot", out)[0] == 0
    pixels = matplotlib.image.imread(out)
    assert len(np.unique(pixels.reshape(-1, pixels.shape[-1]), axis=0)) > 50


def test_what_is_refused(capsys: pytest.CaptureFixture[str], sets: tuple[Path, Path], tmp_path: Path) -> None:
    a, b = sets
    assert (
        refused(capsys, "transport", a, b, "--epsilon", 0) == "epsilon: expected a finite number > 0, got 0.0"
    )
    assert refused(capsys, "transport", a, b, "--mass", 1, "--rho-a", 1).startswith(
        "rho_a: expected None with mass"
    )
    narrow = tmp_path / "narrow.npy"
    np.save(narrow, np.load(b)[:, :2])
    assert refused(capsys, "transport", a, narrow) == f"{narrow}: expected 3 features, as {a} has, got 2"
    assert "ends in .npy or .npz" in refused(capsys, "transport", a, b, "--plan", tmp_path / "plan.csv")
    assert refused(capsys, "transport", "-", "-") == "B: expected a file, because A is stdin, got -"
