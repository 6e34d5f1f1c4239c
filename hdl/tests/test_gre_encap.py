"""gre_encap under cocotb: at 256 bits with little memory; in the soak in all sizes."""

import pytest
from sim import run, sizes

SOURCES = [
    "net_pkg.sv",
    "ip_pkg.sv",
    "gre_tunnel_pkg.sv",
    "axis_window.sv",
    "axis_words.sv",
    "axil_slave.sv",
    "event_counters.sv",
    "em_ram_sdp.sv",
    "axis_frame_fifo.sv",
    "sum_tree.sv",
    "gre_sum.sv",
    "gre_tunnels.sv",
    "gre_encap.sv",
]


@pytest.mark.parametrize(
    ("parameters", "room"),
    sizes(
        # Three frames fill the memory: the input waits.
        pytest.param({"DATA_W": 256, "BEATS_W": 6}, 2048, id="256-short"),
        pytest.param({"DATA_W": 256}, 16384, id="256"),
        pytest.param({"DATA_W": 512}, 32768, id="512"),
    ),
)
def test_gre_encap(monkeypatch: pytest.MonkeyPatch, parameters: dict[str, int], room: int) -> None:
    """All tests of the bench on one size."""
    monkeypatch.setenv("KAIDO_HDL_ROOM", str(room))
    run("gre_encap", SOURCES, "gre_encap_bench", parameters)
