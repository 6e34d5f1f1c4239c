"""SYNs from random hosts, the same in every run."""

from typing import Any

from kaido.trex import *


class Profile:
    """A thousand sources that come again in the same order, random source ports, one server."""

    def get_streams(self, **_: Any) -> list[STLStream]:
        """One stream."""
        packet = Ether() / IP(dst="48.0.0.1") / TCP(dport=80, flags="S", window=4096)
        vm = STLScVmRaw(
            [
                STLVmFlowVarRepeatableRandom(
                    "src", size=4, limit=1000, min_value="16.0.0.1", max_value="18.0.0.254"
                ),
                STLVmFlowVar(name="sport", min_value=1025, max_value=65_000, size=2, op="random"),
                STLVmWrFlowVar(fv_name="src", pkt_offset="IP.src"),
                STLVmWrFlowVar(fv_name="sport", pkt_offset="TCP.sport"),
                STLVmFixChecksumHw(l3_offset="IP", l4_offset="TCP", l4_type=CTRexVmInsFixHwCs.L4_TYPE_TCP),
            ]
        )
        return [
            STLStream(packet=STLPktBuilder(pkt=packet, vm=vm), mode=STLTXCont(pps=1000), random_seed=0x1234)
        ]


def register() -> Profile:
    """The profile."""
    return Profile()
