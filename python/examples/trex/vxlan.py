"""VXLAN around Ethernet, with a network identifier for each tenant."""

from typing import Any

from kaido.trex import *


class Profile:
    """The identifier has 24 bits, so that a mask writes it."""

    def get_streams(self, **_: Any) -> list[STLStream]:
        """One stream."""
        outer = Ether() / IP(src="192.0.2.1", dst="192.0.2.2") / UDP(sport=50_000, dport=4789, chksum=0)
        inner = Ether(src="02:00:00:00:10:01", dst="02:00:00:00:10:02") / IP(src="10.1.0.1", dst="10.1.0.2")
        packet = outer / VXLAN(vni=1, flags="Instance") / inner / UDP(sport=1025, dport=12) / (b"v" * 30)
        vm = STLScVmRaw(
            [
                STLVmFlowVar(name="vni", min_value=100, max_value=163, size=4, op="inc"),
                STLVmWrMaskFlowVar(
                    fv_name="vni", pkt_offset="VXLAN.vni", pkt_cast_size=4, mask=0xFFFFFF00, shift=8
                ),
                STLVmFlowVar(name="entropy", min_value=49_152, max_value=65_535, size=2, op="random"),
                STLVmWrFlowVar(fv_name="entropy", pkt_offset="UDP.sport"),
            ]
        )
        return [STLStream(packet=STLPktBuilder(pkt=packet, vm=vm), mode=STLTXCont(pps=1000))]


def register() -> Profile:
    """The profile."""
    return Profile()
