"""axis_frame_fifo in two sizes under cocotb."""

import pytest
from sim import run


@pytest.mark.parametrize("beats_w", [2, 4])
def test_axis_frame_fifo(monkeypatch: pytest.MonkeyPatch, beats_w: int) -> None:
    """All tests of the bench; memory gives no defined word where a read meets a write."""
    monkeypatch.setenv("KAIDO_HDL_BEATS_W", str(beats_w))
    run(
        "axis_frame_fifo",
        ["em_ram_sdp.sv", "axis_frame_fifo.sv"],
        "axis_frame_fifo_bench",
        {"BEATS_W": beats_w},
        build_args=["+define+EM_COLLIDE"],
    )
