"""The dependency direction of docs/developer/architecture.md holds, and the check that says so can see a violation."""

from __future__ import annotations

from pathlib import Path

import pytest

from check_layers import check_tree
from tests.python.helpers import write_files

ROOT = Path(__file__).resolve().parents[3]

TREE = {
    "include/warpalign/status.h": "#pragma once\n",
    "src/core/views.h": '#include "warpalign/status.h"\n',
    "src/cpu/simd.h": '#include "core/views.h"\n',
    "src/cuda/threads/README.md": "# Room\n",
    "src/cuda/threads/warp.cuh": '#include <cuda_runtime.h>\n#include "core/views.h"\n',
    "src/soft_dtw/problem.h": '#include "warpalign/status.h"\nnamespace warpalign::detail::soft_dtw {\n}\n',
    "src/soft_dtw/api.cpp": '#include "soft_dtw/problem.h"\nnamespace warpalign {\nnamespace {\n}\n}\n',
    "src/soft_dtw/cpu_kernel.inl": '#include "cpu/simd.h"\nnamespace WARPALIGN_SIMD_NAMESPACE {\n}\n',
    "src/soft_dtw/reference.h": "namespace warpalign::detail::soft_dtw::reference {\n}\n",
    "src/cuda/launch/README.md": "# Launch\n\n`launch.cuh`",
    "src/cuda/launch/launch.cuh": "namespace warpalign::cuda {\n}\n",
    "src/soft_dtw/cpu.cpp": '#include <vector>\n#include "cpu/simd.h"\n#include "problem.h"\n',
    "src/soft_dtw/cuda/sweep/README.md": "# Sweep\n\nEntry point: `launch()` (`launch.cu`); `*.cuh`, `../tiles`.\n",
    "src/soft_dtw/cuda/sweep/launch.cu": '#include "cuda/threads/warp.cuh"\n#include "soft_dtw/problem.h"\nvoid launch();\n',
    "src/soft_dtw/cuda/sweep/cell.cuh": "",
    "src/soft_dtw/cuda/tiles/README.md": "# Room\n",
    "src/transducer/problem.h": '#include "core/views.h"\n',
    "bindings/torch/ops.cpp": '#include <torch/csrc/stable/library.h>\n#include "warpalign/status.h"\n',
}


def test_this_tree_keeps_the_direction() -> None:
    assert check_tree(ROOT) == []


def test_a_tree_in_order_is_accepted(tmp_path: Path) -> None:
    write_files(tmp_path, TREE)
    assert check_tree(tmp_path) == []


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("include/warpalign/bad.h", '#include "core/views.h"'),
        ("include/warpalign/bad.h", "#include <cuda_runtime.h>"),
        ("include/warpalign/bad.h", "__global__ void kernel();"),
        ("include/warpalign/bad.h", "#include <torch/torch.h>"),
        ("src/core/bad.h", '#include "cpu/simd.h"'),
        ("src/core/bad.h", "#include <Python.h>"),
        ("src/cpu/bad.h", '#include "soft_dtw/problem.h"'),
        ("src/cpu/bad.h", '#include "../cuda/threads/warp.cuh"'),
        ("src/cuda/threads/bad.cuh", '#include "cpu/simd.h"'),
        ("src/cuda/launch/bad.cu", "int n = attribute(cudaDevAttrComputeCapabilityMajor, 0);"),
        ("src/soft_dtw/bad.cu", "cudaDeviceProp found;"),
        ("src/cuda/launch/bad.cuh", "template <class T> void set(T& t) { t.needs = {.kept = true}; }"),
        ("src/soft_dtw/bad.cpp", '#include "cuda/threads/warp.cuh"'),
        ("src/soft_dtw/bad.cpp", '#include "transducer/problem.h"'),
        ("src/soft_dtw/bad.cpp", '#include "../transducer/problem.h"'),
        ("src/soft_dtw/bad.cu", "#include <ATen/ATen.h>"),
        ("src/soft_dtw/bad.cu", "  #  include <c10/cuda/CUDAStream.h>"),
        ("src/transducer/bad.h", '#include "bindings/torch/ops.cpp"'),
        ("bindings/torch/bad.cpp", '#include "soft_dtw/problem.h"'),
        ("bindings/operators/bad.cpp", "#include <torch/csrc/stable/tensor.h>"),
        ("bindings/operators/bad.cpp", "#include <xla/ffi/api/ffi.h>"),
        ("src/core/bad.h", "#include <xla/ffi/api/ffi.h>"),
        ("src/soft_dtw/bad.inl", '#include "transducer/problem.h"'),
        ("src/soft_dtw/bad.inl", "#include <cmath>"),
        ("src/soft_dtw/bad.h", "namespace warpalign::detail {"),
        ("src/soft_dtw/bad.h", "namespace warpalign {"),
        ("src/soft_dtw/bad.cpp", "namespace warpalign::detail::transducer {"),
        ("src/soft_dtw/bad.cuh", "namespace warpalign::cuda {"),
    ],
)
def test_a_planted_violation_is_seen(tmp_path: Path, file: str, line: str) -> None:
    write_files(tmp_path, TREE | {file: line + "\n"})
    violations = check_tree(tmp_path)
    assert violations
    assert all(violation.startswith(file) for violation in violations)


def test_comments_do_not_count(tmp_path: Path) -> None:
    write_files(
        tmp_path, TREE | {"include/warpalign/fine.h": "// __global__\n/* #include <torch/torch.h> */\n"}
    )
    assert check_tree(tmp_path) == []


@pytest.mark.parametrize(
    ("files", "violation"),
    [
        ({"loose.cu": ""}, "src/soft_dtw/cuda/loose.cu: belongs to a room, a folder of src/soft_dtw/cuda"),
        ({"../../cuda/loose.cuh": ""}, "src/cuda/loose.cuh: belongs to a room, a folder of src/cuda"),
        (
            {f"tiles/{k}.cuh": "" for k in range(16)},
            "src/soft_dtw/cuda/tiles: 16 sources, but a room has at most 15",
        ),
        ({"panel/a.cu": ""}, "src/soft_dtw/cuda/panel: has no README.md that says what happens there"),
        (
            {"tiles/README.md": "# Tiles\n\n`gone.cuh`"},
            "src/soft_dtw/cuda/tiles/README.md: names gone.cuh, which the room does not have",
        ),
        (
            {"tiles/README.md": "#Tiles\n"},
            "src/soft_dtw/cuda/tiles/README.md: has no title in its first line",
        ),
        (
            {"tiles/README.md": "# Tiles\n\n`run()`"},
            "src/soft_dtw/cuda/tiles/README.md: names run(), which the room does not have",
        ),
    ],
)
def test_a_room_that_is_not_in_order_is_seen(tmp_path: Path, files: dict[str, str], violation: str) -> None:
    write_files(tmp_path, TREE | {f"src/soft_dtw/cuda/{name}": text for name, text in files.items()})
    assert check_tree(tmp_path) == [violation]
