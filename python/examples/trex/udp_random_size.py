"""Packets of any length between 64 and 512 bytes."""

from typing import Any

from kaido.trex import *

LEAST, MOST = 64, 512


class Profile:
    """A variable says how much of the packet is left, and the length fields say the same."""

    def get_streams(self, op: str = "random", **_: Any) -> list[STLStream]:
        """One stream; `op` is `random` or `inc`."""
        headers = Ether() / IP(src="16.0.0.1", dst="48.0.0.1") / UDP(sport=1025, dport=12)
        packet = headers / (b"x" * (MOST - len(headers)))
        vm = STLScVmRaw(
            [
                STLVmFlowVar(name="size", min_value=LEAST, max_value=MOST, size=2, op=op),
                STLVmTrimPktSize("size"),
                STLVmWrFlowVar(fv_name="size", pkt_offset="IP.len", add_val=-len(Ether())),
                STLVmWrFlowVar(fv_name="size", pkt_offset="UDP.len", add_val=-len(Ether() / IP())),
                STLVmFixIpv4(offset="IP"),
            ]
        )
        return [STLStream(packet=STLPktBuilder(pkt=packet, vm=vm), mode=STLTXCont(pps=1000))]


def register() -> Profile:
    """The profile."""
    return Profile()
