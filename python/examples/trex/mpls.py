"""Two MPLS labels, the inner one of many."""

from typing import Any

from kaido.trex import *


class Profile:
    """A label has the upper 20 bits of its word."""

    def get_streams(self, **_: Any) -> list[STLStream]:
        """One stream."""
        labels = MPLS(label=17, cos=1, s=0, ttl=255) / MPLS(label=12, cos=1, s=1, ttl=12)
        packet = (
            Ether() / labels / IP(src="16.0.0.1", dst="48.0.0.1") / UDP(sport=1025, dport=12) / (b"m" * 20)
        )
        vm = STLScVmRaw(
            [
                STLVmFlowVar(name="label", min_value=12, max_value=39, size=4, op="dec"),
                STLVmWrMaskFlowVar(
                    fv_name="label", pkt_offset="MPLS:1.label", pkt_cast_size=4, mask=0xFFFFF000, shift=12
                ),
            ]
        )
        return [STLStream(packet=STLPktBuilder(pkt=packet, vm=vm), mode=STLTXCont(pps=1000))]


def register() -> Profile:
    """The profile."""
    return Profile()
