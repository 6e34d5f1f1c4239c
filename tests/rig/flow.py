"""Numbered datagrams from one namespace to another, of which none may be lost, however slow the reader."""

from __future__ import annotations

import time

from rig.net import PATIENCE_S, Namespace

#: So many at a time, and a pause: no ring between the ends has to hold more than a moment's.
AT_ONCE, PAUSE_S = 4, 0.002


def flow(
    sender: Namespace, source: str, receiver: Namespace, destination: str, count: int, octets: int
) -> list[int]:
    """Send datagrams of that many octets; the numbers of those that arrived, in their order."""
    with receiver.socket(destination, 0) as taking, sender.socket(source, 0) as sending:
        taking.settimeout(PATIENCE_S)
        to = (destination, taking.getsockname()[1])
        for number in range(count):
            sending.sendto(number.to_bytes(4) + bytes(octets - 4), to)
            if number % AT_ONCE == AT_ONCE - 1:
                time.sleep(PAUSE_S)
        came: list[int] = []
        try:
            while len(came) < count:
                came.append(int.from_bytes(taking.recv(octets + 1)[:4]))
        except TimeoutError:
            pass
        return came
