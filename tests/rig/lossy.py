"""A relay of datagrams between two NDN routers, which loses some of them."""

from __future__ import annotations

import selectors
import socket
import threading
from types import TracebackType
from typing import Self

#: How a packet of the link begins that is acknowledged: its type is LpPacket.
LP_PACKET = 0x64
#: Type and length of a Sequence, which a packet keeps when it is sent again.
SEQUENCE = b"\x51\x08"
#: Octets of a packet's head in which its fields are.
HEAD = 200


class LossyRelay:
    """Hands datagrams of one end to the other; each third packet is lost when it comes for the first time.

    Packets without a number, acknowledgements alone for one, are lost each fourth time.
    """

    def __init__(self, ends: dict[socket.socket, tuple[str, int]]) -> None:
        """Relay between two sockets; beside each stands the router that is spoken to from it."""
        self.ends = ends
        self.seen: set[tuple[int, bytes]] = set()
        self.unnumbered = 0
        self.numbered = 0
        self.lost = 0
        self.passed = 0
        self._stop = threading.Event()
        self.thread = threading.Thread(target=self._carry, daemon=True)

    def loses(self, end: int, datagram: bytes) -> bool:
        """Whether a datagram that came in at an end is lost."""
        at = datagram[:HEAD].find(SEQUENCE)
        if datagram[0] != LP_PACKET or at < 0:
            self.unnumbered += 1
            return self.unnumbered % 4 == 0
        number = (end, datagram[at + 2 : at + 10])
        if number in self.seen:
            return False
        self.seen.add(number)
        self.numbered += 1
        return self.numbered % 3 == 0

    def _carry(self) -> None:
        first, second = self.ends
        with selectors.DefaultSelector() as ready:
            for end in self.ends:
                ready.register(end, selectors.EVENT_READ)
            while not self._stop.is_set():
                for key, _ in ready.select(0.1):
                    end = first if key.fileobj is first else second
                    other = second if end is first else first
                    datagram = end.recv(65535)
                    if self.loses(end.fileno(), datagram):
                        self.lost += 1
                    else:
                        self.passed += 1
                        other.sendto(datagram, self.ends[other])

    def __enter__(self) -> Self:
        """Begin."""
        self.thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End."""
        self._stop.set()
        self.thread.join()
        for end in self.ends:
            end.close()
