"""gtpu_decap and gtpu_encap under cocotb: at 256 bits; in the soak in both widths."""

import pytest
from sim import run, sizes

PACKAGES = ["net_pkg.sv", "ip_pkg.sv", "gtpu_pkg.sv"]
STREAMS = [
    "axis_window.sv",
    "axis_frame_end.sv",
    "axis_words.sv",
    "axil_slave.sv",
    "axil_split.sv",
    "event_counters.sv",
]
TABLE = [
    "em_pkg.sv",
    "em_ram.sv",
    "em_ram_sdp.sv",
    "em_hash.sv",
    "em_counters.sv",
    "em_lookup.sv",
    "em_engine.sv",
    "em_core.sv",
    "em_arbiter.sv",
    "em_axil.sv",
    "em_table.sv",
]


@pytest.mark.parametrize("width", sizes(256, 512))
@pytest.mark.parametrize("core", ["gtpu_decap", "gtpu_encap"])
def test_gtpu(core: str, width: int) -> None:
    """All tests of the bench on a core; reads of RAM that meet a write give no defined word."""
    sources = [*PACKAGES, *STREAMS, *TABLE, "gtpu_regs.sv", "gtpu_lookup.sv", f"{core}.sv"]
    run(
        core,
        sources,
        "gtpu_bench",
        {"DATA_W": width},
        build_args=["+define+EM_COLLIDE"],
        environment={"KAIDO_HDL_CORE": core},
    )
