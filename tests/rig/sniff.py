"""Shows every frame on an interface to a function, by a packet socket with a ring, until SIGTERM."""

from __future__ import annotations

import ctypes
import mmap
import select
import signal
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

PACKET_OUTGOING = 4
SOL_PACKET = 263
PACKET_RX_RING = 5
PACKET_STATISTICS = 6
PACKET_VERSION = 10
PACKET_VNET_HDR = 15
TPACKET_V3 = 2
#: Of <linux/filter.h> and <asm/socket.h>.
SO_ATTACH_FILTER, BPF_RET = 26, 0x06
TP_STATUS_KERNEL, TP_STATUS_USER = 0, 1
#: Of first octets 128 MiB hold some 700 000: by so many frames who counts may be late.
BLOCK, BLOCKS = 1 << 20, 128
#: A block is given to its reader when it is full, or after so long.
RETIRE_MS = 50
#: `struct tpacket_block_desc`: status, number of packets, offset of the first.
BLOCK_DESC = struct.Struct("=8xIII")
#: `struct tpacket3_hdr`: offset of the next, octets kept, offset of the frame. `struct sockaddr_ll`: type.
HEADER = struct.Struct("=I8xI8xH32xB")
#: `struct virtio_net_hdr`, before the frame, of which the octets of a segment are read.
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
    # Nothing comes before it is bound.
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sniffer:
        sniffer.setsockopt(SOL_PACKET, PACKET_VERSION, TPACKET_V3)
        sniffer.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
        keep_first(sniffer, octets)
        request = struct.pack("=7I", BLOCK, BLOCKS, BLOCK, BLOCKS, RETIRE_MS, 0, 0)
        sniffer.setsockopt(SOL_PACKET, PACKET_RX_RING, request)
        with mmap.mmap(sniffer.fileno(), BLOCK * BLOCKS) as ring:
            sniffer.bind((interface, ethertype))
            ready.touch()
            waiting = select.poll()
            waiting.register(sniffer, select.POLLIN)
            at = 0
            while True:
                status, packets, first = BLOCK_DESC.unpack_from(ring, at)
                if status & TP_STATUS_USER:
                    for frame, kind, segment in _frames(ring, at + first, packets):
                        take(frame, kind == PACKET_OUTGOING, segment)
                    struct.pack_into("=I", ring, at + 8, TP_STATUS_KERNEL)
                    at = (at + BLOCK) % len(ring)
                # What was on its way when the signal came has been seen by then.
                elif not waiting.poll(4 * RETIRE_MS) and stopped:
                    break
        # Packets seen, packets the ring had no room for, times it had none.
        _, missed, _ = struct.unpack("=III", sniffer.getsockopt(SOL_PACKET, PACKET_STATISTICS, 12))
        return int(missed)


def keep_first(taker: socket.socket, octets: int) -> None:
    """Keep the first octets of each packet that a socket takes; with none, it takes no packet."""
    program = ctypes.create_string_buffer(struct.pack("HBBI", BPF_RET, 0, 0, octets))
    taker.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HL", 1, ctypes.addressof(program)))


def _frames(ring: mmap.mmap, at: int, packets: int) -> Iterator[tuple[bytes, int, int]]:
    """The frames of a block, each with its type and the size of its segments."""
    for _ in range(packets):
        onward, kept, place, kind = HEADER.unpack_from(ring, at)
        frame = at + place
        segment = VNET_HDR.unpack_from(ring, frame - VNET_HDR.size)[3]
        yield ring[frame : frame + kept], kind, segment
        at += onward
