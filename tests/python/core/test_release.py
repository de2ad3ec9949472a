"""The tools of `make release`: what they refuse, and that the smoke test sees an operator that does not work."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

import check_release
import smoke


@pytest.mark.parametrize(
    ("name", "size", "expected"),
    [
        ("warpalign-0.1.0-py3-none-manylinux_2_28_x86_64.whl", 10, []),
        ("warpalign-0.1.0-py3-none-manylinux_2_17_aarch64.whl", check_release.LARGEST, []),
        ("warpalign-0.1.0-py3-none-manylinux_2_34_x86_64.whl", 10, ["glibc 2.28 or older, got 2.34"]),
        ("warpalign-0.1.0-py3-none-linux_x86_64.whl", 10, ["expected warpalign-VERSION-py3-none-manylinux_"]),
        ("warpalign-0.1.0-cp312-cp312-manylinux_2_28_x86_64.whl", 10, ["expected warpalign-VERSION-py3"]),
        (
            "warpalign-0.1.0-py3-none-manylinux_2_28_x86_64.whl",
            check_release.LARGEST + 1,
            [f"expected at most {check_release.LARGEST} bytes, got {check_release.LARGEST + 1}"],
        ),
    ],
)
def test_wheels_are_held_to_their_name_and_size(name: str, size: int, expected: list[str]) -> None:
    faults = check_release.faults_of_wheel(name, size, "2.28")
    assert len(faults) == len(expected)
    assert all(part in fault for part, fault in zip(expected, faults, strict=True)), faults


def test_a_folder_without_a_release_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["check_release.py", str(tmp_path)])
    with pytest.raises(SystemExit, match=r"expected one \.tar\.gz and at least one \.whl"):
        check_release.main()


def test_a_failed_command_ends_with_what_it_said() -> None:
    with pytest.raises(SystemExit, match="no such thing"):
        check_release.run("sh", "-c", "echo no such thing; exit 3")


def test_the_readme_is_one_program() -> None:
    code = check_release.readme_code()
    assert code.startswith("import torch\nimport warpalign\n")
    for name in ("soft_dtw", "ctc_loss", "transducer_loss", "sinkhorn", "LSTM"):
        assert f"warpalign.{name}(" in code
    compile(code, "README.md", "exec")


def test_the_smoke_test_calls_every_module_of_operators() -> None:
    """A public module with operators has a check whose code calls one of its names."""
    for name in ("ctc", "decoding", "recurrent", "timeseries", "transducer", "transport"):
        public = importlib.import_module(f"warpalign.{name}").__all__
        called = {
            word for check in smoke.CHECKS.values() for word in check.__code__.co_names if word in public
        }
        assert called, f"tools/smoke.py calls nothing of warpalign.{name}"


def test_the_smoke_test_sees_what_does_not_work(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert smoke.main() == 0
    assert capsys.readouterr().out.startswith(f"{len(smoke.CHECKS)} of {len(smoke.CHECKS)} operators work")

    def broken() -> None:
        raise AssertionError("wrong")

    monkeypatch.setitem(smoke.CHECKS, "LSTM", broken)
    assert smoke.main() == 1
    assert "LSTM: AssertionError: wrong" in capsys.readouterr().out
