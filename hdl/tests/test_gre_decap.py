"""gre_decap in its sizes under cocotb."""

import pytest
from sim import run

SOURCES = [
    "net_pkg.sv",
    "gre_pkg.sv",
    "axis_window.sv",
    "axis_frame_end.sv",
    "axil_slave.sv",
    "event_counters.sv",
    "gre_regs.sv",
    "gre_parse.sv",
    "gre_sum.sv",
    "gre_match.sv",
    "gre_decide.sv",
    "gre_decap.sv",
]


@pytest.mark.parametrize(
    ("parameters", "window"),
    [
        ({"DATA_W": 256}, 64),
        ({"DATA_W": 512}, 128),
        ({"DATA_W": 256, "PIPELINED": 1}, 64),
        ({"DATA_W": 512, "PIPELINED": 1}, 128),
        ({"DATA_W": 256, "WINDOW_BEATS": 4, "PIPELINED": 1}, 128),
    ],
    ids=["256", "512", "256-pipelined", "512-pipelined", "256-deep"],
)
def test_gre_decap(monkeypatch: pytest.MonkeyPatch, parameters: dict[str, int], window: int) -> None:
    """All tests of the bench on one size."""
    monkeypatch.setenv("KAIDO_HDL_WINDOW", str(window))
    run("gre_decap", SOURCES, "gre_decap_bench", parameters)
