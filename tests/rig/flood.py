"""Floods: ``python3 -m rig.flood KIND SOURCE SECONDS PER_SECOND SEED`` sends what no peer would.

``pfcp`` is garbage for N4, ``gtpu`` tunnels that nobody has and malformed GTP-U for N3, ``scan`` packets to
addresses that no UE has, for N6. It prints how many datagrams went out.
"""

from __future__ import annotations

import random
import socket
import struct
import sys
import time
from collections.abc import Iterator

from rig.gtpu import G_PDU, gtpu, ipv4, udp
from rig.sniff import keep_first

#: Datagrams made beforehand, sent again and again.
STOCK = 2048
#: Sent before the clock is looked at.
AT_ONCE = 64
#: TEIDs from here on are given to nobody in a run: a node would have to give two billion before.
UNKNOWN_TEID = 0xF000_0000

PFCP_SEEDS = (
    bytes.fromhex("2001000c0000010000600004e8000000"),
    bytes.fromhex("2134000c000000000000000100000300"),
    bytes.fromhex("2132001c000000000000000100000200003c000500c000024d"),
)


def pfcp(chance: random.Random) -> Iterator[bytes]:
    """Random octets, cut messages and messages with octets changed."""
    while True:
        seed = bytearray(chance.choice(PFCP_SEEDS))
        yield chance.randbytes(chance.randrange(200))
        yield bytes(seed[: chance.randrange(len(seed))])
        for _ in range(4):
            seed[chance.randrange(1, len(seed))] = chance.randrange(256)
        yield bytes(seed)


def tunnel(chance: random.Random) -> Iterator[bytes]:
    """G-PDUs of unknown TEIDs, and headers that contradict themselves."""
    inner = ipv4("192.0.2.1", "192.0.2.2", udp(9, 9, bytes(100)))
    while True:
        teid = UNKNOWN_TEID + chance.randrange(1 << 20)
        sound = gtpu(G_PDU, teid, inner)
        yield sound
        yield bytes([chance.choice((0x00, 0x50, 0x70, 0xF0))]) + sound[1:]
        yield sound[:2] + struct.pack("!H", chance.randrange(2000, 65536)) + sound[4:]
        yield sound[: chance.randrange(8)]


def scan(_: random.Random) -> Iterator[bytes]:
    """A payload of its own."""
    while True:
        yield b"is there anybody"


def unknown_ues(chance: random.Random) -> list[tuple[str, int]]:
    """Addresses of the UEs' network that the sim gives to nobody."""
    return [(f"10.60.{chance.randrange(64, 128)}.{chance.randrange(256)}", 9) for _ in range(STOCK)]


def main() -> None:
    """Send, and print how many datagrams went out."""
    kind, source, seconds, per_second, seed = sys.argv[1:]
    chance = random.Random(int(seed))
    makers = {"pfcp": pfcp, "gtpu": tunnel, "scan": scan}
    maker = makers[kind](chance)
    payloads = [next(maker) for _ in range(STOCK)]
    targets = {
        "pfcp": [("10.100.4.1", 8805)] * STOCK,
        "gtpu": [("10.100.3.1", 2152)] * STOCK,
        "scan": unknown_ues(chance),
    }[kind]
    sent, pace, began = 0, int(per_second), time.monotonic()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        # Answers are dropped before they fill the socket: the kernel would count them as lost.
        keep_first(sender, 0)
        sender.bind((source, 0))
        while (elapsed := time.monotonic() - began) < float(seconds):
            if sent > pace * elapsed:
                time.sleep(0.0005)
                continue
            for _ in range(AT_ONCE):
                sender.sendto(payloads[sent % STOCK], targets[sent % STOCK])
                sent += 1
    print(sent)


if __name__ == "__main__":
    main()
