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
#: Type and length of a TxSequence, which is another each time that a packet is sent.
TX_SEQUENCE = b"\xfd\x03\x48\x08"
#: Type and length of an Ack, whose value is the TxSequence of what has come.
ACK = b"\xfd\x03\x44\x08"
#: Octets of a packet's head in which its fields are.
HEAD = 200


def values(datagram: bytes, header: bytes) -> list[bytes]:
    """Of the fields with this type and length, the values of eight octets."""
    return [part[:8] for part in datagram[:HEAD].split(header)[1:]] if datagram[0] == LP_PACKET else []


class LossyRelay:
    """Hands datagrams of one end to the other; each third packet is lost when it comes for the first time.

    Packets without a number, acknowledgements alone for one, are lost each fourth time. A packet loses one
    acknowledgement at most: a router may give up what it has sent four times in vain.
    """

    def __init__(self, ends: dict[socket.socket, tuple[str, int]]) -> None:
        """Relay between two sockets; beside each stands the router that is spoken to from it."""
        self.ends = ends
        self.seen: set[tuple[int, bytes]] = set()
        self.sent_as: dict[tuple[int, bytes], bytes] = {}
        self.unheard: set[tuple[int, bytes]] = set()
        self.unnumbered = 0
        self.numbered = 0
        self.lost = 0
        self.passed = 0
        self._stop = threading.Event()
        self.thread = threading.Thread(target=self._carry, daemon=True)

    def loses(self, end: int, datagram: bytes) -> bool:
        """Whether a datagram that came in at an end is lost."""
        sequences = values(datagram, SEQUENCE)
        for sequence, sent_as in zip(sequences, values(datagram, TX_SEQUENCE), strict=False):
            self.sent_as[end, sent_as] = sequence
        is_due = self._is_due(end, sequences)
        others = [other.fileno() for other in self.ends if other.fileno() != end]
        heard = {
            (other, self.sent_as[other, ack])
            for other in others
            for ack in values(datagram, ACK)
            if (other, ack) in self.sent_as
        }
        if not is_due or heard & self.unheard:
            return False
        self.unheard |= heard
        return True

    def _is_due(self, end: int, sequences: list[bytes]) -> bool:
        """Whether its turn has come to be lost."""
        if not sequences:
            self.unnumbered += 1
            return self.unnumbered % 4 == 0
        number = (end, sequences[0])
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
