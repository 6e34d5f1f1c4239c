"""A golden model of GTP-U tunnels, of scapy, TS 29.281, TS 38.415 and RFCs 768, 791, 6040 and 8200 alone.

It builds a packet twice: as it comes, and as it must leave. It knows the cores' bounds as their page
states them.
"""

from __future__ import annotations

import ipaddress
import random
from dataclasses import dataclass, field

from scapy.config import conf
from scapy.contrib.gtp import GTP_U_Header, GTPPDUSessionContainer
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPOption
from scapy.layers.inet6 import (
    ICMPv6EchoRequest,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    PadN,
)
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw

conf.checkIPaddr = False

OWN_MAC, HOP_MAC, EXIT_MAC, PEER_MAC = (
    "02:00:00:00:03:01",
    "02:00:00:00:06:02",
    "02:00:00:00:06:01",
    "02:00:00:00:03:02",
)
LOCAL_V4, LOCAL_V6 = "10.100.3.1", "fd00:3::1"
PEER_V4, PEER_V6 = "10.100.3.2", "fd00:3::2"
PACKET_MAX = 1500
# A route of its own.
ROUTE_V4, ROUTE_V6 = ipaddress.ip_network("10.9.0.0/16"), ipaddress.ip_network("fd09::/32")

# RFC 6040 figure 4: [inner][outer]; None is to be dropped.
ECN: list[list[int | None]] = [[0, 0, 0, None], [1, 1, 1, 3], [2, 1, 2, 3], [3, 3, 3, 3]]

FORWARD, DROP, CLOSED, HOST = range(4)
# What is dropped, and where packets of an action end.
ENDS = {DROP: "far_drop", CLOSED: "gate_closed", HOST: "host_session"}


@dataclass(frozen=True)
class Session:
    """A UE's session, in both directions."""

    number: int
    outer_v6: bool
    qfi: int | None = None
    dscp: int = 0
    entropy: bool = False
    action: int = FORWARD

    @property
    def teid(self) -> int:
        """Of both ends."""
        return 0x1000_0000 + self.number

    @property
    def address(self) -> str:
        """The UE's, of IPv4."""
        return f"10.60.0.{self.number}"

    @property
    def prefix(self) -> str:
        """The UE's, of 64 bits."""
        return f"2001:db8:60:{self.number:x}::"


SESSIONS = [
    Session(1, False),
    Session(2, True),
    Session(3, False, qfi=9, dscp=46),
    Session(4, True, qfi=63, dscp=10, entropy=True),
    Session(5, False, entropy=True),
    Session(6, True, entropy=True),
    Session(7, False, action=DROP),
    Session(8, True, action=CLOSED),
    Session(9, False, action=HOST),
]


@dataclass
class Case:
    """A frame, what must leave of it, and what must be counted."""

    frame: bytes
    event: str
    out: bytes | None = None
    about: str = field(default="", compare=False)
    #: The key of its session in the core's table, and the octets of the packet of the UE.
    key: tuple[int, bool] = (0, False)
    octets: int = 0


