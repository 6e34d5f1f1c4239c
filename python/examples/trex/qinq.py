"""Two VLAN tags: a provider's, and a thousand customers'."""

from typing import Any

from kaido.trex import *


class Profile:
    """The lower 12 bits of the inner tag change; its priority stays."""

    def get_streams(self, **_: Any) -> list[STLStream]:
        """One stream."""
        tags = Dot1AD(vlan=7) / Dot1Q(vlan=1, prio=3)
        packet = Ether() / tags / IP(src="16.0.0.1", dst="48.0.0.1") / UDP(sport=1025, dport=12) / (b"q" * 20)
        vm = STLScVmRaw(
            [
                STLVmFlowVar(name="customer", min_value=100, max_value=1099, size=2, op="inc"),
                STLVmWrMaskFlowVar(fv_name="customer", pkt_offset="Dot1Q.vlan", pkt_cast_size=2, mask=0x0FFF),
            ]
        )
        return [STLStream(packet=STLPktBuilder(pkt=packet, vm=vm), mode=STLTXCont(pps=1000))]


def register() -> Profile:
    """The profile."""
    return Profile()
