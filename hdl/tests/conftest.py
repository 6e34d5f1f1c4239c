"""The order of the tests."""

import pytest

#: Those that take longest begin first, so that two workers end at about the same time.
FIRST = ["test_upf_top", "test_em_table", "test_gtpu"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the longest first; the others stay in their order."""
    items.sort(key=lambda item: FIRST.index(item.path.stem) if item.path.stem in FIRST else len(FIRST))
