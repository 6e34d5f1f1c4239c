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
PACKET_VNET_HDR = 15
#: `struct virtio_net_hdr`, of which the octets of a segment are read.
VNET_HDR = struct.Struct("=BBHHHH")


def sniff(
    interface: str, ethertype: int, octets: int, ready: Path, take: Callable[[bytes, bool, int], None]
) -> int:
    """Give the first octets of each frame to `take`, whether it went out, and the size of its segments.

    That is their payload where the kernel has joined several packets (GRO) or not cut them yet; else zero.
    Return how many frames were missed.
    """
    stopped = False

    def stop(_signal: int, _frame: object) -> None:
        nonlocal stopped
        stopped = True

    signal.signal(signal.SIGTERM, stop)
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ethertype)) as sniffer:
        sniffer.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 256 << 20)
        sniffer.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
        sniffer.bind((interface, ethertype))
        sniffer.settimeout(0.2)
        ready.touch()
        buffer = bytearray(VNET_HDR.size + octets)
        while True:
            try:
                _, _, _, place = sniffer.recvmsg_into([buffer])
            except TimeoutError:
                # What was on its way when the signal came has been seen by now.
                if stopped:
                    break
                continue
            segment = VNET_HDR.unpack_from(buffer)[3]
            take(bytes(buffer[VNET_HDR.size :]), place[2] == PACKET_OUTGOING, segment)
        # Packets seen, packets the socket had no room for.
        _, missed = struct.unpack("II", sniffer.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))
        return int(missed)
