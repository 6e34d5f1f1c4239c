"""axis_skid with and without a register at its output, under cocotb."""

import pytest
from sim import run


@pytest.mark.parametrize("register", [0, 1])
def test_axis_skid(monkeypatch: pytest.MonkeyPatch, register: int) -> None:
    """All tests of the bench on one form."""
    monkeypatch.setenv("KAIDO_HDL_SKID_CLOCKS", str(register))
    run("axis_skid", ["axis_skid.sv"], "axis_skid_bench", {"OUTPUT_REGISTER": register})
