"""Kernel hosts behind TAP devices, whose frames an access network carries as those of Ethernet sessions."""

from __future__ import annotations

import fcntl
import os
import selectors
import struct
import threading
from concurrent.futures import ThreadPoolExecutor

from rig.gtpu import ECHO_REQUEST, ECHO_RESPONSE, G_PDU, PORT, gtpu
from rig.net import Namespace, run

#: ioctl and flags of tun(4).
TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000


def tap(name: str) -> int:
    """A TAP device in the namespace of this process, open."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    return device


def payload(message: bytes) -> bytes:
    """What a G-PDU carries, behind its optional fields and extension headers (TS 29.281 5)."""
    at = 8
    if message[0] & 0x07:
        following, at = message[11], 12
        while message[0] & 0x04 and following:
            units = message[at]
            following, at = message[at + 4 * units - 1], at + 4 * units
    return message[at:]


class Station:
    """A kernel host behind a session: a namespace whose only link is a TAP device."""

    def __init__(self, name: str, mac: str, address: str) -> None:
        """Make it, without a tunnel yet."""
        self.space = Namespace(name)
        self.space.make()
        with ThreadPoolExecutor(1) as thread:
            # A TAP device is made here, and moved there with its end still open.
            self.device = thread.submit(tap, f"t{os.getpid()}").result()
        run("ip", "link", "set", f"t{os.getpid()}", "netns", name)
        self.space.ip("link", "set", f"t{os.getpid()}", "name", "eth0", "address", mac)
        self.space.ip("address", "add", address, "dev", "eth0")
        self.space.ip("link", "set", "eth0", "up")

    def remove(self) -> None:
        """Remove it."""
        os.close(self.device)
        self.space.remove()


class EthernetAccess:
    """An access network that carries the frames of stations: `(station, TEID up, TEID down)`."""

    def __init__(self, space: Namespace, sessions: list[tuple[Station, int, int]]) -> None:
        """Open its socket, and carry."""
        self.socket = space.socket("10.100.3.2", PORT)
        self.sessions = sessions
        self.ends = threading.Event()
        self.thread = threading.Thread(target=self._carry, daemon=True)
        self.thread.start()

    def close(self) -> None:
        """Stop."""
        self.ends.set()
        self.thread.join()
        self.socket.close()

    def _carry(self) -> None:
        with selectors.DefaultSelector() as ready:
            ready.register(self.socket, selectors.EVENT_READ)
            for station, up, _ in self.sessions:
                ready.register(station.device, selectors.EVENT_READ, up)
            while not self.ends.is_set():
                for key, _ in ready.select(0.2):
                    if key.data is None:
                        self._from_tunnel()
                    else:
                        frame = os.read(key.fd, 65536)
                        self.socket.sendto(gtpu(G_PDU, key.data, frame), ("10.100.3.1", PORT))

    def _from_tunnel(self) -> None:
        octets, peer = self.socket.recvfrom(65536)
        if octets[1] == ECHO_REQUEST:
            self.socket.sendto(gtpu(ECHO_RESPONSE, 0, octets[8:10] + b"\0\0\x0e\0", 0x32), peer)
        for station, _, down in self.sessions:
            if octets[1] == G_PDU and int.from_bytes(octets[4:8]) == down:
                os.write(station.device, payload(octets))
