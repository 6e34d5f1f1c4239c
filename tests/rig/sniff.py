"""Shows every frame on an interface to a function, by a packet socket, until SIGTERM."""

from __future__ import annotations

import signal
import socket
import struct
from collections.abc import Callable
from pathlib import Path

from rig.net import SO_RCVBUFFORCE

PACKET_OUTGOING = 4
SOL_PACKET = 263
PACKET_STATISTICS = 6


def sniff(
    interface: str, ethertype: int, octets: int, ready: Path, take: Callable[[bytes, bool], None]
) -> int:
    """Give the first octets of each frame to `take`, and whether it went out; return how many were missed."""
    stopped = False

    def stop(_signal: int, _frame: object) -> None:
        nonlocal stopped
        stopped = True

    signal.signal(signal.SIGTERM, stop)
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ethertype)) as sniffer:
        sniffer.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 256 << 20)
        sniffer.bind((interface, ethertype))
        sniffer.settimeout(0.2)
        ready.touch()
        buffer = bytearray(octets)
        while True:
            try:
                _, _, _, place = sniffer.recvmsg_into([buffer])
            except TimeoutError:
                # What was on its way when the signal came has been seen by now.
                if stopped:
                    break
                continue
            take(bytes(buffer), place[2] == PACKET_OUTGOING)
        # Packets seen, packets the socket had no room for.
        _, missed = struct.unpack("II", sniffer.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))
        return int(missed)
