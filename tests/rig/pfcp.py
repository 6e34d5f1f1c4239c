"""PFCP messages made by hand, right and wrong, and the control plane that sends them (TS 29.244 7, 8)."""

from __future__ import annotations

import ipaddress
import queue
import struct
import threading
import time
from dataclasses import dataclass, field

from rig.net import Namespace, NetError

PORT = 8805

#: Message types (7.3).
HEARTBEAT, SETUP, RELEASE = 1, 5, 9
ESTABLISHMENT, MODIFICATION, DELETION = 50, 52, 54

#: How long an answer may take, and how long silence is listened to.
ANSWER_S, SILENCE_S = 10.0, 0.3

#: What the other side asks by itself, with the type of the response: it is told yes.
_ITS_REQUESTS = {SETUP: 6, 7: 8, 12: 13, 56: 57}


def ie(kind: int, value: bytes = b"", length: int | None = None) -> bytes:
    """An element; its length can be a lie."""
    return struct.pack("!HH", kind, len(value) if length is None else length) + value


def u8(kind: int, value: int) -> bytes:
    """An element of one octet."""
    return ie(kind, bytes([value]))


def u16(kind: int, value: int) -> bytes:
    """An element of two octets."""
    return ie(kind, struct.pack("!H", value))


def u32(kind: int, value: int) -> bytes:
    """An element of four octets."""
    return ie(kind, struct.pack("!I", value))


def node_id(address: str) -> bytes:
    """A Node ID that is an IPv4 address (8.2.38)."""
    return ie(60, b"\0" + ipaddress.ip_address(address).packed)


def f_seid(seid: int, address: str) -> bytes:
    """An F-SEID over IPv4 (8.2.37)."""
    return ie(57, b"\x02" + struct.pack("!Q", seid) + ipaddress.ip_address(address).packed)


def message(kind: int, sequence: int, body: bytes = b"", seid: int | None = None) -> bytes:
    """A message with the right length (7.2.2)."""
    head = b"" if seid is None else struct.pack("!Q", seid)
    flags = 0x20 if seid is None else 0x21
    rest = head + struct.pack("!I", sequence << 8) + body
    return struct.pack("!BBH", flags, kind, len(rest)) + rest


def choose(teid: int | None = None, address: str = "10.100.3.1") -> bytes:
    """An F-TEID over IPv4: chosen by the user plane, or given (8.2.3)."""
    if teid is None:
        return ie(21, b"\x05")
    return ie(21, b"\x01" + struct.pack("!I", teid) + ipaddress.ip_address(address).packed)


def ue_address(address: str, *, destination: bool) -> bytes:
    """A UE IP Address (8.2.62)."""
    return ie(93, bytes([0x06 if destination else 0x02]) + ipaddress.ip_address(address).packed)


def choose_ue_address() -> bytes:
    """A UE IP Address that the user plane chooses, of IPv4 (8.2.62: CHV4)."""
    return ie(93, b"\x10")


def create_pdr(pdr: int, far: int, pdi: bytes, *more: bytes) -> bytes:
    """Create PDR (7.5.2.2)."""
    return ie(1, u16(56, pdr) + u32(29, 100) + ie(2, pdi) + u32(108, far) + b"".join(more))


def uplink(far: int = 1, fteid: bytes | None = None, *more: bytes) -> bytes:
    """PDR 1: what comes through a tunnel, without its outer header."""
    pdi = u8(20, 0) + (choose() if fteid is None else fteid)
    return create_pdr(1, far, pdi, u8(95, 6), *more)


def downlink(ue: str, far: int = 2, *more: bytes) -> bytes:
    """PDR 2: what goes to a UE."""
    return create_pdr(2, far, u8(20, 1) + ue_address(ue, destination=True), *more)


def create_qer(qer: int, qfi: int) -> bytes:
    """Create QER: gates open, packets marked (7.5.2.5)."""
    return ie(7, u32(109, qer) + u8(25, 0) + u8(124, qfi))


def create_mbr(qer: int, uplink_kbps: int, downlink_kbps: int) -> bytes:
    """Create QER: gates open, packets held to rates (8.2.8)."""
    rates = uplink_kbps.to_bytes(5, "big") + downlink_kbps.to_bytes(5, "big")
    return ie(7, u32(109, qer) + u8(25, 0) + ie(26, rates))


def create_quota(urr: int, octets: int) -> bytes:
    """Create URR: so many octets uplink, and a report when they are used up (7.5.2.4)."""
    method, triggers = u8(62, 2), ie(37, b"\0\x01")
    return ie(6, u32(81, urr) + method + triggers + ie(73, b"\x02" + struct.pack("!Q", octets)))


def create_far(far: int, action: int, parameters: bytes | None = None) -> bytes:
    """Create FAR (7.5.2.3)."""
    forwarding = b"" if parameters is None else ie(4, parameters)
    return ie(3, u32(108, far) + u8(44, action) + forwarding)


def tunnel(teid: int, address: str = "10.100.3.2") -> bytes:
    """Outer Header Creation: GTP-U over IPv4 or IPv6 (8.2.56)."""
    family = b"\x02\0" if ":" in address else b"\x01\0"
    return ie(84, family + struct.pack("!I", teid) + ipaddress.ip_address(address).packed)


def to_core() -> bytes:
    """FAR 1: to the data network."""
    return create_far(1, 2, u8(42, 1))


def to_access(teid: int, address: str = "10.100.3.2") -> bytes:
    """FAR 2: into the tunnel to the access network."""
    return create_far(2, 2, u8(42, 0) + tunnel(teid, address))


