"""axis_merge of two sources and of three, under cocotb."""

import pytest
from sim import run


@pytest.mark.parametrize("sources", [2, 3])
def test_axis_merge(monkeypatch: pytest.MonkeyPatch, sources: int) -> None:
    """All tests of the bench on one form."""
    monkeypatch.setenv("KAIDO_HDL_SOURCES", str(sources))
    run("axis_merge", ["axis_merge.sv"], "axis_merge_bench", {"SOURCES": sources})
