"""The Dask example: the same numbers as cdist_soft_dtw, and it runs on a local cluster."""

import numpy as np
import pytest
import torch

import warpalign
from tests.python.helpers import ROOT, run_python


def test_tiles_make_up_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    da = pytest.importorskip("dask.array")
    pytest.importorskip("dask.distributed")
    monkeypatch.syspath_prepend(ROOT / "examples")
    from cdist_dask import cdist_dask

    x, y = (torch.randn(n, 12, 2, dtype=torch.float64).numpy() for n in (11, 7))
    lazy = cdist_dask(da.from_array(x, chunks=(4, -1, -1)), da.from_array(y, chunks=(3, -1, -1)), 0.5)
    assert lazy.numblocks == (3, 3)
    expected = warpalign.cdist_soft_dtw(x, y, gamma=0.5, normalize=True)
    np.testing.assert_array_equal(lazy.compute(scheduler="threads"), expected)
    with pytest.raises(ValueError, match="whole series"):
        cdist_dask(da.from_array(x, chunks=(4, 6, -1)), da.from_array(y), 0.5)


def test_local_cluster() -> None:
    for module in ("dask.distributed", "tslearn"):
        pytest.importorskip(module)
    done = run_python("examples/cdist_dask.py", "--workers", "2", "--chunk", "50")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "100 x 100 divergences in 4 tiles on 2 workers" in done.stdout
    assert "nearest neighbour: 99% right" in done.stdout
