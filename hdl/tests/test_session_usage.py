"""session_usage in two sizes under cocotb."""

import pytest
from sim import run


@pytest.mark.parametrize(("id_w", "tick"), [(4, 5), (6, 3)])
def test_session_usage(id_w: int, tick: int) -> None:
    """All tests of the bench; memory holds anything at first, and where a read meets a write."""
    run(
        "session_usage",
        ["axil_slave.sv", "em_ram_sdp.sv", "em_counters.sv", "session_usage.sv"],
        "session_usage_bench",
        {"ID_W": id_w, "TICK_CLOCKS": tick},
        build_args=["+define+EM_COLLIDE", "--x-initial", "unique"],
        environment={"KAIDO_HDL_ID_W": str(id_w), "KAIDO_HDL_TICK": str(tick)},
        plusargs=["+verilator+rand+reset+2", "+verilator+seed+7"],
    )
