"""Short, middle and long packets as on the Internet, from many addresses."""

from typing import Any

from kaido.trex import *

SIZES = ((60, 28.0, 0.0), (590, 16.0, 0.1), (1514, 4.0, 0.2))
"""Bytes of a frame, packets a second, and milliseconds before the first."""


class Profile:
    """A stream for each length, all with the same addresses."""

    def stream(self, size: int, pps: float, gap_ms: float, vm: STLScVmRaw) -> STLStream:
        """Packets of one length."""
        headers = Ether() / IP() / UDP(sport=1025, dport=12)
        packet = headers / (b"x" * (size - len(headers)))
        builder = STLPktBuilder(pkt=packet, vm=vm)
        return STLStream(isg=gap_ms * 1000, packet=builder, mode=STLTXCont(pps=pps))

    def get_streams(self, direction: int = 0, **_: Any) -> list[STLStream]:
        """Three streams."""
        ranges = [("16.0.0.1", "16.0.0.254"), ("48.0.0.1", "48.0.0.254")]
        source, target = ranges[:: -1 if direction else 1]
        vm = STLScVmRaw(
            [
                STLVmFlowVar(name="src", min_value=source[0], max_value=source[1], size=4, op="inc"),
                STLVmFlowVar(name="dst", min_value=target[0], max_value=target[1], size=4, op="inc"),
                STLVmWrFlowVar(fv_name="src", pkt_offset="IP.src"),
                STLVmWrFlowVar(fv_name="dst", pkt_offset="IP.dst"),
                STLVmFixIpv4(offset="IP"),
            ]
        )
        return [self.stream(*size, vm) for size in SIZES]


def register() -> Profile:
    """The profile."""
    return Profile()
