"""Checks the order in which numbered datagrams (`kaido sim --traffic`) arrive on an interface.

Run in the data network's namespace: `python3 -m rig.order IFACE --out FILE` until SIGTERM. It has a packet
socket of its own. A datagram is late when one with a greater number was there before it, of all or of its
source.
"""

from __future__ import annotations

import argparse
import json
import signal
import socket
import struct
from pathlib import Path

ETH_P_IP = 0x0800
PACKET_OUTGOING = 4
SO_RCVBUFFORCE = 33
#: Ethernet, IPv4 without options, UDP; then the magic and the number.
MAGIC_AT = 14 + 20 + 8
NUMBER_AT = MAGIC_AT + 4
MAGIC = b"KDsn"


class Order:
    """What was seen, and how it was ordered."""

    def __init__(self) -> None:
        """Nothing was seen yet."""
        self.seen: set[int] = set()
        self.duplicates = 0
        self.late = 0
        self.late_in_flow = 0
        self.greatest = -1
        self.greatest_of: dict[bytes, int] = {}

    def take(self, frame: bytes) -> None:
        """Look at a frame."""
        if frame[MAGIC_AT:NUMBER_AT] != MAGIC:
            return
        (number,) = struct.unpack_from("!Q", frame, NUMBER_AT)
        source = bytes(frame[26:30])
        self.duplicates += number in self.seen
        self.seen.add(number)
        self.late += number < self.greatest
        self.greatest = max(self.greatest, number)
        of_flow = self.greatest_of.get(source, -1)
        self.late_in_flow += number < of_flow
        self.greatest_of[source] = max(of_flow, number)


def main() -> None:
    """Watch until told to stop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("interface")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    order = Order()
    stopped = False

    def stop(_signal: int, _frame: object) -> None:
        nonlocal stopped
        stopped = True

    signal.signal(signal.SIGTERM, stop)
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_IP)) as sniffer:
        sniffer.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 256 << 20)
        sniffer.bind((arguments.interface, ETH_P_IP))
        sniffer.settimeout(0.2)
        arguments.out.with_suffix(".ready").touch()
        buffer = bytearray(NUMBER_AT + 8)
        while True:
            try:
                _, _, _, place = sniffer.recvmsg_into([buffer])
            except TimeoutError:
                # What was on its way when the signal came has been seen by now.
                if stopped:
                    break
                continue
            if place[2] != PACKET_OUTGOING:
                order.take(bytes(buffer))
        # SOL_PACKET, PACKET_STATISTICS: packets seen, packets the socket had no room for.
        _, missed = struct.unpack("II", sniffer.getsockopt(263, 6, 8))
    result = {
        "datagrams": len(order.seen),
        "duplicates": order.duplicates,
        "late": order.late,
        "late_in_flow": order.late_in_flow,
        "flows": len(order.greatest_of),
        "missed": missed,
    }
    arguments.out.write_text(json.dumps(result))


if __name__ == "__main__":
    main()
