"""Variables of which one leads the next, like the hands of a clock."""

from typing import Any

from kaido.trex import *


class Profile:
    """The source goes round with every packet; each time it has been round, the destination goes on."""

    def get_streams(self, **_: Any) -> list[STLStream]:
        """One stream."""
        packet = Ether() / IP(src="16.0.0.1", dst="48.0.0.1") / UDP(sport=1025, dport=12) / (b"x" * 22)
        vm = STLScVmRaw(
            [
                STLVmFlowVar(
                    name="src", min_value="16.0.0.1", max_value="16.0.0.3", size=4, op="inc", next_var="dst"
                ),
                STLVmFlowVar(name="dst", min_value="48.0.0.1", max_value="48.0.0.200", size=4, op="inc"),
                STLVmWrFlowVar(fv_name="src", pkt_offset="IP.src"),
                STLVmWrFlowVar(fv_name="dst", pkt_offset="IP.dst"),
                STLVmFixIpv4(offset="IP"),
            ]
        )
        return [STLStream(packet=STLPktBuilder(pkt=packet, vm=vm), mode=STLTXCont(pps=1000))]


def register() -> Profile:
    """The profile."""
    return Profile()
