"""Which tests one process of `pytest -n` runs together: those that share a server, so that each server starts once."""

import pytest
from xdist.scheduler import LoadScopeScheduling


class _ByFolder(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        """Unit tests stay with their file, all others with their folder."""
        path = nodeid.split("::", 1)[0]
        return path if path.startswith("tests/unit/") else path.rpartition("/")[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadScopeScheduling | None:
    """For `--dist loadscope`."""
    return _ByFolder(config, log) if config.getvalue("dist") == "loadscope" else None  # type: ignore[arg-type]
