"""A UE's end of a session: packets with every checksum, into a gNB's tunnel and out of it (TS 38.415)."""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass
from ipaddress import ip_address

from rig.gtpu import G_PDU, Access, checksum, gtpu, ipv4, ipv6
from rig.net import PATIENCE_S, wait_until

UDP = 17

#: The UDP echo servers of `Topology.echo`, of both families.
ECHO, ECHO6 = ("10.100.6.2", 7), ("fd00:6::2", 7)


def pseudo_header(source: str, destination: str, length: int) -> bytes:
    """What a UDP checksum covers beside the datagram (RFC 768; of IPv6 it sums to the same, RFC 8200 8.1)."""
    return ip_address(source).packed + ip_address(destination).packed + struct.pack("!HH", UDP, length)


def datagram(source: tuple[str, int], destination: tuple[str, int], payload: bytes) -> bytes:
    """An IP packet with a UDP datagram, both with their checksums."""
    length = 8 + len(payload)
    head = struct.pack("!HHH", source[1], destination[1], length)
    over = pseudo_header(source[0], destination[0], length)
    total = checksum(over + head + b"\0\0" + payload) or 0xFFFF
    packet = ipv6 if ":" in source[0] else ipv4
    return packet(source[0], destination[0], head + struct.pack("!H", total) + payload)


def opened(packet: bytes) -> tuple[str, str, int, bytes]:
    """Source, destination, protocol and payload of an IP packet without options; its header must be right."""
    if packet[0] >> 4 == 6:
        ends, length, protocol, begins = packet[8:40], *struct.unpack_from("!HB", packet, 4), 40
    else:
        assert packet[0] == 0x45, packet.hex()
        assert checksum(packet[:20]) == 0, packet.hex()
        ends, protocol, begins = packet[12:20], packet[9], 20
        length = struct.unpack_from("!H", packet, 2)[0] - begins
    half = len(ends) // 2
    source, destination = (str(ip_address(end)) for end in (ends[:half], ends[half:]))
    assert len(packet) == begins + length, packet.hex()
    return source, destination, protocol, packet[begins:]


def uplink(teid: int, qfi: int, packet: bytes) -> bytes:
    """A G-PDU with the PDU Session Container of an uplink (TS 38.415 5.5.2.2)."""
    extension = bytes([0, 0, 0, 0x85, 1, 0x10, qfi, 0])
    return gtpu(G_PDU, teid, extension + packet, 0x34)


def inner(message: bytes) -> tuple[bytes, int | None]:
    """The packet in a G-PDU, and the QFI of its PDU Session Container."""
    if not message[0] & 0x07:
        return message[8:], None
    at, kind, qfi = 12, message[11], None
    while kind:
        length = 4 * message[at]
        if kind == 0x85:
            qfi = message[at + 2] & 0x3F
        kind = message[at + length - 1]
        at += length
    return message[at:], qfi


@dataclass
class Bearer:
    """A UE in a gNB."""

    gnb: Access
    ue: str
    #: Where its uplink goes, and where its downlink comes.
    uplink_teid: int
    downlink_teid: int
    qfi: int
    port: int = 4000
    #: Octets of IP packets that were sent, and that came.
    sent: int = 0
    received: int = 0

    def send(self, payload: bytes, to: tuple[str, int] | None = None, qfi: int | None = None) -> None:
        """Send a datagram, to the echo server where nobody else is named."""
        packet = datagram((self.ue, self.port), to or (ECHO6 if ":" in self.ue else ECHO), payload)
        self.sent += len(packet)
        self.gnb.send(uplink(self.uplink_teid, self.qfi if qfi is None else qfi, packet))

    def receive(self, seconds: float = PATIENCE_S) -> tuple[bytes, int | None] | None:
        """The next payload for this UE and its QFI; its checksums must be right."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            message = self.gnb.receive(G_PDU, left)
            if message is None or struct.unpack_from("!I", message, 4)[0] != self.downlink_teid:
                continue
            packet, qfi = inner(message)
            self.received += len(packet)
            return self._payload(packet), qfi
        return None

    def _payload(self, packet: bytes) -> bytes:
        """What is in a packet to this UE."""
        source, destination, protocol, body = opened(packet)
        assert destination == self.ue
        assert protocol == UDP, packet.hex()
        assert checksum(pseudo_header(source, destination, len(body)) + body) == 0, packet.hex()
        return body[8:]

    def echoes(self, payload: bytes, seconds: float = PATIENCE_S) -> bool:
        """Whether what is sent to the echo server comes back as it was."""
        self.send(payload)
        came = self.receive(seconds)
        return came is not None and came[0] == payload

    def wait(self) -> None:
        """Wait until data go both ways: neighbours have to be found first."""
        wait_until(lambda: self.echoes(b"anybody there?", 0.5), "data go both ways")
        self.received += sum(len(inner(message)[0]) for message in self.gnb.drain() if message[1] == G_PDU)
