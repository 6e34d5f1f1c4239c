"""GTP-U messages and inner packets made by hand, and the access network that sends them (TS 29.281)."""

from __future__ import annotations

import queue
import struct
import threading
import time
from ipaddress import ip_address

from rig.net import PATIENCE_S, Namespace

PORT = 2152

#: Message types (6.1).
ECHO_REQUEST, ECHO_RESPONSE, ERROR_INDICATION, END_MARKER, G_PDU = 1, 2, 26, 254, 255


def gtpu(kind: int, teid: int, payload: bytes = b"", flags: int = 0x30, length: int | None = None) -> bytes:
    """A message; its length can be a lie."""
    return struct.pack("!BBHI", flags, kind, len(payload) if length is None else length, teid) + payload


def checksum(octets: bytes) -> int:
    """The Internet checksum (RFC 1071)."""
    octets += b"\0" * (len(octets) % 2)
    total: int = sum(struct.unpack(f"!{len(octets) // 2}H", octets))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def udp(source: int, destination: int, payload: bytes) -> bytes:
    """A UDP datagram without checksum, as IPv4 allows."""
    return struct.pack("!HHHH", source, destination, 8 + len(payload), 0) + payload


def ipv4(
    source: str, destination: str, payload: bytes, protocol: int = 17, ttl: int = 64, tos: int = 0
) -> bytes:
    """An IPv4 packet."""
    head = struct.pack("!BBHHHBBH", 0x45, tos, 20 + len(payload), 0, 0, ttl, protocol, 0)
    head += ip_address(source).packed + ip_address(destination).packed
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + payload


def ipv6(source: str, destination: str, payload: bytes, protocol: int = 17, hop_limit: int = 64) -> bytes:
    """An IPv6 packet."""
    head = struct.pack("!IHBB", 0x60000000, len(payload), protocol, hop_limit)
    return head + ip_address(source).packed + ip_address(destination).packed + payload


def icmpv6(source: str, destination: str, message: bytes) -> bytes:
    """An ICMPv6 packet with its checksum and hop limit 255, as routers and their neighbours want it."""
    ends = ip_address(source).packed + ip_address(destination).packed
    pseudo = ends + struct.pack("!II", len(message), 58)
    message = message[:2] + struct.pack("!H", checksum(pseudo + message)) + message[4:]
    return ipv6(source, destination, message, 58, 255)


class Access:
    """An access network at an address: it answers echo requests and keeps what else comes."""

    def __init__(self, space: Namespace, address: str = "10.100.3.2", upf: str = "10.100.3.1") -> None:
        """Open its socket."""
        self.upf = (upf, PORT)
        self.socket = space.socket(address, PORT)
        self.socket.settimeout(0.2)
        self.heard: queue.Queue[bytes] = queue.Queue()
        self.ends = threading.Event()
        self.thread = threading.Thread(target=self._listen, daemon=True)
        self.thread.start()

    def close(self) -> None:
        """Close it."""
        self.ends.set()
        self.thread.join()
        self.socket.close()

    def _listen(self) -> None:
        while not self.ends.is_set():
            try:
                octets, peer = self.socket.recvfrom(65536)
            except OSError:
                continue  # Nothing yet, or nobody there.
            if octets[1] == ECHO_REQUEST:
                self.socket.sendto(gtpu(ECHO_RESPONSE, 0, octets[8:10] + b"\0\0\x0e\0", 0x32), peer)
            else:
                self.heard.put(octets)

    def send(self, octets: bytes) -> None:
        """Send anything."""
        self.socket.sendto(octets, self.upf)

    def receive(self, kind: int, seconds: float = PATIENCE_S) -> bytes | None:
        """The next message of a type; others are stepped over."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            try:
                octets = self.heard.get(timeout=left)
            except queue.Empty:
                break
            if octets[1] == kind:
                return octets
        return None

    def drain(self, seconds: float = 0.5) -> list[bytes]:
        """All that came, and comes within some time of silence."""
        found = []
        while True:
            try:
                found.append(self.heard.get(timeout=seconds))
            except queue.Empty:
                return found
