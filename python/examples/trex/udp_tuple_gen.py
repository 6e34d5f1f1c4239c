"""Flows of some clients, each with many ports."""

from typing import Any

from kaido.trex import *


class Profile:
    """The address changes with every packet, and the port when all clients had their turn."""

    def get_streams(self, **_: Any) -> list[STLStream]:
        """One stream of at most 10 000 flows."""
        packet = Ether() / IP(src="16.0.0.1", dst="48.0.0.1") / UDP(sport=1025, dport=12) / (b"x" * 22)
        vm = STLScVmRaw(
            [
                STLVmTupleGen(
                    name="client",
                    ip_min="16.0.0.1",
                    ip_max="16.0.0.4",
                    port_min=1025,
                    port_max=65_000,
                    limit_flows=10_000,
                ),
                STLVmWrFlowVar(fv_name="client.ip", pkt_offset="IP.src"),
                STLVmFixIpv4(offset="IP"),
                STLVmWrFlowVar(fv_name="client.port", pkt_offset="UDP.sport"),
            ]
        )
        return [STLStream(packet=STLPktBuilder(pkt=packet, vm=vm), mode=STLTXCont(pps=1000))]


def register() -> Profile:
    """The profile."""
    return Profile()
