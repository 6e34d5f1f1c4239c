"""upf_top under cocotb: one port, which has all parts, at 256 bits; the soak has two ports and 512 too."""

import pytest
from sim import run, sizes
from test_gtpu import PACKAGES, STREAMS, TABLE

PARTS = [
    "gtpu_regs.sv",
    "gtpu_lookup.sv",
    "gtpu_decap.sv",
    "gtpu_encap.sv",
    "session_usage.sv",
    "axis_skid.sv",
    "axis_merge.sv",
    "axis_frame_fifo.sv",
    "upf_steer.sv",
    "upf_regs.sv",
    "upf_top.sv",
]
#: Clocks of a tick.
TICK = 8
#: log2 of the beats of a buffer of the host's, by width: few, so that it is full often.
HOST_BEATS = {256: 6, 512: 5}


@pytest.mark.parametrize(("ports", "width"), sizes((1, 256), (2, 256), (1, 512), (2, 512)))
def test_upf_top(ports: int, width: int) -> None:
    """All tests of the bench; memory holds anything at first, and where a read meets a write."""
    run(
        "upf_top",
        [*PACKAGES, *STREAMS, *TABLE, *PARTS],
        "upf_top_bench",
        {"DATA_W": width, "ONE_PORT": 2 - ports, "HOST_BEATS_W": HOST_BEATS[width], "TICK_CLOCKS": TICK},
        build_args=["+define+EM_COLLIDE", "--x-initial", "unique"],
        environment={
            "KAIDO_HDL_PORTS": str(ports),
            "KAIDO_HDL_TICK": str(TICK),
            "KAIDO_HDL_HOST_BEATS": str(HOST_BEATS[width]),
        },
        plusargs=["+verilator+rand+reset+2", "+verilator+seed+7"],
    )