@dataclass(frozen=True)
class Answer:
    """A response, taken apart without the code under test."""

    kind: int
    sequence: int
    seid: int | None
    elements: list[tuple[int, bytes]] = field(default_factory=list)

    @classmethod
    def read(cls, octets: bytes) -> Answer:
        """Read it; whatever the user plane sends is whole."""
        flags, kind, length = struct.unpack("!BBH", octets[:4])
        assert flags >> 5 == 1
        assert length + 4 == len(octets)
        at = 12 if flags & 1 else 4
        seid = struct.unpack("!Q", octets[4:12])[0] if flags & 1 else None
        sequence = int.from_bytes(octets[at : at + 3])
        return cls(kind, sequence, seid, elements(octets[at + 4 :]))

    def value(self, kind: int) -> bytes | None:
        """The first element of a type."""
        return next((value for found, value in self.elements if found == kind), None)

    @property
    def cause(self) -> int:
        """The cause, 0 without one."""
        value = self.value(19)
        return value[0] if value else 0

    @property
    def verdict(self) -> tuple[int, int | None]:
        """The cause, and the type of the offending element."""
        offending = self.value(40)
        return self.cause, int.from_bytes(offending) if offending else None

    @property
    def up_seid(self) -> int:
        """The user plane's SEID."""
        value = self.value(57)
        assert value is not None
        return int.from_bytes(value[1:9])

    @property
    def ue(self) -> str:
        """The IPv4 address that was chosen for the UE."""
        created = self.value(8)
        assert created is not None
        return str(ipaddress.ip_address(dict(elements(created))[93][1:5]))

    @property
    def teid(self) -> int:
        """The TEID that was chosen for the only PDR that asked."""
        created = self.value(8)
        assert created is not None
        chosen = dict(elements(created))[21]
        return int.from_bytes(chosen[1:5])


def elements(octets: bytes) -> list[tuple[int, bytes]]:
    """Elements in their order."""
    found = []
    while octets:
        kind, length = struct.unpack("!HH", octets[:4])
        assert len(octets) >= 4 + length
        found.append((kind, octets[4 : 4 + length]))
        octets = octets[4 + length :]
    return found


class ControlPlane:
    """A control plane at an address: requests and answers, and yes to whatever the other side asks."""

    def __init__(self, space: Namespace, address: str, upf: str = "10.100.4.1") -> None:
        """Open its socket."""
        self.address = address
        self.upf = (upf, PORT)
        self.started = int(time.time()) + 2_208_988_800
        self.socket = space.socket(address, PORT)
        self.socket.settimeout(0.2)
        self.sequence = 0
        #: Message types of the other side's that are not heard: all of them, or some.
        self.deaf_to: set[int] = set()
        self.answers: queue.Queue[bytes] = queue.Queue()
        self.reports: queue.Queue[bytes] = queue.Queue()
        self.ends = threading.Event()
        self.thread = threading.Thread(target=self._listen, daemon=True)
        self.thread.start()

    def close(self) -> None:
        """Close it."""
        self.ends.set()
        self.thread.join()
        self.socket.close()

    def _listen(self) -> None:
        while not self.ends.is_set():
            try:
                octets = self.socket.recv(65536)
            except OSError:
                continue  # Nothing yet, or nobody there.
            kind, sequence = octets[1], int.from_bytes(octets[4:7])
            if kind in self.deaf_to:
                continue
            if kind == HEARTBEAT:
                self.send(message(2, sequence, u32(96, self.started)))
            elif kind in _ITS_REQUESTS:
                seid = 0 if octets[0] & 1 else None
                sequence = int.from_bytes(octets[12:15]) if octets[0] & 1 else sequence
                mine = b"" if kind == 56 else node_id(self.address)
                mine += u32(96, self.started) if kind == SETUP else b""
                self.send(message(_ITS_REQUESTS[kind], sequence, mine + u8(19, 1), seid))
                self.reports.put(octets)
            else:
                self.answers.put(octets)

    def next(self) -> int:
        """A fresh sequence number."""
        self.sequence += 1
        return self.sequence

    def send(self, octets: bytes) -> None:
        """Send anything."""
        self.socket.sendto(octets, self.upf)

    def ask(self, kind: int, body: bytes = b"", seid: int | None = None) -> Answer:
        """Send a request and return its answer."""
        sequence = self.next()
        return self.ask_raw(message(kind, sequence, body, seid), sequence)

    def ask_raw(self, octets: bytes, sequence: int) -> Answer:
        """Send octets and return the answer with a sequence number."""
        self.send(octets)
        return self.answer_to(sequence)

    def answer_to(self, sequence: int) -> Answer:
        """Wait for the answer with a sequence number."""
        deadline = time.monotonic() + ANSWER_S
        while (left := deadline - time.monotonic()) > 0:
            try:
                answer = Answer.read(self.answers.get(timeout=left))
            except queue.Empty:
                break
            if answer.sequence == sequence:
                return answer
        raise NetError(f"no answer to request {sequence}")

    def silence(self) -> bool:
        """Whether nothing has come and nothing comes."""
        try:
            self.answers.get(timeout=SILENCE_S)
        except queue.Empty:
            return True
        return False

    def set_up(self) -> Answer:
        """Set up the association."""
        return self.ask(SETUP, node_id(self.address) + u32(96, self.started))

    def establish(self, *rules: bytes) -> Answer:
        """Set up a session with rules."""
        head = node_id(self.address) + f_seid(0x5151, self.address)
        return self.ask(ESTABLISHMENT, head + b"".join(rules), 0)

    def delete(self, session: Answer) -> Answer:
        """Delete a session that an establishment made."""
        return self.ask(DELETION, b"", session.up_seid)
