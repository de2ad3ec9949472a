"""Checks the layers of docs/developer/architecture.md in the C++ and CUDA sources: #include lines and namespaces.

    include <- src/core <- src/{cpu,cuda} <- src/<operator> <- bindings/operators <- bindings/{torch,jax} <- python

An operator's names are in warpalign::detail::<operator>, or in the macro's namespace per instruction set. Code that is
compiled once per instruction set (.inl) includes no system header: the linker would merge the inline functions of two
copies, and might keep the one that the processor cannot run.

CUDA code is in rooms, src/<operator>/cuda/<room>/ and src/cuda/<room>/: at most 15 sources each, and a README.md that
says in a few lines what happens there. The files and functions that it names exist in the room.

Usage: check_layers.py [ROOT]. Prints one line per violation; exit code 1 if there is any.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)
SUFFIXES = {".h", ".inl", ".cpp", ".cuh", ".cu"}

# Headers of the frameworks, which only the folders of front ends may see: bindings/torch and bindings/jax.
FRAMEWORK = re.compile(r"^(torch|ATen|c10|caffe2|pybind11|nanobind|xla)/|^Python\.h$")
SHARED_BINDINGS = ("bindings", "operators")
# CUDA: headers that a public, host-only header must not need, and syntax that only nvcc understands.
CUDA_HEADER = re.compile(r"^(cuda|cublas|cub/|thrust/|cooperative_groups|curand|device_launch|mma\.h)|\.cuh$")
CUDA_SYNTAX = re.compile(r"\b(__global__|__device__|__host__|__shared__|__forceinline__|cudaStream_t)\b|<<<")
NAMESPACE = re.compile(r"^\s*namespace\s+([A-Za-z_][\w:]*)\s*\{", re.MULTILINE)
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)

# What a device can do is asked once: cuda::DeviceTraits is what everything else looks at.
CAPABILITY = re.compile(r"\b(cudaDevAttrComputeCapability\w*|cudaGetDeviceProperties\w*|cudaDeviceProp)\b")
TRAITS = Path("src/cuda/launch/traits.cu")

# nvcc 13.0 takes the members of such a list by their order, not by their names, where the left side depends on a
# template's parameter: `this->needs = {.kept = true}` sets the first member.
UNTYPED_LIST = re.compile(r"[\w\])]\s*=\s*\{\s*\.\w+\s*=")

MOST_SOURCES = 15  # of a room
NAMED = re.compile(r"`([\w./*]+(?:\(\))?)`")  # files and functions that a room's page names

# What the shared layers of src/ may include besides include/warpalign; the other folders are operators.
SHARED_LAYERS = {"core": {"core"}, "cpu": {"core", "cpu"}, "cuda": {"core", "cuda"}}


def layer_of(path: Path) -> str:
    """`include`, `bindings`, or the folder below src/; `src` for a file directly in it."""
    if path.parts[0] != "src":
        return path.parts[0]
    return path.parts[1] if len(path.parts) > 2 else "src"


def included_layer(root: Path, file: Path, name: str) -> str | None:
    """The layer of an included file of this project; None for the system's headers."""
    if name.startswith("warpalign/"):
        return "include"
    for base in (root / file.parent, root / "src", root):
        target = (base / name).resolve()
        if target.is_file() and target.is_relative_to(root.resolve()):
            return layer_of(target.relative_to(root.resolve()))
    return None


def allowed_layers(layer: str) -> set[str]:
    if layer == "include":
        return {"include"}
    if layer == "bindings":
        return {"include", "bindings"}
    return {"include"} | SHARED_LAYERS.get(layer, {"core", "cpu", "cuda", layer})


