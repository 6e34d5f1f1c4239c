"""UDP over IPv6 to many hosts."""

from typing import Any

from kaido.trex import *


class Profile:
    """The last 32 bits of the destination change, and the checksum with them."""

    def get_streams(self, **_: Any) -> list[STLStream]:
        """One stream."""
        packet = (
            Ether() / IPv6(src="2001:db8::1", dst="2001:db8:1::1") / UDP(sport=1025, dport=12) / (b"6" * 40)
        )
        vm = STLScVmRaw(
            [
                STLVmFlowVar(name="host", min_value=1, max_value=1000, size=4, op="inc"),
                STLVmWrFlowVar(fv_name="host", pkt_offset="IPv6.dst", offset_fixup=12),
                STLVmFixChecksumHw(l3_offset="IPv6", l4_offset="UDP", l4_type=CTRexVmInsFixHwCs.L4_TYPE_UDP),
            ]
        )
        return [STLStream(packet=STLPktBuilder(pkt=packet, vm=vm), mode=STLTXCont(pps=1000))]


def register() -> Profile:
    """The profile."""
    return Profile()
