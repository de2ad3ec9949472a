"""Checks what the package's modules import.

    _core  <-  _<operator>  <-  public modules

_core imports nothing else of the package, and an operator's package imports _core and itself alone. What torch does not
document (torch._anything) is in _core/torch_internals.py alone.

Usage: check_python_layers.py [ROOT]. Prints one line per violation; exit code 1 if there is any.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path("python/warpalign")
INTERNALS = PACKAGE / "_core" / "torch_internals.py"


def imports(tree: ast.AST) -> Iterator[tuple[int, str, str]]:
    """(line, what is imported with its module's name, the name it gets) of every import."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield node.lineno, name.name, name.asname or name.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom):
            for name in node.names:
                module = "." * node.level + (node.module or "")
                yield node.lineno, f"{module}.{name.name}", name.asname or name.name


def dotted(node: ast.AST) -> list[str]:
    """["torch", "_C", "name"] of torch._C.name; empty where it does not begin with a name."""
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute) and (before := dotted(node.value)):
        return [*before, node.attr]
    return []


def is_private(parts: list[str]) -> bool:
    return any(part.startswith("_") and not part.startswith("__") for part in parts)


def upward_imports(file: Path, tree: ast.AST) -> Iterator[str]:
    """Imports of the package that the file's layer must not know."""
    layer, *inside = file.relative_to(PACKAGE).parts
    if not (inside and layer.startswith("_")):
        return  # a public module, or one that serves several of them
    for line, name, _ in imports(tree):
        parts = name.split(".")
        if parts[0] == "":
            yield f"{file}:{line}: imports {name}, but imports name the whole path"
        if parts[0] == "warpalign" and (len(parts) < 2 or parts[1] not in ("_core", layer)):
            yield f"{file}:{line}: imports {name}, which `{layer}` must not know"


def private_torch(file: Path, tree: ast.AST) -> Iterator[str]:
    """Uses of torch outside its documented API."""
    bound = {}
    for line, name, alias in imports(tree):
        parts = name.split(".")
        if parts[0] != "torch":
            continue
        if is_private(parts):
            yield f"{file}:{line}: imports {name}, which torch does not document: it belongs to {INTERNALS}"
        bound[alias] = alias if name.partition(".")[0] == alias else name
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute):
            continue
        parts = dotted(node)
        if parts and parts[0] in bound and is_private(parts[-1:]):
            name = ".".join([bound[parts[0]], *parts[1:]])
            yield f"{file}:{node.lineno}: uses {name}, which torch does not document: it belongs to {INTERNALS}"


def check_tree(root: Path) -> list[str]:
    found: list[str] = []
    for path in sorted((root / PACKAGE).rglob("*.py")):
        file = path.relative_to(root)
        tree = ast.parse(path.read_text())
        found += upward_imports(file, tree)
        if file != INTERNALS:
            found += private_torch(file, tree)
    return found


def main(arguments: list[str]) -> int:
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent
    violations = check_tree(root)
    print("\n".join(violations) if violations else "layers: every import points downwards")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
