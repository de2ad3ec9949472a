"""Files and functions are short enough to be read in one go, and the check that says so measures them right."""

from __future__ import annotations

from pathlib import Path

import pytest

from check_sizes import check_tree, cpp_functions, python_functions
from tests.python.helpers import write_files

ROOT = Path(__file__).resolve().parents[3]

CPP = """// void commented() {
#define MACRO(x) \\
  void never() {  \\
  }
namespace a::b {

struct Pair {
  explicit Pair(int n) : n_{n}, m_(n) {
    if (n > 0) {
      m_ = [&] { return '{'; }();
    }
  }
  [[nodiscard]] int sum() const { return n_ + m_; }
  int operator()(int k) const { return k; }
  int n_{0}, m_ = 1;
};

const char* const kText = "void quoted() {";
constexpr int kTable[2] = {1, 2};

template <class T>
__global__ void __launch_bounds__(kThreads, 1)
    kernel(Params<T> p) {
  struct Local {
    void inner() {}
  };
  while (p.next()) {
  }
}

}  // namespace a::b
"""

PYTHON = '''def short(a: int) -> int:
    """One line."""
    return a


def long(
    a: int,
) -> int:
    """Some
    lines.
    """
    b = a
    return b
'''


def test_this_tree_is_short_enough() -> None:
    assert check_tree(ROOT) == []


def test_functions_of_cpp_are_found_with_their_lines() -> None:
    assert list(cpp_functions(CPP)) == [
        ("Pair", 8, 5),
        ("sum", 13, 1),
        ("operator", 14, 1),
        ("kernel", 21, 9),
    ]


def test_bodies_of_python_functions_are_counted_without_docstrings() -> None:
    assert list(python_functions(PYTHON)) == [("short", 1, 1), ("long", 6, 2)]


@pytest.mark.parametrize(
    ("file", "text", "violation"),
    [
        ("src/core/a.h", "\n" * 401, "src/core/a.h: 401 lines, but a file has at most 400"),
        (
            "src/core/a.cpp",
            "\nvoid f() {\n" + "  g();\n" * 79 + "}\n",
            "src/core/a.cpp:2: f has 81 lines, but a function has at most 80",
        ),
        (
            "tools/a.py",
            "def f():\n" + "    g()\n" * 61,
            "tools/a.py:1: f has 61 lines, but a function has at most 60",
        ),
    ],
)
def test_what_is_too_long_is_seen(tmp_path: Path, file: str, text: str, violation: str) -> None:
    write_files(tmp_path, {file: text})
    assert check_tree(tmp_path, frozenset()) == [violation]


def test_an_exception_that_nothing_needs_is_seen(tmp_path: Path) -> None:
    write_files(tmp_path, {"src/core/a.h": "\n" * 401, "src/core/b.h": "\n"})
    assert check_tree(tmp_path, frozenset({"src/core/a.h", "src/core/b.h"})) == [
        "tools/check_sizes.py: src/core/b.h is no longer too long"
    ]


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("src/core/a.h", "\n" * 400),
        ("src/core/a.cpp", "void f() {\n" + "  g();\n" * 78 + "}\n"),
        ("tools/a.py", "def f():\n" + "    g()\n" * 60),
    ],
)
def test_the_limits_themselves_are_allowed(tmp_path: Path, file: str, text: str) -> None:
    write_files(tmp_path, {file: text})
    assert check_tree(tmp_path, frozenset()) == []
