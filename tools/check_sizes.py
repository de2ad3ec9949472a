"""Holds files and functions to a size that is read in one go: what is longer gets parts with names of their own.

Files have at most 400 lines. Functions have at most 80 lines in C++ and CUDA, from the signature to the last brace, and
60 in Python, without signature and docstring. Sources are formatted: the brace of a function's body follows a space.

EXCEPTIONS names what is longer and may stay so for now. An entry that is no longer needed is a violation too.

Usage: check_sizes.py [ROOT]. Prints one line per violation; exit code 1 if there is any.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

FOLDERS = ("include", "src", "bindings", "python", "tools", "benchmarks", "examples")
CPP = {".h", ".inl", ".cpp", ".cuh", ".cu"}
MOST_LINES = 400  # of a file
MOST_CPP_LINES = 80  # of a function
MOST_PYTHON_LINES = 60

# Files, as `path`, and functions, as `path: name`.
EXCEPTIONS = frozenset(
    {
        "src/recurrent/cuda/blocks/block_backward.cuh: block_backward_kernel",
        "src/recurrent/cuda/blocks/block_forward.cuh: block_forward_kernel",
        "src/recurrent/cuda/clusters/cluster_backward.cuh: cluster_backward_kernel",
        "src/recurrent/cuda/clusters/cluster_forward.cuh: cluster_forward_kernel",
        "src/recurrent/cuda/grid/resident_forward.cuh: resident_forward_kernel",
        "src/recurrent/cuda/layer_norm/cluster_norm_backward.cuh: cluster_norm_backward_kernel",
        "src/recurrent/cuda/layer_norm/cluster_norm_forward.cuh: cluster_norm_forward_kernel",
        "src/recurrent/cuda/steps/tiled_steps.cuh: tiled_cell_kernel",
        "src/recurrent/cuda/steps/unit_step.cuh: unit_step_kernel",
        "src/transport/cuda/costs/dense.cuh: run_task",
    }
)

COMMENT_OR_LITERAL = re.compile(
    r"""//[^\n]*|/\*.*?\*/|R"\(.*?\)"|"(?:\\.|[^"\\\n])*"|(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])'""", re.DOTALL
)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
SCOPE = re.compile(
    r"^\s*(?:template\s*<.*>\s*)?(?:inline\s+)?(?:namespace|extern|struct|class|union|enum)\b", re.DOTALL
)
NAME = re.compile(r"([\w~]+)\s*\(")
ATTRIBUTE = re.compile(
    r"\b(?:__launch_bounds__|__attribute__|__align__|alignas|requires|decltype)\s*\(\(?[^()]*\)?\)"
)


def blanked(match: re.Match[str]) -> str:
    """The same number of lines, with nothing on them."""
    return "\n" * match.group().count("\n")


def cpp_functions(text: str) -> Iterator[tuple[str, int, int]]:
    """Name, first line and number of lines of every function. A function's own lambdas and classes are parts of it."""
    code = DIRECTIVE.sub(blanked, COMMENT_OR_LITERAL.sub(blanked, text))
    scopes: list[tuple[str | None, int]] = []  # of every open brace: the function's name, and where it begins
    begin = 0  # of the declaration
    for brace in re.finditer(r"[{};]", code):
        at, kind = brace.start(), brace.group()
        is_in_function = any(name is not None for name, _ in scopes)
        if kind == "{":
            declaration = code[begin:at]
            name = None
            if not is_in_function and not SCOPE.match(declaration) and code[at - 1].isspace():
                found = NAME.search(ATTRIBUTE.sub("", declaration))
                name = found.group(1) if found and "=" not in declaration[: found.start()] else None
            scopes.append((name, begin + len(declaration) - len(declaration.lstrip())))
            if not is_in_function and (name is not None or code[at - 1].isspace()):
                begin = at + 1
        elif kind == "}":
            name, start = scopes.pop() if scopes else (None, 0)
            if name is not None:
                yield name, code.count("\n", 0, start) + 1, code.count("\n", start, at) + 1
            if code[at + 1 : at + 2] not in {",", ")"}:
                begin = at + 1
        elif not is_in_function:
            begin = at + 1


def python_functions(text: str) -> Iterator[tuple[str, int, int]]:
    """Name, first line and number of lines of every function's body, docstrings left out."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            if body:
                yield node.name, node.lineno, (body[-1].end_lineno or 0) - body[0].lineno + 1


def check_file(file: Path, text: str) -> Iterator[tuple[str, str]]:
    """What EXCEPTIONS would name, and the violation."""
    lines = text.count("\n")
    if lines > MOST_LINES:
        yield f"{file}", f"{file}: {lines} lines, but a file has at most {MOST_LINES}"
    is_python = file.suffix == ".py"
    most = MOST_PYTHON_LINES if is_python else MOST_CPP_LINES
    for name, line, count in (python_functions if is_python else cpp_functions)(text):
        if count > most:
            yield (
                f"{file}: {name}",
                f"{file}:{line}: {name} has {count} lines, but a function has at most {most}",
            )


def check_tree(root: Path, exceptions: frozenset[str] = EXCEPTIONS) -> list[str]:
    violations, unused = [], set(exceptions)
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in CPP | {".py"} or not path.is_file():
                continue
            for key, violation in check_file(path.relative_to(root), path.read_text()):
                if key in exceptions:
                    unused.discard(key)
                else:
                    violations.append(violation)
    return violations + [f"tools/check_sizes.py: {key} is no longer too long" for key in sorted(unused)]


def main(arguments: list[str]) -> int:
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent
    violations = check_tree(root)
    print("\n".join(violations) if violations else "sizes: files and functions are short enough")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
