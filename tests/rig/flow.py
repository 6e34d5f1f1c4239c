"""Numbered datagrams from one namespace to another: none may be lost, however slow reader and node are."""

from __future__ import annotations

import time

from rig.net import PATIENCE_S, Namespace

#: So many at a time, and a pause.
AT_ONCE, PAUSE_S = 4, 0.002
#: Under way at most: what every ring between the ends holds while its reader has no CPU.
UNDER_WAY = 64


def flow(
    sender: Namespace, source: str, receiver: Namespace, destination: str, count: int, octets: int
) -> list[int]:
    """Send datagrams of that many octets; the numbers of those that arrived, in their order."""
    came: list[int] = []
    with receiver.socket(destination, 0) as taking, sender.socket(source, 0) as sending:
        taking.settimeout(PATIENCE_S)
        to = (destination, taking.getsockname()[1])

        def take(under_way: int) -> None:
            while number + 1 - len(came) > under_way:
                came.append(int.from_bytes(taking.recv(octets + 1)[:4]))

        try:
            for number in range(count):
                sending.sendto(number.to_bytes(4) + bytes(octets - 4), to)
                if number % AT_ONCE == AT_ONCE - 1:
                    time.sleep(PAUSE_S)
                take(UNDER_WAY)
            take(0)
        except TimeoutError:
            pass
    return came
