"""`warpalign info`: which GPUs a build serves, and what stands where the library does not say."""

from __future__ import annotations

from pathlib import Path

import pytest

from warpalign._core import information, library


@pytest.mark.parametrize(
    ("capability", "built", "expected"),
    [
        ((9, 0), ["90-real"], "built in"),
        ((9, 0), ["80-real", "90a-real"], "built in"),
        ((8, 9), ["86-real"], "built in"),  # machine code runs on later minor versions
        ((8, 0), ["86-real"], ""),
        ((10, 0), ["90-real"], ""),
        ((10, 0), ["90"], "through PTX"),
        ((12, 0), ["90-virtual", "100-real"], "through PTX"),
        ((7, 0), ["75"], ""),
        ((9, 0), [], ""),
    ],
)
def test_how_a_gpu_runs_a_build(capability: tuple[int, int], built: list[str], expected: str) -> None:
    assert information.serves(capability, built) == expected


def test_architectures_are_those_that_the_build_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "LIBRARIES", tmp_path)
    assert information.built_architectures() == []
    (tmp_path / "libwarpalign_torch_cuda.so").touch()
    assert information.built_architectures() is None
    assert information.information("1.0")["cuda_architectures"] == ["not recorded"]
    (tmp_path / "cuda_architectures.txt").write_text("80-real\n90-real\n120\n")
    assert information.built_architectures() == ["80-real", "90-real", "120"]


def test_lines_have_no_empty_values() -> None:
    assert information.lines({"a_name": [], "b": ["1", "2"], "c": 3}) == [
        "a name  none",
        "b       1, 2",
        "c       3",
    ]
