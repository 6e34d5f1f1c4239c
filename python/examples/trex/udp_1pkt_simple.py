"""One UDP packet, again and again."""

from typing import Any

from kaido.trex import *


class Profile:
    """10 bytes of payload from a client to a server."""

    def get_streams(self, direction: int = 0, **_: Any) -> list[STLStream]:
        """One stream; the other way around in the other direction."""
        client, server = "16.0.0.1", "48.0.0.1"
        if direction == 1:
            client, server = server, client
        packet = Ether() / IP(src=client, dst=server) / UDP(sport=1025, dport=12) / (10 * "x")
        return [STLStream(packet=STLPktBuilder(pkt=packet), mode=STLTXCont(pps=1000))]


def register() -> Profile:
    """The profile."""
    return Profile()
