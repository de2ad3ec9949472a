"""Which tests share a process where pytest-xdist has several."""

from __future__ import annotations

from typing import Any

import pytest

# The tests of each of these files share something that takes a minute to make: the wheel, or what Numba compiles. One
# process runs a whole group, so that it is made once.
# The mark xdist_group does not do: with pytest 9.2 it is lost on the way through pytest-xdist 3.8.
GROUPS = {
    "test_install.py": "wheel",
    "test_compat_pysdtw.py": "numba",
    "test_compat_softdtw_cuda.py": "numba",
    "test_compat_tslearn.py": "numba",
    "test_compat_tslearn_dtw.py": "numba",
    "test_fuzz_compat.py": "numba",
    "test_training_impact.py": "numba",
}


@pytest.hookimpl(optionalhook=True)  # also without pytest-xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    if config.getvalue("dist") != "load":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0].rpartition("/")[2]
            # A function with all its parameters: the scheduler looks at all groups whenever a test ends.
            return GROUPS.get(file, nodeid.partition("[")[0])

    return Groups(config, log)
