"""GRE with a key, around packets of many hosts."""

from typing import Any

from kaido.trex import *


class Profile:
    """The key and the inner source change together."""

    def get_streams(self, **_: Any) -> list[STLStream]:
        """One stream."""
        outer = Ether() / IP(src="192.0.2.1", dst="192.0.2.2") / GRE(proto=0x0800, key_present=1, key=1)
        packet = (
            outer / IP(src="10.1.0.1", dst="8.8.8.8") / TCP(sport=4000, dport=80, flags="A") / (b"g" * 40)
        )
        vm = STLScVmRaw(
            [
                STLVmFlowVar(name="n", min_value=1, max_value=250, size=4, op="inc"),
                STLVmWrFlowVar(fv_name="n", pkt_offset="GRE.key"),
                STLVmWrFlowVar(fv_name="n", pkt_offset="IP:1.src", add_val=0x0A010000),
                STLVmFixChecksumHw(l3_offset="IP:1", l4_offset="TCP", l4_type=CTRexVmInsFixHwCs.L4_TYPE_TCP),
            ]
        )
        return [STLStream(packet=STLPktBuilder(pkt=packet, vm=vm), mode=STLTXCont(pps=1000))]


def register() -> Profile:
    """The profile."""
    return Profile()
