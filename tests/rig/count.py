"""Counts the IP octets and packets of each UE on an interface, by a packet socket of its own.

Run in the data network's namespace: it sees what came out of the user plane and what goes in, and knows
nothing of either's counters. `python3 -m rig.count IFACE NETWORK... --out FILE` until SIGTERM.
"""

from __future__ import annotations

import argparse
import ipaddress
import json
import struct
from collections import defaultdict
from pathlib import Path

from rig.sniff import sniff

ETH_P_ALL = 3
HEADERS = 14 + 40 + 20
IPPROTO_TCP = 6
IPV4, IPV6 = 0x0800, 0x86DD
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def addresses(frame: bytes) -> tuple[bytes, bytes, int] | None:
    """Source, destination and total length of the IP packet in a frame."""
    (ethertype,) = struct.unpack_from("!H", frame, 12)
    if ethertype == IPV4 and len(frame) >= 34:
        return frame[26:30], frame[30:34], int(struct.unpack_from("!H", frame, 16)[0])
    if ethertype == IPV6 and len(frame) >= 54:
        return frame[22:38], frame[38:54], 40 + int(struct.unpack_from("!H", frame, 18)[0])
    return None


def headers(frame: bytes) -> int:
    """Octets of the IP and TCP or UDP headers of a packet without extension headers."""
    (ethertype,) = struct.unpack_from("!H", frame, 12)
    own, protocol = ((frame[14] & 15) * 4, frame[23]) if ethertype == IPV4 else (40, frame[20])
    return own + ((frame[14 + own + 12] >> 4) * 4 if protocol == IPPROTO_TCP else 8)


def key(address: bytes) -> str:
    """The UE of an address: an IPv4 address, or an IPv6 /64."""
    if len(address) == 4:
        return str(ipaddress.IPv4Address(address))
    return str(ipaddress.IPv6Address(address[:8] + bytes(8)))


class Counter:
    """Octets and packets by UE and direction."""

    def __init__(self, networks: list[Network]) -> None:
        """Count the UEs of some networks."""
        self.bounds = [
            (network.network_address.packed, network.broadcast_address.packed) for network in networks
        ]
        self.ues: dict[bytes, list[int]] = defaultdict(lambda: [0, 0, 0, 0])

    def is_ue(self, address: bytes) -> bool:
        """Whether an address is a UE's."""
        return any(len(low) == len(address) and low <= address <= high for low, high in self.bounds)

    def take(self, frame: bytes, outgoing: bool, segment: int) -> None:
        """Count a frame, or as many as were joined."""
        found = addresses(frame)
        if found is None:
            return
        source, destination, octets = found
        ue, at = (destination, 2) if outgoing else (source, 0)
        if self.is_ue(ue):
            # Each had headers of its own.
            packets = -(-(octets - headers(frame)) // segment) if segment else 1
            counts = self.ues[ue[:8]]
            counts[at] += octets + (packets - 1) * (headers(frame) if segment else 0)
            counts[at + 1] += packets

    def result(self) -> dict[str, dict[str, int]]:
        """The counts, by UE."""
        names = ("uplink_bytes", "uplink_packets", "downlink_bytes", "downlink_packets")
        return {
            key(ue if len(ue) == 4 else ue + bytes(8)): dict(zip(names, counts, strict=True))
            for ue, counts in self.ues.items()
        }


def main() -> None:
    """Count until told to stop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("interface")
    parser.add_argument("network", nargs="+", type=ipaddress.ip_network)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    counter = Counter(arguments.network)
    ready = arguments.out.with_suffix(".ready")
    missed = sniff(arguments.interface, ETH_P_ALL, HEADERS, ready, counter.take)
    arguments.out.write_text(json.dumps({"ues": counter.result(), "missed": missed}))


if __name__ == "__main__":
    main()