@dataclass
class Inner:
    """A packet of a UE: as it is, and after a hop."""

    rng: random.Random
    is_v6: bool
    src: str
    dst: str
    hops: int
    tos: int

    def __post_init__(self) -> None:
        """What it carries."""
        rng = self.rng
        self.kind = rng.choice(["udp", "udp", "tcp", "icmp", "sctp", "bare", "fragment", "options"])
        self.ports = rng.randrange(1 << 16), rng.randrange(1 << 16)
        self.data = rng.randbytes(rng.choice([0, 1, 8, 31, 32, 33, 64, 100, 500, 1300, rng.randrange(200)]))
        self.identity = rng.randrange(1 << 16)

    def upper(self) -> Packet:
        """What the packet carries."""
        source, destination = self.ports
        data = Raw(self.data)
        if self.kind == "tcp":
            return TCP(sport=source, dport=destination) / data
        if self.kind == "icmp":
            return ICMPv6EchoRequest(data=self.data) if self.is_v6 else ICMP() / data
        if self.kind in ("sctp", "bare"):
            return Raw(source.to_bytes(2, "big") + destination.to_bytes(2, "big") + self.data)
        return UDP(sport=source, dport=destination) / data

    @property
    def protocol(self) -> int:
        """Of IPv4, or IPv6's after its extension headers."""
        of_icmp = 58 if self.is_v6 else 1
        return {"tcp": 6, "icmp": of_icmp, "sctp": 132, "bare": 50}.get(self.kind, 17)

    def build(self, hops: int, tos: int) -> bytes:
        """The packet with this hop count and class."""
        if self.is_v6:
            head: Packet = IPv6(src=self.src, dst=self.dst, hlim=hops, tc=tos, fl=self.identity)
            if self.kind == "options":
                padding = PadN(optdata=b"\0" * 4)
                head = head / IPv6ExtHdrHopByHop(options=[padding]) / IPv6ExtHdrDestOpt(options=[padding])
            if self.kind == "fragment":
                head = head / IPv6ExtHdrFragment(m=1, id=7, nh=17)
            last = head.lastlayer()
            if self.kind in ("sctp", "bare"):
                last.nh = self.protocol
            return bytes(head / self.upper())
        options = [IPOption(b"\x94\x04\x00\x00")] if self.kind == "options" else []
        flags = "MF" if self.kind == "fragment" else 0
        return bytes(
            IP(
                src=self.src,
                dst=self.dst,
                ttl=hops,
                tos=tos,
                id=self.identity,
                options=options,
                flags=flags,
                proto=self.protocol,
            )
            / self.upper()
        )

    @property
    def is_summed(self) -> bool:
        """Whether its own checksum tells its sum; extension headers of IPv6 hide it."""
        hidden = self.kind == "fragment" or (self.is_v6 and self.kind == "options")
        return self.kind in ("udp", "tcp", "icmp", "options") and not hidden

    @property
    def entropy(self) -> int:
        """The source port by its flow, as vectors/README.md says."""
        folded = self.protocol
        for address in (self.src, self.dst):
            octets = ipaddress.ip_address(address).packed
            for at in range(0, len(octets), 2):
                folded ^= int.from_bytes(octets[at : at + 2], "big")
        if self.kind in ("udp", "tcp", "sctp", "options"):
            folded ^= self.ports[0] ^ self.ports[1]
        return 49152 + (folded & 0x3FFF)


def _destination(rng: random.Random, is_v6: bool) -> str:
    if is_v6:
        return rng.choice(
            ["2001:db8:ffff::9", f"2001:db8:ffff::{rng.randrange(9999):x}", "fd09::1", "ff02::1"]
        )
    return rng.choice(["198.51.100.9", f"198.51.100.{rng.randrange(1, 255)}", "10.9.1.2", "224.0.0.1"])


def _chain(rng: random.Random, qfi: int | None) -> tuple[list[tuple[int, bytes]], bool]:
    """Extension headers, types and contents; whether one must be understood and is not."""
    chain: list[tuple[int, bytes]] = []
    if rng.random() < 0.15:
        chain.append((0x40, rng.randbytes(2)))
    if qfi is not None or rng.random() < 0.3:
        wrong = rng.random() < 0.1
        number = (rng.randrange(64) if qfi is None else qfi) ^ (1 if wrong else 0)
        more = rng.choice([0, 0, 4])
        chain.append((0x85, bytes([0x10, number]) + bytes(more)))
    if rng.random() < 0.1:
        chain.append((rng.choice([0x20, 0x3F, 0x7F, 0xC0]), rng.randbytes(6)))
    while rng.random() < 0.1:
        chain.append((0x40, rng.randbytes(2)))
    return chain, any(kind >= 0x80 and kind != 0x85 for kind, _ in chain)


