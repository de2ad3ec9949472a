"""A library exports the functions that Python calls by name, and nothing else.

The libraries of both front ends may be loaded in one process, each with kernels and a CUDA runtime of its own. A variable that
both export is one variable there, that of the library that came first, if g++ has made it unique (STB_GNU_UNIQUE) or the loader
resolves names across libraries: a table of kernels then holds kernels that the other library's runtime does not know.
"""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

import warpalign

LIBRARIES = sorted((Path(warpalign.__file__).parent / "lib").glob("libwarpalign_*.so"))
DYNAMIC_SYMBOLS = 11  # SHT_DYNSYM
VARIABLE, FUNCTION = 1, 2  # STT_OBJECT, STT_FUNC
GLOBAL, UNIQUE = 1, 10  # STB_GLOBAL, STB_GNU_UNIQUE


def exported(library: Path) -> dict[str, tuple[int, int]]:
    """Names that other libraries can see, from the dynamic symbol table of a 64-bit little-endian ELF file: (binding, type)."""
    image = library.read_bytes()
    assert image[:6] == b"\x7fELF\x02\x01", library
    (at,) = struct.unpack_from("<Q", image, 40)
    size, count = struct.unpack_from("<HH", image, 58)
    # Of each section: type, offset, bytes, and the section of its strings.
    sections = [struct.unpack_from("<4xI16xQQI", image, at + size * k) for k in range(count)]
    found = {}
    for kind, begin, length, strings in sections:
        if kind != DYNAMIC_SYMBOLS:
            continue
        for place in range(begin, begin + length, 24):
            name, info, _, section = struct.unpack_from("<IBBH", image, place)
            if section:  # else it is needed from another library
                start = sections[strings][1] + name
                found[image[start : image.index(b"\0", start)].decode()] = info >> 4, info & 15
    return found


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda path: path.stem)
def test_a_library_exports_its_entry_points_alone(library: Path) -> None:
    symbols = exported(library)
    assert "warpalign_way" in symbols
    assert {name for name in symbols if not name.startswith("warpalign_")} == set()
    assert set(symbols.values()) == {(GLOBAL, FUNCTION)}, "no variable is shared between libraries"


def test_the_libraries_are_found() -> None:
    assert "libwarpalign_torch_cpu" in [path.stem for path in LIBRARIES]


def test_shared_variables_are_seen_in_a_library_that_has_them() -> None:
    """The C++ standard library's, which every library of ours has loaded."""
    loaded = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()}
    (library,) = (name for name in loaded if Path(name).name.startswith("libstdc++.so"))
    symbols = exported(Path(library))
    assert symbols["_ZSt4cout"] == (GLOBAL, VARIABLE)
    assert UNIQUE in {binding for binding, _ in symbols.values()}
