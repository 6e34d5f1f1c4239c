"""A stream whose latency is measured, beside one that is counted only."""

from typing import Any

from kaido.trex import *


class Profile:
    """Groups 7 (counted) and 8 (latency), different in each direction."""

    def get_streams(self, port_id: int = 0, **_: Any) -> list[STLStream]:
        """Two streams."""
        packet = Ether() / IP(src="16.0.0.1", dst="48.0.0.1") / UDP(sport=1025, dport=12) / (b"z" * 80)
        builder = STLPktBuilder(pkt=packet)
        return [
            STLStream(
                packet=builder, mode=STLTXCont(pps=2000), flow_stats=STLFlowStats(pg_id=7 + 10 * port_id)
            ),
            STLStream(
                packet=builder,
                mode=STLTXCont(pps=500),
                flow_stats=STLFlowLatencyStats(pg_id=8 + 10 * port_id),
            ),
        ]


def register() -> Profile:
    """The profile."""
    return Profile()