def _g_pdu(teid: int, chain: list[tuple[int, bytes]], sequence: int | None, payload: bytes) -> bytes:
    """A G-PDU by TS 29.281 clause 5, where scapy has no layer for a type; by scapy where it has."""
    if [kind for kind, _ in chain] == [0x85] and sequence is None and len(chain[0][1]) == 2:
        container = GTPPDUSessionContainer(type=1, QFI=chain[0][1][1])
        return bytes(GTP_U_Header(teid=teid, gtp_type=255, E=1, next_ex=0x85) / container / Raw(payload))
    if not chain and sequence is None:
        return bytes(GTP_U_Header(teid=teid, gtp_type=255) / Raw(payload))
    flags = 0x30 | (4 if chain else 0) | (2 if sequence is not None else 0)
    first = chain[0][0] if chain else 0
    body = (sequence or 0).to_bytes(2, "big") + b"\0" + bytes([first])
    for at, (_, content) in enumerate(chain):
        following = chain[at + 1][0] if at + 1 < len(chain) else 0
        body += bytes([(len(content) + 2) // 4]) + content + bytes([following])
    body += payload
    return bytes([flags, 255]) + len(body).to_bytes(2, "big") + teid.to_bytes(4, "big") + body


def uplink(rng: random.Random) -> Case:
    """A G-PDU of a session, or of none."""
    session = rng.choice(SESSIONS)
    known, is_v6 = rng.random() < 0.95, rng.random() < 0.5
    own = rng.random() < 0.93
    src = f"{session.prefix}{rng.randrange(1, 9999):x}" if is_v6 else session.address
    if not own:
        src = "2001:db8:61::1" if is_v6 else "10.61.0.1"
    hops, tos, outer_tos = rng.choice([0, 1, 2, 64, 255]), rng.randrange(256), rng.randrange(256)
    inner = Inner(rng, is_v6, src, _destination(rng, is_v6), hops, tos)
    chain, unknown = _chain(rng, session.qfi)
    sequence = rng.randrange(1 << 16) if rng.random() < 0.2 else None
    payload = inner.build(hops, tos)
    teid = session.teid ^ (0 if known else 0x0101_0000)
    message = _g_pdu(teid, chain, sequence, payload)
    options = rng.choice([0, 0, 0, 1]) if not session.outer_v6 else 0
    if session.outer_v6:
        outer: Packet = IPv6(src=PEER_V6, dst=LOCAL_V6, tc=outer_tos)
    else:
        outer = IP(src=PEER_V4, dst=LOCAL_V4, tos=outer_tos, options=[IPOption(b"\x01")] * (4 * options))
    packet = outer / UDP(sport=rng.choice([2152, 50123]), dport=2152) / Raw(message)
    frame = bytes(Ether(src=PEER_MAC, dst=OWN_MAC) / packet) + rng.randbytes(rng.choice([0, 0, 4, 18]))
    event, out = _uplink_end(session, known, own, inner, chain, unknown, outer_tos, len(payload))
    return Case(frame, event, out, f"{session} {inner.kind} {chain}", (session.number, False), len(payload))


def _uplink_end(
    session: Session,
    known: bool,
    own: bool,
    inner: Inner,
    chain: list[tuple[int, bytes]],
    unknown: bool,
    outer_tos: int,
    length: int,
) -> tuple[str, bytes | None]:
    if unknown and any(kind >= 0x80 and kind != 0x85 for kind, _ in chain[:3]):
        return "host_signalling", None
    if len(chain) > 3:
        return "host_chain", None
    if not known:
        return "host_miss", None
    if session.action == HOST:
        return "host_session", None
    marks = ECN[inner.tos & 3][outer_tos & 3]
    if marks is None:
        return "congestion_mark", None
    containers = [content for kind, content in chain if kind == 0x85]
    if session.qfi is not None and (not containers or containers[0][1] != session.qfi):
        return "no_pdr", None
    if not own:
        return "ue_spoofed", None
    to = ipaddress.ip_address(inner.dst)
    if to.is_multicast:
        return "not_routed", None
    if to in ROUTE_V4 or to in ROUTE_V6:
        return "host_route", None
    if inner.hops <= 1:
        return "host_ttl", None
    if session.action != FORWARD:
        return ENDS[session.action], None
    if length > PACKET_MAX:
        return "host_mtu", None
    left = inner.build(inner.hops - 1, (inner.tos & 0xFC) | marks)
    return "forwarded", bytes(
        Ether(src=EXIT_MAC, dst=HOP_MAC, type=0x86DD if inner.is_v6 else 0x800) / Raw(left)
    )


def downlink(rng: random.Random) -> Case:
    """A packet to a UE, or to none."""
    session = rng.choice(SESSIONS)
    known, is_v6 = rng.random() < 0.95, rng.random() < 0.5
    dst = f"{session.prefix}{rng.randrange(1, 9999):x}" if is_v6 else session.address
    if not known:
        dst = "2001:db8:61::1" if is_v6 else "10.61.0.1"
    src = f"2001:db8:ffff::{rng.randrange(9999):x}" if is_v6 else f"198.51.100.{rng.randrange(1, 255)}"
    hops, tos = rng.choice([0, 1, 2, 64, 255]), rng.randrange(256)
    inner = Inner(rng, is_v6, src, dst, hops, tos)
    payload = inner.build(hops, tos)
    kind = 0x86DD if is_v6 else 0x800
    frame = bytes(Ether(src=PEER_MAC, dst=OWN_MAC, type=kind) / Raw(payload)) + rng.randbytes(
        rng.choice([0, 0, 4, 18])
    )
    event, out = _downlink_end(session, known, inner, len(payload))
    return Case(frame, event, out, f"{session} {inner.kind}", (session.number, is_v6), len(payload))


def _downlink_end(session: Session, known: bool, inner: Inner, length: int) -> tuple[str, bytes | None]:
    if not known:
        return "host_miss", None
    if session.action == HOST:
        return "host_session", None
    if inner.hops <= 1:
        return "host_ttl", None
    if session.action != FORWARD:
        return ENDS[session.action], None
    if length > PACKET_MAX:
        return "host_mtu", None
    if session.outer_v6 and not inner.is_summed:
        return "host_checksum", None
    body: Packet = Raw(inner.build(inner.hops - 1, inner.tos))
    if session.qfi is None:
        message: Packet = GTP_U_Header(teid=session.teid, gtp_type=255) / body
    else:
        container = GTPPDUSessionContainer(type=0, QFI=session.qfi)
        message = GTP_U_Header(teid=session.teid, gtp_type=255, E=1, next_ex=0x85) / container / body
    tos = session.dscp << 2 | inner.tos & 3
    port = inner.entropy if session.entropy else 2152
    if session.outer_v6:
        outer: Packet = IPv6(src=LOCAL_V6, dst=PEER_V6, tc=tos, hlim=64) / UDP(sport=port, dport=2152)
    else:
        outer = IP(src=LOCAL_V4, dst=PEER_V4, tos=tos, ttl=64, id=0, flags="DF") / UDP(
            sport=port, dport=2152, chksum=0
        )
    return "forwarded", bytes(Ether(src=EXIT_MAC, dst=HOP_MAC) / outer / message)


def other(rng: random.Random) -> Case:
    """What is no packet of a tunnel, or not for this port."""
    kind = rng.choice([0x0806, 0x88B5])
    frame = bytes(Ether(src=PEER_MAC, dst=OWN_MAC, type=kind) / Raw(rng.randbytes(rng.randrange(1, 150))))
    if rng.random() < 0.5:
        packet = IP(src="198.51.100.1", dst="10.60.0.1") / UDP() / Raw(rng.randbytes(40))
        frame = bytes(Ether(src=PEER_MAC, dst="02:00:00:00:09:09") / packet)
    return Case(frame, "host_other")


def corrupted(rng: random.Random, case: Case, is_uplink: bool) -> Case:
    """The same frame with a fault that RFC 791 or TS 29.281 says to be one."""
    frame = bytearray(case.frame)
    is_v6 = frame[12:14] == b"\x86\xdd"
    if rng.random() < 0.3:
        # Cut off: the IP packet is not whole.
        total = 40 + int.from_bytes(frame[18:20], "big") if is_v6 else int.from_bytes(frame[16:18], "big")
        # What the core leaves to the host it leaves before it can see the end of a long frame.
        end = min(total, 250) if case.event.startswith("host") else total
        return Case(bytes(frame[: 14 + rng.randrange(1, end)]), "ip_malformed")
    if not is_v6 and rng.random() < 0.5:
        frame[24 + rng.randrange(2)] ^= 1 << rng.randrange(8)
        return Case(bytes(frame), "ip_checksum")
    if not is_uplink:
        frame[14] = 0x50 | frame[14] & 15
        return Case(bytes(frame), "ip_malformed")
    at = 14 + (40 if is_v6 else 4 * (frame[14] & 15))
    fault = rng.choice(["version", "length", "udp", "type"])
    if fault == "version":
        frame[at + 8] = rng.choice([0x50, 0x20, 0x10])
        return Case(bytes(frame), "gtpu_malformed")
    if fault == "length":
        frame[at + 10 : at + 12] = b"\xff\xff"
        return Case(bytes(frame), "gtpu_malformed")
    if fault == "udp":
        frame[at + 4 : at + 6] = rng.choice([b"\x00\x07", b"\xff\xff"])
        return Case(bytes(frame), "udp_malformed")
    frame[at + 9] = rng.choice([1, 26, 254])
    return Case(bytes(frame), "host_signalling")


def case(rng: random.Random, is_uplink: bool) -> Case:
    """Any of them."""
    kind = rng.random()
    if kind < 0.06:
        return other(rng)
    made = uplink(rng) if is_uplink else downlink(rng)
    return corrupted(rng, made, is_uplink) if kind < 0.2 else made
