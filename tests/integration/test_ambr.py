"""TCP under an AMBR. `python -m rig.ambr` measures more rates, round-trip times and congestion controls."""

from __future__ import annotations

from pathlib import Path

import pytest
from rig.ambr import MTU, WINDOW_S, Cell, Rig

pytestmark = pytest.mark.needs("root", "ip", "ethtool", "ping", "iperf3")

#: `qos.burst_ms` by default, and one below TCP's retransmission timeout: the tokens of the time in which a
#: flow waits for the timeout are lost.
BURST_MS, SHORT_MS = 300, 10

#: Cells that get a tenth to a fifth of their rate with the short burst.
CELLS = (
    Cell(1, 2, "cubic", 1, up=True, before_s=2, counted_s=5),
    Cell(1, 2, "cubic", 1, up=False, before_s=2, counted_s=5),
    Cell(1, 2, "reno", 1, up=False, before_s=2, counted_s=5),
)


@pytest.fixture
def ran(binary: Path) -> Path:
    """The gNB with delays."""
    path = binary.parent / "examples" / "delayed_ran"
    if not path.exists():
        pytest.skip(f"{path} is not built: cargo build --package kaido-engine --example delayed_ran")
    return path


def test_tcp_gets_its_rate_and_no_more(binary: Path, ran: Path, tmp_path: Path) -> None:
    """By default TCP gets what the AMBR allows; in no window does more than the rate and the burst pass.

    Conformance: TS 23.501 5.7.1.8 | In no window does more than session AMBR and burst pass
    """
    for result in Rig(binary, ran, tmp_path).measure(CELLS):
        # An idle machine gives the whole rate; a busy one may give less.
        assert result.share > 0.5, result
        packet_ms = MTU * 8 / (result.cell.mbps * 1000)
        assert result.excess_ms <= BURST_MS + packet_ms, f"in {WINDOW_S} s: {result}"


def test_a_short_averaging_window_is_kept(binary: Path, ran: Path, tmp_path: Path) -> None:
    """A QER's own Averaging Window counts, though TCP gets little then.

    Conformance: TS 29.244 8.2.115 | The Averaging Window of a QER bounds its bursts, whatever the node's are
    """
    cells = [Cell(cell.mbps, 100, cell.control, 10, cell.up, SHORT_MS, 2, 3) for cell in CELLS]
    for result in Rig(binary, ran, tmp_path).measure(cells):
        packet_ms = MTU * 8 / (result.cell.mbps * 1000)
        assert result.excess_ms <= SHORT_MS + packet_ms, f"in {WINDOW_S} s: {result}"
