"""gre_decap under cocotb: at 256 bits; in the soak in all sizes."""

import pytest
from sim import run, sizes

SOURCES = [
    "net_pkg.sv",
    "gre_pkg.sv",
    "axis_window.sv",
    "axis_frame_end.sv",
    "axil_slave.sv",
    "event_counters.sv",
    "gre_regs.sv",
    "gre_parse.sv",
    "sum_tree.sv",
    "gre_sum.sv",
    "gre_shift.sv",
    "gre_match.sv",
    "gre_inner.sv",
    "gre_decide.sv",
    "gre_verdict.sv",
    "gre_decap.sv",
]


@pytest.mark.parametrize(
    ("parameters", "window"),
    sizes(
        pytest.param({"DATA_W": 256}, 64, id="256"),
        pytest.param({"DATA_W": 512}, 128, id="512"),
        pytest.param({"DATA_W": 256, "PIPELINED": 1}, 64, id="256-pipelined"),
        pytest.param({"DATA_W": 512, "PIPELINED": 1}, 128, id="512-pipelined"),
        pytest.param({"DATA_W": 256, "WINDOW_BEATS": 4, "PIPELINED": 1}, 128, id="256-deep"),
    ),
)
def test_gre_decap(monkeypatch: pytest.MonkeyPatch, parameters: dict[str, int], window: int) -> None:
    """All tests of the bench on one size."""
    monkeypatch.setenv("KAIDO_HDL_WINDOW", str(window))
    run("gre_decap", SOURCES, "gre_decap_bench", parameters)
