"""What `import warpalign` brings, and what it leaves until it is named."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import warpalign
from tests.python.helpers import in_a_new_process, run_python
from warpalign import compat

ROOT = Path(__file__).resolve().parents[3]


def test_the_compiler_is_not_imported() -> None:
    """torch._dynamo takes 1.3 s to import, and nothing but torch.compile needs it; calls do without it too."""
    code = """
import sys, torch, warpalign
x = torch.randn(3, 8, 2, requires_grad=True)
warpalign.soft_dtw(x, x).sum().backward()
x = x.detach()
warpalign.cdist_soft_dtw(x), warpalign.dtw_path(x, x), warpalign.soft_dtw_barycenter(x, max_iter=1)
print([name for name in ("torch._dynamo", "sympy", "sklearn", "matplotlib") if name in sys.modules])
"""
    assert in_a_new_process(code) == "[]\n"


def test_importing_loads_nothing_beyond_torch_but_itself() -> None:
    """Every module that torch has not loaded already costs each process its time; the package's optional parts wait."""
    code = """
import sys, torch
before = set(sys.modules)
import warpalign
print(sorted(name for name in set(sys.modules) - before if name.partition(".")[0] != "warpalign"))
left = ("cli", "compat", "estimators", "io", "jax", "metrics", "plot")
print([name for name in left if f"warpalign.{name}" in sys.modules])
"""
    assert in_a_new_process(code) == "[]\n[]\n"


def test_gradients_of_tables_do_not_import_sympy() -> None:
    """torch imports it (2.5 to 7 s) for every gradient that is given to autograd as a tensor, so ours are sums of products."""
    code = """
import sys, torch, warpalign
x, y = torch.randn(4, 8, 2, requires_grad=True), torch.randn(3, 9, 2, requires_grad=True)
warpalign.cdist_soft_dtw(x, y).sum().backward()
x = x.detach()
for options in ({}, {"method": "adam"}, {"method": "dba"}, {"normalize": True}, {"groups": [0, 1, 0, 1]}):
    warpalign.soft_dtw_barycenter(x, max_iter=2, **options)
print([name for name in ("torch._dynamo", "sympy") if name in sys.modules])
"""
    assert in_a_new_process(code) == "[]\n"


def test_modules_load_when_they_are_named() -> None:
    code = """
import warpalign
print(warpalign.io.__name__, warpalign.compat.tslearn.soft_dtw.__name__, warpalign.compat.pysdtw.SoftDTW.__name__)
"""
    assert in_a_new_process(code) == "warpalign.io soft_dtw SoftDTW\n"
    pytest.importorskip("sklearn")
    assert warpalign.SoftDTWKMeans is warpalign.estimators.SoftDTWKMeans


def test_importing_takes_little_beyond_torch(tmp_path: Path) -> None:
    """Compared with torch's own import, so that slow and busy machines measure the same: 0.09 s beside 1.8 s on one core.

    Compiled files are kept, as in an installed package; the first process writes them.
    """
    code = """
import time
begin = time.process_time()
import torch
middle = time.process_time()
import warpalign
print((time.process_time() - middle) / (middle - begin))
"""
    kept = {"PYTHONPYCACHEPREFIX": str(tmp_path), "PYTHONDONTWRITEBYTECODE": ""}
    ratios = [float(run_python("-c", code, **kept).stdout) for _ in range(4)]
    assert min(ratios) < 0.1, ratios


OPERATORS = ("ctc", "decoding", "timeseries", "transducer", "transport", "recurrent")


@pytest.mark.parametrize("module", [*OPERATORS, "estimators"])
def test_a_public_name_is_in_its_module_at_the_root_and_in_the_reference(module: str) -> None:
    """One rule for every name, so that a reader who knows one module knows all."""
    if module == "estimators":
        pytest.importorskip("sklearn")
    public = importlib.import_module(f"warpalign.{module}")
    pages = "\n".join(page.read_text() for page in (ROOT / "docs" / "reference").glob("*.md"))
    described = set(re.findall(r"^::: (warpalign(?:\.\w+)+)$", pages, re.MULTILINE))
    for name in public.__all__:
        assert getattr(warpalign, name) is getattr(public, name)
        assert name in dir(warpalign)
        assert {f"warpalign.{name}", f"warpalign.{module}.{name}"} & described, name
        assert module == "estimators" or name in warpalign.__all__


def test_nothing_else_is_public() -> None:
    """The modules of the package without a leading underscore are these alone, and what they define is in their __all__."""
    found = {name for _, name, _ in pkgutil.iter_modules(warpalign.__path__) if not name.startswith("_")}
    assert found == {*OPERATORS, "estimators", "cli", "compat", "io", "jax", "metrics", "plot"}
    names = [name for module in OPERATORS for name in importlib.import_module(f"warpalign.{module}").__all__]
    assert sorted(names) == sorted(set(warpalign.__all__) - {"__version__"}), "a name belongs to one operator"


def test_dir_has_public_names_alone() -> None:
    names = dir(warpalign)
    assert set(warpalign.__all__) <= set(names)
    assert [name for name in names if name.startswith("_")] == ["__version__"]
    assert not {"Any", "TYPE_CHECKING", "import_module"} & set(names)
    for name in names:
        assert getattr(warpalign, name) is not None
    assert dir(compat) == compat.__all__


@pytest.mark.parametrize("module", [warpalign, compat])
def test_an_unknown_name(module: object) -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        module.nothing  # noqa: B018