def check_namespaces(file: Path, layer: str, text: str) -> Iterator[str]:
    """An operator's file opens its own namespaces only; api*.cpp also the public one, whose functions it defines."""
    if file.parts[0] != "src" or layer in {*SHARED_LAYERS, "src"}:
        return
    own = f"warpalign::detail::{layer}"
    for name in NAMESPACE.findall(text):
        is_own = name == own or name.startswith(own + "::")
        is_public = name == "warpalign" and re.fullmatch(r"api.*\.cpp", file.name)
        if not (is_own or is_public or name == "WARPALIGN_SIMD_NAMESPACE"):
            yield f"{file}: opens namespace {name}, but this operator's names belong to {own}"


def check_file(root: Path, file: Path) -> Iterator[str]:
    layer = layer_of(file)
    text = COMMENT.sub("", (root / file).read_text())
    for name in INCLUDE.findall(text):
        if (layer != "bindings" or file.parts[:2] == SHARED_BINDINGS) and FRAMEWORK.search(name):
            yield f"{file}: includes {name}, but only a front end's own folder may include a framework"
        if file.suffix == ".cpp" and name.endswith(".cuh"):
            yield f"{file}: a .cpp includes {name}, device code"
        if file.suffix == ".inl" and f"<{name}>" in text:
            yield f"{file}: includes <{name}>, but is compiled once per instruction set"
        if layer == "include" and CUDA_HEADER.search(name):
            yield f"{file}: a public header includes {name}, but public headers are host-only"
        target = included_layer(root, file, name)
        if target is not None and target not in allowed_layers(layer):
            yield f"{file}: includes {name} of layer `{target}`, which `{layer}` must not know"
    if file != TRAITS and (asked := CAPABILITY.search(text)):
        yield f"{file}: asks for {asked.group()}, but cuda::traits_of() alone looks at a device's capability"
    if file.suffix in {".cu", ".cuh"} and (untyped := UNTYPED_LIST.search(text)):
        yield f"{file}: write the type before the members of `{untyped.group()}`: nvcc takes them by their order"
    yield from check_namespaces(file, layer, text)
    if layer == "include" and (syntax := CUDA_SYNTAX.search(text)):
        yield f"{file}: a public header uses CUDA syntax: {syntax.group()}"


def check_room(root: Path, room: Path) -> Iterator[str]:
    """A folder of CUDA code: few sources, and a page about them that is true."""
    sources = sorted(path for path in room.iterdir() if path.suffix in SUFFIXES)
    folder, page = room.relative_to(root), room / "README.md"
    if len(sources) > MOST_SOURCES:
        yield f"{folder}: {len(sources)} sources, but a room has at most {MOST_SOURCES}"
    if not page.is_file():
        yield f"{folder}: has no README.md that says what happens there"
        return
    text = "\n".join(source.read_text() for source in sources)
    if not page.read_text().startswith("# "):
        yield f"{folder}/README.md: has no title in its first line"
    for name in NAMED.findall(page.read_text()):
        known = any(fnmatch(source.name, name) for source in sources) or name.removesuffix("()") in text
        if not (known or (room / name).exists()):
            yield f"{folder}/README.md: names {name}, which the room does not have"


def check_rooms(root: Path) -> Iterator[str]:
    for cuda in [root / "src" / "cuda", *sorted((root / "src").glob("*/cuda"))]:
        yield from (
            f"{path.relative_to(root)}: belongs to a room, a folder of {cuda.relative_to(root)}"
            for path in sorted(cuda.iterdir())
            if path.suffix in SUFFIXES
        )
        for room in sorted(path for path in cuda.iterdir() if path.is_dir()):
            yield from check_room(root, room)


def check_tree(root: Path) -> list[str]:
    """Every violation below include/, src/ and bindings/."""
    files = [
        path.relative_to(root)
        for folder in ("include", "src", "bindings")
        for path in sorted((root / folder).rglob("*"))
        if path.suffix in SUFFIXES
    ]
    return [violation for file in files for violation in check_file(root, file)] + list(check_rooms(root))


def main(arguments: list[str]) -> int:
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent
    violations = check_tree(root)
    print("\n".join(violations) if violations else "layers: #includes and namespaces are in order")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
