"""Which tests one process of `pytest -n` runs together: those that share a server, so that each server starts once."""

from pathlib import Path

import pytest

_HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Unit tests stay with their file, all others with their folder. Needs `--dist loadgroup` to count."""
    for item in items:
        place = item.path.relative_to(_HERE)
        group = place.with_suffix("") if place.parts[0] == "unit" else place.parent
        item.add_marker(pytest.mark.xdist_group("-".join(group.parts)))
