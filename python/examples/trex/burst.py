"""A single burst."""

from typing import Any

from kaido.trex import *


class Profile:
    """1000 packets, then nothing."""

    def get_streams(self, pkts: int = 1000, **_: Any) -> STLProfile:
        """One stream; `pkts` is a tunable."""
        packet = Ether() / IP(src="16.0.0.1", dst="48.0.0.1") / UDP(sport=1025, dport=12) / (b"x" * 64)
        mode = STLTXSingleBurst(pps=20_000, total_pkts=pkts)
        return STLProfile([STLStream(packet=STLPktBuilder(pkt=packet), mode=mode)])


def register() -> Profile:
    """The profile."""
    return Profile()
