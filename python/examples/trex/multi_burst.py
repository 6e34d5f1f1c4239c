"""Bursts one after the other, of streams that start each other."""

from typing import Any

from kaido.trex import *


class Profile:
    """A single burst, then five bursts of another stream, then a last packet."""

    def get_streams(self, **_: Any) -> list[STLStream]:
        """Three streams, of which the first begins by itself."""
        base = Ether() / IP(src="16.0.0.1", dst="48.0.0.1")

        def builder(port: int) -> STLPktBuilder:
            return STLPktBuilder(pkt=base / UDP(sport=1025, dport=port) / (b"y" * 100))

        bursts = STLTXMultiBurst(pps=20_000, pkts_per_burst=40, ibg=10_000.0, count=5)
        return [
            STLStream(
                name="first",
                packet=builder(12),
                mode=STLTXSingleBurst(pps=10_000, total_pkts=100),
                next="bursts",
            ),
            STLStream(name="bursts", self_start=False, packet=builder(13), mode=bursts, next="last"),
            STLStream(
                name="last",
                self_start=False,
                isg=1000.0,
                packet=builder(14),
                mode=STLTXSingleBurst(total_pkts=1),
            ),
        ]


def register() -> Profile:
    """The profile."""
    return Profile()
