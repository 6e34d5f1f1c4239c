"""Checks the order in which numbered datagrams (`kaido sim --traffic`) arrive on an interface.

Run in the data network's namespace: `python3 -m rig.order IFACE --out FILE` until SIGTERM. It has a packet
socket of its own. A datagram is late when one with a greater number was there before it, of all or of its
source.
"""

from __future__ import annotations

import argparse
import json
import struct
from pathlib import Path

from rig.sniff import sniff

ETH_P_IP = 0x0800
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

    def take(self, frame: bytes, outgoing: bool, _segment: int) -> None:
        """Look at a frame that arrived."""
        if outgoing or frame[MAGIC_AT:NUMBER_AT] != MAGIC:
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
    ready = arguments.out.with_suffix(".ready")
    missed = sniff(arguments.interface, ETH_P_IP, NUMBER_AT + 8, ready, order.take)
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
